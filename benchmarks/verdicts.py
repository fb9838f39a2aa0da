"""How often a claim about losses is judged wrongly, when seeds are added until it is clear.

    python benchmarks/verdicts.py

Two settings have the same loss, and differences between them scatter over seeds with a variance that is a multiple of
what the fit of a sweep says. An experiment looks at one seed, and while the claim is unclear at four, eight and sixteen
(`Size.loss_seeds`). The claim that one setting improves the other is judged wrongly where it holds, and the claim that
they are alike where it does not. The second table says how often a true improvement is found.
"""

import argparse

import numpy as np

from widthwise.experiments.findings import NEGLIGIBLE, over_seeds
from widthwise.fit import Estimate
from widthwise.fit.intervals import student
from widthwise.report.findings import Judgement

LOOKS = (1, 4, 8, 16)
FIT_ERROR = 0.0055
"""The standard error that a fit gives the difference of one seed: the median of docs/results.md."""

SCATTERS = (1.0, 2.0, 5.0)
"""In docs/results.md it is 2.0 on average without SGD, and 5.4 for SGD alone."""


def judged(differences: np.ndarray, error: float, looks: tuple[int, ...]) -> dict[str, Judgement]:
    """Return the last verdict of both claims; each is looked at until it is clear."""
    verdicts: dict[str, Judgement] = {}
    for count in looks:
        reach = student(np.inf) * error
        each = [Estimate(value=value, low=value - reach, high=value + reach) for value in differences[:count]]
        (change,) = over_seeds({1024: each}).values()
        size = change if change.value >= 0 else -change
        now = {
            "improves": Judgement.below_zero(change, negligible=NEGLIGIBLE),
            "alike": Judgement.at_most(NEGLIGIBLE, size),
        }
        verdicts |= {claim: now[claim] for claim in now if verdicts.get(claim, Judgement.UNCLEAR) is Judgement.UNCLEAR}
    return verdicts


def shares(change: float, scatter: float, looks: tuple[int, ...], repeats: int) -> dict[tuple[str, Judgement], float]:
    """Return how often each claim gets each verdict."""
    random = np.random.default_rng(0)
    counts: dict[tuple[str, Judgement], float] = {}
    for _ in range(repeats):
        differences = random.normal(change, FIT_ERROR * scatter**0.5, LOOKS[-1])
        for pair in judged(differences, FIT_ERROR, looks).items():
            counts[pair] = counts.get(pair, 0) + 1 / repeats
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10_000)
    repeats = parser.parse_args().repeats
    print("Wrong verdicts\n\n| scatter | claim | first look alone | all looks |\n|--:|---|--:|--:|")
    for scatter in SCATTERS:
        for claim, wrong, change in (
            ("improves", Judgement.HOLDS, 0.0),
            ("improves", Judgement.FAILS, -NEGLIGIBLE),
            ("alike", Judgement.FAILS, NEGLIGIBLE),
            ("alike", Judgement.HOLDS, NEGLIGIBLE),
        ):
            some, every = (
                shares(change, scatter, looks, repeats).get((claim, wrong), 0) for looks in (LOOKS[:1], LOOKS)
            )
            print(
                f"| {scatter:g} | {claim}: {wrong} at {100 * change:g} % | {100 * some:.1f} % | {100 * every:.1f} % |"
            )
    print("\nImprovements found\n\n| scatter | improvement | found | cannot tell |\n|--:|--:|--:|--:|")
    for scatter in SCATTERS:
        for change in (-0.005, -0.01, -0.02):
            found = shares(change, scatter, LOOKS, repeats)
            numbers = (found.get(("improves", verdict), 0) for verdict in (Judgement.HOLDS, Judgement.UNCLEAR))
            print(f"| {scatter:g} | {-100 * change:g} % | {' | '.join(f'{100 * each:.0f} %' for each in numbers)} |")


if __name__ == "__main__":
    main()
