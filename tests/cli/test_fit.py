"""`widthwise fit`: the optimal learning rates of a study, group by group, and its export."""

import csv
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from widthwise.cli import main
from widthwise.study import Outcome, Request, Study

BASE = {
    "parameterization": "standard",
    "optimizer": "adam",
    "alignment": "full",
    "rates": None,
    "constants": "default",
    "horizon": "fixed",
    "steps": 100,
    "epsilon": None,
    "weight_decay": 0.0,
}
WIDTHS = (64, 128, 256)


def group(
    *, exponent: float, seeds: int = 2, tried: int = 9, worse: Sequence[float] = (0, 0, 0), **changes
) -> Iterator[tuple[Request, Outcome]]:
    """Make up a sweep whose optimum is 2^-8 at width 64 and moves by this exponent; four octaves above, it diverges."""
    for width, more in zip(WIDTHS, worse, strict=True):
        optimum = -8 + exponent * math.log2(width / 64)
        for index in range(tried):
            octave = round(optimum) + index / 2 - 2
            for seed in range(seeds):
                spec = {**BASE, **changes, "width": width, "learning_rate": 2.0**octave, "seed": seed}
                run = f"{hash(json.dumps(spec, sort_keys=True)) & 0xFFFFFFFFFFFF:012x}"
                loss = 3 + 0.05 * (octave - optimum) ** 2 + 0.001 * seed - 0.1 * math.log2(width / 64) + more
                yield (
                    Request(request=spec, id=run, identity={}),
                    Outcome(
                        run=run,
                        status="finished" if octave < optimum + 4 else "diverged",
                        results={"eval_loss": loss if octave < optimum + 4 else math.nan, "parameters": width**2},
                    ),
                )


def filled(folder: Path, *groups: Iterator[tuple[Request, Outcome]]) -> Path:
    pairs = [pair for each in groups for pair in each]
    with Study.open(folder) as study:
        study.ask([asked for asked, _ in pairs])
        study.record([outcome for _, outcome in pairs])
    return folder


