"""Print the trials of docs/width-4096.md as plans for `wide.py`.

    python benchmarks/wide_plan.py sweeps > plan.json
    python benchmarks/wide.py plan.json out --lanes '{"256": 12, "512": 12, "1024": 6}'

`cause` measures the first steps (run it with `--looks deep`), `others` changes one thing at a time, `sweeps` varies the
learning rate, and `long` has longer runs, other warm-ups and the first update at other rates. Each takes about six
minutes on one H200.
"""

import json
import sys
from typing import Any

WIDTHS = (256, 512, 1024, 2048, 4096)
EARLY = [0, 1, 2, 3, 4, 6, 8, 10, 12, 15, 20, 25, 30, 40, 60, 100, 300]
OTHERS: dict[str, dict[str, Any]] = {
    **{f"warm-up {steps}": {"warmup": steps} for steps in (10, 60, 100, 120)},
    "zero readout": {"init": {"readout": 0}},
    "mup": {"parameterization": "mup"},
    **{f"early {role}": {"early": {role: 0.1}, "until": 30} for role in ("embedding", "hidden", "readout")},
    **{f"early {part}": {"early": {part: 0.1}, "until": 30} for part in ("attention", "mlp")},
    "early norms": {"early": {"norms": 0.0}, "until": 30},
    "early both": {"early": {"hidden": 0.1, "embedding": 0.1}, "until": 30},
    "larger embedding": {"init": {"tokens": 10, "positions": 10}},
    "embedding n^-1/2": {"rates": "-1/2,-1,-1"},
    "readout n^-3/2": {"rates": "0,-1,-3/2"},
    "beta2 0.999": {"b2": 0.999},
    "beta2 0.9": {"b2": 0.9},
    "epsilon 1e-12": {"epsilon": 1e-12},
    "half": {"rate": 0.0025},
    "double": {"rate": 0.01},
}


def small(width: int) -> dict[str, Any]:
    """Return the factor on the initial readout that makes it small."""
    return {"init": {"readout": (width / 256) ** -0.5}}


def ours(width: int, **changes: Any) -> dict[str, Any]:
    """Return a trial with the recommended prescription."""
    return {"label": "ours", "width": width, "rate": 0.0035, "warmup": 100, **small(width), **changes}


def standard(width: int, **changes: Any) -> dict[str, Any]:
    """Return a trial with the paper's prescription."""
    return {"label": "paper", "width": width, "rate": 0.005, "warmup": 30, **changes}


def cause() -> list[dict[str, Any]]:
    """Return trials that are measured in their first steps."""
    return [standard(width, looks=EARLY) for width in WIDTHS]


def others() -> list[dict[str, Any]]:
    """Return trials that change one thing at a time."""
    looks = EARLY[:1] + EARLY[2:-1]
    found = [standard(width, label="small readout", looks=looks, **small(width)) for width in WIDTHS]
    for width in (256, 1024, 2048):
        found += [standard(width, label=label, **change) for label, change in OTHERS.items()]
        found += [standard(width, label="small readout", rate=rate, **small(width)) for rate in (0.01, 0.0025)]
        found.append(standard(width, label="small readout", warmup=60, **small(width)))
    found.append(standard(2048, label="warm-up n^1/2", warmup=85))
    for change in ({}, {"warmup": 120}, {"warmup": 100}, {"init": {"readout": 0}}, {"rate": 0.0025, **small(4096)}):
        found.append(standard(4096, **change))
    return found


def sweeps() -> list[dict[str, Any]]:
    """Return trials with a range of learning rates."""
    narrow, wide = (256, 512, 1024), (2048, 4096)
    low, high = (0.00125, 0.00177, 0.0025, 0.0035, 0.005, 0.007), (0.0025, 0.0035, 0.005, 0.007, 0.01, 0.014)
    looks = [0, 2, 4, 8, 15, 30, 60, 100, 200, 300]
    found = []
    for width in narrow:
        found += [standard(width, rate=rate, seed=seed) for seed in (0, 1) for rate in low]
        found += [ours(width, rate=rate, seed=seed, looks=looks) for seed in (0, 1) for rate in high]
    for width in wide:
        found.append(ours(width, rate=0.005, looks=looks))
        found += [ours(width, rate=rate) for rate in high[:-1] if rate != 0.005]
        found += [standard(width, rate=rate) for rate in low[:3]]
    found += [ours(2048, rate=0.014), standard(2048, rate=0.0035)]
    return [*found, ours(2048, rate=0.005, seed=1), standard(2048, seed=1), ours(4096, seed=1)]


def long() -> list[dict[str, Any]]:
    """Return longer runs, runs with other warm-ups, and runs of only the first update."""
    found = [
        standard(width, label="first", rate=rate, seed=seed, stop=3, looks=[2])
        for width in WIDTHS
        for rate in ((0.00125, 0.0025, 0.005, 0.01, 0.02) if width <= 1024 else (0.00125, 0.005))
        for seed in (0, 1)
    ]
    for width in (256, 1024):
        found += [ours(width, warmup=warmup) for warmup in (30, 60, 150, 200, 299)]
        found += [ours(width, steps=1200, warmup=warmup) for warmup in (30, 100, 200, 400)]
        found.append(standard(width, rate=0.0035, warmup=100))
    found.append(standard(2048, rate=0.0035, warmup=100))
    for width in (256, 1024, 2048):
        found += [standard(width, rate=0.0035, steps=1200, warmup=warmup) for warmup in (30, 120)]
    found.append(ours(2048, steps=1200))
    for width in (256, 1024, 4096):
        found += [standard(width, rate=0.0035, steps=600, warmup=60), ours(width, steps=600)]
    return found


if __name__ == "__main__":
    plans = {"cause": cause, "others": others, "sweeps": sweeps, "long": long}
    print(json.dumps(plans[sys.argv[1]]()))
