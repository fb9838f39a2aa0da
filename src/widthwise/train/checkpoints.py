"""Checkpoints: the state of all lanes and the record of the run, through Orbax.

The best checkpoint by held-out loss is kept, and the two newest of the others, because a machine can die while it
writes one. Each is written completely or not at all. If the newest still cannot be read, the previous one is used, with
a message.

Training does not wait for checkpoints: the state is copied on the device, which takes milliseconds, and the rest
happens in the background. Early in training every evaluation finds a new best state, and a disk could not keep up with
writing all of them, so the best state waits in memory until a checkpoint is due. If the device has no memory for
copies, or several processes have to save together, training waits until the state has left the device, and every
checkpoint is written at once.
"""

import contextlib
import logging
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import jax

from widthwise.parameterize import PyTree

if TYPE_CHECKING:  # slow to import, and most runs of a sweep end before they need it
    import orbax.checkpoint as ocp


_COPIES = 3
"""The largest number of copies at a time: two that are being written, and the best since then."""

_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")


@dataclass(frozen=True)
class _Saved:
    step: int
    states: PyTree
    record: dict[str, Any]
    best: bool


class Checkpoints:
    """The checkpoints of a run, or of lanes that run together, in a folder.

    A context manager that closes them on exit, also after an error, but not after an interrupt, which must not wait.
    """

    def __init__(self, folder: Path, *, say: Callable[[str], None] = lambda _: None) -> None:
        self._say = say
        self._last = _manager(folder / "last", keep=2)
        self._best = _manager(folder / "best", keep=1)
        self._waiting: _Saved | None = None
        self._writing: Future[None] | None = None
        self._room: bool | None = None

    def save(self, step: int, states: PyTree, record: dict[str, Any], *, best: bool = False, due: bool = True) -> None:
        """Save in the background; wait only for a checkpoint that is still being written.

        Args:
            step: The number of steps taken.
            states: The states; the caller may donate them as soon as this returns.
            record: The record of the run so far.
            best: Whether this is the best state so far.
            due: Whether to write now. Otherwise, if there is memory, the state waits for the next checkpoint.
        """
        if due or (self._writing is not None and self._writing.done()):
            self._finish()
        if best:
            self._waiting = None  # no longer worth writing
        copy = self._copied(states)
        if copy is not None and not due:
            self._waiting = _Saved(step, copy, record, best)
            return
        self._write_all([_Saved(step, states if copy is None else copy, record, best)])

    def latest(self) -> int:
        """Return the newest step, whether or not it can be read; 0 if there is no checkpoint."""
        return max((*self._best.all_steps(), *self._last.all_steps()), default=0)

    def restore(self, like: PyTree) -> tuple[int, PyTree, dict[str, Any]] | None:
        """Return the newest readable step, states and record; None if there is no checkpoint."""
        import orbax.checkpoint as ocp

        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore(shapes), record=ocp.args.JsonRestore())
        kept = [(step, manager) for manager in (self._best, self._last) for step in manager.all_steps()]
        for step, manager in sorted(kept, key=lambda one: one[0], reverse=True):
            try:
                found = manager.restore(step, args=arguments)
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._say(f"the checkpoint of step {step} cannot be read ({_first_line(error)}): trying an older one")
                manager.delete(step)
                continue
            return step, found["state"], found["record"]
        return None

    def close(self) -> None:
        """Write what is pending, and wait until everything is on disk."""
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
            with contextlib.suppress(Exception):  # report the first error
                self.close()

    def _copied(self, states: PyTree) -> PyTree | None:
        """Return a copy if there is memory for all copies that may be needed, else None."""
        if self._room is None:
            self._room = jax.process_count() == 1 and _has_room(states, copies=_COPIES)
        if self._room:
            try:
                return jax.tree.map(lambda x: jax.device_put(x, x.sharding, may_alias=False), states)
            except jax.errors.JaxRuntimeError:  # something else used the memory
                self._room = False
        return None

    def _write_all(self, saved: list[_Saved]) -> None:
        """Write what is pending and `saved`, in the background if there is memory for it."""
        if self._waiting is not None:
            saved = [self._waiting, *saved]
            self._waiting = None
        self._finish()
        if self._room:
            self._writing = _thread.submit(self._write, saved, wait=True)
        else:
            self._write(saved, wait=False)

    def _write(self, saved: list[_Saved], *, wait: bool) -> None:
        """Write one after another; without waiting, Orbax continues in its own threads once a state has been read."""
        import orbax.checkpoint as ocp

        while saved:
            one = saved.pop(0)
            arguments = ocp.args.Composite(
                state=ocp.args.StandardSave(one.states), record=ocp.args.JsonSave(one.record)
            )
            if jax.process_count() > 1:  # processes meet at barriers, which two concurrent saves would mix up
                self._last.wait_until_finished()
                self._best.wait_until_finished()
            manager = self._best if one.best else self._last
            manager.save(one.step, args=arguments, force=True)
            if wait:
                manager.wait_until_finished()

    def _finish(self) -> None:
        """Wait for the current write, and raise its error if it failed."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def _has_room(states: PyTree, *, copies: int) -> bool:
    """Return whether every device has memory for copies on top of its peak use; always True for CPUs."""
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

    logging.getLogger("absl").setLevel(logging.CRITICAL)  # errors are raised anyway
    warnings.filterwarnings("ignore", module="orbax")
    options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True, cleanup_tmp_directories=True)
    return ocp.CheckpointManager(folder.absolute(), options=options, item_names=("state", "record"))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
