"""What figures show, checked on the drawn axes and on the files."""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from tests.report import studies
from tests.report.test_browser import contrast
from widthwise.fit import fit_transfer
from widthwise.report import heatmaps, lines, planes, points, sweeps
from widthwise.report.alignment import alignment_figure
from widthwise.report.exhibits import AnyExhibit, Heatmap, Heatmaps, Lines, Panel, Series, Transfers
from widthwise.report.figures import draw, draw_files
from widthwise.report.inline import inline_svg
from widthwise.report.showing import transfers
from widthwise.report.style import COLOURS, INK, PAPER, PARAMETERIZATIONS, ramp
from widthwise.report.ticks import MOST
from widthwise.report.write import WrittenReport


def sweep_axes(*fits, paper: Sequence[float | None] = ()) -> list[list[Axes]]:
    """Draw groups, and return the upper and the lower axes of each."""
    shown = {str(number): fit for number, fit in enumerate(fits)}
    exhibit = transfers("rates", "", shown)
    axes = sweeps.draw(replace(exhibit, paper=tuple(paper)) if paper else exhibit).axes
    across = min(len(fits), 4)
    return [[axes[place], axes[place + across]] for place in range(len(fits))]


def drawn(axes: Axes, marker: str) -> list[tuple[float, float]]:
    found = [line for line in axes.get_lines() if line.get_marker() == marker and line.get_linestyle() == "-"]
    return [(x, y) for line in found for x, y in zip(*np.array(line.get_data()), strict=True)]


def test_only_stable_rates_are_drawn_and_the_edge_is_marked():
    fit = studies.fitted(rates=14)
    ((above, _),) = sweep_axes(fit)
    curves = [line for line in above.get_lines() if line.get_marker() == "o"]
    assert [line.get_xdata()[-1] for line in curves] == [each.edge.largest_stable for each in fit.transfer.optima]
    tried = [trial.learning_rate for trial in fit.trials]
    assert max(x for x, _ in drawn(above, "o")) < max(tried)
    assert {x for x, _ in drawn(above, "x")} == {
        optimum.edge.largest_stable for optimum in fit.transfer.optima if optimum.edge.smallest_unstable
    }


def test_every_seed_is_a_dot_and_their_mean_is_the_line():
    fit = studies.fitted("ntk", widths=(64, 128), seeds=(0, 1))
    ((above, _),) = sweep_axes(fit)
    dots = [line for line in above.get_lines() if line.get_marker() == "."]
    means = [line for line in above.get_lines() if line.get_marker() == "o"]
    assert [len(each.get_xdata()) for each in dots] == [2 * len(each.get_xdata()) for each in means]
    losses = [trial.eval_loss for trial in fit.trials if trial.width == 64]
    assert set(np.round(dots[0].get_ydata(), 6)) <= set(np.round(losses, 6))


def test_an_optimum_at_the_edge_of_what_was_tried_is_open():
    known, cut = studies.fitted(), studies.fitted(rates=2)
    panels = sweep_axes(known, cut)
    for fit, (above, below) in zip((known, cut), panels, strict=True):
        stars = [line for line in above.get_lines() if line.get_marker() == "*"]
        interior = [optimum.interior for optimum in fit.transfer.optima]
        assert [(star.get_xdata()[0], star.get_ydata()[0]) for star in stars] == [
            (optimum.learning_rate.value, optimum.eval_loss) for optimum in fit.transfer.optima
        ]
        assert [star.get_markerfacecolor() != PAPER for star in stars] == interior
        assert len(below.containers) == sum(interior)
    assert not any(optimum.interior for optimum in cut.transfer.optima)


def test_the_exponent_and_the_papers_are_told_apart():
    fit = studies.fitted(setting="global")
    (_, below), (_, without) = sweep_axes(fit, fit, paper=(-0.95, None))
    value = f"{fit.transfer.law.exponent.value:.2f}".replace("-", "−")
    assert below.get_title(loc="left").startswith(f"exponent {value} [")
    (paper,) = below.texts
    assert (paper.get_text(), paper.get_style()) == ("paper: −0.95", "italic")
    assert not without.texts


