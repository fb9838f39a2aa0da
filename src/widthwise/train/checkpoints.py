"""Checkpoints: the state of all lanes and the record of what happened, through Orbax.

The best by held-out loss is kept, and of the others the two newest, since a machine can die while it writes one. Each
is written once, and appears whole or not at all; if the newest cannot be read all the same, the one before is taken and
that is said.

Training does not wait for them: the state is copied on the device, which takes milliseconds, and everything else goes
on in the background. Early on every evaluation finds a state better than all before, and to write them all would be
more than a disk takes; so the best waits in memory until a checkpoint is due. Where the device has no room for copies,
or several processes have to save together, training waits until the state has left the device, and each is written at
once.
"""

import contextlib
import logging
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import jax

if TYPE_CHECKING:  # it takes a while to import, and most runs of a sweep end before they need it
    import orbax.checkpoint as ocp

PyTree: TypeAlias = Any

_COPIES = 3
"""The most that there are at a time: two that are being written, and the best since."""

_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")


@dataclass(frozen=True)
class _Saved:
    step: int
    states: PyTree
    record: dict[str, Any]
    best: bool


class Checkpoints:
    """The checkpoints of a run, or of the lanes that run together, in a folder.

    A context, which closes them when it ends: also after an error, but not after an interrupt, which is not to wait.
    """

    def __init__(self, folder: Path, *, say: Callable[[str], None] = lambda _: None) -> None:
        self._say = say
        self._last = _manager(folder / "last", keep=2)
        self._best = _manager(folder / "best", keep=1)
        self._waiting: _Saved | None = None
        self._writing: Future[None] | None = None
        self._room: bool | None = None

    def save(self, step: int, states: PyTree, record: dict[str, Any], *, best: bool = False, due: bool = True) -> None:
        """Save in the background; waits only for what is still being saved.

        Args:
            step: The number of steps taken.
            states: The states after them; the caller may give them away as soon as this returns.
            record: What happened until then.
            best: Whether none before was better.
            due: Whether it is time to write; if not, and there is room, it waits for the next that is.
        """
        if due or (self._writing is not None and self._writing.done()):
            self._finish()
        if best:
            self._waiting = None  # not worth writing any more
        copy = self._copied(states)
        if copy is not None and not due:
            self._waiting = _Saved(step, copy, record, best)
            return
        self._write_all([_Saved(step, states if copy is None else copy, record, best)])

    def latest(self) -> int:
        """Give the newest step, whether or not it can be read; 0 where there is no checkpoint."""
        return max((*self._best.all_steps(), *self._last.all_steps()), default=0)

    def restore(self, like: PyTree) -> tuple[int, PyTree, dict[str, Any]] | None:
        """Give the newest step, states and record that can be read; None where there is no checkpoint."""
        import orbax.checkpoint as ocp

        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore(shapes), record=ocp.args.JsonRestore())
        kept = [(step, manager) for manager in (self._best, self._last) for step in manager.all_steps()]
        for step, manager in sorted(kept, key=lambda one: one[0], reverse=True):
            try:
                found = manager.restore(step, args=arguments)
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._say(f"the checkpoint of step {step} cannot be read ({_first_line(error)}): trying the one before")
                manager.delete(step)
                continue
            return step, found["state"], found["record"]
        return None

    def close(self) -> None:
        """Write what still waits, and wait until everything is on disk."""
        self._write_all([])
        self._finish()
        self._last.close()
        self._best.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        if kind is None:
            self.close()
        elif issubclass(kind, Exception):
            with contextlib.suppress(Exception):  # what went wrong first is what to tell
                self.close()

    def _copied(self, states: PyTree) -> PyTree | None:
        """Give a copy, if there is room for all that there may be."""
        if self._room is None:
            self._room = jax.process_count() == 1 and _has_room(states, copies=_COPIES)
        if self._room:
            try:
                return jax.tree.map(lambda x: jax.device_put(x, x.sharding, may_alias=False), states)
            except jax.errors.JaxRuntimeError:  # somebody else took it
                self._room = False
        return None

    def _write_all(self, saved: list[_Saved]) -> None:
        """Write what waits and these, in the background if there is room for that."""
        if self._waiting is not None:
            saved = [self._waiting, *saved]
            self._waiting = None
        self._finish()
        if self._room:
            self._writing = _thread.submit(self._write, saved, wait=True)
        else:
            self._write(saved, wait=False)

    def _write(self, saved: list[_Saved], *, wait: bool) -> None:
        """Write one after another; without waiting, Orbax goes on in threads of its own once a state has been read."""
        import orbax.checkpoint as ocp

        while saved:
            one = saved.pop(0)
            arguments = ocp.args.Composite(
                state=ocp.args.StandardSave(one.states), record=ocp.args.JsonSave(one.record)
            )
            if jax.process_count() > 1:  # processes meet at barriers, which two savings at once would mix up
                self._last.wait_until_finished()
                self._best.wait_until_finished()
            manager = self._best if one.best else self._last
            manager.save(one.step, args=arguments, force=True)
            if wait:
                manager.wait_until_finished()

    def _finish(self) -> None:
        """Wait for what is being written, and raise what went wrong."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def _has_room(states: PyTree, *, copies: int) -> bool:
    """Say whether every device has room for copies of states beside all that it ever needed; CPUs are not asked."""
    needed: dict[Any, int] = {}
    for leaf in jax.tree.leaves(states):
        for shard in leaf.addressable_shards:
            needed[shard.device] = needed.get(shard.device, 0) + copies * shard.data.nbytes

    def free(device: Any) -> float:
        known = device.memory_stats() or {}
        return known.get("bytes_limit", 0) - known.get("peak_bytes_in_use", 0)

    return all(device.platform == "cpu" or free(device) >= size for device, size in needed.items())


def _manager(folder: Path, *, keep: int) -> "ocp.CheckpointManager":
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.CRITICAL)  # errors are raised, and pages of them help nobody
    warnings.filterwarnings("ignore", module="orbax")
    options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True, cleanup_tmp_directories=True)
    return ocp.CheckpointManager(folder.absolute(), options=options, item_names=("state", "record"))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
