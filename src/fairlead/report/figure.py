"""A figure of lines as an SVG file of its own: light background, legend at the right, colours that differ in print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from fairlead.report.svg import Drawing, Point, Scale, draw_axes

_WIDTH, _HEIGHT = 720.0, 380.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 190.0, 64.0, 56.0
_COLOURS = ("#0b6fb8", "#d1495b", "#2e8b57", "#8a5fbf", "#e08e0b", "#4a4a4a", "#1aa6a6", "#b5651d")
_DASHES = ("none", "6 3", "2 2")
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.heading{font-size:15px;font-weight:600}.label{fill:#555}.tick{fill:#666}"
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
) -> str:
    """An SVG file with a line of (x, y) points per name. A logarithmic axis leaves out what is not positive."""
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
    return _stand_alone(str(drawing), len(kept))


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
