"""`widthwise export` writes a study to a file, and `widthwise merge` brings it back."""

import gzip
import json
import math
import shlex
from pathlib import Path

import pytest

import widthwise as ww
from tests.study.requests import asked, outcome
from widthwise.cli import main
from widthwise.study import Study

OLD = Path(__file__).parents[1] / "old_study" / "study.sqlite.gz"


def filled(folder: Path, *numbers: int, **changes) -> Path:
    curves = {"train_loss": ([1], [0.5]), "alignment/readout/omega": ([1], [1.0])}
    with Study.open(folder) as study:
        study.ask([asked(number, seed=number, width=64) for number in numbers], label="sweep")
        study.record([outcome(number, **{"curves": curves, **changes}) for number in numbers])
        study.put("sweep/sweep", {"widths": [64]})
    return folder


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return filled(tmp_path / "study", 0, 1, 2)


def widthwise(capsys, *words: object) -> str:
    assert main([*map(str, words)]) == 0
    return capsys.readouterr().out


def test_a_study_goes_to_a_file_and_back(study: Path, tmp_path: Path, capsys):
    file, copy = tmp_path / "published" / "study.jsonl.gz", tmp_path / "copy"
    printed = widthwise(capsys, "export", study, file, "--curves")
    assert printed == f"{file}: 3 requests, 3 runs, {file.stat().st_size / 1e3:.1f} kB\n"
    assert widthwise(capsys, "merge", copy, file) == f"{file}: 3 new and 0 known runs\n"
    with Study.open(study) as first, Study.open(copy) as second:
        assert second.runs(label="sweep") == first.runs(label="sweep")
        assert second.notes("") == first.notes("")
    again = tmp_path / "again.jsonl.gz"
    widthwise(capsys, "export", copy, again, "--curves")
    assert again.read_bytes() == file.read_bytes()


def test_several_files_and_folders_are_merged_in_order(study: Path, tmp_path: Path, capsys):
    other = filled(tmp_path / "other", 2, 3, results={"eval_loss": 9.0})
    file = tmp_path / "other.jsonl"
    widthwise(capsys, "export", other, file)
    assert json.loads(widthwise(capsys, "merge", tmp_path / "all", study, file, other, "--json")) == {
        "study": str(tmp_path / "all"),
        "merged": [
            {"source": str(study), "new": 3, "known": 0},
            {"source": str(file), "new": 1, "known": 1},
            {"source": str(other), "new": 1, "known": 1},  # which has the curves of run 3
        ],
    }
    with Study.open(tmp_path / "all") as merged:
        assert [row.results["eval_loss"] for row in merged.runs()] == [0, 1 / 3, 2 / 3, 9.0]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], set()),
        (["--curves"], {"train_loss", "alignment/readout/omega"}),
        (["--curves", "alignment/", "eval"], {"alignment/readout/omega"}),
    ],
)
def test_curves_are_exported_as_asked(study: Path, tmp_path: Path, capsys, options: list[str], names: set[str]):
    widthwise(capsys, "export", study, tmp_path / "study.jsonl", *options)
    first, *_ = (tmp_path / "study.jsonl").read_text().splitlines()
    assert set(json.loads(first).get("curves", ())) == names


def test_tables_can_be_compact(study: Path, tmp_path: Path, capsys):
    file = tmp_path / "runs.csv"
    found = json.loads(widthwise(capsys, "export", study, file, "--json"))
    assert found == {"file": str(file), "requests": 3, "runs": 3, "bytes": file.stat().st_size}
    assert file.read_text().splitlines()[0] == "run,status,spec.seed,spec.width,results.eval_loss"
    widthwise(capsys, "export", study, tmp_path / "runs.csv.gz", "--compact")
    table = gzip.decompress((tmp_path / "runs.csv.gz").read_bytes()).decode()
    assert table.splitlines()[:2] == ["run,spec.seed,results.eval_loss", "run-00000,0,0"]


