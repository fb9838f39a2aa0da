"""A sweep around any training function finds how its optimal rate changes with width, and loses nothing."""

import functools
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import widthwise as ww
from tests.cli.test_fit import filled, fits, group
from tests.search.toys import CALM, WIDTHS, Counted, training
from tests.sweeps.simulated import Landscape
from widthwise.cli import main
from widthwise.fit import TransferOutcome
from widthwise.study import Study

ROOT = Path(__file__).parents[2]
sweep = functools.partial(ww.sweep, widths=WIDTHS, learning_rate=3e-3, show=False)


@pytest.mark.parametrize(("exponent", "verdict"), [(0.0, "transfers"), (-0.5, "drifts"), (-1.0, "drifts")])
@pytest.mark.parametrize("draw", [1, 2])
def test_a_planted_law_is_found_with_an_interval_that_holds_it(exponent: float, verdict: str, draw: int):
    result = sweep(training(Landscape(exponent=exponent, position=-8, draw=draw)), precision=0.12)
    assert result.exponent.contains(exponent)
    assert result.exponent.half_width <= 0.12
    if exponent:  # an interval that reaches this far to each side need not fit into what is negligible
        assert result.verdict.outcome == verdict
    optima = [optimum.learning_rate for optimum in result.transfer.optima]
    truth = [2.0 ** (-8 + exponent * math.log2(width / 64)) for width in WIDTHS]
    assert all(found.low / 1.1 < true < found.high * 1.1 for found, true in zip(optima, truth, strict=True))
    assert not result.missing


def test_what_is_printed_has_every_width_the_verdict_and_the_cost_of_reusing_the_rate():
    lines = str(sweep(training(replace(CALM, exponent=-1.0)))).splitlines()
    assert lines[0].startswith("function: train, ")
    assert [line.split()[0] for line in lines[3:7]] == list(map(str, WIDTHS))
    assert lines[7].startswith("drifts: exponent -")
    assert lines[8].startswith("reusing the rate of width 64 at width 512 ")


@pytest.mark.parametrize("error", [InterruptedError, KeyboardInterrupt])
def test_a_sweep_that_was_interrupted_resumes_and_trains_nothing_twice(tmp_path: Path, error: type[BaseException]):
    train = training(CALM)
    whole = Counted(train)
    expected = sweep(whole, study=tmp_path / "whole")

    def interrupted(width: int, learning_rate: float, seed: int) -> float:
        if len(first.runs) == 7:
            raise error("now")
        return first(width, learning_rate, seed)

    first, second = Counted(train), Counted(train)
    settings = {"plan": "mup"}
    with pytest.raises(error, match="now"):
        sweep(interrupted, study=tmp_path / "mine", settings=settings)
    with Study.open(tmp_path / "mine") as study:
        assert study.counts()["finished"] + study.counts()["diverged"] == 7
    found = sweep(second, study=tmp_path / "mine", settings=settings)
    assert first.runs + second.runs == whole.runs
    assert found.transfer == expected.transfer

    assert sweep(Counted(train, most=0), study=tmp_path / "mine", settings=settings).transfer == expected.transfer


def test_runs_are_limited_and_more_of_them_continue(tmp_path: Path):
    train = Counted(training(CALM))
    some = sweep(train, study=tmp_path, max_runs=9)
    assert len(train.runs) == len(some.trials) == 9
    assert some.missing[-1].startswith("out of runs after 9 runs, exponent ")
    assert "incomplete: out of runs" in str(some)
    everything = sweep(train, study=tmp_path)
    assert len(set(train.runs)) == len(train.runs) == len(everything.trials)
    assert everything.transfer == sweep(training(CALM)).transfer


def test_two_settings_share_a_study_and_are_shown_side_by_side(tmp_path: Path, capsys):
    shared = {"optimizer": "adamw", "blocks": 2}
    still = sweep(training(replace(CALM, exponent=0)), study=tmp_path, settings={**shared, "plan": "mup"})
    drifting = sweep(training(replace(CALM, exponent=-1)), study=tmp_path, settings={**shared, "plan": "none"})
    assert drifting.verdict.outcome is TransferOutcome.DRIFTS
    one, other = fits(capsys, tmp_path)
    assert (one["plan"], other["plan"], one["optimizer"], one["blocks"]) == ("mup", "none", "adamw", 2)
    assert [one["exponent"], other["exponent"]] == [still.exponent.value, drifting.exponent.value]

    page = drifting.report()
    assert page == tmp_path / "report" / "index.html"
    drawn = (page.parent / "figures" / "sweeps-rates-1.svg").read_text()
    assert "plan: mup" in drawn
    assert "plan: none" in drawn
    text = page.read_text()
    assert "blocks: 2, optimizer: adamw, plan: none" in text
    assert "drifts" in text
    assert main(["report", str(tmp_path)]) == 0
    assert main(["fit", str(tmp_path)]) == 0
    assert "blocks: 2, optimizer: adamw, plan: none\nwidth " in capsys.readouterr().out


