"""The smallest runs that are runs: for tests of sweeps, which all share these two compilations."""

import dataclasses
from typing import Any

from widthwise.study import Study
from widthwise.train import Spec

TINY = Spec(
    width=16,
    base_width=16,
    blocks=1,
    head_dim=8,
    context=16,
    batch=8,
    steps=40,
    warmup=4,
    eval_batches=2,
)


def options(spec: Spec = TINY) -> list[str]:
    """Return what differs from the defaults, for a command line."""
    changed = [field for field in dataclasses.fields(Spec) if getattr(spec, field.name) != field.default]
    return [word for field in changed for word in (f"--{field.name.replace('_', '-')}", str(getattr(spec, field.name)))]


def results(study: Study) -> list[tuple[Any, ...]]:
    """Return what must not depend on how a sweep was carried out: what was asked, how it ended, and its losses."""
    return sorted(
        (
            *(row.spec[name] for name in ("width", "alignment", "seed", "learning_rate")),
            row.run,
            row.status,
            str(row.results.get("eval_loss")),
            str(row.results.get("train_loss")),
        )
        for row in study.runs()
    )
