"""How agents learnt: their reward over the episodes as a picture (SVG, PNG), and as a page with what belongs to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import MissingExtraError
from fairlead.report.numbers import show
from fairlead.report.page import POLICY, page_style
from fairlead.report.svg import Drawing, Scale, draw_axes

WINDOW = 10
"""Episodes over which a curve is smoothed."""

_WIDTH, _HEIGHT = 720.0, 340.0
_LEFT, _RIGHT, _TOP, _BOTTOM, _PAD = 52.0, 16.0, 56.0, 48.0, 14.0
_TOP_BARE = 26.0  # without heading and legend
_COLOUR = "#0b6fb8"
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.heading{font-size:15px;font-weight:600}.label{fill:#555}.tick{fill:#666}"
    f".grid{{stroke:#e4e4e4}}.axis{{stroke:#888}}.curve{{fill:none;stroke:{_COLOUR};stroke-width:2}}"
)
_BANDS = ".wide{fill-opacity:.12}.near{fill-opacity:.2}"
_KEYS = ("mean of all agents", "middle half of the agents", "all agents")

Reals = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What one function's agent came to: its reward per step, and what it brings once it only serves, as shares."""

    function: str
    reward: float
    reward_deviation: float
    slo_preservation: float
    utilisation: float


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A table in place of the one by function: its heading, a note, and rows of words under heads."""

    heading: str
    note: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Learning:
    """One training: rewards per step by (episode, agent), what came of each agent, and how it was done, in words.

    `unit` is what rewards are means of, `scale` what they can be. A `listing` takes the place of `functions`.
    """

    title: str
    rewards: Reals
    functions: Sequence[Learned]
    facts: Mapping[str, str]
    finding: str
    command: str
    next_command: str
    unit: str = "episode"
    scale: str = "at most 1, and -1 for what should not be done"
    listing: Listing | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """What is drawn; of a single agent only its curve."""
        return _KEYS if self.rewards.shape[1] > 1 else (f"mean of {WINDOW} {self.unit}s",)


@dataclass(frozen=True, kw_only=True)
class Band:
    """Moving means over the episodes: of all agents together, and where the single ones lie."""

    mean: Reals
    least: Reals
    lower: Reals  # a quarter of the agents is below
    upper: Reals
    most: Reals


def band_of(rewards: Reals, window: int = WINDOW) -> Band:
    """Each agent's mean over its last `window` episodes, fewer at the beginning, summed up over the agents.

    An agent that was not there (NaN) does not count in that episode.
    """
    if rewards.ndim != 2 or not rewards.size:
        raise ValueError(f"rewards must be [episodes, agents], neither of them 0; got {list(rewards.shape)}.")
    is_there = np.isfinite(rewards)
    counts = _moving_sum(is_there.astype(float), window)
    sums = _moving_sum(np.where(is_there, rewards, 0.0), window)
    smooth = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    least, lower, upper, most = np.nanquantile(smooth, (0.0, 0.25, 0.75, 1.0), axis=1)
    return Band(mean=np.nanmean(smooth, axis=1), least=least, lower=lower, upper=upper, most=most)


def learning_svg(learning: Learning) -> str:
    """The curve as an SVG file of its own."""
    width, height = f"{_WIDTH + 2 * _PAD:g}", f"{_HEIGHT + 2 * _PAD:g}"
    box = f"{-_PAD:g} {-_PAD:g} {width} {height}"
    _, _, body = str(_draw(learning)).partition(">")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="{box}" '
        f'role="img" aria-label="{escape(learning.title)}">'
        f"<style>{_STYLE}.wide,.near{{fill:{_COLOUR}}}{_BANDS}</style>"
        f'<rect x="{-_PAD:g}" y="{-_PAD:g}" width="100%" height="100%" fill="#fff"/>{body}\n'
    )


def learning_png(learning: Learning) -> bytes:
    """The curve as a PNG file, drawn by matplotlib, which comes with the extra `learn`."""
    try:  # an extra, and slow to load
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtraError("A learning curve as PNG", "matplotlib", "learn") from error
    band = band_of(learning.rewards)
    episodes = np.arange(1, len(band.mean) + 1)
    figure = Figure(figsize=(8, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if len(learning.keys) > 1:
        axes.fill_between(episodes, band.least, band.most, color=_COLOUR, alpha=0.12, linewidth=0, label=_KEYS[2])
        axes.fill_between(episodes, band.lower, band.upper, color=_COLOUR, alpha=0.22, linewidth=0, label=_KEYS[1])
    marker = "o" if len(episodes) == 1 else None  # a line needs two points
    axes.plot(episodes, band.mean, color=_COLOUR, linewidth=1.8, marker=marker, label=learning.keys[0])
    axes.set(xlabel=learning.unit, ylabel=f"reward per step, mean of {WINDOW} {learning.unit}s", title=learning.title)
    axes.grid(color="#e4e4e4")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, reverse=True)
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def learning_page(learning: Learning) -> str:
    """A page that needs nothing else: the curve, what came of each function's agent, and how they were trained."""
    style = page_style()
    style += f".wide,.near{{fill:var(--c)}}{_BANDS}\n"
    keys = "".join(
        f'<li><svg class="key c0" viewBox="0 0 18 11" aria-hidden="true">{shape}</svg>{words}</li>'
        for shape, words in zip(
            (
                '<path class="curve" d="M0 5.5H18"/>',
                '<rect class="wide" width="18" height="11"/><rect class="near" width="18" height="11"/>',
                '<rect class="wide" width="18" height="11"/>',
            ),
            learning.keys,
            strict=False,
        )
    )
    note = f"Reward per step: {learning.scale}. Means of up to {WINDOW} {learning.unit}s."
    drawing = _draw(learning, has_heading=False)
    listing = learning.listing or _by_function(learning.functions)
    facts = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="left">{escape(value)}</td></tr>'
        for name, value in learning.facts.items()
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(learning.title)} · Fairlead</title>\n"
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<style>\n{style}</style>\n</head>\n<body>\n'
        f'<main>\n<header><h1>{escape(learning.title)}</h1><p class="finding">{escape(learning.finding)}</p>'
        f'<p class="command">Train it again: <code>{escape(learning.command)}</code></p>'
        f'<p class="command">Use it: <code>{escape(learning.next_command)}</code></p></header>\n'
        f'<section><h2>Learning curve</h2><p class="note">{note}</p><ul class="legend">{keys}</ul>'
        f'<div class="c0" style="max-width:860px">{drawing}</div></section>\n'
        f"<section><h2>{escape(listing.heading)}</h2>{_table(listing)}</section>\n"
        f'<section><h2>How it was trained</h2><div class="scroll"><table><tbody>{facts}</tbody></table></div>'
        "</section>\n</main>\n</body>\n</html>\n"
    )


