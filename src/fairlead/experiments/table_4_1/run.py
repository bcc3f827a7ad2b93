"""Every cell of Table 4.1, the defect behind its last columns, and what a correct controller gets on the same input."""

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

import polars as pl

from fairlead.engine import simulate
from fairlead.experiments.cases import Progress, origin, read_settings
from fairlead.experiments.claims import (
    Claim,
    Rule,
    above,
    at_least,
    at_most,
    between,
    decide,
    decide_all,
    equal,
    exact,
    fact,
    paired,
    sampled,
)
from fairlead.experiments.families import bound_rps, random_dag
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows, number, select
from fairlead.model import Recording
from fairlead.policy import Policy, make_policy
from fairlead.workload import Scenario, load_scenario

_TOLERANCE = 1 + 1e-9
_SHARED = "shared map"


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """The table, the bands, and the two families."""
    settings = read_settings(__package__)
    seeds = range(settings["quick_seeds" if quick else "seeds"])
    rows: list[dict[str, object]] = []
    scenarios = {ms: _scenario(settings, ms) for ms in settings["objectives_ms"]}
    for system, choice in settings["rivals"].items():
        rows += [_row(system, ms, simulate(scenarios[ms], _policy(choice))) for ms in scenarios]
    progress(0.1, "FIFO and Clockwork")
    rows += [
        _row(_SHARED, ms, simulate(scenario, _policy(settings["shared_map"]), seed=seed), seed)
        for ms, scenario in scenarios.items()
        for seed in seeds
    ]
    progress(0.5, "the shared map")
    for name, how in settings["admission"].items():
        rows += [_row(name, ms, simulate(s, _policy(how["policy"]))) for ms, s in scenarios.items()]
    progress(0.7, "admission control")
    rows += _family(settings, settings["quick_family" if quick else "family"], progress)
    return Reproduction(
        name="table-4.1",
        title="Serverless accelerators, Table 4.1: goodput of a chain on one CPU and one GPU",
        rows=tuple(rows),
        notes=(
            origin([0]),
            "Goodput in the table is (objectives met) / (time until all 1200 requests are done); nothing is rejected "
            "there. Arrivals are a single burst on whole milliseconds: half of the requests in the first 120 ms.",
            f"The most that any scheduler could answer within the objectives is {_bound(settings):.0f} per second: a "
            "linear program over all placements, for one CPU and one GPU that run one function at a time, loading it "
            "first.",
            f"The shared map was drawn with seeds 0 to {len(seeds) - 1}; the bands are ours.",
        ),
    )


def judge(rows: Rows) -> Iterator[Claim]:
    """The printed cells, then what is ours: the counts behind them, the shared map, admission control, random DAGs."""
    settings = read_settings(__package__)
    table = [row for row in rows if row.get("dag") is None]
    for system in settings["rivals"]:
        yield from _cells(settings, system, select(table, system=system))
    for i, objective_ms in enumerate(settings["objectives_ms"]):
        yield from _bands(settings, i, select(table, system=_SHARED, objective_ms=objective_ms))
    bound = _bound(settings)
    for name, how in settings["admission"].items():
        if how["at_least"] is not None:
            yield from _admission(settings, name, how["at_least"], bound, select(table, system=name))
    yield from _family_claims(settings, [row for row in rows if row.get("dag") is not None])


def _bound(settings: Mapping[str, Any]) -> float:
    return bound_rps(_scenario(settings, settings["objectives_ms"][0]))


def _scenario(settings: Mapping[str, Any], objective_ms: int) -> Scenario:
    return load_scenario(settings["scenario"], overrides={"workflows.linear.slo.latency_s": objective_ms / 1000})


def _policy(choice: Mapping[str, Any]) -> Policy:
    return make_policy(choice["dispatch"], {key: value for key, value in choice.items() if key != "dispatch"})


