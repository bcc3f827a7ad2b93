"""Run a trace under every keep-alive rule: with ample memory, and on one server that is short of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.reproduction import Claim, Figure, Reproduction
from fairlead.report.figure import line_figure
from fairlead.workload.traces import Trace, chunks, generate, read

if TYPE_CHECKING:
    from fairlead.engine.sim.compiled import FleetResult, KeepAlive

AZURE = "FAIRLEAD_AZURE"
_NEVER = "no unloading"
_GENERATED = "generated"
_ON_SERVER = ("fixed 10 min", "lru", "greedy-dual")
_ALL, _RARE = "all functions", "rare functions"

Row = dict[str, object]
Found = Mapping[tuple[str, str], Row]  # by memory, then by rule


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Cold starts against memory."""
    settings = read_settings(__package__)
    trace, source = _trace(settings, quick)
    points = _points(settings, trace)
    rows: list[Row] = []
    for i, (where, memory_share, own, cluster, name, rule) in enumerate(points):
        rows.append(_measure(settings, own, cluster, rule) | {"where": where, "memory": memory_share, "rule": name})
        progress((i + 1) / len(points), f"{where}, {name}")
    ample = {str(row["rule"]): row for row in rows if row["where"] == "ample"}
    full = _float(ample[f"fixed {settings['reference_minutes']} min"]["wasted_gb_s"])
    for row in rows:
        row["wasted_percent"] = round(100 * _float(row["wasted_gb_s"]) / full, 1)
    claims = [*_hybrid_claims(settings, ample, source), *_memory_claims(rows)]
    return Reproduction(
        name="keep-alive",
        title="Keep-alive rules of a fleet: cold starts against wasted memory",
        claims=tuple(claims),
        rows=tuple(_ordered(row) for row in rows),
        figures=_figures(settings, ample, rows),
        notes=(
            f"Trace: {source}: {len(trace)} functions, {trace.invocations:,} calls in {trace.minutes} minutes; seed "
            f"{settings['seed']}.",
            "Wasted memory is that of idle instances until the last call; 100 % is that of fixed "
            f"{settings['reference_minutes']} min with ample memory. A cold start takes {settings['cold_start_s']:g} s "
            "for every function: the trace does not say.",
            "The papers' figures are recalled, not checked against the texts. Theirs are two weeks of the whole trace.",
        ),
    )


def _trace(settings: Mapping[str, Any], quick: bool) -> tuple[Trace, str]:
    folder = os.environ.get(AZURE)
    if folder:
        trace = read(Path(folder))
        return (trace.window(0, min(trace.minutes, settings["quick_minutes"])) if quick else trace), "Azure 2019"
    size = settings["quick_generated" if quick else "generated"]
    return generate(**size, seed=settings["seed"]), _GENERATED


def _points(
    settings: Mapping[str, Any], trace: Trace
) -> list[tuple[str, float | None, Trace, Mapping[str, float], str, KeepAlive]]:
    """What to run: where, with how much memory, which trace on which cluster, under which rule."""
    from fairlead.engine.sim.compiled import (  # noqa: PLC0415 - compiled code takes a second to load
        Fixed,
        GreedyDual,
        HybridHistogram,
        LeastRecentlyUsed,
    )

    rules: dict[str, KeepAlive] = {
        f"fixed {minutes} min": Fixed(seconds=60.0 * minutes) for minutes in settings["fixed_minutes"]
    }
    rules |= {f"hybrid {hours} h": HybridHistogram(bins=60 * hours) for hours in settings["hybrid_hours"]}
    rules[_NEVER] = LeastRecentlyUsed()
    points: list[Any] = [("ample", None, trace, settings["ample"], name, rule) for name, rule in rules.items()]
    on_server = dict(zip(_ON_SERVER, (Fixed(seconds=600.0), LeastRecentlyUsed(), GreedyDual()), strict=True))
    is_rare = trace.calls < settings["rare_per_minute"] * trace.minutes
    for where, own in ((_ALL, trace), (_RARE, trace.keep(np.flatnonzero(is_rare & (trace.calls > 0))))):
        total_gb = float(own.column("memory_mb").sum()) / 1024
        for share in settings["memory_shares"]:
            server = {"nodes": 1, "vcpus": settings["server_vcpus"], "memory_gb": share * total_gb}
            points += [(where, share, own, server, name, rule) for name, rule in on_server.items()]
    return points


