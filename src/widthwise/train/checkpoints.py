"""Checkpoints: the state of all lanes and the record of what happened, through Orbax.

The best by held-out loss is kept, and of the others the two newest, since a machine can die while it writes one. Each
is written once, in the background, and appears whole or not at all; if the newest cannot be read all the same, the one
before is taken and that is said.
"""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import jax
import orbax.checkpoint as ocp

PyTree: TypeAlias = Any

logging.getLogger("absl").setLevel(logging.ERROR)


class Checkpoints:
    """The checkpoints of a run, or of the lanes that run together, in a folder."""

    def __init__(self, folder: Path, *, say: Callable[[str], None] = lambda _: None) -> None:
        self._say = say
        self._last = _manager(folder / "last", keep=2)
        self._best = _manager(folder / "best", keep=1)

    def save(self, step: int, states: PyTree, record: dict[str, Any], *, best: bool = False) -> None:
        """Save in the background; waits only until the state has left the device, and for what is being saved."""
        arguments = ocp.args.Composite(state=ocp.args.StandardSave(states), record=ocp.args.JsonSave(record))
        manager = self._best if best else self._last
        if jax.process_count() > 1:  # processes meet at barriers, which two savings at once would mix up
            self._last.wait_until_finished()
            self._best.wait_until_finished()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            manager.save(step, args=arguments, force=True)

    def latest(self) -> int:
        """Give the newest step, whether or not it can be read; 0 where there is no checkpoint."""
        return max((*self._best.all_steps(), *self._last.all_steps()), default=0)

    def restore(self, like: PyTree) -> tuple[int, PyTree, dict[str, Any]] | None:
        """Give the newest step, states and record that can be read; None where there is no checkpoint."""
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore(shapes), record=ocp.args.JsonRestore())
        kept = [(step, manager) for manager in (self._best, self._last) for step in manager.all_steps()]
        for step, manager in sorted(kept, key=lambda one: one[0], reverse=True):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = manager.restore(step, args=arguments)
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._say(f"the checkpoint of step {step} cannot be read ({_first_line(error)}): trying the one before")
                manager.delete(step)
                continue
            return step, found["state"], found["record"]
        return None

    def close(self) -> None:
        """Wait until everything is on disk."""
        self._last.close()
        self._best.close()


def _manager(folder: Path, *, keep: int) -> ocp.CheckpointManager:
    options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True, cleanup_tmp_directories=True)
    return ocp.CheckpointManager(folder.absolute(), options=options, item_names=("state", "record"))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
