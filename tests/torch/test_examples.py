"""The examples for PyTorch run, are short, and one learning rate serves several widths."""

import runpy
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "torch"


@pytest.mark.parametrize(("name", "base"), [("nanogpt", 32), ("hugging_face", 64)])
def test_an_example_is_short_and_learns_at_two_widths_with_one_rate(name: str, base: int):
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) <= 60
    train = runpy.run_path(str(path))["train"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="the learning rates of the groups")
        untrained = train(base, steps=1)
        for width in (base, 2 * base):
            assert train(width) < 0.5 * untrained