def _measure(settings: Mapping[str, Any], trace: Trace, cluster: Mapping[str, float], rule: KeepAlive) -> Row:
    from fairlead.engine.sim.compiled import run_stream  # noqa: PLC0415 - as above

    scenario = trace.scenario(
        nodes=int(cluster["nodes"]),
        vcpus=cluster["vcpus"],
        memory_gb=cluster["memory_gb"],
        cold_start_s=settings["cold_start_s"],
        is_streamed=True,
    )
    found: FleetResult = run_stream(scenario, chunks(trace, settings["seed"]), keep_alive=rule)
    assert found.completed == trace.invocations, (rule, found.completed)
    assert cluster is not settings["ample"] or not found.evicted, (rule, found.evicted)
    return {
        "memory_gb": round(cluster["nodes"] * cluster["memory_gb"], 1),
        "cold_percent": round(100 * found.cold_share, 4),
        "cold_percent_p50": round(100 * found.cold_share_percentile(50), 2),
        "cold_percent_p75": round(100 * found.cold_share_percentile(settings["percentile"]), 2),
        "wasted_gb_s": round(found.wasted_gb_s),
        "cold_starts": found.cold_starts,
        "prewarmed": found.prewarmed,
        "evicted": found.evicted,
        "latency_s": round(found.latency_mean_s, 3),
    }


def _ordered(row: Row) -> Row:
    first = ("where", "memory", "rule", "cold_percent", "cold_percent_p75", "wasted_percent")
    return {**{key: row[key] for key in first}, **row}


