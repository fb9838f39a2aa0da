"""Whatever is typed, and whatever a file holds: one line and exit code 2, no traceback, and nothing changed on disk.

`HYPOTHESIS_PROFILE=explore` looks longer. A file that is accepted may be nonsense, and commands then end as always.
"""

import contextlib
import copy
import functools
import io
import json
import os
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults import damage
from tests.faults.campaign import Tally
from tests.faults.damage import Damaged
from tests.report import studies
from widthwise.cli import main
from widthwise.data import SentencePiece, train_sentencepiece
from widthwise.study import Outcome, Request, Study, to_json_lines

FEW = os.environ.get("HYPOTHESIS_PROFILE", "repeatable") == "repeatable"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
ODD = (
    "",
    "-",
    "--",
    "-1",
    "0",
    "1",
    "3",
    "1e400",
    "nan",
    "inf",
    "-1/2",
    "1,2",
    "x:1",
    "..",
    "\n",
    "\0",
    "é",
    "∞",
    "{}",
    "[",
    "%s",
)


def run(words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command line; return the exit code, and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(words: Sequence[str], folder: Path, *, codes: Sequence[int] = (0, 1)) -> int:
    """Run a command line; if it is refused, in one line, nothing in the folder has changed."""
    before = contents(folder)
    code, out, err = run(words)
    assert code in (*codes, 2), err
    if code == 2:
        assert (out, err.count("\n")) == ("", 1)
        assert contents(folder) == before
    return code


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Lines of a study with two settings, runs that failed, a sweep of somebody's own, and notes."""
    folder = tmp_path_factory.mktemp("exported")
    with Study.open(folder / "study") as study:
        for setting in ("global", "full"):
            studies.fill(study, studies.sweep("mup", setting, widths=(64, 128), rates=5), "sweep")
        studies.fill(study, studies.failures(1))
        for width, rate in ((16, 0.01), (16, 0.02), (32, 0.01), (32, 0.02)):
            spec = {"width": width, "learning_rate": rate, "seed": 0, "settings": {"optimizer": "adamw"}}
            name = f"own-{width}-{round(100 * rate)}"
            study.ask([Request(request=spec, id=name, identity={})])
            study.record([Outcome(run=name, status="finished", results={"eval_loss": rate + 1 / width})])
        constants = {"embedding": 1.0, "hidden": 2.0, "readout": 0.5}
        about = {"eval_loss": 2.5, "at_edge": ["hidden"]}
        study.put("constants/tuned/adam/standard", {"constants": constants, "about": about})
        to_json_lines(study, folder / "study.jsonl", curves=True)
    return (folder / "study.jsonl").read_text().splitlines()


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON value: what holds it, and where."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in list(items):
        yield value, name
        yield from places(inner)


@st.composite
def changes(draw: st.DrawFn) -> Callable[[list[str]], bytes]:
    """Draw a change of exported lines: of a value, or of bytes."""
    seed, value = draw(st.integers(0, 2**32)), draw(JSON)
    kind = draw(st.sampled_from(["value", "value", "value", "delete", "bytes", "cut"]))

    def change(lines: list[str]) -> bytes:
        chance = random.Random(seed)
        if kind in ("value", "delete"):
            at = chance.randrange(len(lines))
            line = json.loads(lines[at])
            holder, name = chance.choice(list(places(line)))
            if kind == "delete":
                del holder[name]
            else:
                holder[name] = value
            changed = [*lines[:at], json.dumps(line), *lines[at + 1 :]]
            return "\n".join(changed).encode()
        content = bytearray("\n".join(lines).encode())
        at = chance.randrange(len(content))
        if kind == "cut":
            del content[at:]
        else:
            content[at : at + 3] = chance.randbytes(3)
        return bytes(content)

    return change


@given(changes())
@settings(max_examples=40 if FEW else 3000, suppress_health_check=[HealthCheck.too_slow])
def test_a_changed_export_is_fitted_and_merged_or_refused(exported: list[str], change: Callable[[list[str]], bytes]):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "changed.jsonl").write_bytes(change(exported))
        fitted = check(["fit", str(folder / "changed.jsonl"), "--predict", "256"], folder)
        merged = check(["merge", str(folder / "study"), str(folder / "changed.jsonl")], folder)
        assert merged == 0 or fitted == 2


def make_pieces(folder: Path) -> Path:
    (folder / "model").mkdir()
    train_sentencepiece([damage.TEXT.encode()], folder / "model" / "mine.model", vocabulary=300)
    return folder / "model"


