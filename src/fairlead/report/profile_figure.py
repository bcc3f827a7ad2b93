"""A measured profile as a picture: latency over batch size, a line per vCPU size, a panel per function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.model import Configuration
from fairlead.profile.measured import MeasuredFunction, MeasuredProfiles, Point
from fairlead.profile.predict import fit
from fairlead.report.svg import Drawing, Scale, draw_axes

_WIDTH, _PANEL = 640.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 150.0, 62.0, 52.0
_PAD = 14.0
_STEPS = 40
_COLOURS = ("#0b6fb8", "#d1495b", "#2e8b57", "#8a5fbf", "#e08e0b", "#4a4a4a", "#1aa6a6", "#b5651d")
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.heading{font-size:15px;font-weight:600}.label{fill:#555}.tick{fill:#666}"
    ".grid{stroke:#e4e4e4}.axis{stroke:#888}.model{fill:none;stroke-width:1.6}.guess{fill:#fff;stroke-width:1.6}"
    ".key{fill:#555;stroke:#555}.key.guess{fill:#fff}"
)


def profile_figure(measured: MeasuredProfiles) -> str:
    """An SVG file. Full marks were measured, hollow ones predicted; the lines are the model fitted to the full ones."""
    height = _PANEL * len(measured.functions) + 2 * _PAD
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 2 * _PAD:g}" height="{height:g}" '
        f'viewBox="{-_PAD:g} {-_PAD:g} {_WIDTH + 2 * _PAD:g} {height:g}"><style>{_STYLE}{_rules()}</style>'
        f'<rect x="{-_PAD:g}" y="{-_PAD:g}" width="100%" height="100%" fill="#fff"/>'
    ]
    for i, (name, function) in enumerate(measured.functions.items()):
        parts.append(f'<g transform="translate(0 {i * _PANEL:g})">{_panel(name, function)}</g>')
    return "".join([*parts, "</svg>\n"])


def _panel(name: str, function: MeasuredFunction) -> str:
    """One function. Where there is one batch size only, its line is over vCPUs."""
    points = [point for point in function.points if point.kind is None] or list(function.points)
    is_over_batch = len({point.batch for point in points}) > 1
    across: Callable[[Point], float] = (lambda p: p.batch) if is_over_batch else (lambda p: p.vcpus)
    lines: dict[str, list[Point]] = {}
    for point in points:
        label = f"{point.vcpus:g} vCPU" if is_over_batch else f"batch of {point.batch}"
        lines.setdefault(label + (f", {point.vgpus:g} vGPU" if point.vgpus else ""), []).append(point)
    drawing = Drawing(_WIDTH, _PANEL, name)
    x = _axis([across(point) for point in points], _LEFT, _WIDTH - _RIGHT)
    y = _y_axis(points)
    error = "" if function.held_out_error is None else f", held-out error {function.held_out_error:.1%}"
    drawing.text(0, 16, f"{name}{error}", "heading")
    draw_axes(drawing, x, y, x_label="batch size" if is_over_batch else "vCPUs", y_label="latency of a run, ms")
    model = fit({p.configuration(): p.mean_s for p in points if not p.is_predicted} or _means(points))
    for index, (label, line) in enumerate(lines.items()):
        style = f"s{index % len(_COLOURS)}"
        curve = [
            (x(at), y(1e3 * model.mean_s(_configuration(line[0], at, is_over_batch))))
            for at in _between([across(point) for point in line], is_over_batch)
        ]
        drawing.curve(curve, f"model {style}", f"{label}: the model")
        for point in line:
            mark = f"guess {style}" if point.is_predicted else style
            what = "predicted" if point.is_predicted else f"{point.count} runs"
            text = f"{label}, {across(point):g}: {1e3 * point.mean_s:.4g} ms ({what})"
            drawing.rect(x(across(point)) - 3, y(1e3 * point.mean_s) - 3, 6, 6, mark, text)
        _legend(drawing, index, label, style)
    _legend_marks(drawing, len(lines) + 0.6, any(point.is_predicted for point in points))
    return str(drawing).partition(">")[2].removesuffix("</svg>")


def _configuration(point: Point, at: float, is_over_batch: bool) -> Configuration:
    if is_over_batch:
        return Configuration(batch=max(1, round(at)), vcpus=point.vcpus, vgpus=point.vgpus)
    return Configuration(batch=point.batch, vcpus=at, vgpus=point.vgpus)


def _means(points: Sequence[Point]) -> dict[Configuration, float]:
    return {point.configuration(): point.mean_s for point in points}


def _between(values: Sequence[float], is_whole: bool) -> list[float]:
    """From the least to the greatest; batch sizes in whole numbers."""
    low, high = min(values), max(values)
    if is_whole:
        step = max(1, round((high - low) / _STEPS))
        return [*range(int(low), int(high), step), high]
    return [low + (high - low) * i / _STEPS for i in range(_STEPS + 1)] if high > low else [low]


def _axis(values: Sequence[float], start: float, end: float) -> Scale:
    low, high = min(values), max(values)
    margin = 0.04 * (high - low) or 0.5
    return Scale(low=low - margin, high=high + margin, start=start, end=end)


def _y_axis(points: Sequence[Point]) -> Scale:
    """From zero, unless small ones would vanish beside large ones."""
    values = [1e3 * point.mean_s for point in points]
    start, end = _PANEL - _BOTTOM, _TOP
    if min(values) > 0 and max(values) > 50 * min(values):
        return Scale(low=0.8 * min(values), high=1.2 * max(values), start=start, end=end, is_log=True)
    return Scale(low=0.0, high=1.05 * max(values) or 1.0, start=start, end=end)


def _legend(drawing: Drawing, index: int, label: str, style: str) -> None:
    left, top = _WIDTH - _RIGHT + 16, _TOP + 20 * index
    drawing.line((left, top), (left + 22, top), f"model {style}")
    drawing.text(left + 28, top + 4, label)


def _legend_marks(drawing: Drawing, row: float, has_guesses: bool) -> None:
    left, top = _WIDTH - _RIGHT + 16, _TOP + 20 * row
    for i, (style, label) in enumerate([("key", "measured"), ("key guess", "predicted")][: 1 + has_guesses]):
        drawing.rect(left + 8, top + 20 * i - 3, 6, 6, style)
        drawing.text(left + 28, top + 20 * i + 4, label)


def _rules() -> str:
    return "".join(
        f".s{i}{{fill:{colour}}}.model.s{i}{{fill:none;stroke:{colour}}}.guess.s{i}{{fill:#fff;stroke:{colour}}}"
        for i, colour in enumerate(_COLOURS)
    )
