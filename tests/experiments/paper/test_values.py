"""The paper's numbers, cell by cell, against its tables as they were read from its source, and its constants."""

import csv
import re
from pathlib import Path
from statistics import median

import pytest

from widthwise.experiments.paper.values import (
    ARCTAN_CONSTANTS,
    EVAL_LOSSES,
    EXPONENTS,
    MEDIAN_DIFFERENCE,
    PAPER_CONSTANTS,
    SETTINGS,
    paper_constants,
)
from widthwise.parameterize import Constants
from widthwise.theory import Role

ARCTAN_TABLE = r"""
 1 & 1 & $1/\arctan(1) = 1.27$ \\ \hline
 2 & 2 & $1/\arctan(\frac{1}{2}) = 2.16$ \\ \hline
 4 & 4 & $1/\arctan(\frac{1}{4}) = 4.08$ \\ \hline
 8 & 8 & $1/\arctan(\frac{1}{8}) = 8.04$ \\ \hline
 16 & 16 & $1/\arctan(\frac{1}{16}) = 16.02$ \\ \hline
 32 & 32 & $1/\arctan(\frac{1}{32}) = 32.01$ \\ \hline
"""


def table(name: str) -> list[dict[str, str]]:
    with (Path(__file__).parent / name).open() as file:
        return list(csv.DictReader(file))


def test_eval_losses_are_those_of_the_table_of_all_settings():
    cells = {
        (row["optimizer"], row["parameterization"], setting): float(row[setting])
        for row in table("eval_losses.csv")
        for setting in SETTINGS
        if row[setting]
    }
    assert cells == dict(EVAL_LOSSES)
    assert len(cells) == 12 * 5 + 8 * 2


def test_exponents_are_those_of_the_table_of_horizons():
    cells = {
        (row["optimizer"], row["parameterization"], horizon): float(row[horizon])
        for row in table("horizon_exponents.csv")
        for horizon in ("fixed", "compute_optimal")
    }
    assert cells == dict(EXPONENTS)


def test_the_text_s_median_is_that_of_the_table():
    apart = [
        EXPONENTS[optimizer, name, "fixed"] - EXPONENTS[optimizer, name, "compute_optimal"]
        for optimizer, name, horizon in EXPONENTS
        if horizon == "fixed"
    ]
    # 0.455, which the text gives as 0.46; "from 0.01 to 0.89".
    assert abs(median(apart) - MEDIAN_DIFFERENCE) < 0.006
    assert (round(min(apart), 2), round(max(apart), 2)) == (0.01, 0.89)


def test_constants_of_the_arctangent_are_those_of_the_table():
    cells = {
        int(b): (float(small), float(large))
        for b, small, large in re.findall(r"(\d+) & (\d+) & .*= ([\d.]+)\$", ARCTAN_TABLE)
    }
    assert cells == dict(ARCTAN_CONSTANTS)


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
