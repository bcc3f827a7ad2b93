"""Admission control under three kinds of arrival and several sample sizes, and every dispatcher under overload."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl

from fairlead.engine import simulate
from fairlead.experiments.cases import Progress, origin, read_settings
from fairlead.experiments.claims import Claim, at_least, below, decide, equal, exact, paired, sampled
from fairlead.experiments.families import bound_rps, one_model, random_dag, with_load
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, by_seed, select, values_of
from fairlead.model import Recording
from fairlead.policy import Policy, make_policy
from fairlead.report import summarise
from fairlead.report.figure import line_figure
from fairlead.workload import Arrivals, Burst, Deterministic, Pillar, Poisson, Scenario, load_scenario

_SWEEP_SHARE = 0.6  # of the progress


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """The sweep over arrivals and sample sizes, then overload on two benches."""
    settings = read_settings(__package__)
    sweep = list(_sweep(settings, quick, progress))
    overload = list(_overload(settings, quick, progress))
    return Reproduction(
        name="admission-sweep",
        title="Admission control: arrivals, sample size, and overload",
        rows=(*sweep, *overload),
        notes=(
            origin([0]),
            "The report names these as future work and has no figures. Goodput is answers within both objectives per "
            "second until all is done; its bound is a linear program over all placements within the objectives.",
            "Load 1 is what the bench could answer at best: the bound for the chain of Table 4.1, full batches of 16 "
            "for the model. Arrivals under overload are Poisson, and only latency counts there: most of the systems "
            "know nothing of cost. Each point of overload is the mean over seeds.",
            "Between the spikes of pillar arrivals nothing is asked for, so the bound is far out of reach there.",
        ),
        figures=tuple(_figures(settings, sweep, overload)),
    )


def _policy(choice: Mapping[str, Any]) -> Policy:
    return make_policy(choice["dispatch"], {key: value for key, value in choice.items() if key != "dispatch"})


def _arrivals(kind: str, workflow: str, count: int, span_s: float) -> Arrivals:
    """So many requests in the span: evenly, half of them in the first tenth, or in ten spikes."""
    if kind == "uniform":
        return Deterministic(workflow, span_s / count)
    return Burst(workflow, count=count) if kind == "burst" else Pillar(workflow, count=count, pillars=10)


def _chain(settings: Mapping[str, Any], *, counts_cost: bool) -> Scenario:
    slo = {"latency_s": settings["objective_ms"] / 1000} | ({"cost_usd": settings["cost_usd"]} if counts_cost else {})
    return load_scenario(settings["scenario"], overrides={"workflows.linear.slo": slo})


def _sweep(settings: Mapping[str, Any], quick: bool, progress: Progress) -> Iterator[dict[str, object]]:
    dags = {"chain": _chain(settings, counts_cost=True)}
    dags |= {f"random {n}": random_dag(n) for n in range(settings["quick_dags" if quick else "dags"])}
    points = list(product(dags, settings["arrivals"], settings["selections"], settings["samples"]))
    for done, (dag, kind, selection, sample) in enumerate(points, start=1):
        scenario = dags[dag]
        (workflow,) = scenario.workflows
        arrivals = _arrivals(kind, workflow, settings["requests"], settings["span_s"])
        policy = make_policy("dag-admission", {"selection": selection, "sample": settings["samples"][sample]})
        recording = simulate(with_load(scenario, arrivals, settings["span_s"]), policy)
        admitted, kept = _kept(recording)
        makespan_s = _makespan_s(recording)
        yield {
            "part": "sweep",
            "dag": dag,
            "arrivals": kind,
            "selection": selection,
            "sample": sample,
            "rejection_rate": round(1 - admitted / recording.requests.height, 4),
            "admitted": admitted,
            "kept": kept,
            "goodput_rps": round(kept / makespan_s, 2),
            "share_of_bound": round(kept / makespan_s / bound_rps(scenario), 4),
        }
        progress(_SWEEP_SHARE * done / len(points), f"{dag}, {kind}, {selection}, s = {sample}")


def _kept(recording: Recording) -> tuple[int, int]:
    """How many requests were admitted, and how many of them kept both objectives."""
    admitted = recording.requests.filter(pl.col("outcome") != "rejected").height
    return admitted, round((summarise(recording).slo_attainment or 0.0) * recording.requests.height)


def _makespan_s(recording: Recording) -> float:
    done = recording.requests.filter(pl.col("outcome") == "completed")
    return max(float(done["end"].max() or 0.0), recording.duration_s)  # type: ignore[arg-type]


def _last_kept_s(recording: Recording) -> float:
    """When arrivals have ended, and the last answer in time: what comes too late afterwards is nobody's goodput."""
    in_time = recording.requests.filter((pl.col("outcome") == "completed") & (pl.col("end") <= pl.col("deadline")))
    return max(float(in_time["end"].max() or 0.0), recording.duration_s)  # type: ignore[arg-type]


