"""The packages form layers, and importing Widthwise is light: read off the source and off a fresh interpreter."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import widthwise

ROOT = Path(widthwise.__file__).parent

LAYERS = (
    "theory",
    "fit",
    "scaling",
    "coordinates",
    "study",
    "report",
    "search",
    "torch",
    "trace",
    "parameterize",
    "optim",
    "models",
    "data",
    "measure",
    "planning",
    "train",
    "sweeps",
    "experiments",
    "cli",
)
"""A package imports only from itself and from packages before it."""

FORBIDDEN = {
    "theory": {"jax", "jaxlib", "numpy", "scipy"},
    "fit": {"jax", "jaxlib"},
    "scaling": {"jax", "jaxlib", "numpy", "scipy"},
    "coordinates": {"jax", "jaxlib"},
    "study": {"jax", "jaxlib"},
    "report": {"jax", "jaxlib"},
    "search": {"jax", "jaxlib"},
    "torch": {"jax", "jaxlib", "optax", "flax"},
    "data": {"widthwise.models"},
    "experiments": {"matplotlib"},
}
"""What a package must do without, although the order would allow it."""


def imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "." * node.level + (node.module or "")
            elif node.module == "widthwise":
                yield from (f"widthwise.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def violations(package: str, source: str) -> list[str]:
    allowed = LAYERS[: LAYERS.index(package) + 1]
    found: list[str] = []
    for name in imports(source):
        top, *rest = name.split(".")
        if not top:
            found.append(f"{name}: write the whole name")
        elif top == "widthwise" and rest and rest[0] in LAYERS and rest[0] not in allowed:
            found.append(f"{name}: {rest[0]} is built on {package}")
        elif {top, ".".join([top, *rest[:1]])} & FORBIDDEN.get(package, set()):
            found.append(f"{name}: {package} does without it")
    return found


@pytest.mark.parametrize("package", LAYERS)
def test_packages_import_only_what_lies_below_them(package: str):
    found = {
        str(path.relative_to(ROOT)): violations(package, path.read_text()) for path in (ROOT / package).rglob("*.py")
    }
    assert not {path: wrong for path, wrong in found.items() if wrong}


def test_every_package_has_a_place_in_the_layers():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= set(LAYERS)
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("theory", "from widthwise.cli import main"),
        ("theory", "from widthwise import train"),
        ("theory", "import numpy as np"),
        ("train", "def late():\n    import widthwise.sweeps.driver"),
        ("fit", "from jax import numpy"),
        ("data", "import widthwise.models.transformer"),
        ("data", "from widthwise import models"),
        ("cli", "from . import exponents"),
    ],
)
def test_an_import_from_above_is_found(package: str, source: str):
    assert len(violations(package, source)) == 1


def test_an_import_from_below_is_allowed():
    assert violations("cli", "import jax\nfrom widthwise.theory import solve\nfrom widthwise import __version__") == []


def test_importing_widthwise_imports_nothing_outside_the_standard_library():
    script = (
        "import sys; before = set(sys.modules); import widthwise, widthwise.theory;"
        "print(*{m.split('.')[0] for m in set(sys.modules) - before} - sys.stdlib_module_names)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["widthwise"]
