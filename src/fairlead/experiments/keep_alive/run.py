"""Run a trace under every keep-alive rule: with ample memory, and on one server that is short of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import (
    Claim,
    at_least,
    at_most,
    below,
    decide,
    decide_all,
    paired,
    paired_ratio,
)
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Row, Rows, by_seed, difference, pick, select, values_of
from fairlead.report.figure import line_figure
from fairlead.workload.traces import Trace, chunks, generate, read

if TYPE_CHECKING:
    from fairlead.engine.sim.compiled import FleetResult, KeepAlive

AZURE = "FAIRLEAD_AZURE"
_NEVER = "no unloading"
_P75 = "cold_percent_p75"
_GENERATED = "generated"
_ON_SERVER = ("fixed 10 min", "lru", "greedy-dual")
_ALL, _RARE = "all functions", "rare functions"

_JUDGED = {"cold_percent_p75": 2, "wasted_percent": 1, "cold_starts": 0}  # and the digits of each seed's value


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Cold starts against memory."""
    settings = read_settings(__package__)
    seeds = settings["quick_seeds" if quick else "seeds"]
    runs = []
    for i, seed in enumerate(seeds):
        trace, source = _trace(settings, quick, seed)
        runs.append(_run(settings, trace, seed, partial(_part, progress, i, len(seeds))))
    rows = [_merged(own) for own in zip(*runs, strict=True)]
    return Reproduction(
        name="keep-alive",
        title="Keep-alive rules of a fleet: cold starts against wasted memory",
        rows=tuple(rows),
        figures=_figures(settings, rows),
        notes=(
            f"Trace: {source}: {len(trace)} functions, {trace.invocations:,} calls in {trace.minutes} minutes; means "
            f"over {len(seeds)} seeds." + (" Calls are Poisson but for timers." if source == _GENERATED else ""),
            "Wasted memory is that of idle instances until the last call; 100 % is that of fixed "
            f"{settings['reference_minutes']} min with ample memory. A cold start takes {settings['cold_start_s']:g} s "
            "for every function: the trace does not say.",
            "The papers' figures are recalled, not checked against the texts. Theirs are two weeks of the whole trace.",
        ),
    )


def _part(progress: Progress, done: int, parts: int, share: float, what: str) -> None:
    """Progress within one of several equal parts."""
    progress((done + share) / parts, what)


def _run(settings: Mapping[str, Any], trace: Trace, seed: int, progress: Progress) -> list[dict[str, Any]]:
    """Every rule on one trace."""
    points = _points(settings, trace)
    rows: list[dict[str, Any]] = []
    for i, (where, memory_share, own, cluster, name, rule) in enumerate(points):
        found = _measure(settings, own, cluster, rule, seed)
        rows.append({"where": where, "memory": memory_share, "rule": name, **found})
        progress((i + 1) / len(points), f"{where}, {name}, seed {seed}")
    full = pick(rows, where="ample", rule=_fixed(settings["reference_minutes"]))["wasted_gb_s"]
    return [row | {"wasted_percent": round(100 * row["wasted_gb_s"] / full, 1)} for row in rows]


