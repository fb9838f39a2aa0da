"""Pages filled with what a study says."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from widthwise.report.exhibits import Lines, Panel, Series, Table
from widthwise.report.findings import Finding, Judgement
from widthwise.report.sections import Contents, Section
from widthwise.report.template import fill_template

CLAIM = "exponent near zero"
FINDINGS = (
    Finding(claim=CLAIM, of="standard, Adam", verdict=Judgement.HOLDS, measured="0.01 [−0.02, 0.04]", paper="−0.05"),
    Finding(claim=CLAIM, of="muP, Adam", verdict=Judgement.FAILS, measured="0.30 [0.20, 0.40], apart by 1.00 [0, 2]"),
    Finding(claim="exponents differ", of="standard, muP", verdict=Judgement.UNCLEAR, measured="by 0.1, or not"),
)
CONTENTS = Contents(
    study="study",
    counts={"finished": 7, "diverged": 1},
    sections=(
        Section(
            name="transfer-gpu",
            title="Does it transfer?",
            scale="gpu",
            findings=FINDINGS,
            exhibits=(
                Table(
                    name="grid",
                    title="Grid",
                    caption="All of it.",
                    columns=("of", "loss"),
                    rows=(("a|b", "2.50"), ("c", "2.25")),
                    best=frozenset({(1, 1)}),
                ),
                Lines(
                    name="losses",
                    title="Losses",
                    caption="Losses by size.",
                    panels=(Panel(title="muP", series=(Series(name="muP", x=(1.0, 2.0), y=(3.0, 2.0)),)),),
                    x_label="parameters",
                    y_label="loss",
                ),
            ),
            missing=("one run failed",),
            runs=8,
        ),
    ),
    missing=(),
)


def filled(tmp_path: Path, text: str) -> str:
    template = tmp_path / "results.md.j2"
    template.write_text(text)
    fill_template(template, tmp_path / "results.md", CONTENTS)
    return (tmp_path / "results.md").read_text()


def test_claims_are_those_of_the_paper(tmp_path: Path):
    (section,) = CONTENTS.sections
    own = replace(section, name="length-gpu", title="Is it the length?", of_paper=False)
    (tmp_path / "page.md.j2").write_text("{{ claims() }}{{ findings('length') }}")
    fill_template(tmp_path / "page.md.j2", tmp_path / "page.md", replace(CONTENTS, sections=(section, own)))
    page = (tmp_path / "page.md").read_text()
    assert "✓ holds (1), ✗ does not hold (1), ? cannot tell (1)" in page
    assert "Is it the length?" not in page
    assert page.count(CLAIM) == 2


def test_claims_are_one_table_with_a_column_for_each_parameterization(tmp_path: Path):
    lines = filled(tmp_path, "{{ claims() }}").splitlines()
    assert lines[0].startswith("✓ holds (1), ✗ does not hold (1), ? cannot tell (1)")
    assert "| **[Does it transfer?](#does-it-transfer)** |  |  |  |  |" in lines
    assert (
        "| exponent near zero (Adam) | ✓ 0.01 [−0.02, 0.04] (−0.05) |  | ✗ 0.30 [0.20, 0.40], apart by 1.00 [0, 2] |  |"
        in lines
    )
    assert lines[-1] == "| exponents differ (standard, muP) | ? by 0.1, or not |"


def test_findings_tables_numbers_and_counts_come_from_the_study(tmp_path: Path):
    text = filled(
        tmp_path,
        '{{ findings("transfer") }}{{ table("transfer-gpu", "grid") }}\n'
        '{{ measured("transfer", "near zero", "muP") }}\n{{ runs("transfer") }} of {{ counts.finished }}\n'
        '{{ missing("transfer") }}\n',
    )
    assert "|  | muP, Adam | 0.30 [0.20, 0.40], apart by 1.00 [0, 2] | – | does not hold |" in text
    assert "| a\\|b | 2.50 |\n| c | **2.25** |\n\nAll of it." in text
    assert text.endswith("0.30 [0.20, 0.40], apart by 1.00 [0, 2]\n8 of 7\n- one run failed\n")


def test_figures_are_saved_beside_the_page(tmp_path: Path):
    text = filled(tmp_path, '{{ figure("transfer", "losses") }}')
    assert text == "![Losses](results/transfer-gpu-losses.svg)\n\nLosses by size."
    assert "<svg" in (tmp_path / "results" / "transfer-gpu-losses.svg").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{{ findings("horizon") }}', "0 sections are called 'horizon': expected one of transfer-gpu"),
        ('{{ table("transfer", "peaks") }}', "transfer shows no 'peaks': expected one of grid, losses"),
        ('{{ table("transfer", "losses") }}', "'losses' of transfer is a figure: expected a table"),
        ('{{ figure("transfer", "grid") }}', "'grid' of transfer is a table: expected a figure"),
        ('{{ measured("transfer", "near zero", "Adam") }}', "2 findings of transfer have 'near zero' and 'Adam'"),
        ("{{ missing() }}", "missing() missing 1 required positional argument: 'experiment'"),
        ("{{ runs('transfer') / 0 }}", "results.md.j2: division by zero"),
        ("{{ claim() }}", "results.md.j2: 'claim' is undefined"),
        ("{{ claims( }}", "results.md.j2, line 1: unexpected '}'"),
    ],
)
def test_what_a_template_names_must_be_there(tmp_path: Path, text: str, message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        filled(tmp_path, text)
    assert not (tmp_path / "results.md").exists()


def test_a_template_that_cannot_be_read_is_named(tmp_path: Path):
    (tmp_path / "bytes.md.j2").write_bytes(b"\xff")
    for name in ("nowhere.md.j2", "bytes.md.j2", "."):
        with pytest.raises(ValueError, match=r"the template '.*' cannot be read"):
            fill_template(tmp_path / name, tmp_path / "results.md", CONTENTS)
