"""Curves and bars that compare policies: latency, attainment over time, cost, and a number over a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.report.numbers import Column, show, show_plain
from fairlead.report.series import Series
from fairlead.report.svg import Drawing, Point, Scale, draw_axes, draw_x_axis

WIDTH, HEIGHT = 540, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 40, 48
CURVE_POINTS = 400
MOST_BINS = 60
PERCENT_TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

Floats = NDArray[np.float64]


def draw_latency(series: Sequence[Series]) -> Drawing:
    """Share of all counted requests answered within a time; what is never answered keeps a curve below 100 %."""
    latencies = [np.sort(one.requests["latency_s"].drop_nulls().to_numpy()) for one in series]
    objectives = _objectives_s(series)
    x = _latency_scale(latencies, list(objectives.values()))
    y = _percent_scale()
    drawing = Drawing(WIDTH, HEIGHT, "Share of requests answered within a latency, per policy")
    draw_axes(
        drawing,
        x,
        y,
        x_label="latency, logarithmic" if x.is_log else "latency",
        y_label="share of all requests answered within",
        x_text=_short_seconds,
        y_text=_percent,
        y_ticks=PERCENT_TICKS,
    )
    for one, values in zip(series, latencies, strict=True):
        drawing.open(_line(one), series=one.index)
        drawing.curve(_distribution(values, one.requests.height, x, y), "curve", one.label)
        drawing.close()
    for objective_s in objectives.values():
        drawing.line((x(objective_s), y.end), (x(objective_s), y.start), "slo")
    for row, (name, objective_s) in enumerate(objectives.items()):
        is_left = x(objective_s) > x.end - 130
        label = f"SLO {name} {_short_seconds(objective_s)}".replace("  ", " ")
        at = x(objective_s) + (-5 if is_left else 5)
        drawing.text(at, y.start - 10 - 18 * row, label, "slo-text", "end" if is_left else "start")
    return drawing


def draw_attainment(series: Sequence[Series]) -> Drawing:
    """Share of the requests that met their SLO, by the time they arrived."""
    arrivals = [one.requests["arrival"].to_numpy() for one in series]
    low = min(one.recordings[0].warmup_s for one in series)
    high = max([low + 1e-9, *(float(values.max()) for values in arrivals if values.size)])
    # Bins hold 20 requests or so: fewer, and the curve shows chance.
    fewest = min((one.requests.height for one in series if one.requests.height), default=0)
    edges = np.linspace(low, high, min(MOST_BINS, max(5, fewest // 20)) + 1)
    x = Scale(low=low, high=high, start=LEFT, end=WIDTH - RIGHT)
    y = _percent_scale()
    drawing = Drawing(WIDTH, HEIGHT, "Share of requests in time, by arrival, per policy")
    draw_axes(
        drawing,
        x,
        y,
        x_label="arrival (s)",
        y_label="share of the requests that arrived then and met their SLO",
        y_text=_percent,
        y_ticks=PERCENT_TICKS,
    )
    for one, values in zip(series, arrivals, strict=True):
        count = np.histogram(values, edges)[0]
        met = np.histogram(values, edges, weights=one.requests["is_met"].cast(pl.Float64).to_numpy())[0]
        middles = (edges[:-1] + edges[1:]) / 2
        points: list[Point | None] = [
            (x(float(at)), y(float(hits / total))) if total else None
            for at, hits, total in zip(middles, met, count, strict=True)
        ]
        drawing.open(_line(one), series=one.index)
        drawing.curve(points, "curve", one.label)
        drawing.close()
    return drawing


def draw_cost(series: Sequence[Series]) -> Drawing:
    """What a run cost, as a bar per policy: running, cold starts, idle; means over seeds."""
    left, right = 146, 166
    row = min(80.0, max(28.0, (HEIGHT - TOP - BOTTOM) / max(1, len(series))))
    totals = [one.mean("cost_usd") or 0.0 for one in series]
    bottom = TOP + row * len(series)
    drawing = Drawing(WIDTH, bottom + BOTTOM, "Cost per policy, by what it was paid for")
    x = Scale(low=0.0, high=max([*totals, 1e-12]), start=left, end=WIDTH - right)
    unit, text = _money_axis(x.high)
    draw_x_axis(drawing, x, top=TOP - 6, bottom=bottom, label=f"cost ({unit})", text=text, has_grid=True)
    for position, (one, total) in enumerate(zip(series, totals, strict=True)):
        top = TOP + row * position
        drawing.open(f"c{one.index % 8}", series=one.index)
        name, sign, told = one.label.partition(" (")
        drawing.text(left - 10, top + row / 2 + (-3 if sign else 4), _shorten(name, 18), "name", "end")
        if sign:
            drawing.text(left - 10, top + row / 2 + 11, _shorten(f"({told}", 22), "tick", "end")
        at = 0.0
        for part, words in (("run", "running"), ("cold_start", "cold starts"), ("idle", "idle")):
            value = one.mean(f"cost_parts_usd.{part}") or 0.0
            if value > 0:
                title = f"{one.label}, {words}: {show(value, 'usd')}"
                drawing.rect(x(at), top + row / 8, x(at + value) - x(at), 0.75 * row, f"part {part}", title)
            at += value
        drawing.text(x(total) + 8, top + row / 2 + 4, _price_text(one, total), "value")
        drawing.close()
    return drawing


def draw_trade(series: Sequence[Series]) -> Drawing:
    """Cost against attainment, a dot per policy: up and to the left is better."""
    costs = [one.mean("cost_usd") or 0.0 for one in series]
    shares = [one.mean("slo_attainment") or 0.0 for one in series]
    x = Scale(low=0.9 * min(costs), high=1.1 * max([*costs, 1e-12]), start=LEFT, end=WIDTH - RIGHT)
    y = Scale(low=max(0.0, min(shares) - 0.05) // 0.05 * 0.05, high=1.0, start=HEIGHT - BOTTOM, end=TOP)
    drawing = Drawing(WIDTH, HEIGHT, "Cost against share of requests in time, per policy")
    unit, text = _money_axis(x.high)
    y_label = "share of requests in time"
    draw_axes(drawing, x, y, x_label=f"cost ({unit})", y_label=y_label, x_text=text, y_text=_percent)
    places = [(x(cost), y(attainment)) for cost, attainment in zip(costs, shares, strict=True)]
    for position, (one, (left, top)) in enumerate(zip(series, places, strict=True)):
        # What would be hidden by later dots is drawn larger, as a ring around them.
        over = sum(abs(left - a) < 6 and abs(top - b) < 6 for a, b in places[position + 1 :])
        radius = 5.5 + 2.5 * min(over, 4)
        title = f"{one.label}: {show(shares[position], 'share')} in time, {show(costs[position], 'usd')}"
        drawing.open(f"c{one.index % 8}", series=one.index)
        drawing.rect(left - radius, top - radius, 2 * radius, 2 * radius, "dot", title)
        drawing.close()
    return drawing


def draw_sweep(points: Mapping[str, Sequence[Series]], column: Column) -> Drawing:
    """One number of the summary over the points of a sweep, a curve per policy, with its 95 % interval."""
    names = list(points)
    places = _places(points)
    lines: dict[int, list[tuple[float, Series]]] = {}
    for at, found in zip(places, points.values(), strict=True):
        for one in found:
            if column.key in one.aggregate.estimates:
                lines.setdefault(one.index, []).append((at, one))
    tops = [one.aggregate.estimates[column.key] for line in lines.values() for _, one in line]
    # Few seeds make wide intervals; they may leave the plot, the curves may not.
    reach = max((estimate.mean + (estimate.half_width or 0.0) for estimate in tops), default=0.0)
    high = min(reach, 1.5 * max((estimate.mean for estimate in tops), default=0.0)) or 1.0
    is_share = column.kind == "share"
    x = Scale(low=min(places), high=max(places), start=LEFT + 26, end=WIDTH - 2 * RIGHT)
    y = _percent_scale() if is_share else Scale(low=0.0, high=high * 1.05, start=HEIGHT - BOTTOM, end=TOP)
    money, text = _money_axis(y.high) if column.kind == "usd" else ("", show_plain)
    drawing = Drawing(WIDTH, HEIGHT, f"{column.heading} over the sweep, per policy")
    for value in PERCENT_TICKS if is_share else y.ticks(5):
        drawing.line((LEFT, y(value)), (WIDTH - RIGHT, y(value)), "grid")
        drawing.text(LEFT - 8, y(value) + 4, _percent(value) if is_share else text(value), "tick", "end")
    drawing.line((LEFT, y.start), (WIDTH - RIGHT, y.start), "axis")
    key = names[0].partition("=")[0] if all(name.count("=") == 1 for name in names) else ""
    every = -(-len(names) // 8)
    for position, (at, name) in enumerate(zip(places, names, strict=True)):
        drawing.line((x(at), y.start), (x(at), y.start + 4), "axis")
        if position % every == 0:
            # A letter is about seven pixels wide.
            tick = _shorten(name.partition("=")[2] if key else name, max(4, (WIDTH - LEFT) // min(8, len(names)) // 7))
            drawing.text(x(at), y.start + 18, tick, "tick", "middle")
    drawing.text((LEFT + WIDTH - RIGHT) / 2, y.start + 38, key or "sweep point", "label", "middle")
    unit = {"seconds": " (s)", "usd": f" ({money})"}.get(column.kind, "")
    drawing.text(0, y.end - 14, column.heading + unit, "label")
    for line in lines.values():
        drawing.open(_line(line[0][1]), series=line[0][1].index)
        for at, one in line:
            estimate = one.aggregate.estimates[column.key]
            half = estimate.half_width or 0.0
            low_end, high_end = max(y.low, estimate.mean - half), min(y.high, estimate.mean + half)
            drawing.line((x(at), y(low_end)), (x(at), y(high_end)), "interval")
            title = f"{one.label}, {show(estimate.mean, column.kind)}"
            drawing.rect(x(at) - 3, y(min(estimate.mean, y.high)) - 3, 6, 6, "dot", title)
        drawing.curve([(x(at), y(one.aggregate.estimates[column.key].mean)) for at, one in line], "curve")
        drawing.close()
    return drawing


def _objectives_s(series: Sequence[Series]) -> dict[str, float]:
    """Each workflow's SLO, at most four; without a name where all have the same."""
    found: dict[str, float] = {}
    # Of a live run, a deadline counts from a moment before the arrival: the longest time is closest to the objective.
    slo = (pl.col("deadline") - pl.col("arrival")).max().alias("slo_s")
    for one in series:
        for name, slo_s in one.requests.group_by("workflow", maintain_order=True).agg(slo).iter_rows():
            if slo_s is not None and np.isfinite(slo_s):
                found[name] = max(found.get(name, 0.0), _rounded(slo_s))
    if len(set(found.values())) == 1:
        return {"": next(iter(found.values()))}
    named = sorted(found.items(), key=lambda pair: (pair[1], pair[0]))[:4]
    return {_shorten(name, 20): slo_s for name, slo_s in named}