def test_slopes_can_be_compared_since_all_panels_span_as_many_octaves():
    fits = [studies.fitted(name, "global", widths=(64, 256, 1024)) for name in PARAMETERIZATIONS]
    panels = sweep_axes(*fits)
    for fit, (_, below) in zip(fits, panels, strict=True):
        low, high = below.get_ylim()
        assert all(low < optimum.learning_rate.value < high for optimum in fit.transfer.optima)
    spans = [math.log2(below.get_ylim()[1] / below.get_ylim()[0]) for _, below in panels]
    assert spans == pytest.approx([spans[0]] * 4)
    assert len({above.get_ylim() for above, _ in panels}) == 1
    colours = [below.get_lines()[0].get_color() for _, below in panels]
    assert colours == list(PARAMETERIZATIONS.values())


def test_many_widths_leave_room_for_their_numbers():
    widths = (128, 256, 512, 768, 1024, 1536, 2048, 2560, 3072, 4096, 6144, 8192, 12288, 16384)
    ((_, below),) = sweep_axes(studies.fitted(widths=widths, rates=8))
    shown = [int(label.get_text()) for label in below.get_xticklabels()]
    assert shown[-1] == 16384
    assert 3 <= len(shown) <= MOST + 1
    assert all(math.log2(high / low) > 1 for low, high in itertools.pairwise(shown))


def test_a_group_that_diverged_altogether_says_so():
    fit = studies.fitted()
    trials = tuple(replace(trial, eval_loss=math.nan) for trial in fit.trials)
    dead = replace(fit, runs=dict.fromkeys(trials, ""), transfer=fit_transfer(trials))
    ((above, below),) = sweep_axes(dead)
    assert [text.get_text() for text in above.texts] == ["every run diverged"]
    assert below.get_title(loc="left") == "exponent not known"
    (dead_above, _), (alive, _) = sweep_axes(dead, fit)
    assert alive.get_ylim() == dead_above.get_ylim()
    assert drawn(alive, "*")


def figure_of(*series: Series, **options) -> Figure:
    panel = Panel(title="", series=series)
    return lines.draw(Lines(name="", title="", caption="", panels=(panel,), x_label="x", y_label="y", **options))


def test_lines_of_one_colour_differ_in_stroke_and_marker():
    def line(name: str, parameterization: str | None) -> Series:
        return Series(name=name, x=(1.0, 2.0), y=(1.0, 2.0), parameterization=parameterization)

    alike = figure_of(line("full", "mup"), line("none", "mup"), line("other", None), line("standard", "standard"))
    full, none, other, standard = alike.axes[0].get_lines()
    assert full.get_color() == none.get_color() == PARAMETERIZATIONS["mup"]
    assert (full.get_linestyle(), full.get_marker()) != (none.get_linestyle(), none.get_marker())
    assert (standard.get_linestyle(), standard.get_color()) == ("-", PARAMETERIZATIONS["standard"])
    assert other.get_color() not in PARAMETERIZATIONS.values()
    legend = alike.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["full", "none", "other", "standard"]
    assert legend.get_lines()[0].get_color() == full.get_color()


def test_one_legend_serves_panels_of_several_colours():
    series = {
        name: tuple(Series(name=each, x=(1.0,), y=(1.0,), parameterization=name) for each in ("full", "none"))
        for name in ("mup", "ntk")
    }
    panels = tuple(Panel(title=name, series=each) for name, each in series.items())
    figure = lines.draw(Lines(name="", title="", caption="", panels=panels, x_label="", y_label="", log_y=True))
    strokes = [[(line.get_linestyle(), line.get_marker()) for line in axes.get_lines()] for axes in figure.axes]
    assert strokes[0] == strokes[1]
    assert [line.get_color() for line in figure.legends[0].get_lines()] == [INK, INK]


