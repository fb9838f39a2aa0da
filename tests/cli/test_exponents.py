"""`widthwise exponents` as a person and as a program would use it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from widthwise.cli import main
from widthwise.cli.exponents import ExponentsCommand
from widthwise.cli.main import COMMANDS, one_line

MUP_ADAM = ["--parameterization", "mup", "--optimizer", "adam"]
OWN = ["--embedding", "0,0", "--hidden", "0,1/2", "--readout", "0,1/2"]
OWN_GLOBAL = ["--embedding", "0,0,0", "--hidden", "0,1/2,0", "--readout", "0,1/2,0"]


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["exponents", *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def as_json(capsys: pytest.CaptureFixture[str], *options: str):
    return json.loads(printed(capsys, *options, "--json"))


def test_without_options_it_prints_table_1_with_the_four_trivial_cells_marked(capsys):
    out = printed(capsys)
    table, notes = out.split("Alignment full")
    rows = [line.split() for line in table.splitlines()]
    assert ["mup", "embedding", "-1/2", "1/2", "-1/2", "0", "-1/2", "0", "0", "-1/2", "0"] in rows
    assert ["readout", "0", "-1", "-1", "1", "0", "0", "*1", "1/2", "*0"] in rows
    assert table.count("*") == 4
    explained = [line for line in notes.splitlines() if line.startswith("*")]
    assert len(explained) == 1
    for case in ("mup sgd none", "mup adafactor none", "mean_field sgd none", "mean_field adafactor none"):
        assert case in explained[0]
    assert max(len(line) for line in table.splitlines()) <= 90


def test_without_a_selection_json_lists_all_cases(capsys):
    cases = as_json(capsys)
    assert len(cases) == 24
    assert len({(c["parameterization"], c["optimizer"], c["alignment"]["alpha"]["hidden"]) for c in cases}) == 24
    assert sum(not c["verdict"]["nontrivial"] for c in cases) == 4


def test_one_case_is_one_object_with_exact_exponents_of_n(capsys):
    case = as_json(capsys, *MUP_ADAM, "--alignment", "full")
    assert case["parameterization"] == "mup"
    assert case["optimizer"] == "adam"
    assert case["alignment"] == {
        "alpha": {"hidden": "1", "readout": "1"},
        "omega": {"hidden": "1/2", "readout": "1/2"},
        "u": {"hidden": "1", "readout": "1"},
    }
    assert case["exponents"] == {
        "embedding": {"init_std": "-1/2", "multiplier": "1/2", "gradient": "-1/2", "learning_rate": "-1/2"},
        "hidden": {"init_std": "-1/2", "multiplier": "0", "gradient": "-1", "learning_rate": "-1"},
        "readout": {"init_std": "-1/2", "multiplier": "-1/2", "gradient": "-1/2", "learning_rate": "-1/2"},
    }
    assert case["verdict"] == {
        "stable_at_init": True,
        "stable": True,
        "nontrivial": True,
        "feature_learning": True,
        "residual": "0",
    }
    logits = [c for c in case["constraints"] if c["name"].startswith("stable_logits")]
    assert {"name": "stable_logits.update", "layer": "readout", "slack": "0", "binding": True} in logits
    assert {"name": "stable_logits.inherited", "layer": "readout", "slack": "1/2", "binding": False} in logits


def test_a_partial_selection_lists_what_it_leaves_open(capsys):
    cases = as_json(capsys, *MUP_ADAM)
    assert [c["alignment"]["alpha"]["hidden"] for c in cases] == ["1", "1/2"]
    assert len(as_json(capsys, "--alignment", "tensor_programs")) == 12


def test_names_are_forgiving_about_case_and_hyphens(capsys):
    chosen = ["--parameterization", "Mean-Field", "--optimizer", "ADAM", "--alignment", "tensor-programs"]
    assert as_json(capsys, *chosen)["parameterization"] == "mean_field"


def test_alignment_by_numbers(capsys):
    chosen = [*MUP_ADAM, "--alpha", "3/4", "--omega", "1/2,1", "--u", "3/4"]
    case = as_json(capsys, *chosen)
    assert case["alignment"]["omega"] == {"hidden": "1/2", "readout": "1"}
    assert case["exponents"]["hidden"]["learning_rate"] == "-3/4"


def test_numbers_left_out_come_from_the_named_alignment_or_follow_alpha(capsys):
    named = as_json(capsys, *MUP_ADAM, "--alignment", "full", "--omega", "3/4")
    assert [named["alignment"][name]["readout"] for name in ("alpha", "omega", "u")] == ["1", "3/4", "1"]
    alone = as_json(capsys, *MUP_ADAM, "--alpha", "2/3,3/4")
    assert alone["alignment"]["u"] == {"hidden": "2/3", "readout": "3/4"}
    assert alone["alignment"]["omega"] == {"hidden": "1/2", "readout": "1/2"}


def test_hidden_layers_that_differ_are_a_list(capsys):
    chosen = [*MUP_ADAM, "--alpha", "3/4", "--omega", "3/4", "--layers", "3"]
    case = as_json(capsys, *chosen)
    assert [layer["learning_rate"] for layer in case["exponents"]["hidden"]] == ["-5/4", "-1", "-3/4"]
    assert {c["layer"] for c in case["constraints"]} >= {"hidden.1", "hidden.2", "hidden.3"}
    assert "here 3 (--layers)" in printed(capsys, *chosen)


def test_depth_does_not_matter_without_hidden_omega_above_one_half(capsys):
    shallow, deep = (as_json(capsys, *MUP_ADAM, "--alignment", "full", "--layers", n) for n in ("1", "9"))
    assert shallow["exponents"] == deep["exponents"]


def test_hidden_layers_are_shown_once_only_if_nothing_shown_differs(capsys):
    """Three rates alike, but the outputs of the first layer and of the others change differently."""
    chosen = ["--parameterization", "standard", "--optimizer", "adafactor", "--alpha", "0", "--omega", "1/4"]
    out = printed(capsys, *chosen, "--layers", "3")
    changes = {line.split()[0]: line.split()[5] for line in out.splitlines() if line.startswith("hidden")}
    assert changes == {"hidden.1": "-1/4", "hidden.2": "-1/2", "hidden.3": "-1/2"}
    alike = printed(capsys, *MUP_ADAM, "--alignment", "full", "--layers", "3")
    assert [line.split()[0] for line in alike.splitlines() if line.startswith("hidden")] == ["hidden"]


@pytest.mark.parametrize("columns", ["10", "40", "80"])
def test_numbers_are_never_cut(capsys, monkeypatch, columns: str):
    monkeypatch.setenv("COLUMNS", columns)
    assert "…" not in printed(capsys)
    long = printed(capsys, *MUP_ADAM, "--alpha", "0.8317421937")
    assert "-8317421937/10000000000" in long


def test_gradients_in_json_are_those_at_initialization(capsys):
    case = as_json(capsys, *MUP_ADAM, "--alignment", "none")
    assert [case["exponents"][role]["gradient"] for role in ("embedding", "hidden", "readout")] == [
        "-1/2",
        "-1",
        "-1/2",
    ]


def test_the_residual_in_json_is_r_itself(capsys):
    chosen = ["--parameterization", "standard", "--optimizer", "adam", "--alignment", "tensor_programs"]
    assert as_json(capsys, *chosen)["verdict"]["residual"] == "1/2"


def test_marks_and_their_explanations(capsys):
    features = printed(capsys, "--parameterization", "ntk", "--alignment", "tensor_programs")
    assert features.count("°") == 4
    assert "n^-1/2: all cases." in features
    unstable = printed(capsys, *OWN_GLOBAL)
    assert sum(line.count("!") for line in unstable.splitlines() if "readout" in line) == 5
    assert "custom sgd full; custom adam full." in unstable


def test_a_rate_that_could_be_larger_is_said_to_be(capsys):
    slow = ["--embedding", "0,0,2", "--hidden", "0,1/2,2", "--readout", "0,1/2,1"]
    out = printed(capsys, *slow, "--optimizer", "adam", "--alignment", "full")
    assert out.count("nothing: it could be larger") == 2


def test_own_limits_are_named_before_those_of_other_layers(capsys):
    out = printed(capsys, *MUP_ADAM, "--alignment", "full")
    limited_by = {
        line.split()[0]: line.split()[-1] for line in out.splitlines() if line.startswith(("emb", "hid", "rea"))
    }
    assert limited_by == {
        "embedding": "stable_activations.update",
        "hidden": "stable_activations.update",
        "readout": "stable_logits.update",
    }


def test_a_decay_rule_shows_what_it_leads_to(capsys):
    rows = [
        line.split() for line in printed(capsys, *MUP_ADAM, "--alignment", "full", "--decay-rule", "all").splitlines()
    ]
    assert ["hidden", "0", "0", "-1", "-1/2", "0", "1", "-1", "-1/2", "0", "1"] in rows  # independent
    assert ["hidden", "-1/2", "1/2", "-3/4", "-1/4", "-1/4", "3/4", "-1/2", "0", "-1/2", "1/2"] in rows  # sqrt
    assert ["sqrt", "embedding", "no", "decay"] in rows


def test_decay_in_json_stands_beside_the_rates(capsys):
    case = as_json(capsys, *MUP_ADAM, "--alignment", "full", "--decay-rule", "inverse")
    assert case["exponents"]["hidden"]["learning_rate"] == "-1"
    (decay,) = case["decay"]
    assert decay["rule"] == "inverse"
    assert decay["layers"]["hidden"]["removed_per_step"] == "-1"
    assert decay["layers"]["hidden"]["independent"]["size_over_init"] == "0"


@pytest.mark.parametrize("options", [["--json"], []])
def test_decay_of_a_network_that_is_unstable_at_initialization_is_an_answer(capsys, options: list[str]):
    own = ["--embedding", "0,0", "--hidden", "0,0", "--readout", "0,1/2", "--decay-rule", "coupled"]
    assert ("null" if options else "unstable at initialization") in printed(capsys, *own, *options)


def test_rules_of_depth_stand_side_by_side(capsys):
    rows = [line.split() for line in printed(capsys, "--depth", "all").splitlines()]
    assert ["completep", "sgd", "-1", "1", "1", "-1", "0", "0", "0", "learns", "in", "every", "block"] in rows
    assert ["sqrt", "adam", "-1/2", "-1/2", "-1/2", "-1/2", "0", "0", "-1/2", "blocks", "are", "lazy"] in rows
    assert ["constant", "adam", "0", "0", "0", "0", "1/2", "1/2", "0", "unstable", "at", "initialization"] in rows


def test_one_case_shows_width_and_depth_and_what_binds(capsys):
    out = printed(capsys, *MUP_ADAM, "--alignment", "full", "--depth", "3/4")
    assert out.index("exponents of n") < out.index("Exponents of the number L")
    assert "Rate of matrices limited by stable_stream.update." in out
    assert "features learned in every block: no" in out
    assert "each changes only as L^-1/4" in out
    broken = printed(capsys, "--optimizer", "adam", "--depth", "constant")
    assert "Broken: stable_at_init (stream): scales as L^1/2, must be at most constant." in broken
    assert "exponents of n" not in broken
    assert "limited by" not in broken


def test_depth_in_json_stands_beside_width(capsys):
    case = as_json(capsys, *MUP_ADAM, "--alignment", "full", "--depth", "completep", "--decay-rule", "coupled")
    assert case["exponents"]["hidden"]["learning_rate"] == "-1"
    (depth,) = case["depth"]
    assert depth["rule"] == "completep"
    assert depth["exponents"]["branch"] == depth["exponents"]["epsilon"] == "-1"
    assert depth["exponents"]["matrix_learning_rate"] == "0"
    assert depth["verdict"]["every_block"]
    assert depth["limits"]["matrices"] == ["stable_stream.update", "stable_block.update"]
    assert depth["decay"][0]["blocks"]["matrices"]["removed_per_step"] == "0"


def test_a_decay_rule_with_depth_shows_what_it_leads_to_inside_blocks(capsys):
    out = printed(capsys, "--optimizer", "adam", "--depth", "sqrt", "--decay-rule", "all")
    rows = [line.split() for line in out.splitlines()]
    assert ["coupled", "matrices", "-1/2", "1/2", "-1/4", "-1/4", "-1/4", "3/4", "0", "0", "-1/2", "1/2"] in rows
    assert ["vectors", "no", "decay"] in rows


def test_nothing_is_said_of_depth_about_rates_that_were_brought(capsys):
    chosen = ["--optimizer", "adam", "--alpha", "1", "--omega", "3/4"]
    assert "--layers" not in printed(capsys, *OWN_GLOBAL, *chosen)
    assert "--layers" in printed(capsys, *OWN, *chosen)


def test_own_exponents_are_solved(capsys):
    case = as_json(capsys, *OWN, "--optimizer", "adam", "--alignment", "full")
    assert case["parameterization"] == "custom"
    assert case["exponents"]["hidden"]["learning_rate"] == "-1"


def test_own_exponents_with_rates_are_checked(capsys):
    chosen = [*OWN_GLOBAL, "--optimizer", "adam", "--alignment", "full"]
    case = as_json(capsys, *chosen, "--layers", "2")
    assert case["exponents"]["hidden"]["learning_rate"] == "0"
    assert case["verdict"]["stable_at_init"]
    assert not case["verdict"]["stable"]
    assert "Broken: stable_activations.update (hidden): scales as n, must be at most constant." in printed(
        capsys, *chosen
    )


def test_unstable_exponents_are_an_answer(capsys):
    chosen = ["--embedding", "0,0", "--hidden", "0,0", "--readout", "0,1/2"]
    case = as_json(capsys, *chosen, "--optimizer", "sgd", "--alignment", "none")
    assert case["verdict"]["stable_at_init"] is False
    assert case["verdict"]["residual"] is None
    assert case["exponents"]["hidden"]["learning_rate"] is None
    assert "unstable at initialization" in printed(capsys, *chosen)


def test_one_case_says_what_limits_each_rate(capsys):
    out = printed(capsys, "--parameterization", "standard", "--optimizer", "adam", "--alignment", "tensor_programs")
    assert "stable_logits.inherited (readout)" in out
    assert "feature learning: no" in out
    assert "the readout's input changes only as n^-1/2" in out


def test_later_gradients_are_shown_where_they_differ(capsys):
    assert "later" in printed(capsys, *MUP_ADAM, "--alignment", "none")
    assert "later" not in printed(capsys, *MUP_ADAM, "--alignment", "full")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--parameterization", "stp"], ["--parameterization", "'stp'", "standard, ntk, mup, mean_field"]),
        (["--optimizer", "lion"], ["--optimizer", "'lion'", "sgd, adam, adafactor"]),
        (["--alignment", "half"], ["--alignment", "'half'", "full, none, tensor_programs"]),
        (["--alpha", "5/4"], ["alpha", "5/4", "from 0 to 1"]),
        (["--alpha", "1/2,-1"], ["alpha", "-1", "from 0 to 1"]),
        (["--alpha", "1/0"], ["--alpha", "'1/0'", "3/4"]),
        (["--alpha", "x"], ["--alpha", "'x'", "3/4"]),
        (["--alpha", "1,1,1"], ["--alpha", "'1,1,1'", "HIDDEN,READOUT"]),
        (["--omega", "1"], ["--alpha missing"]),
        (["--layers", "-1"], ["--layers", "'-1'", "whole number from 0 to 1000"]),
        (["--layers", "99999999999"], ["--layers", "'99999999999'", "whole number from 0 to 1000"]),
        (["--layers", "9" * 5000], ["--layers", "whole number from 0 to 1000"]),
        (["--alpha", "1e99999999"], ["--alpha", "'1e99999999'", "3/4"]),
        (["--parameterization", "x" * 300], ["x" * 300, "standard, ntk, mup, mean_field"]),
        ([""], ["''"]),
        (["--embedding", "0,0"], ["--hidden and --readout missing", "A,B"]),
        (["--embedding", "0"], ["--embedding", "'0'", "A,B or A,B,C"]),
        ([*OWN[:4], "--readout", "0,1/2,1"], ["--readout 0,1/2,1", "give C for every layer"]),
        ([*OWN, "--parameterization", "ntk"], ["--parameterization ntk", "exclude each other"]),
        (["--depth", "deep"], ["--depth", "'deep'", "completep, sqrt, constant", "3/4"]),
        (["--jsn"], ["--jsn", "perhaps you meant --json"]),
        (["--alpha"], ["--alpha"]),
    ],
)
def test_wrong_input_is_one_line_that_names_it(capsys, options: list[str], named: list[str]):
    assert main(["exponents", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("widthwise exponents: ")
    for part in named:
        assert part in err


def test_an_unknown_command_is_one_line_that_lists_the_commands(capsys):
    assert main(["expnents"]) == 2
    expected = f"widthwise: 'expnents' is not a command: expected one of {', '.join(COMMANDS)}\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_no_command_prints_the_commands(capsys, arguments: list[str]):
    assert main(arguments) == 0
    assert "  exponents  " in capsys.readouterr().out


def test_help_says_what_every_option_means_and_where_it_defaults_to(capsys):
    with pytest.raises(SystemExit) as end:
        main(["exponents", "--help"])
    assert not end.value.code
    text = capsys.readouterr().out
    for option in ("parameterization", "optimizer", "alignment", "alpha", "omega", "u", "layers", "depth", "json"):
        assert f"--{option} " in text
    assert "(default: full and none)" in " ".join(text.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_asks_for_the_word_none(capsys, command: str):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert "--help" in text
    assert "None" not in text


def installed(*arguments: str, **settings) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("widthwise")
    return subprocess.run([command, *arguments], stderr=subprocess.PIPE, text=True, check=False, **settings)


def test_the_command_is_installed():
    assert installed("--version", stdout=subprocess.PIPE).stdout.startswith("widthwise ")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_stops_reading_is_no_error(options: list[str]):
    read, write = os.pipe()
    os.close(read)
    try:
        run = installed("exponents", *options, stdout=write)
        assert (run.returncode, run.stderr) == (0, "")
    finally:
        os.close(write)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        run = installed("exponents", stdout=full)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("widthwise exponents: ")


def test_an_interrupt_is_one_line(capsys, monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(ExponentsCommand, "run", interrupt)
    assert main(["exponents"]) == 130
    assert capsys.readouterr().err == "widthwise exponents: interrupted\n"


def test_an_interrupted_command_does_not_wait_for_what_threads_do():
    script = """