def read_pieces(folder: Path) -> bool:
    """Use a tokenizer, which is another one if its file is, and return that its tokens are some that it has."""
    pieces = SentencePiece(folder / "mine.model")
    return bool(pieces.encode(damage.TEXT[:1000].encode()).max() < pieces.vocabulary)


FILES = (*damage.FILES, Damaged("pieces", 100, make_pieces, read_pieces))


@pytest.mark.parametrize("files", FILES, ids=[files.name for files in FILES])
def test_damaged_files_are_refused_in_one_line_and_left_or_read_as_before(files: Damaged, tmp_path: Path):
    some = copy.copy(files)
    some.times = 25 if FEW else 2000
    tally = Tally(files.name)
    some.run(tmp_path, random.Random(0), tally)
    assert tally.failures == []
    assert tally.refused > 0


NAMES = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>'; DROP TABLE runs; --",
    "../../{{ 7 * 7 }}\n$x^2$ & co",
    "$5 \\foo_{ or $6, 日本語",
)
"""Names that do harm where they are not treated as names."""


@pytest.mark.parametrize("name", NAMES)
def test_a_name_does_no_harm_in_a_report(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / name.replace("/", "_").replace("\n", "_")
    with Study.open(folder) as study:
        for number, (width, rate) in enumerate((width, rate) for width in (16, 32) for rate in (0.01, 0.02, 0.04)):
            spec = {"width": width, "learning_rate": rate, "seed": 0, "settings": {name: name}}
            study.ask([Request(request=spec, id=f"own-{number}", identity={})], label=name)
            loss = 1 + abs(rate - 0.02) + 1 / width
            study.record([Outcome(run=f"own-{number}", status="finished", results={"eval_loss": loss})])
        study.ask([Request(request={"width": 16, "learning_rate": 1.0}, id="lost", identity={})], label=name)
        study.record([Outcome(run="lost", status="failed", provenance={"error": name})])
        constants = {"constants": {"embedding": 1.0, "hidden": 2.0, "readout": 0.5}, "about": None}
        study.put(f"constants/{name}/adam/standard", constants)
        assert len(study.runs(label=name)) == 7
    assert main(["report", str(folder), "--out", str(tmp_path / "page")]) == 0
    assert name in capsys.readouterr().out
    page = Elements()
    page.feed((tmp_path / "page" / "index.html").read_text(encoding="utf-8"))
    assert name in page.text
    assert page.handlers == set()
    assert "x" not in page.sources
    assert "alert(1)" not in page.scripts
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([folder.name, "page"])


class Elements(HTMLParser):
    """What a browser would see of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.scripts, self._in = "", "", ""
        self.handlers: set[str] = set()
        self.sources: set[str | None] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        self.handlers |= {name for name, _ in attrs if name.startswith("on")}
        self.sources |= {value for name, value in attrs if name == "src"}

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        self.scripts += data if self._in == "script" else ""


class ReachedError(ValueError):
    """Raised in place of what would take long."""


@pytest.fixture
def harmless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder to work in, where no command gets as far as computing."""

    def stop(*_: Any, **__: Any) -> Any:
        raise ReachedError("computing was reached")

    monkeypatch.setattr("widthwise.cli.where.Where.driver", stop)
    monkeypatch.setattr("widthwise.cli.where.Where.leave_accelerators_to_workers", lambda _: None)
    monkeypatch.setattr("widthwise.cli.train.joined", stop)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@functools.cache
def options(command: str) -> list[str]:
    """Return the options of a command, from its help."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([command, "--help"])
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    return sorted(set(re.findall(r"--[a-z][a-z-]+", plain)) - {"--help"})


COMMANDS = ("train", "sweep", "tune", "experiment", "exponents", "fit", "report", "export", "merge", "transfer")


@given(st.data())
@settings(max_examples=60 if FEW else 3000, suppress_health_check=list(HealthCheck))
def test_a_command_line_is_carried_out_or_refused_in_one_line(harmless: Path, data: st.DataObject):
    name = data.draw(st.sampled_from(COMMANDS))
    words = st.sampled_from(ODD) | st.text(max_size=6) | st.sampled_from(options(name)) | st.sampled_from(options(name))
    line = data.draw(st.lists(words, max_size=6))
    check([name, *(word for word in line if word not in ("-h", "--help"))], harmless)
