"""The API reference in docs/reference describes every public name, and nothing else. Nothing is imported or built."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
REFERENCE = Path(__file__).parents[1] / "docs/reference"


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the names that a module imports, and where each comes from."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield f"{module_of(path)}.{alias.asname or alias.name}", f"{node.module}.{alias.name}"


def public(init: Path) -> Iterator[str]:
    """Yield the names that a package exports: those that it imports under their own name, and those that it defines."""
    tree = ast.parse(init.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{module_of(init)}.{alias.name}" for alias in node.names if alias.asname == alias.name)
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                pass
            case _:
                continue
        if not name.startswith("_"):
            yield f"{module_of(init)}.{name}"


IMPORTED = dict(pair for path in sorted(SOURCE.rglob("*.py")) for pair in imported(path))
PUBLIC = {name for init in sorted(SOURCE.rglob("__init__.py")) for name in public(init)}


def origin(name: str) -> str:
    """Return where a name is defined, whichever modules import it."""
    return name if IMPORTED.get(name, name) == name else origin(IMPORTED[name])


def is_package(name: str) -> bool:
    return SOURCE.joinpath(*name.split("."), "__init__.py").exists()


def described() -> list[str]:
    pages = sorted(REFERENCE.glob("*.md"))
    return [name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)]


def test_public_names_are_found():
    assert len(PUBLIC) > 250
    assert origin("widthwise.solve") == origin("widthwise.theory.solve") == "widthwise.theory.solver.solve"
    assert origin("widthwise.optim.OPTIMIZERS") == "widthwise.optim.OPTIMIZERS"
    assert origin("widthwise.measure.LayerCheck") == origin("widthwise.coordinates.LayerCheck")


@pytest.mark.parametrize("package", sorted({name.rpartition(".")[0] for name in PUBLIC}))
def test_every_public_name_is_described(package: str):
    """A new name goes into docs/reference as `::: package.name`, or as `::: package.module.name` if modules hide it."""
    there = {origin(name) for name in described()}
    names = [name for name in sorted(PUBLIC) if name.rpartition(".")[0] == package and not is_package(name)]
    assert [name for name in names if origin(name) not in there] == []


def test_what_is_described_is_public_and_described_once():
    exported = {origin(name) for name in PUBLIC}
    assert [name for name in described() if origin(name) not in exported] == []
    origins = [origin(name) for name in described()]
    assert [name for name in origins if origins.count(name) > 1] == []
