"""One word per thing: no two public classes or type aliases share a name."""

import ast
from collections import defaultdict
from pathlib import Path

import widthwise

ROOT = Path(widthwise.__file__).parent


def public_types(source: str) -> set[str]:
    """Return the public classes and type aliases that a module defines."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            found.add(ast.unparse(node.target))
    return {name for name in found if not name.startswith("_")}


def test_no_two_public_types_share_a_name():
    places = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for name in public_types(path.read_text()):
            places[name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_classes_and_aliases_are_seen():
    source = "class A: ...\nclass _B: ...\nC: TypeAlias = int\nD: int = 3\n"
    assert public_types(source) == {"A", "C"}
