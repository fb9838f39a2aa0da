"""The coordinate check over depth: sizes of the residual stream must not change with the number of blocks L.

Layers cannot be compared one by one, because deeper models have more of them. What must stay the same is what the
blocks add up to. At initialization it may shrink: with branches of size 1/L, all that is left in a deep model is the
embedding. Changes must have slope 0 against log L after a few steps, and so must sizes that did not start out smaller.
Logits and their change must have slope 0 at most.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from widthwise.coordinates.result import describe_slope, plain_slope
from widthwise.fit import Estimate, exponent, mean_of
from widthwise.scaling import text_table

STREAM = "stream"
LOGITS = "logits"

SizesOf: TypeAlias = Mapping[str, tuple[float, float]]
"""The size of something, and that of its change since the start of training, by its name."""


@dataclass(frozen=True, kw_only=True)
class SizeCheck:
    """The result for one sum over blocks, or for the logits.

    Attributes:
        name: What was measured.
        initial: The slope of its size before training.
        size: The slope of its size after training.
        change: The slope of its change.
        tolerance: The largest allowed distance of a slope from its bound.
    """

    name: str
    initial: Estimate
    size: Estimate
    change: Estimate
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether size and change are within tolerance, and the initial size does not grow."""
        shrinks = self.name == LOGITS
        starts_smaller = self.initial.value < -self.tolerance  # then its size may too, as long as its change does not
        return (
            self.initial.value <= self.tolerance
            and self._within(self.size.value, shrinks or starts_smaller)
            and self._within(self.change.value, shrinks)
        )

    def _within(self, slope: float, may_shrink: bool) -> bool:
        return (slope if may_shrink else abs(slope)) <= self.tolerance


@dataclass(frozen=True, kw_only=True)
class DepthCheck:
    """The result for all sums, of models with different numbers of blocks.

    Attributes:
        depths: The numbers of blocks compared.
        seeds: The number of seeds per depth.
        steps: The number of training steps.
        sizes: The sums, and the logits.
        multiplied: Whether branches have a multiplier that falls with depth; None if that is not known.
    """

    depths: tuple[int, ...]
    seeds: int
    steps: int
    sizes: tuple[SizeCheck, ...]
    multiplied: bool | None = None

    @property
    def passed(self) -> bool:
        """Whether everything passed."""
        return all(size.passed for size in self.sizes)

    def __str__(self) -> str:
        rows = [
            (each.name, *map(describe_slope, (each.initial, each.size, each.change)), "pass" if each.passed else "FAIL")
            for each in self.sizes
        ]
        passed = sum(size.passed for size in self.sizes)
        lines = [
            f"Slopes against depth, over {', '.join(map(str, self.depths))} blocks, {self.steps} steps.",
            text_table(("sum", "initial", "size", "change", ""), rows, right=range(1, 4)),
            *self._advice(),
            f"{'PASS' if self.passed else 'FAIL'}: {passed} of {len(self.sizes)} sums pass.",
        ]
        return "\n".join(lines)

    def _advice(self) -> Iterator[str]:
        slope = max((each.change.value for each in self.sizes if not each.passed), default=math.nan)
        if slope > self.sizes[0].tolerance:
            advice = {
                False: "multiply residual branches by L^-1 or L^-1/2, as the depth rules completep and sqrt do",
                True: "branches have a multiplier already, so lower the learning rate, or try more seeds and steps",
                None: "residual branches need a multiplier of L^-1 or L^-1/2; if they have it, lower the learning rate",
            }
            yield f"Changes grow as L^{slope:.2f}: {advice[self.multiplied]}."
        elif not self.passed and not math.isnan(slope):
            yield (
                "What blocks add shrinks with depth: learning rates are too small, or the embedding is small next to "
                "what blocks add at initialization, which falls as L^(1/2 - α)."
            )

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for `json.dumps`; numbers that are not finite are null."""
        return {
            "passed": self.passed,
            "depths": list(self.depths),
            "seeds": self.seeds,
            "steps": self.steps,
            "sizes": [
                {
                    "name": each.name,
                    "passed": each.passed,
                    **{name: plain_slope(getattr(each, name)) for name in ("initial", "size", "change")},
                }
                for each in self.sizes
            ],
        }


def judge_depth(
    before: Sequence[Sequence[SizesOf]],
    after: Sequence[Sequence[SizesOf]],
    *,
    depths: Sequence[int],
    steps: int,
    tolerance: float,
) -> DepthCheck:
    """Judge how sizes scale with depth.

    Args:
        before: The sizes before training, by depth and seed.
        after: The sizes after training.
        depths: The numbers of blocks, ascending.
        steps: The number of training steps.
        tolerance: The largest allowed distance of a slope from its bound.
    """
    seeds = range(len(after[0]))
    # Experts that no example reached in some run cannot be compared.
    everywhere = set[str].intersection(*(set(sizes) for row in after for sizes in row))

    def slope(measured: Sequence[Sequence[SizesOf]], name: str, place: int) -> Estimate:
        sizes = ([float(at[seed][name][place]) for at in measured] for seed in seeds)
        return mean_of([exponent(depths, each) for each in sizes])

    return DepthCheck(
        depths=tuple(depths),
        seeds=len(seeds),
        steps=steps,
        sizes=tuple(
            SizeCheck(
                name=name,
                initial=slope(before, name, 0),
                size=slope(after, name, 0),
                change=slope(after, name, 1),
                tolerance=tolerance,
            )
            for name in after[0][0]
            if name in everywhere
        ),
    )
