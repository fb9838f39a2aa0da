"""`widthwise check` passes what is right, fails what is wrong with exit code 1, and names the layer."""

import json

import pytest

from widthwise.cli import check, main
from widthwise.coordinates import judge_depth

TINY = ["--data", "synthetic", "--blocks", "1", "--context", "16", "--batch", "8", "--seeds", "2", "--steps", "6"]
TRANSFORMER = [*TINY, "--widths", "32", "128"]
MLP = ["--model", "mlp", "--widths", "64", "256", "--seeds", "2"]


def test_mup_passes_in_the_transformer(capsys):
    assert main(["check", *TRANSFORMER, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is True
    assert [layer["role"] for layer in found["layers"]] == ["embedding"] * 2 + ["hidden"] * 6 + ["readout"]


def test_standard_with_one_global_rate_fails_in_the_transformer(capsys):
    assert main(["check", *TRANSFORMER, "--parameterization", "standard", "--alignment", "global"]) == 1
    out = capsys.readouterr().out
    assert "one global learning rate" in out
    assert "blocks/0/mlp/down" in out
    assert "the hidden learning rate scales as n^0: under full alignment n^-1 is the largest stable." in out
    assert "FAIL: " in out


def test_a_small_readout_shrinks_the_initial_logits_and_ends_the_warning(capsys):
    """After one update, changes of activations are aligned with the usual readout, which moves the logits too far."""
    found = []
    for option in ([], ["--small-readout"]):
        main(["check", *TRANSFORMER, "--steps", "1", "--parameterization", "standard", *option, "--json"])
        found.append(json.loads(capsys.readouterr().out)["layers"][-1])
    usual, small = found
    assert small["initial"]["slope"] == pytest.approx(usual["initial"]["slope"] - 0.5, abs=1e-3)
    assert small["change"]["slope"] < usual["change"]["slope"] - 0.25
    assert "small_readout" in usual["warning"]
    assert small["warning"] is None
    assert not usual["passed"]
    assert main(["check", *TRANSFORMER, "--steps", "1", "--parameterization", "standard"]) == 1
    assert "Start with a smaller readout" in capsys.readouterr().out


def test_the_mlp_passes_and_a_wrong_exponent_fails(capsys):
    assert main(["check", *MLP]) == 0
    assert "PASS: 4 of 4 layers pass." in capsys.readouterr().out
    assert main(["check", *MLP, "--rates=-1/2,-1/2,-1/2"]) == 1
    out = capsys.readouterr().out
    assert "learning rates of your own" in out
    assert "hidden/1: the hidden learning rate scales as n^-1/2: under full alignment n^-1" in out.replace(
        "hidden/0, ", ""
    )


@pytest.mark.parametrize(
    ("optimizer", "constant", "in_use", "slope"),
    [
        ("muon_max", "3", "0", 0.5),  # updates as large as Adam's at every width, and one rate for all of them
        ("muon", "30", "-1", -1.0),  # Adam's exponent on top of a factor that needs none
    ],
)
def test_muon_passes_with_derived_exponents_and_fails_with_others_in_use(
    capsys, optimizer: str, constant: str, in_use: str, slope: float
):
    """The constant makes hidden layers change as much by their own updates as by those below them."""
    options = ["check", *TRANSFORMER, "--optimizer", optimizer, "--hidden-constant", constant]
    assert main(options) == 0
    assert "not the largest at these widths" not in capsys.readouterr().out  # no term is expected to grow
    assert main([*options, f"--rates=-1/2,{in_use},-1/2", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["layers"]
    assert {layer["role"] for layer in found if not layer["passed"]} == {"hidden"}
    (query,) = (layer for layer in found if layer["layer"] == "blocks/0/attention/query/kernel")
    assert query["change"]["slope"] == pytest.approx(slope, abs=0.35)
    assert (query["expected"]["term"], query["expected"]["slope"]) == ("updated", pytest.approx(slope))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--widths", "64"], "widths are 64: expected two or more different ones"),
        (["--widths", "64", "100"], "width is 100: expected a multiple of the head dimension 16"),
        (["--widths", "64", "-1"], "widths are 64, -1: expected 1 or more, not -1"),
        (["--axis", "depth", "--values", "0", "2"], "values are 0, 2: expected 1 or more, not 0"),
        (["--rates", "0,1"], "rates are '0,1': expected three"),
        (["--values", "1", "2"], "values are given but the axis is width: expected widths"),
        (["--rates", "0,x,1"], "'x' is not a number"),
        (["--seeds", "0"], "'0' is not a whole number from 1"),
        (["--tolerance", "0"], "'0' is not a number above 0"),
        (["--small-readout", "--model", "mlp"], "model is mlp: expected transformer with --small-readout"),
        (["--small-readout"], "small_readout is for standard and ntk: the readout of mup is small"),
        (["--model", "rnn"], "'rnn' is not one of transformer, mlp"),
    ],
)
def test_nonsense_is_refused_in_one_line(capsys, options: list[str], named: str):
    assert main(["check", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert named in err


DEEP = [*TINY, "--axis", "depth", "--values", "1", "4", "--widths", "32", "--tolerance", "0.2"]


def test_over_depth_completep_keeps_the_stream_and_without_it_the_stream_grows(capsys):
    found = {}
    for rule in ("completep", "constant"):
        code = main(["check", *DEEP, "--depth-rule", rule, "--json"])
        result = json.loads(capsys.readouterr().out)
        assert code == (0 if result["passed"] else 1)
        found[rule] = {size["name"]: size for size in result["sizes"]}
    assert all(size["passed"] for size in found["completep"].values())
    for name in ("stream", "attention branches", "mlp branches"):
        assert abs(found["completep"][name]["change"]["slope"]) < 0.2, name
        assert found["constant"][name]["change"]["slope"] > 0.6, name
        assert not found["constant"][name]["passed"], name


@pytest.mark.parametrize(("rule", "multiplied"), [("completep", True), ("1/2", True), ("constant", False)])
def test_over_depth_a_multiplier_is_advised_only_where_there_is_none(capsys, monkeypatch, rule: str, multiplied: bool):
    def growing(build, *, depths, seeds, steps, tolerance, progress, **options):
        sizes = {"stream": (1.0, 1.0)}, {"stream": (4.0, 4.0)}
        return judge_depth(
            [[sizes[0]]] * 2, [[each] for each in sizes], depths=depths, steps=steps, tolerance=tolerance, **options
        )

    monkeypatch.setattr(check, "check_depths", growing)
    assert main(["check", *DEEP, "--depth-rule", rule]) == 1
    out = capsys.readouterr().out
    assert "Changes grow as L^1.00: " in out
    assert ("multiply residual branches by L^-1 or L^-1/2" in out) is not multiplied
    assert ("branches have a multiplier already" in out) is multiplied


def test_a_mixture_with_muon_goes_by_the_name_of_its_family_too(capsys):
    found = []
    for name in ("muon", "muon+adam"):
        main(["check", *TINY, "--widths", "32", "64", "--steps", "1", "--optimizer", name, "--json"])
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]


def test_over_depth_only_the_transformer_is_checked(capsys):
    assert main(["check", "--model", "mlp", "--axis", "depth"]) == 2
    assert "expected transformer with --axis depth" in capsys.readouterr().err
    assert main(["check", "--axis", "depth", "--values", "4"]) == 2
    assert "values are 4: expected two or more different ones" in capsys.readouterr().err
