"""Every extra installs all that its part of Widthwise needs, and a missing one is one line that names it.

Processes run with the distributions alone that pyproject.toml asks for, and those that these ask for in turn.
"""

import gzip
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from widthwise.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LIGHT = {
    "exponents": "exponents",
    "fit": "fit study",
    "transfer": "transfer --learning-rate 1 --width 256",
    "export": "export study study.jsonl.gz",
    "merge": "merge another study",
}
"""The commands that need no extra, with arguments."""
OTHERS = {"report": "report", "tokenizer": "text", "sweep --ray auto": "ray", "tune --ray=auto": "ray"}
"""The command lines that need another extra than `lab`."""


def required(*extras: str) -> dict[str, Distribution]:
    """Return the distributions that an installation with some extras has, by name."""
    lines = [*PROJECT["dependencies"], *(line for e in extras for line in PROJECT["optional-dependencies"][e])]
    left = [Requirement(line) for line in lines]
    found: dict[str, Distribution] = {}
    seen: set[str] = set()
    while left:
        requirement = left.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        if requirement.name == "widthwise":
            left += [Requirement(line) for e in requirement.extras for line in PROJECT["optional-dependencies"][e]]
            continue
        try:
            found[requirement.name] = distribution(requirement.name)
        except PackageNotFoundError:
            continue  # CUDA, for instance, which a CPU build does without
        for line in found[requirement.name].requires or ():
            asked = Requirement(line)
            if any(asked.marker is None or asked.marker.evaluate({"extra": e}) for e in ("", *requirement.extras)):
                left.append(asked)
    return found


def run(folder: Path, distributions: Iterable[Distribution], script: str, *arguments: str) -> str:
    """Run a script where nothing but these distributions is installed; return what it prints."""
    for each in distributions:
        for top in {file.parts[0] for file in each.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(each.locate_file(top))))
    # No site-packages, then ours.
    start = f"import sys; sys.path += {[str(folder), str(ROOT / 'src')]!r}; sys.argv[1:] = {list(arguments)!r}\n"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", start + script], env=environment, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


COMMANDS_SCRIPT = """
import contextlib, io, json
from widthwise.cli import main
found = {}
for name in sys.argv[1:]:
    printed, complaint = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaint):
        try:
            code = main(name.split())
        except SystemExit as end:
            code = end.code
    found[name] = code, printed.getvalue(), complaint.getvalue()
print(json.dumps(found))
"""


def answers(
    folder: Path, distributions: dict[str, Distribution], lines: Sequence[str]
) -> dict[str, tuple[int, str, str]]:
    """Return the exit code and the output of some command lines where nothing but these distributions is installed."""
    return json.loads(run(folder, distributions.values(), COMMANDS_SCRIPT, *lines))


NAMES_SCRIPT = """
import json
import widthwise as ww
found = {}
for name in sys.argv[1:]:
    try:
        getattr(ww, name)
        found[name] = None
    except ModuleNotFoundError as error:
        found[name] = str(error)
print(json.dumps(found))
"""


SWEEP_SCRIPT = """
import math, widthwise as ww
def train(width, learning_rate, seed):
    return 2 + (math.log2(learning_rate) + 8) ** 2 / 10 + seed / 1000
result = ww.sweep(train, widths=(64, 256), learning_rate=0.01, precision=0.12, study="mine", show=False)
try:
    page = result.report().name
except ModuleNotFoundError as error:
    page = error
print(result.verdict.outcome, page, "jax" in sys.modules)
"""


def missing(folder: Path, *extras: str) -> dict[str, str | None]:
    """Return the extra that each public name asks for; None if it is there."""
    names = ("plan", "prescribe", "optim", "measure", "torch", "models", "Rule", "solve")
    found: dict[str, str | None] = json.loads(run(folder, required(*extras).values(), NAMES_SCRIPT, *names))
    for name, message in found.items():
        if message is not None:
            start, _, extra = message.partition(", which is not installed: pip install ")
            assert start.startswith(f"widthwise.{name} needs ")
            found[name] = extra.removeprefix("'widthwise[").removesuffix("]'")
    return found


def test_a_plain_installation_is_light():
    assert not {"jax", "torch", "flax", "optax", "matplotlib"} & set(required())


def test_without_extras_the_theory_works_and_every_other_command_names_the_one_it_needs(tmp_path: Path):
    (tmp_path / "study").mkdir()
    stored = gzip.decompress((ROOT / "tests/old_study/study.sqlite.gz").read_bytes())
    (tmp_path / "study/study.sqlite").write_bytes(stored)
    given = [*(LIGHT.get(name, name) for name in COMMANDS), *OTHERS]
    for line, (code, printed, complaint) in answers(tmp_path, required(), given).items():
        if line in LIGHT.values():
            assert (code, complaint) == (0, ""), line
            assert len(printed) > 500 or "79" in printed, line  # a table, or how many runs the study has
        else:
            assert (code, printed) == (2, "")
            assert complaint.startswith(f"widthwise {line.split()[0]}: needs ")
            assert complaint.endswith(f", which is not installed: pip install 'widthwise[{OTHERS.get(line, 'lab')}]'\n")
            assert complaint.count("\n") == 1


def test_the_extra_for_the_lab_is_enough_for_every_command_to_start(tmp_path: Path):
    given = [f"{name} --help" for name in COMMANDS]
    for line, (code, printed, complaint) in answers(tmp_path, required("lab"), given).items():
        assert (code, complaint) == (0, ""), line
        assert line.removesuffix(" --help") in printed


def test_without_extras_every_public_name_says_which_one_it_needs(tmp_path: Path):
    assert missing(tmp_path) == {
        **dict.fromkeys(("plan", "prescribe", "optim", "measure"), "jax"),
        "torch": "torch",
        "models": "lab",
        **dict.fromkeys(("Rule", "solve")),
    }


def test_the_extra_for_jax_is_enough_for_plans_in_jax(tmp_path: Path):
    assert {name: extra for name, extra in missing(tmp_path, "jax").items() if extra} == {
        "torch": "torch",
        "models": "lab",
    }
    script = "import runpy; print(runpy.run_path(sys.argv[1])['train'](32, steps=2) > 0)"
    assert run(tmp_path, (), script, str(ROOT / "examples/plain_dict.py")) == "True\n"


@pytest.mark.skipif(find_spec("torch") is None and not os.environ.get("CI"), reason="PyTorch is not installed")
def test_the_extra_for_pytorch_is_enough_for_plans_in_pytorch(tmp_path: Path):
    assert {name: extra for name, extra in missing(tmp_path, "torch").items() if extra} == {
        **dict.fromkeys(("plan", "prescribe", "optim", "measure"), "jax"),
        "models": "lab",
    }
    script = "import runpy; print(runpy.run_path(sys.argv[1])['train'](32, steps=2) > 0)"
    assert run(tmp_path, (), script, str(ROOT / "examples/torch/nanogpt.py")) == "True\n"
    assert run(tmp_path, (), SWEEP_SCRIPT.replace("ww.sweep", "ww.torch.sweep")) == "transfers index.html False\n"


def test_a_plain_installation_is_enough_for_sweeps_and_names_the_extra_for_their_report(tmp_path: Path):
    message = "a report needs jinja2, which is not installed: pip install 'widthwise[report]'"
    assert run(tmp_path, required().values(), SWEEP_SCRIPT) == f"transfers {message} False\n"