def _merged(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The means over the seeds, and the seeds of what claims are about."""
    first = ("where", "memory", "rule", "cold_percent", "cold_percent_p75", "wasted_percent")
    names = [*first, *(name for name in runs[0] if name not in first)]
    means = {name: runs[0][name] if name in first[:3] else round(fmean(one[name] for one in runs), 4) for name in names}
    return means | {f"{name}_by_seed": by_seed((one[name] for one in runs), n) for name, n in _JUDGED.items()}


def _fixed(minutes: int) -> str:
    return f"fixed {minutes} min"


def _trace(settings: Mapping[str, Any], quick: bool, seed: int) -> tuple[Trace, str]:
    folder = os.environ.get(AZURE)
    if folder:
        trace = read(Path(folder))
        return (trace.window(0, min(trace.minutes, settings["quick_minutes"])) if quick else trace), "Azure 2019"
    size = settings["quick_generated" if quick else "generated"]
    return generate(**size, seed=seed), _GENERATED


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
        _fixed(minutes): Fixed(seconds=60.0 * minutes) for minutes in settings["fixed_minutes"]
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


def _measure(
    settings: Mapping[str, Any], trace: Trace, cluster: Mapping[str, float], rule: KeepAlive, seed: int
) -> dict[str, Any]:
    from fairlead.engine.sim.compiled import run_stream  # noqa: PLC0415 - as above

    scenario = trace.scenario(
        nodes=int(cluster["nodes"]),
        vcpus=cluster["vcpus"],
        memory_gb=cluster["memory_gb"],
        cold_start_s=settings["cold_start_s"],
        is_streamed=True,
    )
    found: FleetResult = run_stream(scenario, chunks(trace, seed), keep_alive=rule)
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


def judge(rows: Rows) -> Iterator[Claim]:
    """The hybrid histogram with ample memory, and greedy-dual on one server."""
    settings = read_settings(__package__)
    yield from _hybrid_claims(settings, {row["rule"]: row for row in select(rows, where="ample")})
    for where in (_RARE, _ALL):
        own = select(rows, where=where)
        for rival in _ON_SERVER[:2]:
            yield _memory_claim(where, rival, select(own, rule="greedy-dual"), select(own, rule=rival))


def _at_waste(settings: Mapping[str, Any], ample: Mapping[str, Row], hybrid: Row) -> list[float]:
    """The 75th percentile that a fixed time would have at the waste of a rule, between the times that were run."""
    fixed = [ample[name] for name in (*map(_fixed, settings["fixed_minutes"]), _NEVER)]
    found = []
    for seed, wasted in enumerate(values_of(hybrid, "wasted_percent")):
        curve = sorted((values_of(row, "wasted_percent")[seed], values_of(row, _P75)[seed]) for row in fixed)
        found.append(float(np.interp(wasted, [x for x, _ in curve], [y for _, y in curve])))
    return found


def _hybrid_claims(settings: Mapping[str, Any], ample: Mapping[str, Row]) -> Iterator[Claim]:
    hybrids = {f"{hours} h": ample[f"hybrid {hours} h"] for hours in settings["hybrid_hours"]}
    same = {name: _at_waste(settings, ample, row) for name, row in hybrids.items()}
    name, longest = list(hybrids.items())[-1]
    fixed = ample[_fixed(settings["reference_minutes"])]
    paper = settings["printed"]["fixed_over_hybrid"]
    yield decide(
        f"Hybrid with a range of {name}: 75th percentile of cold shares, against fixed 10 min",
        below(0, "lower, seed by seed"),
        difference(longest, fixed, _P75),
        paper="below",
        ours=f"{longest[_P75]:.2f} against {fixed[_P75]:.2f} %, at {longest['wasted_percent']:.1f} % of its waste",
    )
    yield decide(
        "A fixed time that wastes as much has so many times the cold share of hybrid, 75th percentile",
        at_least(paper),
        paired_ratio(same[name], values_of(longest, _P75)),
        paper=paper,
        note=f"At {longest['wasted_percent']:.0f} % of the waste of fixed 10 min, fixed has {fmean(same[name]):.1f} %, "
        f"hybrid {longest[_P75]:.1f} %; between two fixed times it is interpolated. The printed ratio is recalled.",
    )
    yield decide(
        "Hybrid has less than a fixed time of the same waste, for every range",
        below(0, "lower for every range, seed by seed"),
        *(paired(values_of(row, _P75), same[name]) for name, row in hybrids.items()),
        paper="below the curve of fixed times",
        ours=", ".join(f"{name}: {row[_P75]:.1f} against {fmean(same[name]):.1f} %" for name, row in hybrids.items()),
    )
    steps = list(pairwise(hybrids.values()))
    yield decide_all(
        "A longer range has fewer cold starts and wastes more",
        "no higher 75th percentile and no less waste with every next range, seed by seed",
        [(at_most(0), difference(after, before, _P75)) for before, after in steps]
        + [(at_least(0), difference(after, before, "wasted_percent")) for before, after in steps],
        paper="yes",
        ours=", ".join(f"{name}: {row[_P75]:.1f} % at {row['wasted_percent']:.0f} %" for name, row in hybrids.items()),
    )


def _memory_claim(where: str, rival: str, ours: Rows, theirs: Rows) -> Claim:
    pairs = {row["memory"]: (row, other) for row, other in zip(ours, theirs, strict=True)}
    ratios = {share: row["cold_starts"] / other["cold_starts"] for share, (row, other) in pairs.items()}
    worse = [f"{share:g}" for share, ratio in ratios.items() if ratio > 1]
    note = f"Not at {', '.join(worse)} of the memory." if worse else None
    if worse and where == _ALL:
        note = (
            f"{note} The frequency is the function's: a busy function that once needed many instances at a time keeps "
            "the worth of all of them, and they stay while rare functions go. Among rare functions this does not arise."
        )
    return decide(
        f"Greedy-dual has at most the cold starts of {rival} on the same server ({where})",
        at_most(0, "no more at any memory, seed by seed"),
        *(difference(row, other, "cold_starts") for row, other in pairs.values()),
        paper="fewer",
        ours="; ".join(f"{share:g}: {ratio:.2f} of its" for share, ratio in ratios.items()),
        note=note,
    )


def _figures(settings: Mapping[str, Any], rows: Rows) -> tuple[Figure, ...]:
    ample = {row["rule"]: row for row in select(rows, where="ample")}

    def point(name: str) -> tuple[float, float]:
        return ample[name]["wasted_percent"], ample[name][_P75]

    title = "Cold calls of the function at the 75th percentile against wasted memory"
    waste = line_figure(
        title,
        {
            "fixed": [point(_fixed(minutes)) for minutes in settings["fixed_minutes"]],
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
            rule: [(row["memory_gb"], row["cold_percent"]) for row in select(rows, where=where, rule=rule)]
            for rule in _ON_SERVER
        }
        svg = line_figure(title, lines, x_label="memory, GB", y_label="cold calls, %", is_log_y=True)
        figures.append(Figure(name=name, title=title, svg=svg))
    return tuple(figures)
