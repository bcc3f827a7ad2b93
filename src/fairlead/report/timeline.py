"""What the machines did over time: a strip per node, the darker the busier, and the batches of a busy moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.model import Node
from fairlead.report.numbers import show
from fairlead.report.series import Series
from fairlead.report.svg import Drawing, Scale, draw_x_axis, nice_step, number

BINS = 80
LEVELS = 8
MOST_NODES = 16
STRIP, LANE = 15, 15
WIDTH = 540
WIDE = 1120
MOST_BARS = 400
MOST_LANES = 48

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Strip:
    """One row: the share of one resource of one node that ran batches, per slice of time."""

    node: str
    resource: str
    shares: Floats


def draw_utilisation(one: Series, end_s: float) -> tuple[Drawing, str]:
    """A strip per node and resource for one policy, and a note on the nodes that are left out."""
    strips, hidden = _strips(one, end_s)
    left, top = 118, 6
    bottom = top + STRIP * len(strips)
    drawing = Drawing(WIDTH, bottom + 46, f"Utilisation of nodes over time, {one.label}")
    x = Scale(low=0.0, high=end_s, start=left, end=WIDTH - 52)
    cell = (x.end - x.start) / BINS
    for row, strip in enumerate(strips):
        y = top + row * STRIP
        mean = float(strip.shares.mean())
        name = strip.node if len(strip.node) <= 10 else strip.node[:9] + "…"
        drawing.text(left - 10, y + 11, f"{name} {strip.resource}", "tick", "end")
        drawing.rect(
            left, y + 1, x.end - left, STRIP - 2, "empty", f"{strip.node}, {strip.resource}: {show(mean, 'share')}"
        )
        levels = np.ceil(np.clip(strip.shares, 0, 1) * LEVELS - 1e-9).astype(int)
        for level in range(1, LEVELS + 1):
            cells = [(number(left + a * cell), number(left + b * cell)) for a, b in _runs(levels == level)]
            data = "".join(f"M{begin} {y + 1}H{until}v{STRIP - 2}H{begin}z" for begin, until in cells)
            drawing.path(data, f"heat h{level}")
        drawing.text(x.end + 8, y + 11, f"{100 * mean:.0f} %", "value")
    draw_x_axis(drawing, x, top=top, bottom=bottom + 2, label="time (s)")
    note = f"The {MOST_NODES} busiest of {MOST_NODES + hidden} nodes." if hidden else ""
    return drawing, note


def draw_gantt(one: Series, functions: Sequence[str]) -> tuple[Drawing, str]:
    """The batches of the busiest moment of one run, a lane per instance, and a note on what is shown.

    `functions` decides the colours: a function's is its place.
    """
    rows, begin_s, end_s = _window(one.batches)
    lanes = _lanes(rows, [node.name for node in one.recordings[0].cluster.nodes])
    left, top = 190, 8
    bottom = top + LANE * max(1, len(lanes))
    drawing = Drawing(WIDE, bottom + 46, f"Batches on instances over time, {one.label}")
    x = Scale(low=begin_s, high=max(end_s, begin_s + 1e-9), start=left, end=WIDE - 14)
    draw_x_axis(drawing, x, top=top, bottom=bottom, label="time (s)", text=_instant(x), has_grid=True)
    place = {lane[-1]: row for row, lane in enumerate(lanes)}
    before = ""
    for row, (node, device, function, _) in enumerate(lanes):
        y = top + row * LANE
        if node != before:
            drawing.line((0, y), (WIDE - 14, y), "split")
            drawing.text(0, y + 11, node if len(node) <= 12 else node[:11] + "…", "name")
            before = node
        where = f"gpu{device} " if device >= 0 else ""
        what = function if len(where + function) <= 16 else function[: 15 - len(where)] + "…"
        drawing.text(left - 8, y + 11, where + what, "tick", "end")
    colours = {function: index for index, function in enumerate(functions)}
    shown = rows.filter(pl.col("instance").is_in(list(place)))
    for batch in shown.iter_rows(named=True):
        _draw_batch(drawing, x, top + place[batch["instance"]] * LANE, batch, colours.get(batch["function"], 0))
    return drawing, _window_note(one, rows, shown, begin_s, end_s, len(lanes))


def _strips(one: Series, end_s: float) -> tuple[list[Strip], int]:
    """The strips of the busiest nodes in the cluster's order, and how many nodes are left out."""
    recording = one.recordings[0]
    keys = [(f"utilisation.{node.name}.vcpu", f"utilisation.{node.name}.vgpu") for node in recording.cluster.nodes]
    load = [max(one.mean(vcpu) or 0.0, one.mean(vgpu) or 0.0) for vcpu, vgpu in keys]
    chosen = sorted(sorted(range(len(load)), key=lambda place: (-load[place], place))[:MOST_NODES])
    nodes = [recording.cluster.nodes[place] for place in chosen]
    kept = one.batches.filter(pl.col("node").is_in([node.name for node in nodes]))
    parts = {str(key[0]): part for key, part in kept.group_by("node", maintain_order=True)}
    edges = np.linspace(0.0, end_s, BINS + 1)
    strips = []
    for node in nodes:
        part = parts.get(node.name, kept.clear())
        for resource, column, capacity in _resources(node):
            shares = np.diff(_held(part, column, edges)) / (capacity * end_s / BINS)
            strips.append(Strip(node=node.name, resource=resource, shares=shares))
    return strips, len(load) - len(nodes)


