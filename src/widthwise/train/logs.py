"""TensorBoard event files with the losses of each run."""

import contextlib
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from widthwise.train.loop import Progress
from widthwise.train.noise import hush


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """Let what is imported do without PyTorch, which tensorboardX imports if it is there: half of the time to start."""
    if "torch" in sys.modules:
        yield
        return
    cast(dict[str, Any], sys.modules)["torch"] = None
    try:
        yield
    finally:
        del sys.modules["torch"]


with _without_torch():
    from tensorboardX import SummaryWriter


class Logs:
    """One writer per run, in a folder of the same name; none in a process that does not write."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        hush()
        # A writer whose disk is full stops; with a small queue, training would then wait forever.
        self._writers = [SummaryWriter(str(folder / name), max_queue=1_000_000) for name in names]
        self._evaluated: list[float] = [math.nan] * len(names)

    def write(self, now: Progress) -> None:
        """Write the losses of the last chunk, and the held-out loss if it is new."""
        for lane, (writer, loss, held_out) in enumerate(zip(self._writers, now.losses, now.eval_losses, strict=False)):
            if math.isfinite(loss):
                writer.add_scalar("train_loss", loss, now.step)
            if math.isfinite(held_out) and held_out != self._evaluated[lane]:
                writer.add_scalar("eval_loss", held_out, now.step)
                self._evaluated[lane] = held_out

    def close(self) -> None:
        """Flush and close the files."""
        for writer in self._writers:
            writer.close()
