"""`widthwise transfer` prints every hyperparameter of a larger model, and where it comes from."""

import json
import math
import re
import shlex

import pytest

import widthwise as ww
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


@pytest.mark.parametrize("width", ["64", "128", "1024"])
def test_a_rule_without_decay_outside_of_hidden_layers_has_a_decay_of_0_there(capsys, width: str):
    found = transferred(capsys, "--width", width, "--decay-rule", "sqrt")
    decays = {of: (each["base"], each["target"]) for (of, name), each in found.items() if name == "decay per step"}
    hidden = {"matrix in a block", "last matrix of a branch"}
    assert {of for of, both in decays.items() if both == (0, 0)} == decays.keys() - hidden
    for of in hidden:
        assert decays[of] == pytest.approx((1e-4, 1e-4 * (int(width) / 128) ** -0.5))


def test_a_base_size_alone_means_that_nothing_grows_along_its_axis(capsys):
    plain = transferred(capsys, "--width", "256")
    assert transferred(capsys, *shlex.split("--width 256 --base-depth 16 --base-batch 8 --base-tokens 1e9")) == plain


def notes(capsys, words: str) -> list[str]:
    found = json.loads(told(capsys, f"{words} --json"))["notes"]
    assert [line for line in told(capsys, words).splitlines() if line.startswith("note")] == [
        f"note: {note}" for note in found
    ]
    return found


def test_a_rule_for_an_axis_that_does_not_grow_is_said_to_change_nothing(capsys):
    assert notes(capsys, "--batch-rule sde --token-rule horizon --tokens 100 --base-tokens 100") == [
        "--batch-rule sde changes nothing: the target has the batch size of the tuned model",
        "--token-rule horizon changes nothing: the target has the number of tokens of the tuned model",
    ]
    assert notes(capsys, "--batch-rule constant --token-rule 0 --width 256") == []
    assert notes(capsys, "--batch-rule sde --batch 8 --base-batch 4") == []


def test_a_rule_that_was_derived_for_another_optimizer_is_said_to_be_a_guess(capsys):
    longer = "--tokens 100 --base-tokens 10 --token-rule"
    for optimizer in ("sgd", "adafactor"):
        assert notes(capsys, f"--optimizer {optimizer} {longer} horizon") == [
            f"--token-rule horizon was derived for Adam: for {optimizer} it is a guess"
        ]
        assert notes(capsys, f"--optimizer {optimizer} {longer} -1/2") == []  # nobody's but the user's own
    assert notes(capsys, f"--optimizer muon {longer} horizon")[1:] == [
        "--token-rule horizon was derived for Adam: for muon it is a guess"
    ]


@pytest.mark.parametrize("name", ["muon", "muon+adam", "muon_max"])
def test_with_muon_every_row_names_its_optimizer(name: str, capsys):
    found = transferred(capsys, "--optimizer", name, "--width", "512")
    hidden = {"matrix in a block", "last matrix of a branch"}
    muon = name.removesuffix("+adam")
    assert {of: each["optimizer"] for (of, _), each in found.items()} == {
        of: muon if of in hidden else "adam" for of, _ in found
    }
    out = told(capsys, f"--optimizer {name} --width 512")
    assert re.search(rf"^matrix in a block +{muon} ", out, re.MULTILINE)
    assert re.search(r"^readout +adam ", out, re.MULTILINE)
    (note,) = notes(capsys, f"--optimizer {name} --width 512")
    assert f"{muon} trains the matrices in blocks, and adam the rest" in note
    assert "their tuned learning rates usually differ" in note


def test_with_one_optimizer_the_table_does_not_name_it_in_every_row(capsys):
    assert {each["optimizer"] for each in transferred(capsys, "--optimizer", "sgd").values()} == {"sgd"}
    assert "sgd" not in told(capsys, "--optimizer sgd")


def test_a_table_says_what_decides_each_axis(capsys):
    assert main(["transfer", *TUNED, *LARGER]) == 0
    out = capsys.readouterr().out
    assert "width x 8: theory: mup, adam, full alignment" in out
    assert "depth x 4: theory: completep" in out
    assert "last matrix of a branch" in out


def swept(folder, exponent: float, axis: str = "tokens", sizes: int = 3, **options) -> None:
    """Write a sweep along an axis into a study, with losses of a known exponent and options that are not defaults."""
    field = {"tokens": "steps", "depth": "blocks", "batch": "batch"}.get(axis, "width")
    with Study.open(folder) as study:
        for doublings in range(sizes):
            for octave in range(-10, -2):
                away = octave + 6 - exponent * doublings
                grown = {field: getattr(TINY, field) * 2**doublings}
                spec = {**TINY.to_json(), **grown, "learning_rate": 2.0**octave, "axis": axis}
                spec |= {"constants": "default", "horizon": "fixed", **options}
                run = "-".join([f"{axis}{doublings}{octave}", *(re.sub(r"\W", "_", f"{x}") for x in options.values())])
                study.ask([Request(id=run, request=spec, identity=spec)])
                loss = 3 * math.exp(0.05 * (math.expm1(-0.6 * away) / 0.6 + math.expm1(0.6 * away) / 0.6))
                study.record([Outcome(run=run, status="finished", results={"eval_loss": loss})])


