"""Goodput against load, from half to ten times the arrivals of three scenarios, for every general dispatcher."""

from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.experiments.cases import Progress, origin, read_settings
from fairlead.experiments.claims import Claim, at_least, decide, paired_ratio
from fairlead.experiments.fairlead_bench import OURS, Setting, failures, measure, measured_columns, shipped
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Row, Rows, select, values_of
from fairlead.league.load import offered_rps
from fairlead.report.figure import line_figure

_FIGURE = "goodput_rps"


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Find in the cache or do every run."""
    settings = read_settings(__package__)
    settings = {**settings, **(settings["quick"] if quick else {})}
    points = [_setting(settings, name, load) for name in settings["scenarios"] for load in settings["loads"]]
    found = measure(points, settings["limit_s"], progress)
    rows: list[dict[str, object]] = [
        {
            "scenario": point.name,
            "load": point.load,
            "policy": policy,
            "offered_rps": round(offered_rps(point.scenario), 3),
            **measured_columns(point, own[policy]),
        }
        for point, own in zip(points, found, strict=True)
        for policy in point.seeds
    ]
    most = max(own["seeds"] for own in settings["scenarios"].values())
    notes = (origin(range(most)), "Rivals have one seed.", *failures(points, found))
    return Reproduction(
        name="fairlead-overload", title="Goodput against load", rows=tuple(rows), notes=notes, figures=_figures(rows)
    )


def _setting(settings: Mapping[str, Any], name: str, load: float) -> Setting:
    own = settings["scenarios"][name]
    without = settings["left_out"].get(name, ())
    rivals = [one for one in settings["rivals"] if one not in without] if load in settings["rival_loads"] else []
    seeds = {OURS: own["seeds"], **dict.fromkeys(rivals, settings["rival_seeds"])}
    return Setting(name=name, load=load, scenario=shipped(name, load, own.get("times_s")), seeds=seeds)


def judge(rows: Rows) -> Iterator[Claim]:
    """At the highest load, `fairlead` answers nearly as many as at its best."""
    keeps = read_settings(__package__)["keeps"]
    ours = select(rows, policy=OURS)
    for name in dict.fromkeys(row["scenario"] for row in ours):
        own = select(ours, scenario=name)
        peak, last = max(own, key=lambda row: float(row[_FIGURE])), max(own, key=lambda row: float(row["load"]))
        yield decide(
            f"{name}: goodput at {last['load']:g} times the load over that at the load with the highest goodput",
            at_least(keeps),
            paired_ratio(values_of(last, _FIGURE), values_of(peak, _FIGURE)),
            paper="none: a claim of ours",
            kind="own",
            note=f"Highest at load {peak['load']:g}: {peak[_FIGURE]:.4g} per second.",
        )


def _figures(rows: Rows) -> tuple[Figure, ...]:
    """One picture per scenario; `fairlead` first, then the rivals, the best at the highest load first."""
    return tuple(_figure(name, select(rows, scenario=name)) for name in dict.fromkeys(row["scenario"] for row in rows))


def _figure(name: str, rows: Rows) -> Figure:
    done = select(rows, status="done")
    named = dict.fromkeys(row["policy"] for row in done)  # in one order, so that equals are drawn alike in every run
    policies = sorted(named, key=lambda policy: (policy != OURS, -_last(done, policy)))
    lines = {policy: [_point(row) for row in select(done, policy=policy)] for policy in policies}
    title = f"Answers in time per second against load, {name}"
    svg = line_figure(title, lines, x_label="load, times the scenario's arrivals", y_label="goodput /s", is_log_x=True)
    return Figure(name=f"fairlead-overload-{name}", title=title, svg=svg)


def _point(row: Row) -> tuple[float, float]:
    return float(row["load"]), float(row[_FIGURE])


def _last(rows: Rows, policy: str) -> float:
    return max(_point(row) for row in select(rows, policy=policy))[1]