def _by_function(functions: Sequence[Learned]) -> Listing:
    return Listing(
        heading="By function",
        note=f"Reward per step: mean and deviation of the last {WINDOW} episodes. SLO preservation and utilisation: "
        "means over the control periods of one more episode, in which agents no longer learn and take the likeliest "
        "action.",
        heads=("function", "reward per step", "deviation", "SLO preservation", "utilisation"),
        rows=[
            (
                one.function,
                f"{one.reward:.3f}",
                f"{one.reward_deviation:.3f}",
                show(one.slo_preservation, "share"),
                show(one.utilisation, "share"),
            )
            for one in functions
        ],
    )


def _table(listing: Listing) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(value)}</td>" for value in values)}</tr>'
        for name, *values in listing.rows
    )
    head = "".join(f"<th>{escape(name)}</th>" for name in listing.heads)
    return (
        f'<p class="note">{escape(listing.note)}</p><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _draw(learning: Learning, *, has_heading: bool = True) -> Drawing:
    band, title = band_of(learning.rewards), learning.title
    count = len(band.mean)
    low, high = float(band.least.min()), float(band.most.max())
    margin = 0.05 * (high - low) or 0.05
    x = Scale(low=1.0, high=float(max(2, count)), start=_LEFT, end=_WIDTH - _RIGHT)
    top = _TOP if has_heading else _TOP_BARE
    y = Scale(low=low - margin, high=high + margin, start=_HEIGHT - _BOTTOM, end=top)
    drawing = Drawing(_WIDTH, _HEIGHT, title)
    if has_heading:
        drawing.text(0, 14, title, "heading")
    draw_axes(drawing, x, y, x_label=learning.unit, y_label="reward per step")
    bands = (("wide", band.least, band.most), ("near", band.lower, band.upper)) if len(learning.keys) > 1 else ()
    for style, lower, upper in bands:
        there = [(x(i + 1), y(float(value))) for i, value in enumerate(upper)]
        back = [(x(i + 1), y(float(value))) for i, value in enumerate(lower)][::-1]
        drawing.path("M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in there + back) + "Z", style)
    drawing.curve([(x(i + 1), y(float(value))) for i, value in enumerate(band.mean)], "curve", learning.keys[0])
    if has_heading:
        _legend(drawing, learning.keys)
    return drawing


def _legend(drawing: Drawing, keys: Sequence[str]) -> None:
    """In one line at the right, above the plot."""
    left = _WIDTH - _RIGHT - 440
    for number, (name, width) in enumerate(zip(keys, (160, 190, 90), strict=False)):
        if number == 0:
            drawing.line((left, 38), (left + 20, 38), "curve")
        else:
            drawing.rect(left, 33, 20, 10, "wide")
        if number == 1:
            drawing.rect(left, 33, 20, 10, "near")
        drawing.text(left + 26, 42, name)
        left += width


def _moving_sum(values: Reals, window: int) -> Reals:
    """Of each column: of the last `window` rows up to each one, fewer at the beginning."""
    sums = np.cumsum(values, axis=0)
    sums[window:] -= sums[:-window].copy()
    result: Reals = sums
    return result
