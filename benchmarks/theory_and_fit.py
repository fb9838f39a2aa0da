"""What solving and fitting promise: how long each may take, and how long it takes.

python benchmarks/theory_and_fit.py

It ends with an error if a promise is broken.
"""

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from widthwise.fit import fit_transfer
from widthwise.theory import ALIGNMENTS, FAMILIES, FULL, MUP, PARAMETERIZATIONS, SGD, limits, solve

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fit.sweeps import simulate


def least_seconds(function: Callable[[], object], repeats: int) -> float:
    """Return the least time of several calls: what the function takes when nothing else disturbs it."""

    def once() -> float:
        start = time.thread_time()
        function()
        return time.thread_time() - start

    gc.collect()
    return min(once() for _ in range(repeats))


def main() -> None:
    deep = MUP.with_hidden_layers(100)
    table = [(p, f, a) for p in PARAMETERIZATIONS.values() for f in FAMILIES.values() for a in ALIGNMENTS.values()]
    deepest = solve(MUP.with_hidden_layers(1000), SGD, FULL)
    rng = np.random.default_rng(6)
    sweeps = [simulate(rng, widths=5, seeds=2, parameters=True) for _ in range(30)]
    promises: list[tuple[str, float, Callable[[], object], int]] = [
        *(
            (f"solve 100 hidden layers, {family.name}", 0.010, lambda family=family: solve(deep, family, FULL), 50)
            for family in FAMILIES.values()
        ),
        (f"solve all {len(table)} cases of the table", 0.050, lambda: [solve(*case) for case in table], 10),
        ("limits of 1000 hidden layers", 1.0, lambda: limits(deepest), 5),
        (
            f"fit {sum(map(len, sweeps))} trials in {len(sweeps)} sweeps",
            2.0,
            lambda: [fit_transfer(sweep, predict=[8192]) for sweep in sweeps],
            2,
        ),
    ]
    broken = 0
    for name, promised, function, repeats in promises:
        seconds = least_seconds(function, repeats)
        broken += seconds > promised
        print(f"{name:45} {1000 * seconds:8.1f} ms of {1000 * promised:.0f}{'  BROKEN' * (seconds > promised)}")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
