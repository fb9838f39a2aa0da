"""What is left to train of an experiment, part by part.

Nothing is opened or allocated, so that the paper's own scale can be counted anywhere.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace

from widthwise.experiments.results import Results
from widthwise.experiments.stages import TUNED, ProbeStage, Stage, TuneStage
from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import Constants
from widthwise.study.fits import TUNING
from widthwise.study.setting import Setting
from widthwise.sweeps.forecast import Count, Held, count_sweep, distinct
from widthwise.sweeps.sweep import Sweep
from widthwise.train.cost import state_bytes


def count_stages(stages: Iterable[Stage], *, vocabulary: int, results: Results | None = None) -> list[Count]:
    """Count what is left to train of stages; searches that coincide are listed once.

    Args:
        stages: The stages.
        vocabulary: The number of tokens of the data, where the specification leaves it open.
        results: What a study holds of the experiment; None if there is no study yet.
    """
    held = Held() if results is None else results.held()
    return distinct(count for stage in stages for count in _counts(stage, vocabulary, results, held))


def _counts(stage: Stage, vocabulary: int, results: Results | None, held: Held) -> list[Count]:
    if isinstance(stage, TuneStage):
        return [_count_trials(stage, vocabulary, results, held)]
    if isinstance(stage, ProbeStage):
        searches = _counts(stage.of, vocabulary, results, held)  # carried out first, to find the rates
        return [*searches, *(_count_probe(search, stage.part, held) for search in searches)]
    constants = {} if results is None else _known_constants(stage.sweep, results)
    return count_sweep(stage.sweep, vocabulary=vocabulary, part=stage.part, constants=constants, held=held)


def _count_trials(stage: TuneStage, vocabulary: int, results: Results | None, held: Held) -> Count:
    spec, trials = stage.spec, stage.tuning.trials
    tuned = {} if results is None else results.tuned(TUNED).get((spec.optimizer, spec.parameterization), {})
    about = tuned.get("about", {})
    over = about.get("spec") == spec.to_json() and about.get("tuning") == asdict(stage.tuning)
    known = held.trials(spec, constants=TUNING, horizon="fixed")
    fewest, most = max(trials - known, 0), max(trials * (1 + stage.tuning.extensions) - known, 0)
    return Count(
        spec=spec,
        vocabulary=vocabulary,
        fewest=0 if over else fewest,
        most=0 if over else most,
        known=known,
        part=stage.part,
    )


def _count_probe(search: Count, part: str, held: Held) -> Count:
    names = {"constants": search.constants, "horizon": search.horizon, "probe": True}
    known = 0 if search.most else min(len(held.losses(search.spec, **names)), 1)  # the best rate may still change
    return replace(search, part=part, probe=True, known=known, fewest=1 - known, most=1 - known)


def _known_constants(sweep: Sweep, results: Results) -> dict[Setting, Constants]:
    found: dict[Setting, Constants] = {}
    for setting in sweep.all_settings:
        with suppress(ValueError):  # to be tuned first
            found[setting] = results.constants(setting.constants, setting.optimizer, setting.parameterization)
    return found


def hindrances(counts: Sequence[Count], *, accelerator: bool, memory: int | None) -> list[str]:
    """Return the reasons why this cannot be trained here, if there are any.

    Args:
        counts: What is to be trained.
        accelerator: Whether there is one.
        memory: The memory of a device in bytes, where known: a run of a sweep is computed on one device.
    """
    found: list[str] = []
    if not accelerator:
        found.append("there is no GPU")
    largest = max(counts, key=lambda count: count.spec.width)
    spec = largest.spec
    state = state_bytes(spec.transformer(largest.vocabulary), OPTIMIZERS[spec.optimizer])
    if memory is not None and state > memory:
        found.append(f"width {spec.width} keeps {state / 1e9:.0f} GB of state and a device has {memory / 1e9:.0f} GB")
    if spec.data == "c4" and spec.tokenizer == "bytes":
        found.append("there is no tokenizer (--tokenizer: the path of T5's SentencePiece model)")
    elif spec.data == "c4" and not os.path.exists(spec.tokenizer):
        found.append(f"there is no tokenizer at {spec.tokenizer!r}")
    return found