def _row(system: str, objective_ms: float, recording: Recording, seed: int = 0) -> dict[str, object]:
    """One run: objectives met, and goodputs as the table has them."""
    requests = recording.requests.filter(pl.col("outcome") == "completed")
    makespan_s = max(float(requests["end"].max() or 0.0), 1e-9)  # type: ignore[arg-type]
    in_time = requests.filter(pl.col("end") <= pl.col("deadline") * _TOLERANCE).height
    affordable = requests.filter(pl.col("cost_usd") <= pl.col("budget_usd") * _TOLERANCE).height
    both = requests.filter(
        (pl.col("end") <= pl.col("deadline") * _TOLERANCE) & (pl.col("cost_usd") <= pl.col("budget_usd") * _TOLERANCE)
    ).height
    return {
        "system": system,
        "objective_ms": objective_ms,
        "seed": seed,
        "admitted": recording.requests.height - recording.requests.filter(pl.col("outcome") == "rejected").height,
        "in_time": in_time,
        "affordable": affordable,
        "kept": both,
        "makespan_ms": round(makespan_s * 1000, 3),
        "latency_goodput": round(in_time / makespan_s, 4),
        "cost_goodput": round(affordable / makespan_s, 4),
    }


def _cells(settings: Mapping[str, Any], system: str, rows: Rows) -> Iterator[Claim]:
    """The printed cells of one system, and the counts behind them."""
    printed, derived = settings["printed"][system], settings["derived"][system]
    for i, row in enumerate(rows):
        where = f"{system}, {row['objective_ms']} ms"
        for measure in ("latency", "cost"):
            theirs, figure = printed[measure][i], number(row, f"{measure}_goodput")
            note = "Printed with its last digits cut off or rounded." if figure.mean != theirs else None
            yield decide(f"{where}: {measure} goodput", _prints_as(theirs), figure, paper=theirs, note=note)
        hits = derived["hits"][i]
        what = f"{where}: answers in time"
        yield decide(what, equal(hits), number(row, "in_time"), paper=hits, kind="own", note=_DERIVED)
        end_ms = derived["makespan_ms"]
        what = f"{where}: all done after (ms)"
        yield decide(what, equal(end_ms), number(row, "makespan_ms"), paper=end_ms, kind="own", note=_DERIVED)


_DERIVED = "Not printed: derived from the two goodputs of the row."


def _prints_as(printed: float) -> Rule:
    """Accepts what, cut off or rounded to the digits that were printed, is the printed figure."""
    unit = 10.0 ** -len(str(printed).partition(".")[2])
    return between(printed - unit / 2, printed + unit, "equal in the digits printed")


def _bands(settings: Mapping[str, Any], i: int, rows: Rows) -> Iterator[Claim]:
    """The custom columns: explained if a map shared by all requests gives what was printed."""
    printed = settings["printed"]["custom"]
    where = f"custom, {settings['objectives_ms'][i]} ms"
    makespans = [float(row["makespan_ms"]) for row in rows]
    inside = [[ms for ms in makespans if low <= ms <= high] for low, high in settings["bands_ms"]]
    count = 1000 * 1200 / printed["cost"][i]
    is_near = any(band and min(band) - 30 <= count <= max(band) + 30 for band in inside)
    yield fact(
        f"{where}: cost goodput lies in one of the two bands of a shared map",
        "the printed figure within 30 ms of a band, and every run in either band",
        is_near and sum(map(len, inside)) == len(makespans),
        paper=printed["cost"][i],
        ours=" or ".join(f"{1.2e6 / max(b):.1f} to {1.2e6 / min(b):.1f}" for b in inside if b),
        kind="own",
        note=(
            "One placement for all requests, drawn anew on each arrival, so that the last draw decides how most of "
            "them run: two bands, for G G C and C G C. The bands are ours."
        ),
    )
    hits = sorted(int(row["in_time"]) for row in rows)
    printed_hits = round(printed["latency"][i] * count / 1000)
    yield fact(
        f"{where}: answers in time under a shared map",
        "the printed number between the least and the greatest of all runs",
        hits[0] <= printed_hits <= hits[-1],
        paper=printed_hits,
        ours=f"{hits[0]} to {hits[-1]}",
        kind="own",
    )


