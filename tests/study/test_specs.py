"""What a file says about a run or a note is of the kind that fits and reports rely on, or refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from widthwise.cli import main
from widthwise.study.lines import read_json_lines

SPEC = {"width": 64, "learning_rate": 0.01, "seed": 0, "alignment": "full", "epsilon": None, "paths": ["a", "b"]}
CONSTANTS = {"embedding": 1.0, "hidden": 2.0, "readout": 0.5}


def line(results: Any = None, **changes: Any) -> dict[str, Any]:
    return {"run": "a", "status": "finished", "spec": SPEC | changes, "results": results or {"eval_loss": 2.5}}


def written(folder: Path, *lines: Any) -> Path:
    (folder / "study.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder / "study.jsonl"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (line(width="x"), "width of the specification is 'x': expected a whole number, 1 or more"),
        (line(width=64.5), "width of the specification is 64.5: expected a whole number"),
        (line(width=True), "width of the specification is True: expected a whole number"),
        (line(width=2**70), "expected a whole number, 1 or more"),
        (line(learning_rate="Infinity"), "learning_rate of the specification is inf: expected a number above 0"),
        (line(seed=[1]), r"seed of the specification is \[1\]: expected a whole number, 0 or more"),
        (line(optimizer=3), "optimizer of the specification is 3: expected text"),
        (line(axis="height"), "axis of the specification is 'height': expected width or depth or batch or tokens"),
        (line(settings=[]), r"settings of the specification is \[\]: expected an object of plain values"),
        (line(settings={"a": {}}), "settings of the specification is .*: expected an object of plain values"),
        (line(mine={"a": 1}), "mine of the specification is .*: expected a plain value, or a list of them"),
        (line(results={"eval_loss": "x"}), "eval_loss of the results is 'x': expected a number"),
        (
            line(results={"parameters": 0}),
            "parameters of the results is 0: expected a whole number, 1 or more, or null",
        ),
        ({"note": "constants/mine/adam", "value": {}}, "expected more or fewer slashes"),
        ({"note": "constants/mine/adam/mup", "value": []}, "expected an object with constants, about"),
        (
            {"note": "constants/mine/adam/mup", "value": {"constants": CONSTANTS | {"hidden": 0}}},
            "constants of the note .*: expected numbers above 0 for embedding, hidden, readout",
        ),
        ({"note": "experiment/transfer/cpu", "value": {"began": "", "ended": None}}, "began, ended, missing"),
        (
            {"note": "experiment/transfer/cpu", "value": {"began": "", "ended": None, "missing": [1]}},
            "missing of the note .*: expected a list of texts",
        ),
    ],
)
def test_what_is_of_another_kind_is_named_with_its_line(tmp_path: Path, given: Any, named: str):
    with pytest.raises(ValueError, match=f"study.jsonl', line 2: .*{named}") as error:
        read_json_lines(written(tmp_path, line(), given))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "given",
    [
        line(mine="x", other=None),
        line(width=64.0, rates="0,-1,-1"),
        line(settings={"optimizer": "adamw", "blocks": 4, "tied": True}),
        {"note": "constants/transfer/cpu/tuned/adam/mup", "value": {"constants": CONSTANTS, "about": None}},
        {"note": "experiment/transfer/cpu", "value": {"began": "now", "ended": None, "missing": []}},
        {"note": "mine", "value": [1]},
    ],
)
def test_what_is_of_its_kind_or_unknown_is_read(tmp_path: Path, given: Any):
    exported = read_json_lines(written(tmp_path, given))
    assert (len(list(exported.runs)), len(exported.notes)) == ((0, 1) if "note" in given else (1, 0))


@pytest.mark.parametrize("missing", ["width", "learning_rate", "seed", "alignment"])
def test_a_fit_names_what_a_request_lacks(tmp_path: Path, capsys, missing: str):
    given = line()
    given["spec"] = {name: value for name, value in SPEC.items() if name != missing}
    assert main(["fit", str(written(tmp_path, given))]) == 2
    assert f"run 'a' was requested without '{missing}': expected a whole specification" in capsys.readouterr().err
