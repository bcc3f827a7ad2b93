"""Pictures of a live league: live beside predicted shares in time, and one against the other."""

from collections.abc import Sequence

from fairlead.league.live.compare import POINTS
from fairlead.league.live.document import Cell, League
from fairlead.report.numbers import show
from fairlead.report.svg import Drawing, Scale, draw_axes

WIDTH = 900.0
PERCENT_TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

_NAMES, _HEAD, _ROW, _FOOT, _GAP = 130.0, 34.0, 30.0, 14.0, 54.0
_BAR, _BETWEEN = 9.0, 2.0
_SIDE = 420.0


def draw_bars(league: League, app: str) -> Drawing:
    """One app: a row per policy, a column per load; in each box live above predicted."""
    loads = sorted({cell.load for cell in league.cells if cell.app == app})
    policies = [name for name in league.policies if any((one.app, one.policy) == (app, name) for one in league.cells)]
    cells = {(cell.load, cell.policy): cell for cell in league.cells if cell.app == app}
    drawing = Drawing(WIDTH, _HEAD + _ROW * len(policies) + _FOOT, f"{app}: share in time, live and predicted")
    width = (WIDTH - _NAMES) / max(1, len(loads))
    bottom = _HEAD + _ROW * len(policies)
    for row, policy in enumerate(policies):
        drawing.text(_NAMES - 10, _HEAD + _ROW * row + _ROW / 2 + 2, policy, "name", "end")
    for column, load in enumerate(loads):
        start = _NAMES + width * column
        x = Scale(low=0.0, high=1.0, start=start, end=start + width - _GAP)
        drawing.text(start, 14, f"load {load:g}", "name")
        for tick in (0.0, 0.5, 1.0):
            drawing.line((x(tick), _HEAD - 6), (x(tick), bottom), "grid")
            drawing.text(x(tick), _HEAD - 8, f"{tick:.0%}", "case", "middle")
        for row, policy in enumerate(policies):
            cell = cells.get((load, policy))
            if cell is not None:
                _draw_cell(drawing, cell, x, _HEAD + _ROW * row + 3, column)
    return drawing


def _draw_cell(drawing: Drawing, cell: Cell, x: Scale, top: float, colour: int) -> None:
    drawing.open(f"c{colour % 8}")
    if cell.live is None:
        drawing.text(x.start, top + _BAR + 2, "failed", "sign")
    else:
        share = cell.live.live.share
        title = f"{cell.policy}, load {cell.load:g}, live: {show(share, 'share')} in time"
        drawing.rect(x.start, top, max(1.0, x(share) - x.start), _BAR, "part", title)
        sign = "*" if cell.live.marks else ""
        drawing.text(x.end + 6, top + 8, f"{100 * share:.1f}{sign}", "share")
    if cell.predicted is not None:
        share = cell.predicted.share
        below = top + _BAR + _BETWEEN
        title = f"{cell.policy}, load {cell.load:g}, predicted: {show(share, 'share')} in time"
        drawing.rect(x.start, below, max(1.0, x(share) - x.start), _BAR, "part idle", title)
        drawing.text(x.end + 6, below + 8, f"{100 * share:.1f}", "share")
    drawing.close()


def draw_scatter(cells: Sequence[Cell]) -> Drawing:
    """Predicted against live shares in time, a dot per cell, in the band that a prediction should be in."""
    left, top, bottom = 52.0, 40.0, 48.0
    drawing = Drawing(_SIDE + left + 20, _SIDE + top + bottom, "Predicted against live share in time")
    x = Scale(low=0.0, high=1.0, start=left, end=left + _SIDE)
    y = Scale(low=0.0, high=1.0, start=top + _SIDE, end=top)
    draw_axes(
        drawing,
        x,
        y,
        x_label="live share in time",
        y_label="predicted share in time",
        x_text="{:.0%}".format,
        y_text="{:.0%}".format,
        y_ticks=PERCENT_TICKS,
    )
    corners = [
        (0.0, 0.0),
        (0.0, POINTS),
        (1 - POINTS, 1.0),
        (1.0, 1.0),
        (1.0, 1 - POINTS),
        (POINTS, 0.0),
    ]
    band = "L".join(f"{x(across):.1f} {y(up):.1f}" for across, up in corners)
    drawing.path(f"M{band}Z", "warmth w2", f"within {100 * POINTS:g} points")
    loads = sorted({cell.load for cell in cells})
    for cell in cells:
        if cell.live is not None and cell.predicted is not None:
            live, predicted = cell.live.live.share, cell.predicted.share
            title = (
                f"{cell.app}, {cell.policy}, load {cell.load:g}: live {show(live, 'share')}, "
                f"predicted {show(predicted, 'share')}"
            )
            drawing.open(f"c{loads.index(cell.load) % 8}")
            drawing.rect(x(live) - 4.5, y(predicted) - 4.5, 9, 9, "dot", title)
            drawing.close()
    return drawing