def _admission(settings: Mapping[str, Any], name: str, least: float, bound: float, rows: Rows) -> Iterator[Claim]:
    for theirs, row in zip(settings["printed"]["custom"]["latency"], rows, strict=True):
        rate = exact(row["kept"] / row["makespan_ms"] * 1000)
        yield decide_all(
            f"admission control, {name}, {row['objective_ms']} ms: answers within both objectives per second",
            f"at least {least:g}, none of them late",
            [(at_least(least), rate), (equal(0), exact(row["admitted"] - row["kept"]))],
            paper=theirs,
            ours=round(rate.mean, 1),
            kind="own",
            note=f"At most {bound:.0f} per second is possible.",
        )


def _family(settings: Mapping[str, Any], count: int, progress: Progress) -> Iterator[dict[str, object]]:
    """Random DAGs under the same burst: share of the bound, with exact and with noisy times."""
    systems = {**settings["rivals"], **{name: how["policy"] for name, how in settings["admission"].items()}}
    for member in range(count):
        for noise in (0.0, settings["family_noise"]):
            scenario = random_dag(member, noise=noise)
            bound = bound_rps(scenario)
            for system, choice in systems.items():
                row = _row(
                    system,
                    round(1000 * scenario.workflows["random"].slo.latency_s, 3),
                    simulate(scenario, _policy(choice)),
                )
                kept = float(str(row["kept"])) / float(str(row["makespan_ms"])) * 1000
                yield {**row, "dag": member, "noise": noise, "share_of_bound": round(kept / bound, 4)}
        progress(0.7 + 0.3 * (member + 1) / count, f"random DAG {member}")


def _family_claims(settings: Mapping[str, Any], rows: Rows) -> Iterator[Claim]:
    """Over the DAGs, each of them one sample."""
    names, rivals = list(settings["admission"]), list(settings["rivals"])
    for level in (0.0, settings["family_noise"]):
        shares = {
            system: [float(row["share_of_bound"]) for row in select(rows, system=system, noise=level)]
            for system in (*rivals, *names)
        }
        yield decide(
            f"random DAGs, noise {level:.0%}: mean share of the bound",
            above(0, "fastest and balanced higher than FIFO and Clockwork, DAG by DAG"),
            *(paired(shares[ours], shares[rival]) for ours in ("fastest", "balanced") for rival in rivals),
            paper=None,
            ours=", ".join(f"{system} {fmean(values):.3f}" for system, values in shares.items()),
            kind="own",
            note="Not in the report. Members 0 to 11 were looked at while the policy was written; no constant was "
            "fitted to them.",
        )
        mine = [row for row in rows if row["system"] in names and row["noise"] == level]
        late = {dag: _late([row for row in mine if row["dag"] == dag]) for dag in {row["dag"] for row in mine}}
        what = f"random DAGs, noise {level:.0%}: admitted requests that miss an objective"
        counts = f"{sum(n for n, _ in late.values())} of {sum(n for _, n in late.values())}"
        if level == 0:
            missed = exact(sum(n for n, _ in late.values()))
            yield decide(what, equal(0, "none"), missed, paper="none", ours=counts, kind="own")
        else:
            figure = sampled([missed / max(1, admitted) for missed, admitted in late.values()])
            yield decide(what, at_most(0.01, "at most 1 %"), figure, paper="at most 1 %", ours=counts, kind="own")


def _late(rows: Rows) -> tuple[int, int]:
    """How many were admitted and missed an objective, and how many were admitted."""
    admitted = sum(row["admitted"] for row in rows)
    return admitted - sum(row["kept"] for row in rows), admitted
