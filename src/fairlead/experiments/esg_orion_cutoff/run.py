"""Run Orion with more and more time to search, beside ESG and beside an Orion that sizes ahead of time."""

from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.experiments.cases import Case, Progress, Runs, measure, origin, read_settings
from fairlead.experiments.claims import Claim, above, at_least, decide
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, by_seed, difference, pick, select
from fairlead.report.figure import line_figure

_ORION, _AHEAD, _ESG = "Orion", "Orion, ahead of time", "ESG"
_MATTERS = 0.1  # of the hit rate: less is no dependence worth the name
_SEEN = 0.01  # of the hit rate: less is not told


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Three settings, each with Orion at every limit and the two others once."""
    settings = read_settings(__package__)
    seeds = range(settings["quick_seeds" if quick else "seeds"])
    limits_s = settings["quick_limits_s" if quick else "limits_s"]
    cases = {
        (setting, policy, limit_s): _case(settings, setting, policy, limit_s)
        for setting in settings["settings"]
        for policy in settings["policies"]
        for limit_s in (limits_s if policy == _ORION else [None])
    }
    found = measure(list(cases.values()), seeds, progress)
    rows = [_row(*key, found[case.name]) for key, case in cases.items()]
    return Reproduction(
        name="esg-orion-cutoff",
        title="Orion's hit rate against the time that it may search, beside ESG",
        rows=tuple(rows),
        notes=(
            origin(seeds),
            "The slides have a figure of Orion's hit rate against its search time (strict-light), whose numbers we do "
            "not know. Times, prices and load are recalled (esg-recalled), so levels cannot be compared.",
            "A search stops at the first sizes whose 95th percentile meets the time left, so that most searches end "
            "before a long limit. A long limit costs where nothing can meet what is left: after a cold start every "
            "request that has waited is searched for in vain, for the whole limit, while the next ones wait.",
            "Searching takes modelled time: 0.43 us per step (the slides' brute force, 7,258 ms for 256^3 paths) and "
            "1,000 steps per state (measured: 1,570 to 2,800). One controller searches for one request at a time.",
        ),
        figures=tuple(_figures(settings, rows)),
    )


def _case(settings: Mapping[str, Any], setting: str, policy: str, limit_s: float | None) -> Case:
    name = f"{setting}, {policy}" + ("" if limit_s is None else f", {limit_s * 1000:g} ms")
    limit = {} if limit_s is None else {"search_limit_s": limit_s}
    return Case(name, settings["settings"][setting], {"policy": settings["policies"][policy] | limit})


def _row(setting: str, policy: str, limit_s: float | None, runs: Runs) -> dict[str, object]:
    estimates = runs.estimates
    hit_rate = estimates["slo_attainment"]
    return {
        "setting": setting,
        "policy": policy,
        "search_limit_ms": None if limit_s is None else round(limit_s * 1000, 3),
        "hit_rate": round(hit_rate.mean, 4),
        "hit_rate_interval": None if hit_rate.half_width is None else round(hit_rate.half_width, 4),
        "cost_usd": round(estimates["cost_usd"].mean, 4),
        "latency_p50_s": round(estimates["latency_s.p50"].mean, 4),
        "hit_rate_by_seed": by_seed(runs.by_seed("slo_attainment")),
    }


def judge(rows: Rows) -> Iterator[Claim]:
    """What the slides say of Orion's search time, from the table."""
    for setting in dict.fromkeys(row["setting"] for row in rows):
        orion = {float(row["search_limit_ms"]): row for row in select(rows, setting=setting, policy=_ORION)}
        curve = _curve(rows, setting)
        best_ms, worst_ms = (choose(curve, key=lambda limit_ms: curve[limit_ms]) for choose in (max, min))
        yield decide(
            f"Orion's hit rate depends on the time that it may search ({setting})",
            at_least(_MATTERS, f"best minus worst limit at least {_MATTERS:g}, seed by seed"),
            difference(orion[best_ms], orion[worst_ms], "hit_rate"),
            paper="a figure, without numbers" if setting == "strict-light" else "not shown",
            ours=", ".join(f"{limit_ms:g} ms {rate:.3f}" for limit_ms, rate in curve.items()),
            kind="reproduction" if setting == "strict-light" else "own",
            note=_shape(curve, best_ms),
        )
        esg, best = pick(rows, setting=setting, policy=_ESG), curve[best_ms]
        ahead = _rate(rows, setting, _AHEAD)
        yield decide(
            f"ESG has a higher hit rate than Orion, however long that may search ({setting})",
            above(0, "higher than Orion's at every limit, seed by seed"),
            *(difference(esg, row, "hit_rate") for row in orion.values()),
            paper="ESG outperforms Orion, as it finds better configurations much faster",
            ours=f"ESG {esg['hit_rate']:.3f}; Orion {best:.3f} at {best_ms:g} ms, {ahead:.3f} ahead of time",
            note=None
            if esg["hit_rate"] > best
            else (
                "At its best limit Orion's search is short, and its sizes meet the objective with nothing batched as "
                "long as the cluster has room for that; a plan that is kept then loses nothing."
            ),
        )


def _shape(curve: Mapping[float, float], best_ms: float) -> str:
    """How the curve goes to its best point and on from there."""
    first, last, best = min(curve), max(curve), curve[best_ms]
    parts = [f"is best ({best:.3f}) at {best_ms:g} ms"]
    if best - curve[first] >= _SEEN:
        parts.insert(0, f"rises from {curve[first]:.3f} at {first:g} ms")
    if best - curve[last] >= _SEEN:
        longest_ms = max(limit_ms for limit_ms, rate in curve.items() if best - rate < _MATTERS)
        parts.append(f"falls after {longest_ms:g} ms, to {curve[last]:.3f} at {last:g} ms")
    return f"It {', '.join(parts)}."


def _curve(rows: Rows, setting: str) -> dict[float, float]:
    """Orion's hit rate by the limit in milliseconds."""
    return {float(r["search_limit_ms"]): float(r["hit_rate"]) for r in select(rows, setting=setting, policy=_ORION)}


def _rate(rows: Rows, setting: str, policy: str) -> float:
    return float(pick(rows, setting=setting, policy=policy)["hit_rate"])


def _figures(settings: Mapping[str, Any], rows: Rows) -> Iterator[Figure]:
    for setting in settings["settings"]:
        curve = _curve(rows, setting)
        ends = (min(curve), max(curve))
        level = {policy: [(x, _rate(rows, setting, policy)) for x in ends] for policy in (_AHEAD, _ESG)}
        title = f"Hit rate against Orion's allowed search time, {setting}"
        lines = {_ORION: list(curve.items()), **level}
        svg = line_figure(title, lines, x_label="allowed search time, ms", y_label="SLO hit rate", is_log_x=True)
        yield Figure(name=f"esg-orion-cutoff-{setting}", title=title, svg=svg)
