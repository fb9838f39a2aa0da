"""What tests of experiments share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from widthwise.study import Study


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Study.open(tmp_path / "study") as opened:
        yield opened
