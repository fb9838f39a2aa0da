"""What pip installs: builds the distributions, and uses the wheel with each extra in an empty environment.

`make test-packages` runs this; it is no part of `make test`, since it downloads some gigabytes. `EXTRAS="jax torch"`
tries these alone. Each environment lies outside of the source and is deleted once it was used, so that what a package
lacks is found nowhere else.
"""

import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES = (ROOT / "examples/plain_dict.py", ROOT / "examples/torch/nanogpt.py")
SECONDS = 600
"""The longest that one command may take."""

OWN_SWEEP = """
import math, sys, widthwise as ww
def train(width, learning_rate, seed):
    return 2 + (math.log2(learning_rate) + 8) ** 2 / 10 + seed / 1000
sweep = ww.torch.sweep if "torch" in sys.argv else ww.sweep
result = sweep(train, widths=(64, 256), learning_rate=0.01, precision=0.12, study="mine", show=False)
print(result.verdict.outcome, result.report().name if "report" in sys.argv else "")
"""

TINY = (
    "--blocks 1 --head-dim 8 --context 16 --batch 8 --steps 20 --warmup 2 --eval-batches 1 --base-width 16 --width 16"
    " --dtype float32"
)


@dataclass(frozen=True)
class Use:
    """A command, and what it has to print."""

    command: str
    prints: str
    code: int = 0


PLAIN = (
    Use("widthwise exponents", "hidden"),
    Use("python own_sweep.py", "transfers"),
    Use("widthwise fit mine", "transfers"),
    Use("widthwise export mine mine.jsonl.gz", "runs"),
)
REPORT = (
    Use("python own_sweep.py report", "transfers index.html"),
    Use("widthwise report mine --out page", "page/index.html"),
)
JAX = Use("python -c 'from plain_dict import train; print(train(32, steps=2) > 0)'", "True")
TORCH = Use("python -c 'from nanogpt import train; print(train(32, steps=2) > 0)'", "True")
NO_JAX = Use("python -c 'import widthwise; widthwise.plan'", "pip install 'widthwise[jax]'", 1)
NO_TORCH = Use("python -c 'import widthwise; widthwise.torch'", "pip install 'widthwise[torch]'", 1)

USES = {
    "": (*PLAIN, NO_JAX, NO_TORCH),
    "report": (*REPORT, NO_JAX, NO_TORCH),
    "jax": (*REPORT, JAX, NO_TORCH),
    "torch": (Use("python own_sweep.py report torch", "transfers index.html"), TORCH, NO_JAX),
    "lab": (
        JAX,
        Use(f"widthwise train {TINY} --data synthetic", "eval"),
        Use("widthwise experiment transfer --scale smoke --study smoke", "index.html"),
    ),
    "text": (
        Use("widthwise tokenizer --paths plain_dict.py nanogpt.py --out mine.model --vocabulary 400", "401 tokens"),
        Use(f"widthwise train {TINY} --data text --paths plain_dict.py nanogpt.py --tokenizer mine.model", "eval"),
    ),
    "ray": (Use(f"widthwise sweep {TINY} --data synthetic --widths 16 32 --study mine --ray local", "exponent"),),
    "cuda": (Use("widthwise plan --width 2048 --devices 8", "compiled for 8 mocked NVIDIA"),),
}
"""What each extra is for; "" is a plain installation."""

RESOLVED = ("c4",)
"""Extras of which pip has to find all packages; trying them needs the Hub."""

DEVELOPING = ("dev", "docs")


@dataclass(frozen=True)
class Row:
    """A line of the table that is printed."""

    name: str
    packages: int | None = None
    megabytes: float | None = None
    installing: float | None = None
    using: float | None = None
    wrong: str = ""

    def __str__(self) -> str:
        counts = ["–" if value is None else f"{value:.0f}" for value in (self.packages, self.megabytes)]
        times = ["–" if value is None else f"{value:.1f} s" for value in (self.installing, self.using)]
        return f"| {' | '.join([self.name, *counts, *times, 'failed' if self.wrong else 'works'])} |"


HEADER = "| what | packages | MB | building or installing | using | |\n|---|---|---|---|---|---|"


class TrialError(Exception):
    """Something that does not work, with what was printed."""