def _rounded(slo_s: float) -> float:
    """An objective that is within 0.5 % of a number with two digits is that number: 149.9 ms is 150 ms."""
    near = float(f"{slo_s:.2g}")
    return near if abs(near - slo_s) <= 0.005 * slo_s else round(slo_s, 9)


def _money_axis(high_usd: float) -> tuple[str, Callable[[float], str]]:
    """The unit of an axis up to this cost, and how its ticks are written."""
    if high_usd < 1e-3:
        return "millionths of a USD", lambda value: show_plain(value * 1e6)
    return "USD", show_plain


def _latency_scale(latencies: Sequence[Floats], objectives_s: Sequence[float]) -> Scale:
    ends = [float(np.percentile(values, 99.9)) for values in latencies if values.size]
    starts = [float(np.percentile(values, 0.5)) for values in latencies if values.size]
    high = max([*ends, *objectives_s], default=1.0) * 1.05 or 1.0
    low = min([*starts, *objectives_s], default=0.0)
    if low > 0 and high / low > 30:
        return Scale(low=low / 1.2, high=high, start=LEFT, end=WIDTH - RIGHT, is_log=True)
    return Scale(low=0.0, high=high, start=LEFT, end=WIDTH - RIGHT)


def _distribution(values: Floats, total: int, x: Scale, y: Scale) -> list[Point | None]:
    if not values.size:
        return []
    ranks = np.unique(np.linspace(0, values.size - 1, min(values.size, CURVE_POINTS)).round().astype(np.int64))
    points: list[Point | None] = [(x(float(values[0])), y(0.0))]
    inside = [rank for rank in ranks if values[rank] <= x.high]
    points += [(x(float(values[rank])), y((int(rank) + 1) / total)) for rank in inside]
    if inside:
        points.append((x.end, y((int(inside[-1]) + 1) / total)))
    return points