def test_a_heatmap_writes_its_numbers_and_shows_what_is_not_known():
    each = Heatmap(title="standard", rows=(64, 128), columns=("1e-9", "1e-15"), values=((0.0, math.nan), (0.25, 0.0)))
    figure = heatmaps.draw(Heatmaps(name="", title="", caption="", maps=(each, each), x_label="epsilon"))
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["0.000", "–", "0.250", "0.000"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["64", "128"]
    (mesh,) = axes.collections
    for text, face in zip(axes.texts, mesh.to_rgba(mesh.get_array()).reshape(-1, 4), strict=True):
        if text.get_text() != "–":
            assert contrast(rgb(text.get_color()), rgb(to_hex(face))) > 4.5


def test_the_colours_of_a_heatmap_are_explained_by_ticks_within_their_range():
    each = Heatmap(title="standard", rows=(64,), columns=("1e-9", "1e-15"), values=((0.0, 0.355),))
    figure = heatmaps.draw(Heatmaps(name="", title="", caption="", maps=(each,), x_label="epsilon"))
    ticks = figure.axes[-1].get_yticks()
    assert len(ticks) >= 4
    assert max(ticks) <= 0.355


def rgb(colour: str) -> str:
    return "rgb({}, {}, {})".format(*(int(to_hex(colour)[place : place + 2], 16) for place in (1, 3, 5)))


def test_parameterizations_in_one_place_are_all_seen():
    embedding, hidden, readout = planes.draw(studies.planes()).axes

    def marks(axes: Axes) -> list[tuple]:
        found = [line for line in axes.get_lines() if line.get_marker() not in ("None", None, "")]
        return [(line.get_xdata()[0], line.get_ydata()[0], line.get_markersize()) for line in found]

    assert all(len(set(marks(axes))) == 4 for axes in (embedding, hidden, readout))
    assert len({(a, b) for a, b, _ in marks(embedding)}) == 2


def test_headings_that_are_long_are_broken_and_rows_are_four_wide():
    figure = alignment_figure(studies.alignment().panels)
    assert len(figure.axes) == 5
    assert "\n" in figure.axes[0].get_title()
    assert figure.axes[4].get_position().y0 < figure.axes[0].get_position().y0
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "readout"


@pytest.mark.parametrize("exhibit", [studies.heatmaps(), studies.planes()], ids=["heatmaps", "planes"])
def test_a_figure_gives_the_same_bytes_whenever_it_is_drawn(report: WrittenReport, exhibit: AnyExhibit):
    files = draw_files(exhibit)
    saved = report.page.parent / f"figures/gallery-smoke-{exhibit.name}"
    assert files == {kind: saved.with_suffix(f".{kind}").read_bytes() for kind in ("svg", "png", "pdf")}
    assert files["png"][:4] == b"\x89PNG"
    assert files["pdf"][:5] == b"%PDF-"
    width, height = (int.from_bytes(files["png"][place : place + 4]) for place in (16, 20))
    points = re.search(rb'width="([\d.]+)pt" height="([\d.]+)pt"', files["svg"])
    assert points is not None
    assert (width, height) == pytest.approx([float(each) / 72 * 150 for each in points.groups()], abs=1)


def test_an_inline_figure_has_ids_of_its_own_and_is_smaller_than_its_file(report: WrittenReport):
    svg = (report.page.parent / "figures/gallery-smoke-planes.svg").read_text(encoding="utf-8")
    inline = inline_svg(svg, "mine", studies.planes())
    ids = re.findall(r'\bid="([^"]+)"', inline)
    assert len(set(ids)) == len(ids)
    assert all(each.startswith("mine-") for each in ids)
    references = re.findall(r'(?:href="#|url\(#)([^")]+)', inline)
    assert references
    assert set(references) <= set(ids)
    assert "</text>" in inline
    assert len(inline) < 0.8 * len(svg)


def test_every_point_of_a_sweep_that_can_be_seen_says_what_it_is():
    many = studies.fitted("ntk", widths=(64, 128), seeds=(0, 1))
    exhibit = transfers("rates", "", {"one": studies.fitted(), "cut": studies.fitted(rates=2), "many": many})
    svg = draw_files(exhibit)["svg"].decode()
    texts = re.findall("<title>(.*?)</title>", inline_svg(svg, "f1", exhibit), flags=re.DOTALL)
    assert sorted(texts) == sorted(text for group in points.texts(exhibit).values() for text in group)
    assert "<title>" not in svg
    limits = points.loss_limits(exhibit)
    for fit in exhibit.fits:
        axis = fit.transfer.axis
        for trial in fit.trials:
            run = f"{axis} {trial.width}, seed {trial.seed}\nlearning rate {trial.learning_rate:.3g}, eval loss "
            (edge,) = (one.edge.largest_stable for one in fit.transfer.optima if one.width == trial.width)
            seen = (
                edge is not None and trial.learning_rate <= edge * 1.0001 and limits[0] <= trial.eval_loss <= limits[1]
            )
            assert (f"{run}{trial.eval_loss:.4f}" in texts) == seen
        for optimum in fit.transfer.optima:
            kind = "optimum" if optimum.interior else "best of those tried"
            rate = f"{kind} at {axis} {optimum.width}\nlearning rate {optimum.learning_rate.value:.3g} ["
            assert sum(text.startswith(rate) for text in texts) >= 2
    assert sum("mean of the seeds" in text for text in texts) > 4


def test_every_marker_of_a_line_says_what_it_is():
    lost = Series(name="lost <em>", x=(1.0, 2.0, 4.0, 8.0), y=(1.5, math.nan, 1.25, 1.0), parameterization="mup")
    wide = Series(name="wide", x=(2.0, 4.0), y=(1.5, 1.25), intervals=((1.0, 2.0), (1.125, 1.375)))
    function = Series(name="function", x=tuple(range(1, 50)), y=(1.0,) * 49)
    panels = (Panel(title="one", series=(function, lost, wide)), Panel(title="two", series=(wide, lost)))
    exhibit = Lines(name="lines", title="Lines", caption="", panels=panels, x_label="size", y_label="loss")
    svg = draw_files(exhibit)["svg"].decode()
    texts = re.findall("<title>(.*?)</title>", inline_svg(svg, "f1", exhibit), flags=re.DOTALL)
    ours = [f"lost &lt;em&gt;\nsize {x}, loss {y}" for x, y in ((1, 1.5), (4, 1.25), (8, 1))]
    theirs = ["wide\nsize 2, loss 1.5 [1, 2]", "wide\nsize 4, loss 1.25 [1.125, 1.375]"]
    assert texts == [*ours, *theirs, *theirs, *ours]


def test_every_measured_alignment_says_what_it_is():
    exhibit = studies.alignment()
    svg = draw_files(exhibit)["svg"].decode()
    texts = re.findall("<title>(.*?)</title>", inline_svg(svg, "f1", exhibit), flags=re.DOTALL)
    assert texts == [
        f"{path}\nstep {point.step}, log alignment ratio {point.layers[path]['ratio']:.3f}"
        for run in exhibit.panels.values()
        for path in run[0].layers
        for point in run
        if math.isfinite(point.layers[path]["ratio"])
    ]
    assert len(texts) > 50


def test_nothing_to_draw_is_no_figure():
    assert draw(Transfers(name="", title="", caption="", fits=(), panels=(), paper=())) is None
    assert draw(Heatmaps(name="", title="", caption="", maps=(), x_label="")) is None


def test_colours_are_seen_on_white():
    assert list(PARAMETERIZATIONS.values()) == list(COLOURS[:4])
    for colour in (*COLOURS[:4], *ramp(14)):
        assert contrast(rgb(colour), rgb(PAPER)) > 2.2
    assert contrast(rgb(INK), rgb(PAPER)) > 12
    on_paper = [contrast(rgb(colour), rgb(PAPER)) for colour in ramp(14)]
    assert on_paper == sorted(on_paper)
