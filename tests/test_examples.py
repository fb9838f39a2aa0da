"""The examples run, are short, and do what they are for: one learning rate serves several widths."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_framework_has_an_example():
    assert [path.stem for path in EXAMPLES] == ["equinox_mlp", "flax_linen", "flax_nnx", "plain_dict"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_learns_at_two_widths_with_one_rate(path: Path):
    assert len(path.read_text().splitlines()) <= 60
    train = load(path).train
    untrained = train(32, steps=1)
    for width in (32, 64):
        assert train(width) < 0.1 * untrained
