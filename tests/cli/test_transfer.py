"""`widthwise transfer` prints every hyperparameter of a larger model, and where it comes from."""

import json
import math
import shlex

import pytest

from tests.sweeps.tiny import TINY
from widthwise.cli import main
from widthwise.study import Outcome, Request, Study

TUNED = shlex.split("--learning-rate 0.004 --epsilon 1e-8 --weight-decay 1e-4 --b2 0.98 --base-width 128")
LARGER = shlex.split("--width 1024 --base-depth 4 --depth 16 --base-batch 32 --batch 128")


def transferred(capsys, *options: str) -> dict[tuple[str, str], dict]:
    assert main(["transfer", *TUNED, *options, "--json"]) == 0
    return {(each["of"], each["name"]): each for each in json.loads(capsys.readouterr().out)["hyperparameters"]}


def test_completep_and_sde_are_products_of_the_exponents_of_every_axis(capsys):
    """The published table of CompleteP, with multipliers of branches stored in their last weights."""
    found = transferred(capsys, *LARGER, "--batch-rule", "sde")
    m_n, m_l, k = 8, 4, 4
    expected = {
        ("matrix in a block", "learning rate"): 0.004 / m_n * k**0.5,
        ("matrix in a block", "initial size"): m_n**-0.5,
        ("matrix in a block", "epsilon"): 1e-8 / m_n / m_l / k**0.5,
        ("last matrix of a branch", "learning rate"): 0.004 / m_n / m_l * k**0.5,
        ("last matrix of a branch", "initial size"): m_n**-0.5 / m_l,
        ("last matrix of a branch", "epsilon"): 1e-8 / m_n / k**0.5,
        ("vector in a block", "learning rate"): 0.004 * k**0.5,
        ("embedding", "learning rate"): 0.004 * k**0.5,
        ("readout", "learning rate"): 0.004 / m_n * k**0.5,
        ("readout", "initial size"): 1 / m_n,
        ("readout", "decay per step"): 1e-4 * k**0.5,
        ("all", "1 - beta2"): 0.02 * k,
    }
    assert {key: found[key]["target"] for key in expected} == pytest.approx(expected)
    because = {one["axis"]: one["exponent"] for one in found["last matrix of a branch", "initial size"]["origins"]}
    assert because == {"width": "-1/2", "depth": "-1"}


def test_at_the_tuned_sizes_nothing_changes(capsys):
    for each in transferred(capsys, *shlex.split("--depth 4 --base-depth 4 --batch 8 --base-batch 8")).values():
        assert each["target"] == each["base"], each
        assert each["origins"] == []


def test_tokens_may_be_written_as_a_power_of_ten(capsys):
    long = transferred(capsys, "--tokens", "8000000000", "--base-tokens", "1000000000", "--token-rule", "horizon")
    assert transferred(capsys, "--tokens", "8e9", "--base-tokens", "1e9", "--token-rule", "horizon") == long
    assert long["readout", "learning rate"]["target"] < long["readout", "learning rate"]["base"]


@pytest.mark.parametrize("tokens", ["8e", "e9", "8e-9", "1.5e9", "8e99"])
def test_what_is_no_whole_number_of_tokens_is_refused(tokens: str, capsys):
    assert main(["transfer", *TUNED, "--tokens", tokens, "--base-tokens", "1e9"]) == 2
    assert f"{tokens!r} is not a whole number" in capsys.readouterr().err


def test_a_table_says_what_decides_each_axis(capsys):
    assert main(["transfer", *TUNED, *LARGER]) == 0
    out = capsys.readouterr().out
    assert "width x 8: theory: mup, adam, full alignment" in out
    assert "depth x 4: theory: completep" in out
    assert "last matrix of a branch" in out


def swept(folder, exponent: float, rule: str = "constant", axis: str = "tokens") -> None:
    """Write a sweep over tokens, or over all axes, into a study, with losses of a known exponent."""
    with Study.open(folder) as study:
        for doublings in range(3):
            for octave in range(-10, -2):
                away = octave + 6 - exponent * doublings
                grown = {"steps": 40 * 2**doublings} if axis == "tokens" else {"width": 16 * 2**doublings}
                spec = {**TINY.to_json(), **grown, "learning_rate": 2.0**octave, "axis": axis}
                spec |= {"constants": "default", "horizon": "fixed"} | (
                    {} if rule == "constant" else {"token_rule": rule}
                )
                run = f"run{doublings}{octave}"
                study.ask([Request(id=run, request=spec, identity=spec)])
                loss = 3 * math.exp(0.05 * (math.expm1(-0.6 * away) / 0.6 + math.expm1(0.6 * away) / 0.6))
                study.record([Outcome(run=run, status="finished", results={"eval_loss": loss})])


def test_a_measured_exponent_corrects_every_rate_and_gives_it_an_interval(tmp_path, capsys):
    swept(tmp_path, -0.5)
    sizes = shlex.split("--base-tokens 1000 --tokens 16000")
    found = transferred(capsys, *sizes, "--study", str(tmp_path))
    for (of, name), each in found.items():
        if name != "learning rate":
            assert each["interval"] is None, of
            continue
        assert each["target"] == pytest.approx(0.004 / 4, rel=0.1), of
        low, high = each["interval"]
        assert low < each["target"] < high
        assert each["origins"][-1]["rule"] == "measured"


def test_a_sweep_with_another_rule_does_not_count(tmp_path, capsys):
    swept(tmp_path, -0.2, rule="horizon")
    arguments = shlex.split("transfer --learning-rate 1 --base-tokens 1 --tokens 2 --study")
    assert main([*arguments, str(tmp_path)]) == 2
    assert "has --token-rule horizon: expected constant" in capsys.readouterr().err
    assert main([*arguments, str(tmp_path), "--token-rule", "horizon"]) == 0


def test_a_sweep_in_which_everything_grew_corrects_no_axis(tmp_path, capsys):
    swept(tmp_path, -0.2, axis="together")
    assert main(["transfer", *TUNED, "--study", str(tmp_path)]) == 2
    assert "a sweep over all axes together corrects none of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--depth 4", "base_depth is missing"),
        ("--depth-rule 1/4 --depth 4 --base-depth 2", "no learning rate is stable"),
        ("--epsilon -1", "epsilon is -1.0: expected a finite number, 0 or more"),
        ("--weight-decay nan", "weight_decay is nan: expected a finite number, 0 or more"),
        ("--b2 2", "b2 is 2.0: expected a number from 0 to 1"),
        ("--batch 6400 --base-batch 1 --batch-rule sde", "1 - beta2 is 128 in the target"),
    ],
)
def test_what_cannot_be_transferred_is_refused(options, message, capsys):
    assert main(["transfer", *TUNED, *shlex.split(options)]) == 2
    assert message in capsys.readouterr().err
