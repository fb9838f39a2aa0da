"""The speed of training on this machine: every sweep keeps it, so that the next one can be forecast at once.

A speed belongs to a device, a number of workers, a precision and a size of model: small models do not reach the speed
of large ones. The file lies in the user's cache folder. It is a convenience: one that cannot be read or written is
ignored.
"""

import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from widthwise.data.corpus import cache_folder
from widthwise.study.store import Outcome
from widthwise.sweeps.executors.processes import cores
from widthwise.sweeps.packs import Pack


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast models of one size are trained.

    Attributes:
        flops_per_step: The size: the FLOPs of a step of one run.
        flops_per_second: What a worker reaches, evaluations included, compilation not.
        compile_seconds: What the first pack of a program takes beyond others.
    """

    flops_per_step: float
    flops_per_second: float
    compile_seconds: float

    def __post_init__(self) -> None:
        if not (0 < self.flops_per_step < math.inf and 0 < self.flops_per_second < math.inf):
            raise ValueError(f"{self.flops_per_second} FLOP/s at {self.flops_per_step} a step: expected both above 0")
        if not 0 <= self.compile_seconds < math.inf:
            raise ValueError(f"compile_seconds is {self.compile_seconds}: expected 0 or more")


class Speedometer:
    """Measures packs as they end, and keeps the mean of this command for every size.

    Args:
        at_a_time: The number of workers.
    """

    def __init__(self, *, at_a_time: int) -> None:
        self._at_a_time = at_a_time
        self._places: dict[str, dict[float, tuple[float, float, float]]] = {}

    def note(self, pack: Pack, outcomes: Sequence[Outcome]) -> None:
        """Note a pack, unless it was too short to time, stopped early, or measured alignment meanwhile."""
        whole = next((outcome.provenance for outcome in outcomes if outcome.status == "finished"), {})
        if pack.probe or not whole.get("step_seconds"):
            return
        size, steps = pack.flops_each / pack.specs[0].steps, pack.specs[0].steps
        sizes = self._places.setdefault(place(whole["device"], pack.specs[0].dtype, at_a_time=self._at_a_time), {})
        flops, seconds, compiling = sizes.get(size, (0.0, 0.0, 0.0))
        flops, seconds = flops + pack.flops, seconds + steps * whole["step_seconds"]
        sizes[size] = (flops, seconds, max(compiling, whole["compile_seconds"]))
        self._keep()

    def _keep(self) -> None:
        """Write what was measured since the beginning; of sizes measured before, the newest is kept."""
        kept = _read()
        for name, sizes in self._places.items():
            measured = [
                Speed(flops_per_step=size, flops_per_second=flops / seconds, compile_seconds=compiling)
                for size, (flops, seconds, compiling) in sizes.items()
            ]
            others = [speed for speed in kept.get(name, []) if speed.flops_per_step not in sizes]
            kept[name] = sorted([*others, *measured], key=lambda speed: speed.flops_per_step)
        with suppress(OSError):
            file = _file()
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
            partial.write_text(json.dumps({name: list(map(asdict, speeds)) for name, speeds in kept.items()}, indent=1))
            partial.replace(file)


def kept_speeds(device: str, dtype: str, *, at_a_time: int) -> list[Speed]:
    """Return the speeds kept for a device, by size."""
    return _read().get(place(device, dtype, at_a_time=at_a_time), [])


def place(device: str, dtype: str, *, at_a_time: int) -> str:
    """Describe what a speed depends on besides the size of the model."""
    return f"{device}, {cores()} cores, {at_a_time} at a time, {dtype}"


def _file() -> Path:
    return cache_folder() / "speeds.json"


def _read() -> dict[str, list[Speed]]:
    try:
        found = json.loads(_file().read_text())
        return {
            name: [Speed(**{key: float(x) for key, x in one.items()}) for one in all_] for name, all_ in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
