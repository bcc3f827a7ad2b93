"""Drawing: shapes, scales and axes as SVG text. Nothing here knows what is drawn.

Colours are CSS classes, so that a page can have a light and a dark set. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Maps values onto pixels, evenly or by their logarithm."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; a logarithm has none below `low`, which stands for what is there."""
        if self.is_log:
            value = max(value, self.low)
            share = (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 6) -> list[float]:
        """About `count` round values on the scale."""
        return log_ticks(self.low, self.high, count) if self.is_log else even_ticks(self.low, self.high, count)


def even_ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, from `low` to `high`."""
    if not high > low:
        return [low]
    step = nice_step(0.7 * (high - low) / count)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def log_ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Powers of ten from `low` to `high`, with 2 and 5 times them where there is room."""
    decades = range(floor(log10(low) + 1e-9), ceil(log10(high) - 1e-9) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(ticks) <= count + 2:
            return ticks
    return ticks[:: ceil(len(ticks) / count)]


def nice_step(size: float) -> float:
    """The least of 1, 2 or 5 times a power of ten that is not below `size`."""
    power: float = 10.0 ** floor(log10(size))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= size * (1 - 1e-9))


def number(value: float) -> str:
    """A coordinate: a tenth of a pixel is enough."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


class Drawing:
    """An SVG picture that is put together shape by shape."""

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width, self.height = width, height
        self._label = label
        self._parts: list[str] = []

    def __str__(self) -> str:
        size = f"{number(self.width)} {number(self.height)}"
        head = f'<svg viewBox="0 0 {size}" role="img" aria-label="{escape(self._label)}">'
        return head + "".join(self._parts) + "</svg>"

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """A line of text. `anchor` is `start`, `middle` or `end`."""
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._parts.append(
            f'<text x="{number(x)}" y="{number(y)}"{_style(style)}{place}>{escape(text, quote=False)}</text>'
        )

    def rect(self, x: float, y: float, width: float, height: float, style: str, title: str = "") -> None:
        """A box; `title` is what a pointer over it shows."""
        shape = (
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"{_style(style)}'
        )
        self._parts.append(f"{shape}>{_title(title)}</rect>" if title else f"{shape}/>")

    def line(self, start: Point, end: Point, style: str) -> None:
        """A straight line."""
        (x1, y1), (x2, y2) = start, end
        ends = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
        self._parts.append(f"<line {ends}{_style(style)}/>")

    def curve(self, points: Iterable[Point | None], style: str, title: str = "") -> None:
        """A line through points; None is a gap. A point between gaps is a dot."""
        path, pen = [], "M"
        for point in points:
            if point is None:
                pen = "M"
                continue
            path.append(f"{pen}{number(point[0])} {number(point[1])}" + ("h.01" if pen == "M" else ""))
            pen = "L"
        self.path("".join(path), style, title)

    def path(self, data: str, style: str, title: str = "") -> None:
        """A path from SVG path data."""
        if data:
            shape = f'<path d="{data}"{_style(style)}'
            self._parts.append(f"{shape}>{_title(title)}</path>" if title else f"{shape}/>")

    def open(self, style: str = "", title: str = "", series: int | None = None) -> None:
        """Begin a group, which `close` ends. Groups of a `series` can be switched off together."""
        mark = "" if series is None else f' data-series="{series}"'
        self._parts.append(f"<g{_style(style)}{mark}>{_title(title)}")

    def close(self) -> None:
        """End the group opened last."""
        self._parts.append("</g>")


def draw_axes(
    drawing: Drawing,
    x: Scale,
    y: Scale,
    *,
    x_label: str,
    y_label: str = "",
    x_text: Callable[[float], str] = "{:g}".format,
    y_text: Callable[[float], str] = "{:g}".format,
    y_ticks: Sequence[float] | None = None,
) -> None:
    """Grid, ticks and labels of a plot: values of x below, of y at the left, the label of y above its axis."""
    for value in y.ticks() if y_ticks is None else y_ticks:
        drawing.line((x.start, y(value)), (x.end, y(value)), "grid")
        drawing.text(x.start - 8, y(value) + 4, y_text(value), "tick", "end")
    draw_x_axis(drawing, x, top=y.end, bottom=y.start, label=x_label, text=x_text)
    if y_label:
        drawing.text(0, y.end - 14, y_label, "label")


def draw_x_axis(
    drawing: Drawing,
    x: Scale,
    *,
    top: float,
    bottom: float,
    label: str,
    text: Callable[[float], str] = "{:g}".format,
    has_grid: bool = False,
) -> None:
    """The axis below a plot, with its ticks and its label; a grid goes up to `top`."""
    drawing.line((x.start, bottom), (x.end, bottom), "axis")
    for value in x.ticks(max(2, int((x.end - x.start) / 75))):
        if has_grid:
            drawing.line((x(value), top), (x(value), bottom), "grid")
        drawing.line((x(value), bottom), (x(value), bottom + 4), "axis")
        drawing.text(x(value), bottom + 18, text(value), "tick", "middle")
    drawing.text((x.start + x.end) / 2, bottom + 38, label, "label", "middle")


def _style(style: str) -> str:
    return f' class="{style}"' if style else ""


def _title(title: str) -> str:
    return f"<title>{escape(title, quote=False)}</title>" if title else ""