def fits(capsys, folder: Path, *options: str) -> list[dict]:
    assert main(["fit", str(folder), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)["fits"]


def test_each_setting_has_its_exponent_and_verdict(tmp_path, capsys):
    filled(tmp_path, group(exponent=-1, alignment="global"), group(exponent=0))
    drifting, still = fits(capsys, tmp_path, "--predict", "1024")
    named = ("parameterization", "optimizer", "setting", "constants", "horizon", "where")
    assert [drifting[name] for name in named] == ["standard", "adam", "global", "default", "fixed", {}]
    assert still["setting"] == "full"
    assert drifting["exponent"] == pytest.approx(-1, abs=0.02)
    assert drifting["interval"][0] < drifting["exponent"] < drifting["interval"][1]
    assert (drifting["verdict"], still["verdict"]) == ("drifts", "transfers")
    assert [optimum["width"] for optimum in still["optima"]] == [64, 128, 256]
    assert still["optima"][0]["learning_rate"] == pytest.approx(2**-8, rel=0.02)
    assert {"width", "learning_rate", "interval", "eval_loss"} <= set(still["optima"][0])
    (predicted,) = drifting["predictions"]
    assert predicted["learning_rate"] == pytest.approx(2**-12, rel=0.1)


def test_what_differs_makes_groups_and_is_named(tmp_path, capsys):
    filled(
        tmp_path,
        group(exponent=0),
        group(exponent=0, weight_decay=1e-4),
        group(exponent=0, epsilon=1e-12),
        group(exponent=0, rates="0,-1,-1"),
        group(exponent=0, horizon="compute_optimal", steps=7),
    )
    found = fits(capsys, tmp_path)
    assert [fit["where"].get("weight_decay") for fit in found] == [0.0, 1e-4, 0.0, 0.0, 0.0]
    assert [fit["where"].get("epsilon") for fit in found] == [None, None, 1e-12, None, None]
    assert [fit["setting"] for fit in found] == ["full", "full", "full", "own", "full"]
    assert found[3]["where"]["rates"] == "0,-1,-1"
    assert found[4]["horizon"] == "compute_optimal"


def test_reusing_a_rate_and_a_decay_is_compared_with_the_best_decay_of_each_width(tmp_path, capsys):
    filled(
        tmp_path,
        group(exponent=0, worse=(0.3, 0.3, 0.3)),
        group(exponent=0, weight_decay=1e-2, worse=(0, 0.1, 0.2)),
        group(exponent=0, weight_decay=1e-3, worse=(0.1, 0, 0)),
        group(exponent=0, weight_decay=1e-2, decay_rule="inverse"),
        group(exponent=0, epsilon=1e-12, weight_decay=1e-2),  # alone with its epsilon: nothing to compare
    )
    assert main(["fit", str(tmp_path), "--json"]) == 0
    independent, inverse = json.loads(capsys.readouterr().out)["decays"]
    assert (independent["rule"], independent["base_width"], independent["weight_decay"]) == ("independent", 64, 1e-2)
    assert independent["learning_rate"] == pytest.approx(2**-8, rel=0.05)
    assert [pair["best_decay"] for pair in independent["reuse"]] == [1e-2, 1e-3, 1e-3]
    assert [pair["given_up"] for pair in independent["reuse"]] == pytest.approx([0, 0.1, 0.2], abs=0.01)
    assert (inverse["rule"], [pair["best_decay"] for pair in inverse["reuse"]]) == ("inverse", [1e-2] * 3)
    assert main(["fit", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert (
        "independent decay: with rate 0.00391 and decay 0.01 of width 64, the loss is 3.45 % larger at width 128" in out
    )


def test_decays_are_compared_with_the_seeds_that_they_share(tmp_path, capsys):
    filled(
        tmp_path,
        group(exponent=0, weight_decay=1e-2, seeds=2),  # seed 1 is worse by 0.001
        group(exponent=0, weight_decay=1e-3, seeds=1, worse=(0.0003, 0.0003, 0.0003)),
    )
    assert main(["fit", str(tmp_path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["decays"]
    assert found["weight_decay"] == 1e-2
    for pair, loss in zip(found["reuse"], (3.0, 2.9, 2.8), strict=True):
        assert (pair["best_decay"], pair["given_up"]) == (1e-2, pytest.approx(0, abs=1e-5))
        assert pair["eval_loss"] == pytest.approx(loss, abs=4e-4)


def test_decays_are_not_compared_where_only_one_was_searched(tmp_path, capsys):
    ends = [pair for pair in group(exponent=0, weight_decay=1e-3, worse=(0.1, 0, 0)) if pair[0].request["width"] != 128]
    filled(tmp_path, group(exponent=0, weight_decay=1e-2, worse=(0, 0, 0.1)), iter(ends))
    assert main(["fit", str(tmp_path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["decays"]
    assert [(pair["width"], pair["best_decay"]) for pair in found["reuse"]] == [(64, 1e-2), (256, 1e-3)]
    at_the_base = [pair for pair in ends if pair[0].request["width"] == 256]
    with Study.open(tmp_path / "other") as study:
        for pairs in (list(group(exponent=0, weight_decay=1e-2)), at_the_base):
            study.ask([asked for asked, _ in pairs])
            study.record([outcome for _, outcome in pairs])
    assert main(["fit", str(tmp_path / "other"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decays"] == []


def test_steps_that_follow_from_the_width_do_not_split_a_group(tmp_path, capsys):
    pairs = [
        (Request(request={**asked.request, "steps": asked.request["width"]}, id=asked.id, identity={}), outcome)
        for asked, outcome in group(exponent=0, horizon="compute_optimal")
    ]
    filled(tmp_path, iter(pairs))
    (fit,) = fits(capsys, tmp_path)
    assert len(fit["optima"]) == 3


def test_a_table_a_prediction_and_what_has_not_ended(tmp_path, capsys):
    filled(tmp_path, group(exponent=0))
    with Study.open(tmp_path) as study:
        study.ask([Request(request={**BASE, "width": 512, "learning_rate": 0.1, "seed": 0}, id="aa", identity={})])
    assert main(["fit", str(tmp_path), "--predict", "512"]) == 0
    out = capsys.readouterr().out
    assert "standard, adam, full, default constants, fixed horizon" in out
    assert "predicted for width 512: 0.0039" in out
    assert "transfers: exponent" in out
    assert "left out: 1 of 55 runs, which have not ended" in out


def test_all_runs_can_be_taken_elsewhere(tmp_path, capsys):
    filled(tmp_path, group(exponent=0, tried=3, seeds=1))
    files = tmp_path / "runs.csv", tmp_path / "runs.jsonl"
    assert main(["fit", str(tmp_path), "--csv", str(files[0]), "--jsonl", str(files[1]), "--json"]) == 0
    assert len(list(csv.DictReader(files[0].read_text().splitlines()))) == 9
    assert len(files[1].read_text().splitlines()) == 9


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["/nowhere/at/all"], "there is no study in '/nowhere/at/all'"),
        ([], "study"),
        (["/nowhere", "--tolerance", "0"], "'0' is not a number above 0"),
    ],
)
def test_nonsense_is_refused_in_one_line(capsys, options, said):
    assert main(["fit", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_a_width_that_cannot_be_predicted_is_refused(tmp_path, capsys):
    filled(tmp_path, group(exponent=0, tried=3, seeds=1))
    assert main(["fit", str(tmp_path), "--predict", "0"]) == 2
    assert capsys.readouterr().err == "widthwise fit: width is 0: expected 1 or more\n"


def test_one_rule_written_in_two_ways_is_one_group(tmp_path, capsys):
    """A study of version 0.1.0 kept exponents as they were typed."""
    written = [*group(exponent=0.0, rates="0,-0.5,-1"), *group(exponent=0.0, rates="0,-1/2,-1")]
    requests = [Request(request=asked.request, id=outcome.run, identity={}) for asked, outcome in written]
    half = len(written) // 2
    with Study.open(tmp_path) as study:
        # The second half asks for the runs of the first half again, as a resumed command does.
        first = [request.id for request in requests[:half]]
        study.ask(requests[:half])
        study.ask(
            [
                Request(request=request.request, id=run, identity={})
                for request, run in zip(requests[half:], first, strict=True)
            ]
        )
        study.record([outcome for _, outcome in written[:half]])
    (fit,) = fits(capsys, tmp_path)
    assert (fit["setting"], fit["where"]) == ("own", {})
