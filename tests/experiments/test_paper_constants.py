"""The paper's constants, as its table and its text have them."""

import pytest

from widthwise.experiments.paper_constants import PAPER_CONSTANTS, paper_constants
from widthwise.parameterize import Constants
from widthwise.theory import Role


def test_the_paper_s_constants_are_those_of_its_table():
    assert len(PAPER_CONSTANTS) == 16
    assert paper_constants("sgd", "mup") == Constants(embedding=1398.861, hidden=5.532, readout=0.020)
    assert paper_constants("adam", "ntk") == Constants(embedding=0.144, hidden=0.886, readout=2.095)
    assert paper_constants("adam_atan2", "ntk") == paper_constants("adam", "ntk")
    assert paper_constants("adam_ps", "standard") == Constants(embedding=2.598, hidden=1.845, readout=0.838)
    assert paper_constants("adafactor", "mean_field") == Constants(embedding=1.879, hidden=0.928, readout=0.646)


def test_the_text_s_ranges_hold_for_the_table():
    # §4.2: with parameter scaling from 0.5 to 2.6; with Adam from 0.15 (rounded) to 11.7.
    spans = {
        name: [
            getattr(row, role) for (optimizer, _), row in PAPER_CONSTANTS.items() if optimizer == name for role in Role
        ]
        for name in ("adam", "adam_ps")
    }
    assert [round(end, 1) for end in (min(spans["adam_ps"]), max(spans["adam_ps"]))] == [0.5, 2.6]
    assert [round(end, 1) for end in (min(spans["adam"]), max(spans["adam"]))] == [0.1, 11.7]


def test_constants_the_paper_does_not_have_are_refused():
    with pytest.raises(ValueError, match=r"'lion' with 'mup': expected one of sgd, adam, adam_ps, adafactor"):
        paper_constants("lion", "mup")