def _resources(node: Node) -> list[tuple[str, str, float]]:
    found = [("CPU", "vcpus", node.capacity_vcpus), ("GPU", "vgpus", sum(device.vgpus for device in node.devices))]
    return [one for one in found if one[2] > 0]


def _held(batches: pl.DataFrame, column: str, edges: Floats) -> Floats:
    """Resource-seconds held until each edge: what began by then, less what ended by then."""

    def area(instant: str) -> Floats:
        rows = batches.select(instant, column).sort(instant, maintain_order=True)
        at, size = rows[instant].to_numpy(), rows[column].to_numpy()
        sizes = np.concatenate(([0.0], np.cumsum(size)))
        moments = np.concatenate(([0.0], np.cumsum(size * at)))
        index = np.searchsorted(at, edges)
        return np.asarray(sizes[index] * edges - moments[index], dtype=np.float64)

    return area("start") - area("end")


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The stretches of true values, as half-open ranges."""
    steps = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(int(begin), int(until)) for begin, until in zip(steps[::2], steps[1::2], strict=True)]


def _window(batches: pl.DataFrame) -> tuple[pl.DataFrame, float, float]:
    """The batches in the busiest stretch that has few enough, and its bounds: all of a small run."""
    if not batches.height:
        return batches, 0.0, 1.0
    ordered = batches.sort("start", "batch")
    starts, ends = ordered["start"].to_numpy(), ordered["end"].to_numpy()
    if ordered.height <= MOST_BARS:
        return ordered, float(starts[0]), float(ends.max())
    width_s = nice_step(float(ends.max() - starts[0]))
    first = 0
    for _ in range(40):  # many starts at one instant cannot be told apart, however short the window
        inside = np.searchsorted(starts, starts + width_s, side="right") - np.arange(starts.size)
        first = int(inside.argmax())
        if inside[first] <= MOST_BARS * 0.8:
            break
        width_s = nice_step(width_s / 2.5)
    begin = float(starts[first])
    rows = ordered.filter((pl.col("end") > begin) & (pl.col("start") <= begin + width_s)).head(MOST_BARS)
    return rows, begin, begin + width_s


def _lanes(rows: pl.DataFrame, nodes: Sequence[str]) -> list[tuple[str, int, str, int]]:
    """Node, device, function and id of the instances shown: the busiest, in the cluster's order."""
    order = {name: place for place, name in enumerate(nodes)}
    keys = ("node", "device", "function", "instance")
    found = (
        rows.group_by(*keys, maintain_order=True).agg(bars=pl.len()).sort("bars", descending=True, maintain_order=True)
    )
    lanes = [(str(a), int(b), str(c), int(d)) for a, b, c, d in found.head(MOST_LANES).select(keys).iter_rows()]
    return sorted(lanes, key=lambda lane: (order.get(lane[0], len(order)), lane[0], lane[1], lane[3]))


def _draw_batch(drawing: Drawing, x: Scale, y: float, batch: dict[str, object], colour: int) -> None:
    start, warm_at, run_at, end = (_float(batch[key]) for key in ("start", "warm_at", "run_at", "end"))
    ready = _float(batch["ready"])
    size = batch["batch_size"]
    title = (
        f"{batch['function']}, request {batch['request']} of {batch['workflow']}"
        + (f", batch of {size}" if size != 1 else "")
        + f"\n{start:.6g} s to {end:.6g} s, waited {show(max(0.0, start - ready), 'seconds')}"
        + (f"\ncold start {show(warm_at - start, 'seconds')}" if warm_at > start else "")
        + (f"\ntransfer {show(run_at - warm_at, 'seconds')}" if run_at > warm_at else "")
        + f"\nrun {show(end - run_at, 'seconds')}"
        + ("" if batch["outcome"] == "done" else f"\n{batch['outcome']}")
    )
    drawing.open(f"c{colour % 8}" + ("" if batch["outcome"] == "done" else " undone"), title)
    for begin, until, part in ((start, warm_at, "cold_start"), (warm_at, run_at, "moved"), (run_at, end, "run")):
        begin, until = max(begin, x.low), min(until, x.high)
        if until > begin:
            # A gap of half a pixel tells one batch from the next.
            drawing.rect(x(begin), y + 2, max(0.6, x(until) - x(begin) - 0.5), LANE - 4, f"part {part}")
    drawing.close()


def _window_note(one: Series, rows: pl.DataFrame, shown: pl.DataFrame, begin_s: float, end_s: float, lanes: int) -> str:
    if not rows.height:
        return "Nothing ran."
    instances = rows["instance"].n_unique()
    seed = f"Seed {one.recordings[0].seed}, "
    if rows.height == one.batches.height:
        text = f"{seed}the whole run: {shown.height} batches"
    else:
        text = f"{seed}the busiest {show(end_s - begin_s, 'seconds')}: {shown.height} of {one.batches.height:,} batches"
    return text + (
        f" on the {lanes} busiest of {instances} instances." if instances > lanes else f" on {lanes} instances."
    )


def _instant(x: Scale) -> Callable[[float], str]:
    places = 0
    while (x.high - x.low) / 10 < 10.0**-places and places < 9:
        places += 1
    return lambda value: f"{value:.{places}f}"


def _float(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
