"""What is claimed of the pipelines, and whether the rows bear it out."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from fairlead.experiments.cases import read_settings
from fairlead.experiments.claims import Claim, above, at_least, below, decide, exact, within
from fairlead.experiments.rows import Row, Rows, difference, pick, quotient, select


def judge(rows: Rows) -> Iterator[Claim]:
    """Every claim, in the order of the chapter."""
    settings = read_settings(__package__)
    for pipeline in settings["scenarios"]:
        yield _reduction(settings["table"], rows, pipeline)
    yield _ratio_of_pipelines(settings["table"], rows)
    for pipeline in settings["scenarios"]:
        yield from _throughput(settings["throughput"], rows, pipeline)
    for pipeline in settings["scenarios"]:
        yield from _optimisations(settings["latency"], rows, pipeline)


# --- table 3.1 -----------------------------------------------------------------------------------------------------


def _cloudburst(rows: Rows, pipeline: str) -> Row:
    return pick(rows, part="table 3.1", pipeline=pipeline, system="Cloudburst")


def _reduction(table: Mapping[str, Any], rows: Rows, pipeline: str) -> Claim:
    printed = table["printed"][pipeline]
    paper = 1 - printed["cloudburst"] / printed["clipper"]
    clipper = pick(rows, part="table 3.1", pipeline=pipeline, system="Clipper", call_s=table["call_s"])
    ours = exact(1).minus(quotient(_cloudburst(rows, pipeline), clipper, "latency_ms"))
    by_call = reductions(rows, pipeline)
    needed_s = crossing(by_call, paper)
    about = "more than was tried" if needed_s is None else f"about {needed_s * 1e3:.0f} ms"
    return decide(
        f"Table 3.1, {pipeline}: Cloudburst answers in so much less time than Clipper",
        within(table["rough"], paper),
        ours,
        paper=f"{paper:.1%}",
        ours=f"{ours.mean:.1%}",
        note=(
            f"Modelled, at an assumed {table['call_s'] * 1e3:g} ms per call through the front end. The graph alone, "
            f"with calls that cost nothing, would give {by_call[0]:.1%}; the printed figure takes {about} per call. "
            "The printed unit, ms, can only be seconds."
        ),
    )


def reductions(rows: Rows, pipeline: str) -> dict[float, float]:
    """By what a call costs: the share of Clipper's mean latency that Cloudburst saves."""
    cloudburst = _cloudburst(rows, pipeline)["latency_ms"]
    clipper = select(rows, part="table 3.1", pipeline=pipeline, system="Clipper")
    return dict(sorted((float(row["call_s"]), 1 - cloudburst / row["latency_ms"]) for row in clipper))


def crossing(by_call: Mapping[float, float], wanted: float) -> float | None:
    """What a call would have to cost for this reduction, between the points that were run; None beyond them."""
    for (low, at_low), (high, at_high) in pairwise(by_call.items()):
        if at_low <= wanted <= at_high:
            return low + (high - low) * (wanted - at_low) / (at_high - at_low)
    return None


def _ratio_of_pipelines(table: Mapping[str, Any], rows: Rows) -> Claim:
    printed = {pipeline: table["printed"][pipeline]["cloudburst"] for pipeline in ("ensemble", "cascade")}
    ensemble, cascade = (_cloudburst(rows, pipeline) for pipeline in printed)
    paper = printed["cascade"] / printed["ensemble"]
    return decide(
        "Table 3.1: the cascade takes so many times as long as the ensemble, on Cloudburst",
        within(table["rough"], paper),
        quotient(cascade, ensemble, "latency_ms"),
        paper=round(paper, 1),
        note=(
            f"Ours: {ensemble['latency_ms']:.0f} ms and {cascade['latency_ms']:.0f} ms. With the models that Cloudflow "
            "names both pipelines wait for ResNet-101 once, and the cascade in some cases for Inception v3 besides: "
            "about twice as long at the most, whatever the machine. The cascade of the report must have had other "
            "models or inputs."
        ),
    )


# --- figure 3.3 ----------------------------------------------------------------------------------------------------


def _throughput(part: Mapping[str, Any], rows: Rows, pipeline: str) -> Iterator[Claim]:
    cpu, gpu = (
        {row["batch"]: row for row in select(rows, part="throughput", pipeline=pipeline, node=node)}
        for node in ("cpu", "gpu")
    )
    ratios = {batch: quotient(gpu[batch], cpu[batch], "answers_rps") for batch in gpu}
    smallest, largest = min(ratios), max(ratios)
    yield decide(
        f"Figure 3.3, {pipeline}: GPU node over CPU node at batches of {largest}",
        at_least(part["printed_ratio"]),
        ratios[largest],
        paper=f"{part['printed_ratio']}x",
        ours=f"{ratios[largest].mean:.1f}x ({gpu[largest]['answers_rps']:.0f} against "
        f"{cpu[largest]['answers_rps']:.0f} per s)",
        note="Node against node: 16 vCPUs, and 8 vCPUs with one GPU. Times on vCPUs are ours: a rough factor.",
    )
    yield decide(
        f"Figure 3.3, {pipeline}: larger batches help the GPU more than the CPU",
        above(0, "a larger ratio at the largest than at the smallest batch"),
        ratios[largest].minus(ratios[smallest]),
        paper="10x at larger batch sizes",
        ours=", ".join(f"{ratio.mean:.1f}x at {batch}" for batch, ratio in ratios.items()),
    )


# --- optimisations -------------------------------------------------------------------------------------------------


def _optimisations(part: Mapping[str, Any], rows: Rows, pipeline: str) -> Iterator[Claim]:
    (copies,) = part["compete"].values()
    off = {"fusion": False, "copies": 1, "batching": "none"}

    def claim(what: str, load: str, figure: str, **on: object) -> Claim:
        before, after = (pick(rows, part="latency", pipeline=pipeline, load=load, **{**off, **how}) for how in ({}, on))
        return decide(
            f"{pipeline}, {load} load: {what} lowers {_NAMES[figure]}",
            below(0, "lower, seed by seed"),
            difference(after, before, figure),
            paper="lower",
            ours=f"{before[figure]:.1f} -> {after[figure]:.1f} ms",
            note=None if after[figure] < before[figure] else _WHY_NOT.get(what),
        )

    yield claim("fusion", "light", "latency_ms", fusion=True)
    yield claim("fusion", "busy", "latency_ms", fusion=True)
    yield claim("competition", "light", "p99_ms", copies=copies)
    yield claim("competition", "busy", "p99_ms", copies=copies)
    yield claim("batching", "busy", "p99_ms", batching=part["batching"])


_NAMES = {"latency_ms": "the mean latency", "p99_ms": "the 99th percentile"}
_WHY_NOT = {
    "fusion": (
        "There is little to save: stages often run where their input is, and 0.6 MB takes a millisecond between nodes. "
        "What is left is chance, since stages of another number draw other noise and branches."
    ),
    "competition": (
        "Copies take the GPUs from other requests: three of them do 1.7 times the work of one, more than there "
        "is, and queues grow for as long as the run lasts. Competition pays only where capacity stands idle."
    ),
}