def main(extras: Sequence[str]) -> int:
    """Try these extras, or all; print the table, and then what went wrong."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if unknown := set(extras) - {*USES, *RESOLVED}:
        raise SystemExit(f"{', '.join(unknown)}: expected some of {', '.join(filter(None, [*USES, *RESOLVED]))}")
    if untested := set(project["optional-dependencies"]) - {*USES, *RESOLVED, *DEVELOPING}:
        raise SystemExit(f"nothing says how to try the extra {', '.join(untested)}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="widthwise-packages-") as name:
        print(HEADER)
        for row in trials(Path(name), extras or [*USES, *RESOLVED]):
            print(row, flush=True)
            rows.append(row)
    failed = [row for row in rows if row.wrong]
    for row in failed:
        print(f"\n{row.name}: {row.wrong}", file=sys.stderr)
    return 1 if failed else 0


def trials(folder: Path, extras: Sequence[str]) -> Iterator[Row]:
    """Build, then install and use each extra in a folder."""
    start = time.monotonic()
    tools = folder / "tools"
    venv.create(tools, with_pip=True)
    pip = [str(tools / "bin/python"), "-m", "pip"]
    try:
        run([*pip, "install", "--quiet", "build"], folder)
        sdist, wheel = build(folder, tools / "bin/python")
    except TrialError as error:
        yield Row("sdist and wheel", wrong=str(error))
        return
    yield Row("sdist and wheel", installing=time.monotonic() - start, megabytes=megabytes([sdist, wheel]))
    for extra in extras:
        here = folder / (extra or "plain")
        here.mkdir()
        try:
            yield resolve(here, pip, wheel, extra) if extra in RESOLVED else use(here, pip, wheel, extra)
        finally:
            shutil.rmtree(here)


def build(folder: Path, python: Path) -> tuple[Path, Path]:
    """Build a source distribution, the wheel from it, and the wheel from the checkout; return the first two."""
    run([str(python), "-m", "build", "--outdir", "dist", str(ROOT)], folder)
    run([str(python), "-m", "build", "--wheel", "--outdir", "direct", str(ROOT)], folder)
    (sdist,), (wheel,) = folder.glob("dist/*.tar.gz"), folder.glob("dist/*.whl")
    (direct,) = folder.glob("direct/*.whl")
    if contents(wheel) != contents(direct):
        raise TrialError("the wheel that is built from the source distribution is another")
    check_contents(sdist, wheel)
    return sdist, wheel


def check_contents(sdist: Path, wheel: Path) -> None:
    """Compare the files of both with the checkout: all of the source, the licence, and no tests or data."""
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.is_file()}
    source = {path for path in source if "__pycache__" not in path}
    metadata = {f"{wheel.name.rsplit('-', 3)[0]}.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL")}
    metadata |= {
        f"{wheel.name.rsplit('-', 3)[0]}.dist-info/{name}" for name in ("entry_points.txt", "licenses/LICENSE")
    }
    beside = {"PKG-INFO", "LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", ".gitignore"}
    with tarfile.open(sdist) as archive:
        packed = {member.name.partition("/")[2] for member in archive if member.isfile()}
    for name, found, expected in (
        (wheel.name, set(contents(wheel)), source | metadata),
        (sdist.name, packed, {f"src/{path}" for path in source} | beside),
    ):
        if found != expected:
            raise TrialError(f"{name} lacks {sorted(expected - found)} and has {sorted(found - expected)}")


def contents(wheel: Path) -> dict[str, bytes]:
    """Return what is in a wheel, by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def use(here: Path, pip: list[str], wheel: Path, extra: str) -> Row:
    """Install the wheel with an extra into an environment of its own, and run what the extra is for."""
    name, times = extra or "nothing else", [time.monotonic()]
    python = empty(here)
    pip = [*pip, "--python", str(python)]
    for path in EXAMPLES:
        shutil.copy(path, here)
    (here / "own_sweep.py").write_text(OWN_SWEEP)
    try:
        run([*pip, "install", "--quiet", "--no-compile", f"{wheel}[{extra}]" if extra else str(wheel)], here)
        times.append(time.monotonic())
        (packages,) = (here / "environment/lib").glob("python*/site-packages")
        size, count = megabytes(packages.rglob("*")), len(list(packages.glob("*.dist-info")))
        run([*pip, "check"], here)
        for each in USES[extra]:
            printed = run(shlex.split(each.command), here, code=each.code)
            if each.prints not in printed:
                raise TrialError(f"{each.command}: expected {each.prints!r}, and it printed\n{printed}")
    except TrialError as error:
        return Row(name, wrong=str(error))
    times.append(time.monotonic())
    installing, using = (end - start for start, end in itertools.pairwise(times))
    return Row(name, count, size, installing, using)


def resolve(here: Path, pip: list[str], wheel: Path, extra: str) -> Row:
    """Let pip find all that an extra asks for, without installing it."""
    start = time.monotonic()
    line = [*pip, "--python", str(empty(here)), "install", "--dry-run", "--quiet", "--report", "report.json"]
    try:
        run([*line, f"{wheel}[{extra}]"], here)
    except TrialError as error:
        return Row(f"{extra}, resolved", wrong=str(error))
    found = json.loads((here / "report.json").read_text())["install"]
    return Row(f"{extra}, resolved", packages=len(found), installing=time.monotonic() - start)


def empty(here: Path) -> Path:
    """Create an environment without any package, not even pip; return its Python."""
    venv.create(here / "environment", with_pip=False)
    return here / "environment/bin/python"


def run(command: Sequence[str], here: Path, code: int = 0) -> str:
    """Run a command in a folder, with its environment first on the path; return what it printed."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    variables |= {"PATH": f"{here}/environment/bin:{os.environ['PATH']}", "WIDTHWISE_CACHE": str(here / "cache")}
    program = shutil.which(command[0], path=variables["PATH"]) or command[0]
    try:
        done = subprocess.run(
            [program, *command[1:]],
            cwd=here,
            env=variables,
            text=True,
            timeout=SECONDS,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except subprocess.TimeoutExpired:
        raise TrialError(f"{shlex.join(command)}: took more than {SECONDS} s") from None
    if done.returncode != code:
        raise TrialError(f"{shlex.join(command)}: ended with {done.returncode}\n{done.stdout}")
    return done.stdout


def megabytes(paths: Sequence[Path] | Iterator[Path]) -> float:
    """Return the size of some files."""
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
