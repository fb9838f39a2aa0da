"""What our own experiments read from studies whose answers are known."""

import math

import pytest

from tests.experiments.studies import Truth, exhibit, find, level, read
from widthwise.experiments.beyond.decay import DECAY
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.results import Results
from widthwise.report.exhibits import Transfers
from widthwise.report.findings import Judgement
from widthwise.study import Study

OWN = [name for name, experiment in EXPERIMENTS.items() if not experiment.of_paper]


@pytest.mark.parametrize("name", OWN)
def test_nothing_asked_for_reads_as_nothing(study: Study, name: str):
    reading = EXPERIMENTS[name].read(Results(study, name, "cpu"))
    assert (reading.findings, reading.exhibits) == ((), ())


@pytest.mark.parametrize("name", OWN)
def test_nothing_finished_reads_as_nothing_measured(study: Study, name: str):
    assert read(study, name, level(), ended=lambda spec: False).findings == ()


@pytest.mark.parametrize("name", OWN)
def test_half_a_study_reads_without_errors(study: Study, name: str):
    reading = read(study, name, level(), ended=lambda spec: spec.learning_rate < 2**-6.2)
    for finding in reading.findings:
        assert finding.verdict is not Judgement.HOLDS
        assert (finding.verdict is Judgement.MISSING) == (not finding.measured), finding


def test_a_rule_that_lets_the_rate_transfer_is_told_from_one_that_does_not(study: Study):
    exponents = {"constant": -0.5, "sqrt": -0.25, "completep": 0.0}

    def answers(setting, depth):
        return Truth(octaves=-6 + exponents[setting.depth_rule] * math.log2(depth / 2), loss=2 * depth**-0.05)

    reading = read(study, "depth", answers)
    assert [one.verdict for one in reading.findings] == 2 * [Judgement.FAILS, Judgement.FAILS, Judgement.HOLDS]
    assert find(reading, "rate stays", "nothing changes").measured.startswith("exponent −0.50 [")
    # 1.5 octaves from the optimum of depth 16, where the log of the loss rises by 0.1 times their square
    cost = find(reading, "costs the largest less", "nothing changes")
    assert cost.measured.startswith(f"{100 * math.expm1(0.1 * 1.5**2):.2f} % [")
    assert find(reading, "costs the largest less", "branches as 1/L (completep)").measured.startswith("0.00 % [0.00, ")
    summary = exhibit(reading, "summary")
    rows = [dict(zip(summary.columns, row, strict=True)) for row in summary.rows]
    assert [row["group"] for row in rows] == [one.of for one in reading.findings[:3]]
    assert [row["exponent"] for row in rows] == [one.measured.removeprefix("exponent ") for one in reading.findings[:3]]
    assert [row["cost of reusing the rate"] for row in rows] == [one.measured for one in reading.findings[3:]]
    assert (rows[0]["loss at depth 2"], rows[0]["loss at depth 16"]) == ("1.932", "1.741")
    sweeps = exhibit(reading, "sweeps-depth")
    assert isinstance(sweeps, Transfers)
    assert sweeps.panels[0] == "nothing changes"
    assert exhibit(reading, "loss-against-size-depth").x_label == "parameters"


@pytest.mark.parametrize(
    ("exponent", "verdict"),
    [
        (0.05, Judgement.HOLDS),  # after three doublings, 0.15 octaves cost 0.2 %
        (0.1, Judgement.UNCLEAR),  # 0.3 cost 0.9 %, and optima are known to some tenths
        (0.2, Judgement.FAILS),  # 0.6 cost 3.7 %
    ],
)
def test_a_cost_is_as_certain_as_the_optima(study: Study, exponent: float, verdict: Judgement):
    def answers(setting, width):
        return Truth(octaves=-6 + exponent * math.log2(width / 32), loss=2.0)

    assert find(read(study, "decay-rules", answers), "costs the largest less", "independent decay").verdict is verdict


def test_a_rate_with_which_the_largest_run_diverges_costs_everything(study: Study):
    def answers(setting, width):
        return Truth(octaves=-6 - 1.5 * math.log2(width / 32), loss=2.0)

    reading = read(
        study, "decay-rules", answers, diverges=lambda spec: spec.width == 256 and spec.learning_rate > 2**-10
    )
    cost = find(reading, "costs the largest less", "independent decay")
    assert (cost.verdict, cost.measured) == (Judgement.FAILS, "it diverges")


@pytest.mark.parametrize("missing", ["", "independent"])
def test_rates_and_decays_are_compared_as_pairs(study: Study, missing: str):
    """At the smallest width, the decay of the comparison is best, and at the largest none."""

    def answers(setting, width):
        best = setting.weight_decay == (DECAY if width == 32 else 0)
        return Truth(octaves=-6, loss=2.0 if best else 2.1)

    def ended(spec):
        return spec.width < 256 or not spec.weight_decay or spec.decay_rule != missing

    table = exhibit(read(study, "decay-rules", answers, ended=ended), "pairs")
    rules = [f"{rule} decay" for rule in ("independent", "coupled", "sqrt", "inverse") if rule != missing]
    assert [row[:-1] for row in table.rows] == [(rule, "0.001", "0.0156", "2.100", "0") for rule in rules]
    assert [float(row[-1].removesuffix(" %")) for row in table.rows] == pytest.approx([5] * len(rules), abs=0.02)


def test_what_grows_together_is_called_a_width(study: Study):
    reading = read(study, "together", level())
    assert exhibit(reading, "summary").columns[-1] == "loss at width 128"
    assert exhibit(reading, "sensitivity-together").columns[1] == "width"


def test_effects_that_longer_training_brings_out(study: Study):
    def answers(setting, tokens):
        longer = math.log2(tokens / (100 * 16 * 32))  # 0, 2 and 4
        worse = {"none": 0.03 - 0.01 * longer, "full": 0.0}[setting.rates.name]
        worse += (0.04 - 0.02 * longer) * (setting.optimizer == "adafactor")
        return Truth(octaves=-6, loss=2 * math.exp(worse + 0.02 * (setting.weight_decay > 0)))

    reading = read(study, "length", answers)
    of_rates = find(reading, "rates for no alignment", "muP, Adam + parameter scaling")
    assert of_rates.verdict is Judgement.HOLDS
    assert of_rates.measured.startswith("−1.00 % [")
    assert "instead of 3.05 % [" in of_rates.measured
    # 4 % more at first and 4 % less at last: as far away as before.
    assert find(reading, "Adafactor comes nearer", "standard, Adafactor").verdict is not Judgement.HOLDS
    assert find(reading, "weight decay does better", "muP, Adam").verdict is Judgement.FAILS
    assert all(len(one.losses_of) == 2 for one in reading.findings if "mean of" not in one.of)
    mean = find(reading, "rates for no alignment", "the mean of 4 parameterizations")
    assert mean.verdict is Judgement.HOLDS
    assert mean.measured.startswith("changed by −4.0")
    table = exhibit(reading, "changes")
    assert table.columns[2:] == ("0.0512 M", "0.205 M", "0.819 M")
    assert len(table.rows) == 4 + 2 + 2
