"""What `gpu.py` measures: sizes that this project and PyTorch share, and the arithmetic both are judged by."""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

REPEATS = 5


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A model but for its width, and a batch."""

    vocabulary: int
    context: int
    batch: int = 64
    blocks: int = 8
    head_dim: int = 128
    least_steps: int = 4
    repeats: int = REPEATS

    @property
    def tokens(self) -> int:
        """Tokens of one model's step."""
        return self.batch * self.context

    def flops(self, width: int) -> float:
        """FLOPs of one model's step: 6 for each weight that multiplies and each token, and causal attention."""
        matrices = 12 * self.blocks * width**2 + width * self.vocabulary + (2 * self.blocks + 1) * width
        return 6.0 * matrices * self.tokens + 6.0 * self.blocks * self.tokens * self.context * width


SETTINGS = {
    "single": Setting(vocabulary=32101, context=512),
    "lanes": Setting(vocabulary=256, context=256),
    "large": Setting(vocabulary=32101, context=512, batch=256, least_steps=1, repeats=3),  # the paper's batch
}
WIDTHS = {"single": (512, 1024, 2048, 4096), "lanes": (128, 256, 512)}
LARGE = {
    2048: ("none", "block"),
    3072: ("activation", "block"),
    4096: ("block",),
    6144: ("block",),
}
"""What to compute again at each width: the least that fits, and at two of them `block` as well, to compare."""
LANES = 32
MODES = ("compile", "reduce-overhead", "graph")
OPTIMIZERS = ("adam", "adam_atan2", "adam_ps", "adafactor", "muon", "muon_max")
# A sweep: 4 parameterizations × 9 learning rates.
RATES = [2.0 ** (exponent / 2) for exponent in range(-22, -13)]
PARAMETERIZATIONS = ("standard", "ntk", "mup", "mean_field")
SWEEP_WIDTH, SWEEP_STEPS, SWEEP_WARMUP, SWEEP_EVALUATIONS = 128, 600, 60, 8


def steps_for(setting: Setting, width: int, models: int = 1) -> int:
    """Return as many steps as fill about half a second."""
    return max(setting.least_steps, min(200, round(0.5 * 4e14 / (models * setting.flops(width)))))


def median_seconds(action: Callable[[], object], repeats: int = REPEATS) -> float:
    """Time an action that ends when the device has finished."""
    return statistics.median(seconds(action) for _ in range(repeats))


def seconds(action: Callable[[], object]) -> float:
    """Time an action once."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def speed(setting: Setting, width: int, models: int, step_seconds: float) -> dict[str, float]:
    """Return what a step's time means."""
    return {
        "step_ms": step_seconds * 1e3,
        "tokens_per_second": models * setting.tokens / step_seconds,
        "tflops": models * setting.flops(width) / step_seconds / 1e12,
    }


def tell(**values: object) -> None:
    """Hand a measurement to the process that asked for it."""
    print(json.dumps(values), flush=True)


def arguments(parts: list[str]) -> argparse.Namespace:
    """Read what to measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=parts)
    parser.add_argument("--width", type=int, default=SWEEP_WIDTH)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--remat", default=None)
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=OPTIMIZERS)
    return parser.parse_args()