def _places(points: Mapping[str, Sequence[Series]]) -> list[float]:
    """Where the points of a sweep stand: at their values if these are numbers in order, else evenly."""
    values = [list(found[0].aggregate.point.values()) for found in points.values()]
    numbers = [float(one[0]) for one in values if len(one) == 1 and isinstance(one[0], int | float)]
    if len(numbers) == len(values) and all(a < b for a, b in pairwise(numbers)):
        return numbers
    return [float(position) for position in range(len(values))]


def _percent_scale() -> Scale:
    return Scale(low=0.0, high=1.0, start=HEIGHT - BOTTOM, end=TOP)


def _line(one: Series) -> str:
    # Past eight policies the colours come again, dashed.
    return f"c{one.index % 8}" + (" dashed" if one.index >= 8 else "")


def _price_text(one: Series, total: float) -> str:
    goodput, completed = one.mean("slo_attainment"), one.mean("requests")
    answers = (goodput or 0.0) * (completed or 0.0)
    return show(total, "usd") + (f" · {show(1000 * total / answers, 'usd')} per k" if answers else "")


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _short_seconds(value: float) -> str:
    if value and value < 0.9995e-3:
        return f"{value * 1e6:.4g} µs"
    return f"{value * 1e3:.4g} ms" if 0 < value < 0.9995 else f"{value:.4g} s"


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