def _overload(settings: Mapping[str, Any], quick: bool, progress: Progress) -> Iterator[dict[str, object]]:
    model = settings["model"]
    batches = {int(batch): ms / 1000 for batch, ms in model["batch_ms"].items()}
    single = one_model(batches, load_s=model["load_ms"] / 1000, latency_s=model["objective_ms"] / 1000)
    chain = _chain(settings, counts_cost=False)  # only one of the systems knows what cost is
    benches = {
        "one model": (single, max(batch / seconds for batch, seconds in batches.items())),
        "chain": (chain, bound_rps(chain)),
    }
    loads = settings["quick_loads" if quick else "loads"]
    span_s = settings["quick_overload_s" if quick else "overload_s"]
    seeds = range(settings["quick_overload_seeds" if quick else "overload_seeds"])
    points = list(product(benches, settings["systems"], loads))
    for done, (bench, system, load) in enumerate(points, start=1):
        scenario, capacity_rps = benches[bench]
        (workflow,) = scenario.workflows
        loaded = with_load(scenario, Poisson(workflow, load * capacity_rps), span_s)
        runs = [simulate(loaded, _policy(settings["systems"][system]), seed=seed) for seed in seeds]
        counts = [_kept(recording) for recording in runs]
        rates = [kept / _last_kept_s(recording) for (_, kept), recording in zip(counts, runs, strict=True)]
        yield {
            "part": "overload",
            "bench": bench,
            "system": system,
            "load": load,
            "offered": sum(recording.requests.height for recording in runs),
            "admitted": sum(admitted for admitted, _ in counts),
            "kept": sum(kept for _, kept in counts),
            "goodput_rps": round(fmean(rates), 2),
            "share_of_capacity": round(fmean(rates) / capacity_rps, 4),
            "goodput_rps_by_seed": by_seed(rates, 2),
        }
        progress(_SWEEP_SHARE + (1 - _SWEEP_SHARE) * done / len(points), f"{bench}, {system}, load {load}")


def judge(rows: Rows) -> Iterator[Claim]:
    """The report has no figures for any of this: every bar is ours."""
    settings = read_settings(__package__)
    yield from _sweep_claims(settings, select(rows, part="sweep"))
    overload = select(rows, part="overload")
    for bench in dict.fromkeys(row["bench"] for row in overload):
        for system in (*settings["steady"], *settings["collapsing"]):
            yield _overload_claim(settings, bench, system, select(overload, bench=bench, system=system))