def test_the_same_commands_go_on_with_a_restored_study(tmp_path: Path, capsys):
    """What tests/test_old_study.py does with a copy of the folder, as far as it trains nothing."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old/study.sqlite").write_bytes(gzip.decompress(OLD.read_bytes()))
    file, study = tmp_path / "old.jsonl.gz", tmp_path / "restored"
    widthwise(capsys, "export", tmp_path / "old", file)
    assert widthwise(capsys, "merge", study, file) == f"{file}: 79 new and 0 known runs\n"
    tiny = shlex.split(
        "--blocks 1 --head-dim 8 --context 16 --batch 8 --steps 20 --warmup 2 --eval-batches 1 --base-width 16 "
        "--width 16 --dtype float32 --data synthetic --widths 16 32 --dry-run --json"
    )
    settings = ["--settings", "global", "full", "0,-1,-1", "--grid", "0.0013", "0.05"]
    forecast = json.loads(widthwise(capsys, "sweep", "--study", study, *tiny, *settings))
    assert (forecast["known"], forecast["most"]["runs"]) == (31, 2)
    named = ["--constants", "mine", "--epsilons", "1e-8", "1e-4", "--grid", "0.0038", "0.032"]
    assert json.loads(widthwise(capsys, "sweep", "--study", study, *tiny, *named))["most"]["runs"] == 0
    fits = [widthwise(capsys, "fit", folder, "--json") for folder in (tmp_path / "old", study)]
    assert fits[0] == fits[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("export", "FILE"),
        ("export {study}", "FILE"),
        ("export {study} runs.txt", "'runs.txt' has no known ending: expected one of .csv, .csv.gz, .jsonl, .jsonl.gz"),
        ("export {study} csv", "'csv' has no known ending"),
        ("export {study} runs.csv.gz --curves", "--curves with 'runs.csv.gz': expected a file that ends in .jsonl"),
        (
            "export {study} runs.csv.jsonl --compact",
            "--compact with 'runs.csv.jsonl': expected a file that ends in .cs",
        ),
        ("export /nowhere/at/all runs.csv", "there is no study in '/nowhere/at/all'"),
        ("merge", "STUDY"),
        ("merge {new}", "there is nothing to merge: expected exported files or folders of studies"),
        ("merge {new} {study} /nowhere", "there is no file '/nowhere': expected an exported study"),
        ("merge {new} {study} {damaged}", "damaged.jsonl', line 2: status of the run is 'lost': expected waiting"),
        ("merge {new} {study} {tmp}", "there is no study in "),
        ("merge {new} {table}", "runs.csv' cannot be merged: expected a study's folder, or a .jsonl or .jsonl.gz file"),
        ("merge {damaged} {study}", "damaged.jsonl' is a file: expected the folder of a study"),
    ],
)
def test_nonsense_is_refused_in_one_line_and_changes_nothing(
    study: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch, words: str, said: str
):
    monkeypatch.chdir(tmp_path)
    lines = [{"run": "a", "status": "waiting", "results": {}}, {"run": "b", "status": "lost", "results": {}}]
    (tmp_path / "damaged.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "runs.csv").write_text("run,status\n")
    paths = {name: tmp_path / file for name, file in (("damaged", "damaged.jsonl"), ("table", "runs.csv"))}
    names = {"study": study, "new": tmp_path / "new", "tmp": tmp_path, **paths}
    assert main(words.format(**names).split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged.jsonl", "runs.csv", "study"]


def test_an_exported_study_is_fitted_like_its_folder(tmp_path: Path, capsys):
    def train(width: int, learning_rate: float, seed: int) -> float:
        return 2 + (math.log2(learning_rate) + 8) ** 2 / 10

    study = tmp_path / "own"
    ww.sweep(train, widths=(64, 128), learning_rate=3e-3, precision=None, study=study, show=False)
    assert main(["export", str(study), str(tmp_path / "all.jsonl.gz")]) == 0
    capsys.readouterr()
    printed = []
    for source in (study, tmp_path / "all.jsonl.gz"):
        assert main(["fit", str(source), "--json"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
