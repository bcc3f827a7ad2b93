"""The page of a live league."""

import re

from live_leagues import cell, figures, league, live_cell

from fairlead.league.live.charts import draw_bars, draw_scatter
from fairlead.league.live.compare import judge
from fairlead.league.live.document import Cell
from fairlead.league.live.page import finding, render_live, verdict_rows


def test_the_page_has_every_cell_live_and_predicted():
    text = render_live(league(cell("fifo", 0.5, 0.625), cell("<b>", 0.75, 0.75)), "fairlead league shop.py --live")
    assert "50.0 %<small>62.5 %</small>" in text
    assert "<td>+12.5</td>" in text
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert "within 3 points of the live one in 1 of 2 cells (50%)" in text


def test_marked_and_failed_cells_are_shown():
    marked = Cell(
        app="shop",
        load=1.0,
        policy="fifo",
        live=live_cell("shop", "fifo", figures(0.5), marks=("others used 40% of the CPUs",)),
        predicted=figures(0.5),
    )
    failed = Cell(app="shop", load=1.0, policy="esg", failure="it did not start")
    text = render_live(league(marked, failed), "")
    assert "shop x1 fifo: others used 40% of the CPUs" in text
    assert "failed: it did not start" in text
    assert dict(verdict_rows(judge(league(marked, failed))))["marked: other programs were busy"] == "1"


def test_several_workflows_are_told_apart():
    parts = {"one": figures(1.0, requests=500), "two": figures(0.0, requests=500)}
    live = live_cell("shop", "fifo", figures(0.5, by_workflow=parts))
    text = render_live(league(Cell(app="shop", load=1.0, policy="fifo", live=live, predicted=figures(0.5))), "")
    assert "By workflow" in text
    assert "By workflow" not in render_live(league(cell("fifo", 0.5, 0.5)), "")


def test_bars_are_as_long_as_their_shares():
    """With one load, 100 % is 716 pixels wide."""
    widths = [
        float(width) for width in re.findall(r'width="([\d.]+)"', str(draw_bars(league(cell("a", 0.5, 0.25)), "shop")))
    ]
    assert widths == [358, 179]


def test_a_perfect_prediction_lies_on_the_diagonal():
    """Of 420 pixels each way from (52, 460); a dot is 9 wide."""
    (dot,) = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"', str(draw_scatter([cell("a", 0.5, 0.5)])))
    assert [float(value) + 4.5 for value in dot] == [262, 250]


def test_a_league_without_cells_says_so():
    assert finding(judge(league())) == "No cell has both a live run and a prediction."
