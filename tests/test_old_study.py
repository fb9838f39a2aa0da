"""A study that version 0.1.0 wrote, before settings were values, opens, resumes and reports as it did then.

It holds a sweep of three settings of which two runs were not trained yet, tuned constants, a sweep with them and two
epsilons, and an experiment at scale smoke. `expected.json` is what that version printed for it, except for the numbers
that come from fitting: since then all widths are fitted at once, and these are what `widthwise fit STUDY --json` prints
with that fit. A change of the fit may change them again, and nothing else.
"""

import gzip
import json
import shlex
from pathlib import Path

import pytest

from widthwise.cli import main

FOLDER = Path(__file__).parent / "old_study"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
TINY = shlex.split(
    "--blocks 1 --head-dim 8 --context 16 --batch 8 --steps 20 --warmup 2 --eval-batches 1 --base-width 16 --width 16 "
    "--dtype float32 --data synthetic --widths 16 32"
)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "study.sqlite").write_bytes(gzip.decompress((FOLDER / "study.sqlite.gz").read_bytes()))
    return tmp_path


def printed(capsys, *arguments: str):
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def close(found, expected) -> bool:
    """Compare JSON values, numbers to three digits: fits are found step by step, and end where little changes."""
    match expected:
        case dict():
            return found.keys() == expected.keys() and all(close(found[name], expected[name]) for name in expected)
        case list():
            return len(found) == len(expected) and all(map(close, found, expected))
        case float():
            return found == pytest.approx(expected, rel=1e-3, abs=1e-4)
        case _:
            return found == expected


def test_its_fits_are_the_same(study, capsys):
    fits = printed(capsys, "fit", str(study))["fits"]
    assert [fit["where"] for fit in fits] == [fit["where"] for fit in EXPECTED["fits"]]
    assert close(fits, EXPECTED["fits"])


def test_its_report_is_the_same(study, capsys):
    report = printed(capsys, "report", str(study))
    assert report["counts"] == EXPECTED["counts"]
    assert [Path(file).name for file in report["files"]] == EXPECTED["files"]
    assert {section["name"]: len(section["missing"]) for section in report["sections"]} == {
        name: len(missing) for name, missing in EXPECTED["missing"].items()
    }


def test_the_same_commands_train_only_what_was_missing(study, capsys):
    first = [
        "sweep",
        "--study",
        str(study),
        *TINY,
        "--settings",
        "global",
        "full",
        "0,-1,-1",
        "--grid",
        "0.0013",
        "0.05",
    ]
    forecast = printed(capsys, *first, "--dry-run")
    assert (forecast["known"], forecast["least"]["runs"], forecast["most"]["runs"]) == (31, 2, 2)
    assert printed(capsys, *first)["runs"] == {"wanted": 33, "trained": 2, "diverged": 0, "failed": 0}
    named = ["--constants", "mine", "--epsilons", "1e-8", "1e-4", "--grid", "0.0038", "0.032"]
    assert printed(capsys, "sweep", "--study", str(study), *TINY, *named, "--dry-run")["most"]["runs"] == 0
    assert printed(capsys, "sweep", "--study", str(study), *TINY, *named)["runs"]["trained"] == 0
    experiment = ["transfer", "--scale", "smoke", "--study", str(study), "--data", "synthetic"]
    chosen = ["--parameterizations", "standard", "--settings", "global", "full"]
    assert printed(capsys, "experiment", *experiment, *chosen, "--dry-run")["runs"] == [0, 0]
    assert printed(capsys, "experiment", *experiment, *chosen)["runs"]["trained"] == 0
