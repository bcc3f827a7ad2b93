"""Run a day of wandering load on fixed clusters of several sizes and on one that grows and shrinks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import as_file, files
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.engine import simulate
from fairlead.experiments.cases import Progress, each, origin, read_settings
from fairlead.experiments.claims import Claim, at_least, at_most, decide
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Row, Rows, columns, difference, pick, quotient, select
from fairlead.model import NodeLife, Recording
from fairlead.report import summarise
from fairlead.report.figure import line_figure
from fairlead.workload import Listed, Scenario, load_scenario

GROWING = "growing"
_POINTS = 120  # of a line in the figures of the day

Line = list[tuple[float, float]]


@dataclass(frozen=True)
class Case:
    """A scenario on a fixed number of nodes, or (None) on as many as the policy asks for."""

    scenario: str
    nodes: int | None
    seed: int
    duration_s: float | None = None

    @property
    def cluster(self) -> str:
        """The name in the rows."""
        return GROWING if self.nodes is None else f"{self.nodes} nodes"


@dataclass(frozen=True)
class Day:
    """What one run comes to, and how its load and its nodes went."""

    figures: Mapping[str, float]
    rate: Line
    nodes: Line


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Every cluster under the same arrivals, seed by seed."""
    settings = read_settings(__package__)
    seeds = settings["quick_seeds" if quick else "seeds"]
    duration_s = settings["quick_duration_s"] if quick else None
    groups: list[tuple[str, int | None]] = []
    for name, own in settings["scenarios"].items():
        groups += [(name, nodes) for nodes in (settings["quick_fixed"] if quick else own["fixed"])] + [(name, None)]
    cases = [Case(name, nodes, seed, duration_s) for (name, nodes), seed in product(groups, seeds)]
    found: dict[Case, Day] = {}
    for position, day in each(partial(run_case, settings=settings), cases, in_parallel=False):
        found[cases[position]] = day
        progress(len(found) / len(cases), f"{cases[position].scenario}, {cases[position].cluster}")
    rows = [
        _row(name, nodes, [found[case] for case in cases if (case.scenario, case.nodes) == (name, nodes)])
        for name, nodes in groups
    ]
    first = {name: found[Case(name, None, seeds[0], duration_s)] for name in settings["scenarios"]}
    return Reproduction(
        name="growth",
        title="A cluster that grows and shrinks with its load, against fixed ones",
        rows=tuple(rows),
        notes=(
            origin(seeds),
            "The report names room for predicted requests and clusters that scale as future work and has no figures.",
            "All clusters run `fairlead` on the same arrivals. A node is billed from when it is asked for until it has "
            "left. The fixed cluster to beat is the smallest with 99 % in time.",
        ),
        figures=tuple(_figures(rows, first)),
    )


def run_case(case: Case, settings: Mapping[str, Any]) -> Day:
    """One day on one cluster."""
    scenario = _scenario(case)
    duration_s = scenario.duration_s
    rate = rates(settings["load"], settings["scenarios"][case.scenario]["rate_rps"], duration_s, case.seed)
    (workflow,) = scenario.workflows
    arrivals = Listed(workflow, tuple(instants(rate, case.seed).tolist()))
    recording = simulate(replace(scenario, arrivals=(arrivals,)), seed=case.seed)
    assert not recording.refusals, recording.refusals[0]
    assert not (recording.invocations["outcome"] == "lost").any(), "a node that leaves loses nothing"
    at = np.linspace(0, duration_s, _POINTS, endpoint=False)
    return Day(
        figures=_measure(recording),
        rate=[(t, float(rate[int(t)])) for t in at.tolist()],
        nodes=[(t, float(sum(_is_there(life, t) for life in recording.nodes))) for t in at.tolist()],
    )


def _scenario(case: Case) -> Scenario:
    overrides: dict[str, object] = {} if case.duration_s is None else {"duration_s": case.duration_s}
    if case.nodes is not None:
        own = {
            "cluster.nodes.0.count": case.nodes,
            f"growth.{case.scenario}": {"least": case.nodes, "most": case.nodes},
        }
        overrides |= own
    with as_file(files(__package__) / f"{case.scenario}.yaml") as path:
        return load_scenario(path, overrides=overrides)