def _float(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _at_waste(settings: Mapping[str, Any], ample: Mapping[str, Row], wasted: float) -> float:
    """The 75th percentile that a fixed time would have at so much wasted memory, between the times that were run."""
    names = [*(f"fixed {minutes} min" for minutes in settings["fixed_minutes"]), _NEVER]
    curve = sorted((_float(ample[n]["wasted_percent"]), _float(ample[n]["cold_percent_p75"])) for n in names)
    return float(np.interp(wasted, [x for x, _ in curve], [y for _, y in curve]))


def _hybrid_claims(settings: Mapping[str, Any], ample: Mapping[str, Row], source: str) -> list[Claim]:
    hybrids = {f"{hours} h": ample[f"hybrid {hours} h"] for hours in settings["hybrid_hours"]}
    shares = {name: _float(row["cold_percent_p75"]) for name, row in hybrids.items()}
    wasted = {name: _float(row["wasted_percent"]) for name, row in hybrids.items()}
    longest = list(hybrids)[-1]
    fixed = ample[f"fixed {settings['reference_minutes']} min"]
    same = {name: _at_waste(settings, ample, wasted[name]) for name in hybrids}
    ratio = same[longest] / shares[longest] if shares[longest] else np.inf
    paper = settings["printed"]["fixed_over_hybrid"]
    return [
        Claim(
            claim=f"Hybrid with a range of {longest}: 75th percentile of cold shares, against fixed 10 min",
            paper="below",
            ours=f"{shares[longest]} against {fixed['cold_percent_p75']} %, at {wasted[longest]} % of its waste",
            met=shares[longest] < _float(fixed["cold_percent_p75"]),
        ),
        Claim(
            claim="A fixed time that wastes as much has so many times the cold share of hybrid, 75th percentile",
            paper=paper,
            ours=round(ratio, 2),
            met=bool(ratio >= paper),
            note=f"At {wasted[longest]:.0f} % of the waste of fixed 10 min, fixed has {same[longest]:.1f} %, hybrid "
            f"{shares[longest]:.1f} %; between two fixed times it is interpolated."
            + (" Calls of generated functions are Poisson but for timers." if source == _GENERATED else ""),
        ),
        Claim(
            claim="Hybrid has less than a fixed time of the same waste, for every range",
            paper="below the curve of fixed times",
            ours=", ".join(f"{name}: {shares[name]:.1f} against {same[name]:.1f} %" for name in hybrids),
            met=all(shares[name] < same[name] for name in hybrids),
        ),
        Claim(
            claim="A longer range has fewer cold starts and wastes more",
            paper="yes",
            ours=", ".join(f"{name}: {shares[name]:.1f} % at {wasted[name]:.0f} %" for name in hybrids),
            met=_falls(list(shares.values())) and _falls([-value for value in wasted.values()]),
        ),
    ]


def _falls(values: Sequence[float]) -> bool:
    return all(later <= earlier for earlier, later in pairwise(values))


def _memory_claims(rows: Sequence[Row]) -> list[Claim]:
    claims = []
    for where in (_RARE, _ALL):
        by_rule = {
            name: {_float(row["memory"]): row for row in rows if row["where"] == where and row["rule"] == name}
            for name in _ON_SERVER
        }
        for rival in _ON_SERVER[:2]:
            pairs = {
                share: (_float(row["cold_starts"]), _float(by_rule[rival][share]["cold_starts"]))
                for share, row in by_rule["greedy-dual"].items()
            }
            worse = [f"{share:g}" for share, (ours, theirs) in pairs.items() if ours > theirs]
            note = None
            if worse:
                note = (
                    f"Not at {', '.join(worse)} of the memory. The frequency is the function's: a busy function that "
                    "once needed many instances at a time keeps the worth of all of them, and they stay while rare "
                    "functions go. Among rare functions alone this does not arise."
                    if where == _ALL
                    else f"Not at {', '.join(worse)} of the memory."
                )
            claims.append(
                Claim(
                    claim=f"Greedy-dual has at most the cold starts of {rival} on the same server ({where})",
                    paper="fewer",
                    ours="; ".join(f"{share:g}: {ours / theirs:.2f} of its" for share, (ours, theirs) in pairs.items()),
                    met=not worse,
                    note=note,
                )
            )
    return claims


def _figures(settings: Mapping[str, Any], ample: Mapping[str, Row], rows: Sequence[Row]) -> tuple[Figure, ...]:
    def point(name: str) -> tuple[float, float]:
        return _float(ample[name]["wasted_percent"]), _float(ample[name]["cold_percent_p75"])

    title = "Cold calls of the function at the 75th percentile against wasted memory"
    waste = line_figure(
        title,
        {
            "fixed": [point(f"fixed {minutes} min") for minutes in settings["fixed_minutes"]],
            "hybrid histogram": [point(f"hybrid {hours} h") for hours in settings["hybrid_hours"]],
            _NEVER: [point(_NEVER)],
        },
        x_label="wasted memory, % of fixed 10 min",
        y_label="cold calls, %",
    )
    figures = [Figure(name="keep-alive-waste", title=title, svg=waste)]
    for name, where in (("keep-alive-rare", _RARE), ("keep-alive-all", _ALL)):
        title = f"Cold calls on one server against its memory ({where})"
        lines = {
            rule: [
                (_float(row["memory_gb"]), _float(row["cold_percent"]))
                for row in rows
                if row["where"] == where and row["rule"] == rule
            ]
            for rule in _ON_SERVER
        }
        svg = line_figure(title, lines, x_label="memory, GB", y_label="cold calls, %", is_log_y=True)
        figures.append(Figure(name=name, title=title, svg=svg))
    return tuple(figures)