def test_functions_are_told_apart_by_their_names(tmp_path: Path):
    def planned(width: int, learning_rate: float, seed: int) -> float:
        return training(replace(CALM, exponent=0))(width, learning_rate, seed)

    def unplanned(width: int, learning_rate: float, seed: int) -> float:
        return training(replace(CALM, exponent=-1))(width, learning_rate, seed)

    assert sweep(planned, study=tmp_path).exponent.contains(0)
    result = sweep(functools.partial(unplanned), study=tmp_path)
    assert result.exponent.contains(-1)
    assert result.settings == {"function": "unplanned"}


def test_a_study_with_runs_of_our_own_models_takes_them_too(tmp_path: Path, capsys):
    filled(tmp_path, group(exponent=-1))
    sweep(training(CALM), study=tmp_path)
    ours, own = fits(capsys, tmp_path)
    assert (ours["parameterization"], ours["where"]) == ("standard", {})
    assert (own["function"], own["where"]) == ("train", {})
    assert main(["report", str(tmp_path)]) == 0


def test_a_sweep_stops_at_a_verdict_and_searches_each_width_without_a_precision():
    train = training(replace(CALM, exponent=-1.0))
    to_verdict = sweep(train, precision=0.1, until_verdict=True)
    assert to_verdict.verdict.outcome is TransferOutcome.DRIFTS
    assert len(to_verdict.trials) < len(sweep(train, precision=0.06).trials)
    each = sweep(train, precision=None, edge=True, seeds=(3, 4))
    assert {trial.seed for trial in each.trials} == {3, 4}
    assert all(optimum.edge.located for optimum in each.transfer.optima)
    assert not each.missing


def test_runs_that_cost_more_are_chosen_less():
    train = training(Landscape(noise=0.02, position=-8))
    cheap, dear = (sweep(train, precision=0.15, cost=lambda width, p=p: width**p) for p in (0, 4))
    share = [sum(trial.width == 512 for trial in each.trials) / len(each.trials) for each in (cheap, dear)]
    assert share[0] > share[1]


def test_divergence_is_an_outcome_and_is_stored(tmp_path: Path):
    result = sweep(lambda width, learning_rate, seed: math.inf, study=tmp_path, max_runs=4)
    assert all(math.isnan(trial.eval_loss) for trial in result.trials)
    with Study.open(tmp_path) as study:
        assert study.counts()["diverged"] == 4
    assert "diverged" in result.report(tmp_path / "elsewhere").read_text()


def test_progress_is_shown_unless_it_is_not_wanted(capsys):
    train = training(CALM)
    result = sweep(train, show=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert lines[0].startswith("width 64, learning rate 0.00")
    assert ": loss " in lines[0]
    assert lines[-1] == f"after {len(result.trials)} runs: {result.verdict}"
    sweep(train)
    assert capsys.readouterr().err == ""


def nothing(width: int, learning_rate: float, seed: int) -> float:
    raise AssertionError("must not be called")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"widths": ()}, r"widths are \(\): expected integers of 1 or more, each once"),
        ({"widths": 64}, "widths are 64: expected integers"),
        ({"widths": (64, 64)}, "expected integers of 1 or more, each once"),
        ({"widths": (64, 96.5)}, "expected integers of 1 or more, each once"),
        ({"widths": ("64", "128")}, "expected integers of 1 or more, each once"),
        ({"widths": (64,)}, "precision is 0.1 with one width: expected two widths or more"),
        ({"widths": (64, 80)}, "or a larger range of widths"),
        ({"seeds": 3}, "seeds are 3: expected integers of 0 or more, each once"),
        ({"learning_rate": 0}, "learning_rate is 0: expected a number above 0"),
        ({"learning_rate": math.nan}, "learning_rate is nan: expected a number above 0"),
        ({"learning_rate": "1e-3"}, "learning_rate is '1e-3': expected a number above 0"),
        ({"precision": -1}, "precision is -1: expected a number above 0"),
        ({"precision": None, "until_verdict": True}, "until_verdict without a precision: expected both"),
        ({"max_runs": 0}, "max_runs is 0: expected 1 or more"),
        ({"cost": lambda width: 0}, "cost of width 64 is 0: expected a number above 0"),
        ({"settings": {"plan": None}}, "settings have 'plan': None: expected names, and text or numbers"),
        ({"settings": {"plan": "NaN"}}, "the text 'NaN' cannot be stored"),
        ({"study": __file__}, "is a file: expected the folder of a study"),
    ],
)
def test_wrong_input_is_refused_in_one_line_before_anything_is_trained(wrong: dict, message: str):
    with pytest.raises(ValueError, match=message) as refused:
        ww.sweep(nothing, **{"widths": WIDTHS, "learning_rate": 3e-3, "show": False} | wrong)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "wrong", [lambda width, lr, seed: 1.0, lambda width, learning_rate: 1.0, lambda *given: 1.0, 7]
)
def test_a_function_that_cannot_be_called_is_refused(wrong):
    with pytest.raises(ValueError, match="train is") as refused:
        sweep(wrong)
    assert "\n" not in str(refused.value)


