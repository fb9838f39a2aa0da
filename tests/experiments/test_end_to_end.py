"""One experiment, carried out for real."""

import math
from dataclasses import replace
from pathlib import Path

from widthwise.experiments.carry_out import carry_out
from widthwise.experiments.cost import count_stages
from widthwise.experiments.paper.alignment import EXPERIMENT
from widthwise.experiments.results import Results
from widthwise.experiments.stages import Choice
from widthwise.report.exhibits import AlignmentCurves
from widthwise.study import Study
from widthwise.sweeps.driver import Driver
from widthwise.sweeps.executors import Inline
from widthwise.train import Spec


def shorter(spec: Spec) -> Spec:
    return replace(spec, steps=4, warmup=1)


def test_alignment_is_measured_read_and_never_trained_again(tmp_path: Path):
    size = replace(EXPERIMENT.sizes["smoke"], octaves=0.5)
    # Fewer steps than a chunk: with and without measuring, one program does.
    stages = EXPERIMENT.plan(size, Choice(parameterizations=("mup",), widths=(16,)), prepare=shorter)
    with Study.open(tmp_path) as study, Inline() as executor:
        results = Results(study, "alignment", "smoke")
        assert sum(count.most for count in count_stages(stages, vocabulary=257, results=results)) == 4
        first = Driver(study, executor)
        carry_out(EXPERIMENT, "smoke", stages, first)
        assert first.progress.trained == 4
        counts = count_stages(stages, vocabulary=257, results=results)
        assert [(count.most, count.known) for count in counts] == [(0, 3), (0, 1)]
        reading = EXPERIMENT.read(Results(study, "alignment", "smoke"))
        curves, *_ = reading.exhibits
        assert isinstance(curves, AlignmentCurves)
        (points,) = curves.panels.values()
        assert [points[0].step, points[-1].step] == [0, 4]
        assert math.isclose(points[0].layers["readout/kernel"]["ratio"], 0.5, abs_tol=0.05)
        assert len(reading.findings) == 4
        second = Driver(study, executor)
        carry_out(EXPERIMENT, "smoke", stages, second)
        assert second.progress.trained == 0
        assert EXPERIMENT.read(Results(study, "alignment", "smoke")).findings == reading.findings
