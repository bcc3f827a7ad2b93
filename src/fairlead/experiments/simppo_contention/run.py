"""Run functions beside a hog on an overcommitted node, and set their slow-downs beside the measured ones."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from math import exp, inf, log, sqrt
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fairlead.engine import simulate
from fairlead.experiments.cases import Progress, each, origin, read_settings
from fairlead.experiments.claims import (
    Claim,
    Rule,
    above,
    at_most,
    between,
    decide,
    decide_all,
    linearised,
)
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Row, Rows, by_seed, difference, measured, quotient, select
from fairlead.model import Cluster, Function, Node, Workflow
from fairlead.profile import Constant, Profile
from fairlead.report.figure import line_figure
from fairlead.workload import Poisson, PressureChange, Scenario

_CLOSE = 1.5  # a factor; the measured slow-downs go from 1.15 to 39
_SEARCH_SHARE = 0.8  # of the progress


class Point(NamedTuple):
    """A setting of the two parameters: load in isolation, and requests in a run at that load."""

    load: float
    requests: int


Curve = Mapping[int, tuple[Sequence[float], Sequence[float]]]  # by ratio: mean and tail, per cent of those in isolation
_FITTED = "A fit: load and length of a run were searched for so that the six figures of a function come out best."


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Search the two parameters of each function, unless quick; then its slow-downs over more seeds."""
    settings = read_settings(__package__)
    found = {name: Point(**values) for name, values in settings["found"].items()}
    if not quick:
        found = _search(settings, progress)
    points = list(dict.fromkeys(found.values()))
    seeds = range(settings["quick_seeds" if quick else "seeds"])
    begun = 0.0 if quick else _SEARCH_SHARE
    done = _curves(settings, points, seeds, lambda share, what: progress(begun + (1 - begun) * share, what))
    curves = {name: done[point] for name, point in found.items()}
    return Reproduction(
        name="simppo-contention",
        title="A CPU hog beside serverless functions: measured slow-downs and those of a processor-sharing queue",
        rows=tuple(_rows(settings, found, curves)),
        notes=(
            origin(seeds),
            "Slow-downs are latency in per cent of that in isolation; the tail is taken as the 99th percentile. A run "
            "has a fixed length, and requests that have not ended by then do not count: in an overloaded queue the "
            "rest would take as long as one likes to wait.",
            "Load and length are fitted, two numbers for the six of a function; the number of containers and the "
            "noise are the same for all. Their runs are of unknown length, and so are their times of a request.",
            "Only the CPU columns of the publication: memory bandwidth and cache are not modelled.",
        ),
        figures=(_figure(settings, curves),),
    )


def hogged(settings: Mapping[str, Any], point: Point, ratio: int) -> Scenario:
    """Requests of one second of work each, Poisson, for a few containers; the hog is pressure from outside.

    Memory limits the containers, as it does in OpenWhisk. The hog holds `ratio` times their CPU shares.
    """
    containers, vcpus = settings["containers"], settings["vcpus"]
    rate_rps = point.load * min(containers, vcpus)
    pressure = ratio * containers / vcpus
    node = Node(name="vm", kind="vm", vcpus=vcpus, memory_gb=containers, overcommit=4)
    return Scenario(
        name="hogged",
        cluster=Cluster(nodes=(node,)),
        functions={"f": Function(name="f", memory_gb=1.0, keep_alive_s=inf, idle_holds="memory")},
        profiles={"f": Profile(law=Constant(1.0), noise=settings["noise"])},
        workflows={"main": Workflow.chain("main", "f")},
        arrivals=(Poisson("main", rate_rps),),
        pressures=(PressureChange(node="vm", at_s=0.0, pressure=pressure),) if ratio else (),
        duration_s=point.requests / rate_rps,
    )


def latencies_s(scenario: Scenario, seed: int) -> tuple[float, float]:
    """Mean and 99th percentile of the requests that ended within the run."""
    requests = simulate(scenario, "fifo", seed=seed, engine="python").requests
    ended = requests.filter(pl.col("end") <= scenario.duration_s)
    seconds = (ended["end"] - ended["arrival"]).to_numpy()
    return float(seconds.mean()), float(np.quantile(seconds, 0.99))


def _curve(point: Point, settings: Mapping[str, Any], seeds: Sequence[int]) -> Curve:
    """Each latency over that in isolation: quotients of means over the seeds, as what every seed contributes."""
    found = {
        ratio: list(zip(*(latencies_s(hogged(settings, point, ratio), seed) for seed in seeds), strict=True))
        for ratio in (0, *settings["ratios"])
    }
    mean, tail = found[0]
    return {ratio: (_percent(found[ratio][0], mean), _percent(found[ratio][1], tail)) for ratio in settings["ratios"]}


def _percent(values: Sequence[float], isolated: Sequence[float]) -> list[float]:
    shares = linearised(values, isolated)
    assert shares is not None
    return [100 * share for share in shares]


def _curves(
    settings: Mapping[str, Any], points: Sequence[Point], seeds: Sequence[int], progress: Progress
) -> dict[Point, Curve]:
    found: dict[Point, Curve] = {}
    for position, curve in each(partial(_curve, settings=settings, seeds=tuple(seeds)), points, in_parallel=True):
        point = points[position]
        found[point] = curve
        progress(len(found) / len(points), f"load {point.load:g}, {point.requests} requests")
    return found


