"""The picture of goodput against load in the README, from the figures in docs/design/live-speed.md.

    python benchmarks/live/goodput_figure.py > docs/goodput.svg

Each server was loaded with 70, 130, 300 and 1000 % of its own capacity: a line has its points at that server's loads.
Goodput is the share in time of what was offered.
"""

import re
import sys
from pathlib import Path

from fairlead.report.svg import Drawing, Scale, draw_axes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "design" / "live-speed.md"
SERVERS = {
    "Fairlead": "Fairlead",
    "bare reference (FIFO)": "bare asyncio server, FIFO",
    "Ray Serve, 256 ongoing": "Ray Serve 2.60",
}
COLOURS = ("#0b6fb8", "#7a7a7a", "#d1495b")
WIDTH, HEIGHT, PAD = 680.0, 330.0, 16.0
STYLE = (
    "text{font:12px sans-serif;fill:#333}.heading{font-size:15px;font-weight:600}.label,.tick{fill:#555}"
    ".grid{stroke:#e4e4e4}.axis{stroke:#888}path{fill:none;stroke-width:2.4}.dot{stroke-width:7;stroke-linecap:round}"
    + "".join(f".s{i}{{stroke:{colour}}}.t{i}{{fill:{colour};font-weight:600}}" for i, colour in enumerate(COLOURS))
)
_ROW = re.compile(r"^\| (?P<server>[^|]+) \| \d+ % \| (?P<offered>[\d,]+) \| (?P<in_time>[\d.]+)% \|", re.MULTILINE)


def points(page: str) -> dict[str, list[tuple[float, float]]]:
    """Offered and answered in time, per second, by server."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in SERVERS.values()}
    for row in _ROW.finditer(page):
        if row["server"] in SERVERS:
            offered = float(row["offered"].replace(",", ""))
            found[SERVERS[row["server"]]].append((offered, offered * float(row["in_time"]) / 100))
    return found


def figure(page: str) -> str:
    """An SVG file."""
    lines = points(page)
    drawing = Drawing(WIDTH, HEIGHT, "Goodput against load")
    x = Scale(low=80, high=3_600, start=52, end=WIDTH - 118, is_log=True)
    y = Scale(low=0, high=350, start=HEIGHT - 52, end=44)
    drawing.text(0, 14, "Answers within 50 ms, by load: one batched stage (8 + 2n ms) on two cores", "heading")
    draw_axes(drawing, x, y, x_label="requests per second that are sent", y_label="answers in time per second")
    labels = {"Fairlead": (10, 4), "bare asyncio server, FIFO": (-38, -108), "Ray Serve 2.60": (10, -8)}
    for i, (name, line) in enumerate(lines.items()):
        drawing.curve([(x(offered), y(goodput)) for offered, goodput in line], f"s{i}", name)
        for offered, goodput in line:
            text = f"{name}: {goodput:.0f}/s in time of {offered:.0f}/s"
            drawing.curve([(x(offered), y(goodput))], f"dot s{i}", text)
    ends = {"Fairlead": lines["Fairlead"][-1], "Ray Serve 2.60": lines["Ray Serve 2.60"][0]}
    ends["bare asyncio server, FIFO"] = lines["bare asyncio server, FIFO"][1]
    for i, name in enumerate(lines):
        (offered, goodput), (right, down) = ends[name], labels[name]
        drawing.text(x(offered) + right, y(goodput) + down, name, f"t{i}")
    size = f"{WIDTH + 2 * PAD:g}", f"{HEIGHT + 2 * PAD:g}"
    box = f"{-PAD:g} {-PAD:g} {size[0]} {size[1]}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" viewBox="{box}">'
    back = f'<rect x="{-PAD:g}" y="{-PAD:g}" width="{size[0]}" height="{size[1]}" fill="#fff"/>'
    return f"{head}<style>{STYLE}</style>{back}{str(drawing).partition('>')[2]}\n"


if __name__ == "__main__":
    sys.stdout.write(figure(PAGE.read_text(encoding="utf-8")))
