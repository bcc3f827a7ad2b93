"""The figures: what the monitor saw, and how requests went."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from fairlead.experiments.darly_live.judging import AGENT, STATIC, Runs
from fairlead.experiments.darly_live.serving import Served
from fairlead.experiments.reproduction import Figure
from fairlead.report.figure import line_figure
from fairlead.stress import Schedule

Lines = dict[str, list[tuple[float, float]]]

_PHASES = "a phase begins"


def figures(settings: Mapping[str, Any], schedule: Schedule, runs: Runs) -> tuple[Figure, ...]:
    """Of the first repeat of each contestant."""
    first = {name: own[0] for name, own in runs.items() if own}
    watched = first.get(AGENT) or next(iter(first.values()))
    found = [_signal("pressure", "Pressure that the monitor sees, by node", watched, schedule)]
    if STATIC in first:
        found.append(_reactions(first[STATIC], schedule))
    return (*found, _latencies(settings, schedule, first), _met(settings, schedule, first))


def _signal(signal: str, title: str, served: Served, schedule: Schedule) -> Figure:
    nodes = served.seen[0].nodes if served.seen else {}
    lines: Lines = {node: _points(served, node, signal) for node in nodes}
    return _figure(f"darly-live-{signal}", title, lines, schedule, "share of the node")


def _reactions(served: Served, schedule: Schedule) -> Figure:
    lines: Lines = {
        f"{node} {signal}": _points(served, node, signal)
        for node in ("w01", "w02")
        for signal in ("c0", "wait_share", "psi_cpu")
    }
    title = "What pressure does to other signals, all functions on w01"
    return _figure("darly-live-signals", title, {k: v for k, v in lines.items() if v}, schedule, "share")


def _latencies(settings: Mapping[str, Any], schedule: Schedule, first: Mapping[str, Served]) -> Figure:
    limit_s = settings["every_s"]
    lines: Lines = {
        name: [(one.due_s, limit_s if one.latency_s is None else one.latency_s) for one in served.asked]
        for name, served in first.items()
    }
    lines["objective"] = [(0.0, settings["slo_s"]), (schedule.seconds, settings["slo_s"])]
    title = f"Latency of each request; given up at {limit_s:g} s"
    return _figure("darly-live-latency", title, lines, schedule, "seconds", top=limit_s)


def _met(settings: Mapping[str, Any], schedule: Schedule, first: Mapping[str, Served]) -> Figure:
    lines: Lines = {}
    for name, served in first.items():
        sums = accumulate(one.is_met(settings["slo_s"]) for one in served.asked)
        lines[name] = [(one.due_s, met) for one, met in zip(served.asked, sums, strict=True)]
    top = max((len(served.asked) for served in first.values()), default=1)
    return _figure("darly-live-met", "Requests met so far", lines, schedule, "requests", top=float(top))


def _points(served: Served, node: str, signal: str) -> list[tuple[float, float]]:
    return [(one.at_s, one.nodes[node][signal]) for one in served.seen if signal in one.nodes.get(node, {})]


def _figure(name: str, title: str, lines: Lines, schedule: Schedule, y_label: str, top: float = 1.0) -> Figure:
    begins = [0.0, *accumulate(phase.seconds for phase in schedule.phases)][:-1]
    marks = [(at_s, y) for at_s in begins for y in (0.0, top, 0.0)]
    svg = line_figure(title, {**lines, _PHASES: marks}, x_label="seconds of the schedule", y_label=y_label)
    return Figure(name=name, title=title, svg=svg)
