"""Run Orion with more and more time to search, beside ESG and beside an Orion that sizes ahead of time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlead.experiments.cases import Case, Progress, measure, origin, read_settings
from fairlead.experiments.reproduction import Claim, Figure, Reproduction
from fairlead.report import Aggregate
from fairlead.report.figure import line_figure

_ORION, _AHEAD, _ESG = "Orion", "Orion, ahead of time", "ESG"
_MATTERS = 0.1  # of the hit rate: less is no dependence worth the name
_SEEN = 0.01  # of the hit rate: less is not told

Row = Mapping[str, Any]


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
        claims=tuple(all_claims(rows)),
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


def _row(setting: str, policy: str, limit_s: float | None, result: Aggregate) -> dict[str, object]:
    hit_rate = result.estimates["slo_attainment"]
    return {
        "setting": setting,
        "policy": policy,
        "search_limit_ms": None if limit_s is None else round(limit_s * 1000, 3),
        "hit_rate": round(hit_rate.mean, 4),
        "hit_rate_interval": round(hit_rate.half_width or 0.0, 4),
        "cost_usd": round(result.estimates["cost_usd"].mean, 4),
        "latency_p50_s": round(result.estimates["latency_s.p50"].mean, 4),
    }


def all_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """What the slides say of Orion's search time, from the table."""
    for setting in dict.fromkeys(row["setting"] for row in rows):
        curve = _curve(rows, setting)
        best_ms = max(curve, key=lambda limit_ms: curve[limit_ms])
        span = max(curve.values()) - min(curve.values())
        yield Claim(
            claim=f"Orion's hit rate depends on the time that it may search ({setting})",
            paper="a figure, without numbers" if setting == "strict-light" else "not shown",
            ours=", ".join(f"{limit_ms:g} ms {rate:.3f}" for limit_ms, rate in curve.items()),
            met=span >= _MATTERS,
            note=_shape(curve, best_ms),
        )
        esg = _rate(rows, setting, _ESG)
        best = curve[best_ms]
        is_better = esg > best
        yield Claim(
            claim=f"ESG has a higher hit rate than Orion, however long that may search ({setting})",
            paper="ESG outperforms Orion, as it finds better configurations much faster",
            ours=f"ESG {esg:.3f}; Orion {best:.3f} at {best_ms:g} ms, {_rate(rows, setting, _AHEAD):.3f} ahead of time",
            met=is_better,
            note=None
            if is_better
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


def _curve(rows: Sequence[Row], setting: str) -> dict[float, float]:
    """Orion's hit rate by the limit in milliseconds."""
    own = [row for row in rows if row["setting"] == setting and row["policy"] == _ORION]
    return {float(row["search_limit_ms"]): float(row["hit_rate"]) for row in own}


def _rate(rows: Sequence[Row], setting: str, policy: str) -> float:
    (row,) = (row for row in rows if row["setting"] == setting and row["policy"] == policy)
    return float(row["hit_rate"])


def _figures(settings: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[Figure]:
    for setting in settings["settings"]:
        curve = _curve(rows, setting)
        ends = (min(curve), max(curve))
        level = {policy: [(x, _rate(rows, setting, policy)) for x in ends] for policy in (_AHEAD, _ESG)}
        title = f"Hit rate against Orion's allowed search time, {setting}"
        lines = {_ORION: list(curve.items()), **level}
        svg = line_figure(title, lines, x_label="allowed search time, ms", y_label="SLO hit rate", is_log_x=True)
        yield Figure(name=f"esg-orion-cutoff-{setting}", title=title, svg=svg)