def _sweep_claims(settings: Mapping[str, Any], rows: Rows) -> Iterator[Claim]:
    late = sum(row["admitted"] - row["kept"] for row in rows)
    yield decide(
        "no admitted request misses an objective, whatever the arrivals and the sample",
        equal(0, "none"),
        exact(late),
        paper="by design",
        ours=f"{late} of {sum(row['admitted'] for row in rows)} miss",
        kind="own",
    )
    for kind in settings["arrivals"]:
        shares = {s: _by_dag(select(rows, arrivals=kind, selection=s)) for s in settings["selections"]}
        yield decide(
            f"{kind} arrivals: mean share of the bound, balanced against random (as published)",
            at_least(0, "balanced at least random, DAG by DAG"),
            paired(shares["balanced"], shares["random"]),
            paper=None,
            ours=", ".join(f"{selection} {fmean(share):.2f}" for selection, share in shares.items()),
            kind="own",
        )
    by_sample = {s: _by_dag(select(rows, selection="random", sample=s)) for s in settings["samples"]}
    few, *_, all_ = by_sample.values()
    yield decide(
        "a larger sample s loses fewer requests (random selection, mean share of the bound)",
        at_least(0, "all placements at least one draw, DAG by DAG"),
        paired(all_, few),
        paper=None,
        ours=", ".join(f"s = {sample}: {fmean(share):.3f}" for sample, share in by_sample.items()),
        kind="own",
        note=(
            "With one draw, a request is refused when the drawn placement does not fit although another would. Where "
            "nearly all are refused anyway, that costs little, or even spares the bottleneck."
        ),
    )


def _by_dag(rows: Rows) -> list[float]:
    """The mean share of the bound of every DAG: one sample each."""
    dags = dict.fromkeys(row["dag"] for row in rows)
    return [fmean(row["share_of_bound"] for row in select(rows, dag=dag)) for dag in dags]


def _overload_claim(settings: Mapping[str, Any], bench: str, system: str, rows: Rows) -> Claim:
    of = {row["load"]: row for row in rows}
    over = settings["overloads"]
    goodputs = {load: values_of(row, "goodput_rps") for load, row in of.items()}
    least = [
        min(goodputs[load][i] for load in over) / (max(values[i] for values in goodputs.values()) or 1.0)
        for i in range(len(goodputs[over[0]]))
    ]
    is_steady = system in settings["steady"]
    best = max(row["goodput_rps"] for row in rows)
    return decide(
        f"{bench}: {system} {'keeps' if is_steady else 'loses'} its goodput under overload",
        at_least(0.9, "least over best at least 0.9") if is_steady else below(0.5, "least over best less than 0.5"),
        sampled(least),
        paper="within 10 % of its best" if is_steady else "collapses",
        ours=f"best {best:.0f}/s; " + ", ".join(f"{of[load]['goodput_rps']:.0f} at {load}x" for load in over),
        kind="own",
        note=_DAG_NOTE if system == "clockwork" and bench == "chain" else None,
    )


_DAG_NOTE = (
    "Clockwork serves single models. On a chain it cannot tell at the first stage whether the later ones will find "
    "room, so work is begun that is dropped half way."
)


def _figures(
    settings: Mapping[str, Any], sweep: Sequence[Mapping[str, Any]], overload: Sequence[Mapping[str, Any]]
) -> Iterator[Figure]:
    for bench in dict.fromkeys(row["bench"] for row in overload):
        lines = {
            system: [
                (r["load"], 100 * r["share_of_capacity"])
                for r in overload
                if r["bench"] == bench and r["system"] == system
            ]
            for system in settings["systems"]
        }
        title = f"Goodput under overload: {bench}"
        svg = line_figure(
            title,
            lines,
            x_label="offered load (multiples of capacity)",
            y_label="goodput (% of capacity)",
            is_log_x=True,
        )
        yield Figure(name=f"overload-{bench.replace(' ', '-')}", title=title, svg=svg)
    places = {sample: i + 1 for i, sample in enumerate(settings["samples"])}
    lines = {
        selection: [
            (
                places[sample],
                100
                * float(
                    np.mean(
                        [r["share_of_bound"] for r in sweep if (r["selection"], r["sample"]) == (selection, sample)]
                    )
                ),
            )
            for sample in settings["samples"]
        ]
        for selection in settings["selections"]
    }
    names = ", ".join(str(sample) for sample in settings["samples"])
    title = "Share of the bound by sample size"
    svg = line_figure(title, lines, x_label=f"sample size s: {names}", y_label="goodput (% of the bound)")
    yield Figure(name="sample-size", title=title, svg=svg)
