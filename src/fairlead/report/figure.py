"""Figures as SVG files of their own: light background, legend at the right, colours that differ in print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from fairlead.report.svg import Drawing, Point, Scale, draw_axes

_WIDTH, _HEIGHT = 720.0, 380.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 190.0, 64.0, 56.0
_LEGEND = 110.0  # room for it beside bars, whose names are short
_COLOURS = ("#0b6fb8", "#d1495b", "#2e8b57", "#8a5fbf", "#e08e0b", "#4a4a4a", "#1aa6a6", "#b5651d")
_DASHES = ("none", "6 3", "2 2")
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.heading{font-size:15px;font-weight:600}.label{fill:#555}.tick{fill:#666}"
    ".gap{fill:#fff}.limit{stroke:#333;stroke-dasharray:4 3}"
    ".grid{stroke:#e4e4e4}.axis{stroke:#888}.curve{fill:none;stroke-width:2;stroke-linejoin:round}"
)


def line_figure(
    title: str,
    lines: Mapping[str, Sequence[Point]],
    *,
    x_label: str,
    y_label: str,
    is_log_x: bool = False,
    is_log_y: bool = False,
    marks: Mapping[str, float] | None = None,
) -> str:
    """An SVG file with a line of (x, y) points per name. A logarithmic axis leaves out what is not positive.

    `marks` are instants by name: numbered lines across the plot, whose names are in the legend.
    """
    kept = {
        name: [
            (x, y)
            for x, y in points
            if isfinite(x) and isfinite(y) and (x > 0 or not is_log_x) and (y > 0 or not is_log_y)
        ]
        for name, points in lines.items()
    }
    xs = [x for points in kept.values() for x, _ in points] or [0.0, 1.0]
    ys = [y for points in kept.values() for _, y in points] or [0.0, 1.0]
    x = _scale(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT, is_log_x)
    low = min(ys) if is_log_y else min(0.0, *ys)
    y = _scale(low, max(ys) * (1.15 if is_log_y else 1.05), _HEIGHT - _BOTTOM, _TOP, is_log_y)
    drawing = Drawing(_WIDTH, _HEIGHT, title)
    drawing.text(0, 18, title, "heading")
    draw_axes(drawing, x, y, x_label=x_label, y_label=y_label)
    for index, (name, points) in enumerate(kept.items()):
        style = f"s{index}"
        drawing.curve([(x(a), y(b)) for a, b in points], f"curve {style}", name)
        for a, b in points:
            drawing.rect(x(a) - 2.5, y(b) - 2.5, 5, 5, f"dot {style}", f"{name}: {a:g}, {b:g}")
        top = _TOP + 20 * index
        left = _WIDTH - _RIGHT + 16
        drawing.line((left, top), (left + 22, top), f"curve {style}")
        drawing.text(left + 28, top + 4, name)
    for number, (name, at) in enumerate((marks or {}).items(), 1):
        drawing.line((x(at), _TOP), (x(at), _HEIGHT - _BOTTOM), "limit")
        drawing.text(x(at), _TOP - 4, str(number), "label", "middle")
        drawing.text(_WIDTH - _RIGHT + 16, _TOP + 20 * (len(kept) + number) - 8, f"{number}  {name}", "label")
    return _stand_alone(str(drawing), len(kept))


Quantiles = Sequence[float]
"""5, 25, 50, 75 and 95 %."""


def bar_figure(title: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """An SVG file with a group of bars per name, one bar per series. What is not finite is left out."""
    values = [value for group in groups.values() for value in group.values() if isfinite(value)]
    drawing, y, places = _grouped(title, groups, max([*values, 0.0]) * 1.08)
    for (group, index, name), (left, width) in places.items():
        value = groups[group][name]
        if isfinite(value):
            top = y(value)
            drawing.rect(left, top, width, y(0.0) - top, f"dot s{index}", f"{group}, {name}: {value:.4g}")
    return _stand_alone(str(drawing), _count(groups))


def box_figure(
    title: str, groups: Mapping[str, Mapping[str, Quantiles]], *, limit: float | None = None, most: float | None = None
) -> str:
    """An SVG file with a box per series in each group: quartiles as box, 5 to 95 % as whiskers, the median as a gap.

    `limit` is a line across; what lies above `most` is cut off there.
    """
    values = [value for group in groups.values() for own in group.values() for value in own if isfinite(value)]
    high = min(max([*values, limit or 0.0]) * 1.08, most or float("inf"))
    drawing, y, places = _grouped(title, groups, high)
    for (group, index, name), (left, width) in places.items():
        own = groups[group][name]
        if not all(map(isfinite, own)):
            continue
        low, first, median, third, top = (y(min(value, high)) for value in own)
        middle = left + width / 2
        told = f"{group}, {name}: " + ", ".join(f"{value:.3g}" for value in own)
        drawing.line((middle, low), (middle, top), f"curve s{index}")
        drawing.rect(left, third, width, max(1.0, first - third), f"dot s{index}", told)
        drawing.rect(left, median - 1, width, 2, "gap")
    if limit is not None:
        drawing.line((_LEFT, y(limit)), (_WIDTH - _LEGEND, y(limit)), "limit")
    return _stand_alone(str(drawing), _count(groups))


def _grouped(
    title: str, groups: Mapping[str, Mapping[str, object]], high: float
) -> tuple[Drawing, Scale, dict[tuple[str, int, str], tuple[float, float]]]:
    """A drawing with its axis and legend, and where each bar stands: its left edge and width."""
    y = _scale(0.0, high or 1.0, _HEIGHT - _BOTTOM, _TOP, False)
    drawing = Drawing(_WIDTH, _HEIGHT, title)
    drawing.text(0, 18, title, "heading")
    for tick in y.ticks():
        drawing.line((_LEFT, y(tick)), (_WIDTH - _LEGEND, y(tick)), "grid")
        drawing.text(_LEFT - 8, y(tick) + 4, f"{tick:g}", "tick", "end")
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    room = (_WIDTH - _LEGEND - _LEFT) / max(1, len(groups))
    width = 0.82 * room / max(1, len(names))
    places = {}
    for position, (group, own) in enumerate(groups.items()):
        start = _LEFT + room * (position + 0.09)
        for index, name in enumerate(names):
            if name in own:
                places[group, index, name] = (start + width * index + 0.5, width - 1)
        for row, word in enumerate(group.replace("_", "-").split("-", 1)):  # two short lines under a narrow group
            drawing.text(start + 0.41 * room, _HEIGHT - _BOTTOM + 16 + 14 * row, word, "tick", "middle")
    for index, name in enumerate(names):
        top, left = _TOP + 20 * index, _WIDTH - _LEGEND + 16
        drawing.rect(left, top - 6, 14, 10, f"dot s{index}")
        drawing.text(left + 22, top + 4, name)
    return drawing, y, places


def _count(groups: Mapping[str, Mapping[str, object]]) -> int:
    return len({name for group in groups.values() for name in group})


def _scale(low: float, high: float, start: float, end: float, is_log: bool) -> Scale:
    if not high > low:
        low, high = (low / 2, low * 2) if is_log else (low - 0.5, low + 0.5)
    return Scale(low=low, high=high, start=start, end=end, is_log=is_log)


def _stand_alone(svg: str, count: int) -> str:
    """The drawing with its own colours and background, as a file that any viewer shows."""
    rules = ""
    for i in range(count):
        colour, dash = _COLOURS[i % len(_COLOURS)], _DASHES[i // len(_COLOURS) % len(_DASHES)]
        rules += f".curve.s{i}{{stroke:{colour};stroke-dasharray:{dash}}}.dot.s{i}{{fill:{colour}}}"
    pad = 14
    box = f'viewBox="{-pad} {-pad} {_WIDTH + 2 * pad:g} {_HEIGHT + 2 * pad:g}"'
    size = f'width="{_WIDTH + 2 * pad:g}" height="{_HEIGHT + 2 * pad:g}"'
    head, _, body = svg.partition(">")
    head = head.replace(f'viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}"', f'xmlns="http://www.w3.org/2000/svg" {box} {size}')
    back = f'<rect x="{-pad}" y="{-pad}" width="100%" height="100%" fill="#fff"/>'
    return f"{head}><style>{_STYLE}{rules}</style>{back}{body}\n"
