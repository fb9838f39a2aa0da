"""Checkpoints: the state of all lanes and the record of the run, through Orbax.

The best checkpoint by held-out loss is kept, and the two newest of the others, because a machine can die while it
writes one. Each is written completely or not at all, with a checksum. If the newest still cannot be read, it is moved
aside and the previous one is used, with a message. Nothing is deleted because it cannot be read: the file system may be
to blame.

Training does not wait for checkpoints: the state is copied on the device, which takes milliseconds, and the rest
happens in the background. Early in training every evaluation finds a new best state, and a disk could not keep up with
writing all of them, so the best state waits in memory until a checkpoint is due. If the device has no memory for
copies, training waits until the state has left the device, and every checkpoint is written at once. Several processes
wait until it is written: they meet at barriers, where one must not be missing because it failed in the background.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from errno import EISDIR, ENODATA, ENOENT, ENOTDIR
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import jax

from widthwise.parameterize import PyTree
from widthwise.train import checksums
from widthwise.train.noise import hush

if TYPE_CHECKING:  # slow to import, and most runs of a sweep end before they need it
    import orbax.checkpoint as ocp


Value = TypeVar("Value")

_COPIES = 3
"""The largest number of copies at a time: two that are being written, and the best since then."""

_DAMAGED = (ENOENT, ENOTDIR, EISDIR, ENODATA)
"""Errors of a file system that works, about files that are not as they should be."""

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
    One of several processes does not close them after an error, because the others would have to take part.
    """

    def __init__(self, folder: Path, *, say: Callable[[str], None] = lambda _: None) -> None:
        self._folder, self._say = folder, say
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
        return int(max((*self._best.all_steps(), *self._last.all_steps()), default=0))

    def restore(self, like: PyTree, read: Callable[[int, Any], Value]) -> tuple[int, PyTree, Value] | None:
        """Return the newest readable step, states and record; None if there is no checkpoint.

        What cannot be read is moved aside.

        Args:
            like: States of the same shapes.
            read: Reads the record of a step, and raises ValueError if it is something else.

        Raises:
            OSError: If the file system is to blame; or, in one of several processes, if a checkpoint cannot be read.
        """
        import orbax.checkpoint as ocp

        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore(shapes), record=ocp.args.JsonRestore())
        kept = [(int(step), manager) for manager in (self._best, self._last) for step in manager.all_steps()]
        for step, manager in sorted(kept, key=lambda one: one[0], reverse=True):
            try:
                found = manager.restore(step, args=arguments)
                return step, found["state"], read(step, checksums.checked(found["record"], found["state"]))
            except jax.errors.JaxRuntimeError:  # the device, or another process
                raise
            except Exception as error:  # Orbax raises plain ones as well
                self._move_aside(manager, step, error)
        return None

    def close(self) -> None:
        """Write what is pending, and wait until everything is on disk."""
        self._write_all([])
        with self._naming_errors():
            self._finish()
            self._last.close()
            self._best.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        if kind is None:
            self.close()
        elif issubclass(kind, Exception) and jax.process_count() == 1:
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
        while saved:
            with self._naming_errors():
                self._write_one(saved.pop(0), wait=wait)

    def _write_one(self, one: _Saved, *, wait: bool) -> None:
        import orbax.checkpoint as ocp

        record = checksums.with_checksum(one.record, one.states)
        arguments = ocp.args.Composite(state=ocp.args.StandardSave(one.states), record=ocp.args.JsonSave(record))
        manager = self._best if one.best else self._last
        manager.save(one.step, args=arguments, force=True)
        if wait:
            manager.wait_until_finished()

    def _finish(self) -> None:
        """Wait for the current write, and raise its error if it failed."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _move_aside(self, manager: "ocp.CheckpointManager", step: int, error: Exception) -> None:
        """Move what cannot be read out of the way and say so; raise OSError if that is no use."""
        found = Path(manager.directory) / str(step)
        if _number(error) not in (None, *_DAMAGED):
            raise OSError(f"the checkpoint {str(found)!r} cannot be read: {_reason(error)}") from error
        aside = self._folder / "unreadable" / f"{found.parent.name}-{step}-{int(time.time())}"
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            aside.parent.mkdir(exist_ok=True)
            found.rename(aside)
        line = f"the checkpoint of step {step} cannot be read ({_reason(error)}) and is now {str(aside)!r}"
        if jax.process_count() > 1:  # the others may have read theirs, and can only start over together
            raise OSError(f"{line}: start all processes again to resume from an older one") from error
        manager.reload()
        self._say(f"{line}: trying an older one")

    @contextlib.contextmanager
    def _naming_errors(self) -> Iterator[None]:
        """Raise an OSError of one line if a checkpoint cannot be written."""
        try:
            yield
        except (OSError, ValueError) as error:  # TensorStore raises the latter
            raise OSError(f"a checkpoint cannot be written to {str(self._folder)!r}: {_reason(error)}") from error


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

    hush()
    options = ocp.CheckpointManagerOptions(
        max_to_keep=keep,
        create=True,
        cleanup_tmp_directories=True,
        # A write in the background that fails in one process leaves it and the others at different barriers.
        enable_async_checkpointing=jax.process_count() == 1,
        single_host_load_and_broadcast=jax.process_count() > 1,  # a folder may look different elsewhere for a while
    )
    return ocp.CheckpointManager(folder.absolute(), options=options, item_names=("state", "record"))


def _reason(error: Exception) -> str:
    """Return what the operating system said, from the pages that TensorStore says, or else the first line.

    >>> _reason(ValueError("RESOURCE_EXHAUSTED: Error writing [...]: No space left on device [os_error_code='28']"))
    'No space left on device'
    """
    number = _number(error)
    if number is not None:
        return os.strerror(number)
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _number(error: Exception) -> int | None:
    """Return the number of the operating system's error, if there is one."""
    if isinstance(error, OSError):
        return error.errno
    said = re.search(r"os_error_code='(\d+)'", str(error))
    return int(said[1]) if said else None