def _search(settings: Mapping[str, Any], progress: Progress) -> dict[str, Point]:
    points = [Point(*pair) for pair in product(settings["loads"], settings["requests"])]
    curves = _curves(
        settings,
        points,
        range(settings["search_seeds"]),
        lambda share, what: progress(_SEARCH_SHARE * share, f"search, {what}"),
    )
    return {
        name: min(points, key=lambda point: _error(curves[point], theirs))
        for name, theirs in settings["measured"].items()
    }


def _error(curve: Curve, printed: Mapping[int, Sequence[float]]) -> float:
    """By which factor the six figures are off: the root of the mean square, in logarithms."""
    off = [
        log(fmean(ours) / theirs) for ratio in curve for ours, theirs in zip(curve[ratio], printed[ratio], strict=True)
    ]
    return exp(sqrt(sum(part * part for part in off) / len(off)))


def _alone(settings: Mapping[str, Any], ratio: int) -> float:
    """What sharing does to a run that is alone with the hog, in per cent: no queue, no other runs."""
    containers: float = settings["containers"]
    vcpus: float = settings["vcpus"]
    return 100 * max(1.0, (1 + ratio * containers) / vcpus)


def _rows(
    settings: Mapping[str, Any], found: Mapping[str, Point], curves: Mapping[str, Curve]
) -> Iterator[dict[str, object]]:
    for name, printed in settings["measured"].items():
        error = _error(curves[name], printed)
        for ratio in settings["ratios"]:
            ours, theirs = curves[name][ratio], printed[ratio]
            yield {
                "function": name,
                "load": found[name].load,
                "requests": found[name].requests,
                "shares": f"1:{ratio}",
                "mean_theirs": theirs[0],
                "mean": round(fmean(ours[0])),
                "tail_theirs": theirs[1],
                "tail": round(fmean(ours[1])),
                "sharing_alone": round(_alone(settings, ratio)),
                "factor_off": round(error, 2),
                "mean_by_seed": by_seed(ours[0], 1),
                "tail_by_seed": by_seed(ours[1], 1),
            }


def judge(rows: Rows) -> Iterator[Claim]:
    """The measured slow-downs, and how they grow."""
    settings = read_settings(__package__)
    of = {name: select(rows, function=name) for name in settings["measured"]}
    for name, own in of.items():
        for what in ("mean", "tail"):
            theirs = {row["shares"]: row[f"{what}_theirs"] for row in own}
            yield decide_all(
                f"{name}, {what} in per cent of isolated",
                f"each within a factor of {_CLOSE:g} of the measured",
                [(_near(row[f"{what}_theirs"]), measured(row, what)) for row in own],
                paper=theirs,
                ours={row["shares"]: row[what] for row in own},
                kind="fit",
                note=_FITTED,
            )
    sharing = _alone(settings, 2) / _alone(settings, 1)
    for name, (first, second, _) in of.items():
        is_jump = name in settings["collapsing"]
        yield _grows(
            f"{name}, mean from 1:1 to 1:2 "
            + ("jumps by more than sharing alone explains" if is_jump else "grows as sharing alone explains"),
            above(2, "more than 2 times") if is_jump else at_most(2, "at most 2 times"),
            first,
            second,
            f" (sharing alone: x {sharing:.3g})",
        )
    first, second, _ = of["Base64"]
    jump = second["mean_theirs"] / first["mean_theirs"]
    yield _grows("Base64 jumps from 1:1 to 1:2", _near(jump), first, second, "")
    last = sorted((own[-1] for own in of.values()), key=lambda row: -row["mean_theirs"])
    yield decide(
        "order of the functions by their mean at 1:4",
        above(0, "every next one smaller, over the seeds"),
        *(difference(more, less, "mean") for more, less in pairwise(last)),
        paper=" > ".join(row["function"] for row in last),
        ours=" > ".join(row["function"] for row in sorted(last, key=lambda row: -row["mean"])),
        kind="fit",
        note=_FITTED,
    )


def _near(printed: float) -> Rule:
    return between(printed / _CLOSE, printed * _CLOSE, f"within a factor of {_CLOSE:g} of the measured")


def _grows(claim: str, rule: Rule, first: Row, second: Row, more: str) -> Claim:
    ours, theirs = quotient(second, first, "mean"), second["mean_theirs"] / first["mean_theirs"]
    shown = f"x {ours.mean:.2g}{more}"
    return decide(claim, rule, ours, paper=f"x {theirs:.2g}", ours=shown, kind="fit", note=_FITTED)


def _figure(settings: Mapping[str, Any], curves: Mapping[str, Curve]) -> Figure:
    title = "Mean latency beside a CPU hog, in per cent of isolated"
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, printed in settings["measured"].items():
        lines[name] = [(float(ratio), fmean(curves[name][ratio][0])) for ratio in settings["ratios"]]
        lines[f"{name}, measured"] = [(float(ratio), float(printed[ratio][0])) for ratio in settings["ratios"]]
    svg = line_figure(title, lines, x_label="CPU shares of the hog over the function's", y_label="%", is_log_y=True)
    return Figure(name="slow-downs", title=title, svg=svg)