def swept_by_oneself(folder, axis: str, settings: dict[str, str]) -> None:
    """Write a sweep of a function of one's own into a study."""

    def train(learning_rate: float, seed: int, **size: int) -> float:
        return 2 + (math.log2(learning_rate) + 8 + 0.5 * math.log2(size[axis])) ** 2 / 10 + seed / 1000

    sizes = {"widths" if axis == "width" else "values": (2, 4, 8)}
    ww.sweep(train, axis=axis, learning_rate=1e-2, study=folder, settings=settings, show=False, **sizes)


def told(capsys, words: str) -> str:
    """Return what a command says that is expected to end well."""
    assert main(["transfer", "--learning-rate", "0.004", *shlex.split(words)]) == 0
    return capsys.readouterr().out


def refused(capsys, words: str) -> str:
    """Return the one line of a command that is expected to be refused."""
    assert main(["transfer", "--learning-rate", "0.004", *shlex.split(words)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


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
    swept(tmp_path, -0.2, token_rule="horizon")
    larger = f"--base-tokens 1 --tokens 2 --study {tmp_path}"
    expected = f"no sweep over tokens in '{tmp_path}' has --token-rule constant: found --token-rule horizon\n"
    assert expected in refused(capsys, larger)
    assert "measured exponent -0.2" in told(capsys, f"{larger} --token-rule horizon")


def test_of_several_sweeps_along_an_axis_the_one_with_the_same_rules_counts(tmp_path, capsys):
    for rule, exponent in (("constant", -0.6), ("completep", 0.0), ("1/2", -0.3)):
        swept(tmp_path, exponent, "depth", depth_rule=rule)
    deeper = f"--base-depth 2 --depth 8 --study {tmp_path}"
    for rule, exponent in (("constant", "-0.60"), ("completep", "0.00"), ("0.5", "-0.30"), ("sqrt", "-0.30")):
        assert f"measured exponent {exponent} [" in told(capsys, f"{deeper} --depth-rule {rule}")
    found = "--depth-rule constant; --depth-rule completep; --depth-rule 1/2"
    expected = f"no sweep over depth in '{tmp_path}' has --depth-rule 3/4: found {found}\n"
    assert expected in refused(capsys, f"{deeper} --depth-rule 3/4")


def test_a_sweep_with_another_optimizer_or_over_width_with_another_alignment_does_not_count(tmp_path, capsys):
    swept(tmp_path, -0.5, "width", parameterization="mup", alignment="none", optimizer="adam_atan2")
    swept(tmp_path, -0.2, "width", parameterization="mup", alignment="none", optimizer="muon")
    wider = f"--width 512 --alignment none --study {tmp_path}"
    assert "measured exponent -0.50" in told(capsys, wider)
    assert "measured exponent -0.20" in told(capsys, f"{wider} --optimizer muon")
    assert "has --optimizer sgd: found --optimizer adam; --optimizer muon+adam" in refused(
        capsys, f"{wider} --optimizer sgd"
    )
    message = refused(capsys, f"--width 512 --study {tmp_path}")
    assert "has --optimizer adam --alignment full: found --optimizer adam --alignment none; " in message


def test_rules_of_other_axes_decide_between_sweeps_that_match_and_nothing_is_guessed(tmp_path, capsys):
    longer = f"--base-tokens 1 --tokens 4 --study {tmp_path}"
    swept(tmp_path, -0.5, parameterization="standard")
    assert "measured exponent -0.50" in told(capsys, longer)
    swept(tmp_path, -0.2, parameterization="ntk")
    message = refused(capsys, longer)
    assert "2 sweeps over tokens match: expected one" in message
    assert "standard, adam" in message
    assert "ntk, adam" in message
    swept(tmp_path, 0.3, parameterization="mup")
    assert "measured exponent 0.30" in told(capsys, longer)


def test_sweeps_along_axes_that_do_not_grow_are_not_looked_at(tmp_path, capsys):
    swept(tmp_path, -0.5, "depth", sizes=1, depth_rule="sqrt")
    note = "note: --study corrects nothing: there is no sweep over width\n"
    assert note in told(capsys, f"--width 512 --study {tmp_path}")
    assert "corrects nothing: the target is not larger" in told(capsys, f"--study {tmp_path}")
    swept(tmp_path, 0.5, "batch")
    assert "measured exponent 0.50" in told(capsys, f"--batch 8 --base-batch 4 --study {tmp_path}")
    deeper = f"--depth 8 --base-depth 4 --depth-rule sqrt --study {tmp_path}"
    assert "the exponent in depth is not known" in refused(capsys, deeper)


def test_rules_of_a_sweep_of_ones_own_are_not_known_and_a_note_says_what_is_added(tmp_path, capsys):
    swept_by_oneself(tmp_path, "depth", {"model": "mine"})
    deeper = f"--depth 8 --base-depth 2 --study {tmp_path}"
    note = "the measured exponent is added to that of --depth-rule completep"
    advice = "if the sweep was made without a rule, pass --depth-rule constant"
    out = told(capsys, deeper)
    assert f"note: the sweep over depth in '{tmp_path}' (model: mine) is of your own function" in out
    assert note in out
    assert advice in out
    (found,) = json.loads(told(capsys, f"{deeper} --json"))["notes"]
    assert note in found
    assert advice in found
    assert "note" not in told(capsys, f"{deeper} --depth-rule constant")

    swept_by_oneself(tmp_path, "width", {"model": "mine"})
    assert "added to those of theory (mup, adam, full alignment)" in told(capsys, f"--width 256 --study {tmp_path}")
    swept_by_oneself(tmp_path, "depth", {"model": "another"})
    assert "2 sweeps over depth match: expected one; found model: mine in " in refused(capsys, deeper)


def test_a_sweep_in_which_everything_grew_corrects_a_target_that_grows_alike(tmp_path, capsys):
    rules = {"depth_rule": "completep", "batch_rule": "sqrt", "parameterization": "mup"}
    swept(tmp_path, -0.2, axis="together", **rules)
    sizes = "--base-width 128 --width 1024 --base-depth 4 --depth 16 --base-batch 2 --batch 16 --base-tokens 100"
    alike = f"{sizes} --tokens 800 --batch-rule sqrt --study {tmp_path}"
    out = told(capsys, alike)
    assert "all of them: measured exponent -0.20 [" in out
    rates = {row["of"]: row for row in json.loads(told(capsys, f"{alike} --json"))["hyperparameters"]}
    # 8^(1/2) by the rule, and 8^-0.2 as measured
    assert rates["embedding"]["target"] == pytest.approx(0.004 * 8**0.3, rel=0.05)
    assert "is for a target that grows alike" in refused(capsys, alike.replace("--depth 16", "--depth 32"))
    other_rule = refused(capsys, alike.replace("--batch-rule sqrt", "--batch-rule sde"))
    assert "no sweep over together in" in other_rule
    assert "has --batch-rule sde: found --batch-rule sqrt" in other_rule
    swept(tmp_path, 0.5, "batch", batch_rule="sqrt")
    other = told(capsys, alike.replace("--tokens 800", "--tokens 100"))
    assert "measured exponent 0.50" in other
    assert "all of them" not in other


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--depth 4", "--base-depth is missing: expected that of the tuned model beside --depth 4"),
        ("--tokens 1e9", "--base-tokens is missing: expected that of the tuned model beside --tokens 1000000000"),
        ("--depth-rule x --depth 4 --base-depth 2", "--depth-rule is 'x': expected one of completep"),
        ("--depth-rule 1/4 --depth 4 --base-depth 2", "no learning rate is stable"),
        ("--epsilon -1", "--epsilon is -1.0: expected a finite number, 0 or more"),
        ("--weight-decay nan", "--weight-decay is nan: expected a finite number, 0 or more"),
        (
            "--weight-decay 2",
            "--weight-decay is 2.0, the part of every weight that a step removes: expected at most 0.05",
        ),
        (
            "--weight-decay 1e-3 --batch 8192 --base-batch 4 --batch-rule timescale",
            "a step would remove the tuned decay · 2048 = 2.05 of every weight (embedding): expected at most 0.05",
        ),
        ("--batch 1000000 --base-batch 1 --batch-rule 1000", "a factor is too large or too small"),
        ("--batch 1000000 --base-batch 1 --batch-rule -1000", "the factor on the learning rate (embedding) is too"),
        ("--depth 100000 --base-depth 1 --depth-rule 1000", "a factor is too large or too small"),
        ("--b2 2", "--b2 is 2.0: expected a number from 0 to 1"),
        ("--batch 6400 --base-batch 1 --batch-rule sde", "1 - beta2 is 128 in the target"),
    ],
)
def test_what_cannot_be_transferred_is_refused(options, message, capsys):
    assert main(["transfer", *TUNED, *shlex.split(options)]) == 2
    assert message in capsys.readouterr().err
