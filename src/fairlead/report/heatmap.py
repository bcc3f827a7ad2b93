"""A heat map of shares: one box per row and column, each with one sub-box per case; colour and number say the same.

It is drawn once; a page colours it by its own style, and `stand_alone` makes a file of it that any viewer shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.report.svg import Drawing, number

WIDTH = 900.0
LEVELS = 10

_HEAD, _ROW, _FOOT, _GAP = 58.0, 21.0, 34.0, 4.0
_CHARACTER = 6.0  # pixels of a letter of the row names, about
_LIGHT = (247, 251, 255)
_DARK = (8, 48, 107)


@dataclass(frozen=True, kw_only=True)
class Box:
    """One sub-box. A `share` of None is a box without a figure, which shows `sign` instead; `title` is its tooltip."""

    share: float | None
    title: str
    is_best: bool = False
    sign: str = ""


def draw_heat_map(
    rows: Mapping[str, Sequence[Sequence[Box | None]]],
    columns: Sequence[str],
    cases: Sequence[str],
    *,
    title: str,
    legend: str,
) -> Drawing:
    """The map: by row name, for each column its sub-boxes, one per case. None is an empty place.

    Shares are written in per cent; the best of each row and case are bold and underlined.
    """
    left = 8 + _CHARACTER * max((len(name) for name in rows), default=10)
    width = (WIDTH - left) / max(1, len(columns))
    drawing = Drawing(WIDTH, _HEAD + _ROW * len(rows) + _FOOT, title)
    _draw_head(drawing, columns, cases, left, width)
    for position, (name, groups) in enumerate(rows.items()):
        top = _HEAD + _ROW * position
        drawing.text(left - 8, top + _ROW / 2 + 4, name, "row", "end")
        for place, boxes in enumerate(groups):
            part = (width - _GAP) / max(1, len(boxes))
            for case, box in enumerate(boxes):
                if box is not None:
                    _draw_box(drawing, box, left + width * place + part * case, top, part)
    _draw_foot(drawing, left, _HEAD + _ROW * len(rows), legend)
    return drawing


def stand_alone(drawing: Drawing) -> str:
    """The map as an SVG file with colours of its own on a light background."""
    rules = (
        "text{font:11px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;fill:#1c2330}"
        ".column{font-weight:600;font-size:10px}.case,.label{fill:#5b6575}.case{font-size:9px}"
        ".share{font-size:9px;font-variant-numeric:tabular-nums}.share.best{font-weight:700}"
        ".mark{fill:#f07800}.none{fill:#fff;stroke:#b42318;stroke-dasharray:2 2}"
        ".sign{fill:#b42318;font-size:8px}"
    )
    for level in range(LEVELS + 1):
        mix = level / LEVELS
        red, green, blue = (round(a + (b - a) * mix) for a, b in zip(_LIGHT, _DARK, strict=True))
        rules += f".w{level}{{fill:rgb({red},{green},{blue})}}"
        if level >= LEVELS * 0.5:
            rules += f".share.on{level}{{fill:#fff}}"
    pad = 12
    width, height = drawing.width + 2 * pad, drawing.height + 2 * pad
    head, _, body = str(drawing).partition(">")
    box = f'viewBox="{-pad} {-pad} {number(width)} {number(height)}" width="{number(width)}" height="{number(height)}"'
    old = f'viewBox="0 0 {number(drawing.width)} {number(drawing.height)}"'
    head = head.replace(old, f'xmlns="http://www.w3.org/2000/svg" {box}')
    back = f'<rect x="{-pad}" y="{-pad}" width="100%" height="100%" fill="#fff"/>'
    return f"{head}><style>{rules}</style>{back}{body}\n"


def _draw_head(drawing: Drawing, columns: Sequence[str], cases: Sequence[str], left: float, width: float) -> None:
    for place, name in enumerate(columns):
        middle = left + width * place + (width - _GAP) / 2
        for line, text in enumerate(_two_lines(name)):
            drawing.text(middle, _HEAD - 37 + 13 * line, text, "column", "middle")
        part = (width - _GAP) / max(1, len(cases))
        for case, text in enumerate(cases if len(cases) > 1 else ()):
            drawing.text(left + width * place + part * (case + 0.5), _HEAD - 7, text, "case", "middle")


def _draw_box(drawing: Drawing, box: Box, x: float, y: float, width: float) -> None:
    middle, base = x + width / 2, y + _ROW / 2 + 2.5
    if box.share is None:
        drawing.rect(x + 0.5, y + 0.5, width - 1, _ROW - 2, "none", box.title)
        drawing.text(middle, base, box.sign, "sign", "middle")
        return
    level = round(box.share * LEVELS)
    drawing.rect(x, y, width - 0.5, _ROW - 1, f"warmth w{level}", box.title)
    if box.is_best:
        drawing.rect(x, y + _ROW - 3.5, width - 0.5, 2.5, "mark")
    style = f"share on{level} best" if box.is_best else f"share on{level}"
    drawing.text(middle, base, per_cent(box.share), style, "middle")


def _draw_foot(drawing: Drawing, left: float, top: float, legend: str) -> None:
    for level in range(LEVELS + 1):
        drawing.rect(left + 14 * level, top + 14, 14, 12, f"warmth w{level}")
    drawing.text(left - 8, top + 24, "0 %", "label", "end")
    drawing.text(left + 14 * (LEVELS + 1) + 6, top + 24, f"100 %   {legend}", "label")


def _two_lines(name: str) -> tuple[str, str]:
    """A long name broken at the hyphen nearest to its middle; a short one stands on the lower line."""
    if len(name) <= 9 or "-" not in name:
        return "", name
    cuts = [i + 1 for i, sign in enumerate(name) if sign == "-"]
    cut = min(cuts, key=lambda i: abs(i - len(name) / 2))
    return name[:cut], name[cut:]


def per_cent(share: float) -> str:
    """A whole number; neither all nor nothing unless it is, to a tenth of a per cent."""
    if 0.995 <= share < 0.9995:
        return "99"
    if 0.0005 <= share < 0.005:
        return "<1"
    return f"{100 * share:.0f}"