def test_without_a_study_there_is_no_report():
    with pytest.raises(ValueError, match="there is nothing to report from: expected a sweep with a study"):
        sweep(training(CALM), max_runs=1).report()


def test_pytorch_has_the_same_function():
    pytest.importorskip("torch")
    assert ww.torch.sweep is ww.sweep


def test_neither_a_sweep_nor_its_report_imports_jax(tmp_path: Path):
    script = (
        "import sys, widthwise as ww\n"
        "from widthwise.cli import main\n"
        "from tests.search.toys import CALM, training\n"
        f"study = {str(tmp_path)!r}\n"
        "result = ww.sweep(training(CALM), widths=(64, 256), learning_rate=0.01, study=study, show=False)\n"
        "print(result.report().exists(), main(['fit', study]), main(['report', study]), result.verdict.outcome)\n"
        "print([name for name in ('jax', 'torch', 'optax') if name in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.splitlines()[-2].startswith("True 0 0 ")
    assert run.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("axis", "values"), [("depth", (2, 4, 8, 16)), ("batch", (16, 64, 256)), ("tokens", (10**6, 10**8))]
)
def test_any_axis_is_swept_by_its_name_and_resumed(tmp_path: Path, axis: str, values: tuple[int, ...]):
    trained: list[tuple[int, float, int]] = []

    def train(**point: float) -> float:
        assert set(point) == {axis, "learning_rate", "seed"}
        trained.append(tuple(point.values()))
        octaves = math.log2(point["learning_rate"]) + 8 + 0.5 * math.log2(point[axis] / values[0])
        return 2 * math.exp(0.05 * octaves**2)

    again = functools.partial(
        ww.sweep, train, axis=axis, values=values, learning_rate=3e-3, study=tmp_path, show=False, precision=0.15
    )
    result = again()
    assert result.exponent.contains(-0.5)
    assert result.transfer.axis == axis
    assert f"{axis}  optimal learning rate" in str(result)
    whole = list(trained)
    assert again().exponent == result.exponent
    assert trained == whole
    # A sweep over width in the same study is another one.
    ww.sweep(
        lambda width, learning_rate, seed: 1.5 + learning_rate,
        widths=(1, 2),
        learning_rate=1e-3,
        study=tmp_path,
        precision=None,
        show=False,
        settings=result.settings,
        max_runs=4,
    )
    with Study.open(tmp_path) as study:
        assert {row.spec.get("axis", "width") for row in study.runs()} == {axis, "width"}
    assert again().exponent == result.exponent
    assert axis in (tmp_path / "report" / result.report().name).read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"axis": "height", "values": (1, 2)}, "axis is 'height': expected one of width, depth, batch, tokens"),
        ({"axis": "depth", "widths": (1, 2)}, "widths are given but the axis is depth: expected values"),
        ({"values": (1, 2)}, "values are given but the axis is width: expected widths"),
        ({}, r"widths are \(\): expected integers of 1 or more"),
        ({"axis": "depth", "values": (2, 4)}, r"train is called as train\(depth=…"),
    ],
)
def test_axes_that_cannot_be_swept_are_refused_in_one_line(arguments, message: str):
    def train(width, learning_rate, seed):
        return 1.0

    with pytest.raises(ValueError, match=message):
        ww.sweep(train, learning_rate=1e-3, precision=None, show=False, **arguments)