import time
from concurrent.futures import ThreadPoolExecutor
from widthwise.cli import command
from widthwise.cli.exponents import ExponentsCommand

def interrupt(self):
    raise KeyboardInterrupt

ExponentsCommand.run = interrupt
ThreadPoolExecutor(1).submit(time.sleep, 60)
command()
"""
    done = subprocess.run([sys.executable, "-c", script, "exponents"], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (130, "widthwise exponents: interrupted\n")


def test_complaints_lose_their_colours_and_their_box():
    boxed = "╭─ Value ─╮\n│ \x1b[91mError\x1b[0m parsing --u: no │\n│ ──────── │\n│ Argument helptext: │\n╰─╯"
    assert one_line(boxed) == "Error parsing --u: no"


def test_a_terminal_without_greek_letters_gets_its_table():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    run = installed("exponents", stdout=subprocess.PIPE, env=environment)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count("readout") == 4
    wrong = installed("exponents", "--alpha", "x", stdout=subprocess.PIPE, env=environment)
    assert wrong.stderr.startswith("widthwise exponents: Error parsing --alpha: 'x' is not a number")


@pytest.mark.parametrize(("arguments", "code", "said"), [(["--version"], 0, ["handled"]), (["x"], 2, [])])
def test_a_command_ends_without_freeing_objects_and_calls_exit_handlers_if_it_succeeded(arguments, code, said):
    """Freeing takes half a second, and nobody needs it. Handlers may have something to write, or wait for others."""
    program = f"""
import atexit, sys
from widthwise.cli import command
class Kept:
    def __del__(self):
        print("freed")
kept = Kept()
atexit.register(print, "handled")
sys.argv = ["widthwise", *{arguments!r}]
command()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == code
    assert [line for line in run.stdout.splitlines() if not line.startswith("widthwise")] == said


@pytest.mark.parametrize(
    ("optimizer", "noted"), [("muon", True), ("muon_max", True), ("muon+adam", False), ("adam", False)]
)
def test_muon_for_every_layer_is_said_to_be_that(capsys, optimizer: str, noted: bool):
    text = printed(capsys, "--optimizer", optimizer, "--parameterization", "mup")
    assert (f"--optimizer {optimizer}+adam" in text) == noted