def rates(load: Mapping[str, float], mean_rps: float, duration_s: float, seed: int) -> NDArray[np.float64]:
    """The rate in every second of the day: a wave from midnight to midnight, a random walk around it, and bursts."""
    rng = np.random.default_rng((seed, 4_004))
    t = np.arange(int(duration_s), dtype=float)
    wave = load["swing"] ** ((1 - np.cos(2 * np.pi * t / duration_s)) / 2)  # from 1 to `swing` and back
    kept = np.exp(-1 / load["walk_s"])
    steps = load["walk_deviation"] * np.sqrt(1 - kept**2) * rng.standard_normal(len(t))
    walk = np.zeros(len(t))
    for i in range(1, len(t)):
        walk[i] = kept * walk[i - 1] + steps[i]
    burst = np.ones(len(t))
    for begin in rng.uniform(0.1, 0.9, int(load["bursts"])) * duration_s:
        rise = np.clip((t - begin) / load["burst_rise_s"], 0, 1) * (t < begin + load["burst_s"])
        burst = np.maximum(burst, 1 + (load["burst_factor"] - 1) * rise)
    found: NDArray[np.float64] = mean_rps * wave / wave.mean() * np.exp(walk) * burst
    return found


def instants(rate: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Poisson arrivals at these rates per second."""
    rng = np.random.default_rng((seed, 4_005))
    counts = rng.poisson(rate)
    return np.sort(np.repeat(np.arange(len(rate)), counts) + rng.uniform(size=int(counts.sum())))


def _is_there(life: NodeLife, at: float) -> bool:
    """Whether a node is up."""
    return life.joined is not None and life.joined <= at and (life.left is None or at < life.left)


def _measure(recording: Recording) -> dict[str, float]:
    summary = summarise(recording)
    assert summary.node_hours is not None
    joined = sorted(life.joined for life in recording.nodes if life.joined is not None)
    return {
        "attainment": 100 * (summary.slo_attainment or 0.0),
        "node_hours": summary.node_hours,
        "refused": summary.rejected + summary.dropped,
        "most_nodes": max(sum(_is_there(life, at) for life in recording.nodes) for at in joined),
        "asked": sum(life.asked > 0 for life in recording.nodes),
    }


def _row(scenario: str, nodes: int | None, days: Sequence[Day]) -> dict[str, object]:
    row: dict[str, object] = {"scenario": scenario, "cluster": Case(scenario, nodes, 0).cluster, "nodes": nodes}
    for figure, digits in (("attainment", 3), ("node_hours", 4)):
        row |= columns(figure, [day.figures[figure] for day in days], digits)
    for figure in ("refused", "most_nodes", "asked"):
        row[figure] = round(sum(day.figures[figure] for day in days) / len(days), 1)
    return row


def best_fixed(rows: Rows, enough: float) -> Row:
    """The smallest fixed cluster with at least this share in time, or else the one with the most, then the smallest."""
    fixed = sorted((row for row in rows if row["cluster"] != GROWING), key=lambda row: int(row["nodes"]))
    for row in fixed:
        if row["attainment"] >= 100 * enough:
            return row
    return max(fixed, key=lambda row: float(row["attainment"]))


def judge(rows: Rows) -> Iterator[Claim]:
    """The report has no figures: every bar is ours."""
    settings = read_settings(__package__)
    for scenario in settings["scenarios"]:
        own = select(rows, scenario=scenario)
        growing, fixed = pick(own, cluster=GROWING), best_fixed(own, settings["enough"])
        yield decide(
            f"{scenario}: the growing cluster answers as much in time as {fixed['cluster']}",
            at_least(-settings["points"], f"at most {settings['points']:g} point less, seed by seed"),
            difference(growing, fixed, "attainment"),
            paper=None,
            ours=f"{growing['attainment']:.2f} against {fixed['attainment']:.2f} %",
            kind="own",
        )
        yield decide(
            f"{scenario}: it takes fewer node-hours than {fixed['cluster']}",
            at_most(settings["node_hours"], f"at most {settings['node_hours']:g} of them, seed by seed"),
            quotient(growing, fixed, "node_hours"),
            paper=None,
            ours=f"{growing['node_hours']:.2f} against {fixed['node_hours']:.2f}",
            kind="own",
        )


def _figures(rows: Sequence[Mapping[str, Any]], days: Mapping[str, Day]) -> Iterator[Figure]:
    title = "Requests that are not answered in time against node-hours"
    lines = {}
    for scenario in days:
        own = [row for row in rows if row["scenario"] == scenario]
        points = [(row["cluster"], (row["node_hours"], 100 - row["attainment"])) for row in own]
        lines[f"{scenario}, fixed"] = [point for cluster, point in points if cluster != GROWING]
        lines[f"{scenario}, growing"] = [point for cluster, point in points if cluster == GROWING]
    svg = line_figure(title, lines, x_label="node-hours", y_label="not in time, %")
    yield Figure(name="growth", title=title, svg=svg)
    for scenario, day in days.items():
        title = f"Load and nodes of one day ({scenario})"
        lines = {"requests per second": day.rate, "nodes that are up": day.nodes}
        svg = line_figure(title, lines, x_label="time, s", y_label="requests per second; nodes")
        yield Figure(name=f"growth-{scenario}", title=title, svg=svg)
