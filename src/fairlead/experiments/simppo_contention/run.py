"""Run functions beside a hog on an overcommitted node, and set their slow-downs beside the measured ones."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import exp, inf, log, sqrt
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fairlead.engine import simulate
from fairlead.experiments.cases import Progress, each, origin, read_settings
from fairlead.experiments.reproduction import Claim, Figure, Reproduction
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


Curve = Mapping[int, tuple[float, float]]  # by ratio: mean and tail, per cent of those in isolation


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
        claims=tuple(_claims(settings, curves)),
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
    """Mean over the seeds of each latency, over that in isolation."""
    found = {
        ratio: np.mean([latencies_s(hogged(settings, point, ratio), seed) for seed in seeds], axis=0)
        for ratio in (0, *settings["ratios"])
    }
    return {ratio: tuple((100 * found[ratio] / found[0]).tolist()) for ratio in settings["ratios"]}


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
        name: min(points, key=lambda point: _error(curves[point], measured))
        for name, measured in settings["measured"].items()
    }


def _error(curve: Curve, measured: Mapping[int, Sequence[float]]) -> float:
    """By which factor the six figures are off: the root of the mean square, in logarithms."""
    off = [log(ours / theirs) for ratio in curve for ours, theirs in zip(curve[ratio], measured[ratio], strict=True)]
    return exp(sqrt(sum(part * part for part in off) / len(off)))


def _alone(settings: Mapping[str, Any], ratio: int) -> float:
    """What sharing does to a run that is alone with the hog, in per cent: no queue, no other runs."""
    containers: float = settings["containers"]
    vcpus: float = settings["vcpus"]
    return 100 * max(1.0, (1 + ratio * containers) / vcpus)


def _rows(
    settings: Mapping[str, Any], found: Mapping[str, Point], curves: Mapping[str, Curve]
) -> Iterator[dict[str, object]]:
    for name, measured in settings["measured"].items():
        error = _error(curves[name], measured)
        for ratio in settings["ratios"]:
            ours, theirs = curves[name][ratio], measured[ratio]
            yield {
                "function": name,
                "load": found[name].load,
                "requests": found[name].requests,
                "shares": f"1:{ratio}",
                "mean_theirs": theirs[0],
                "mean": round(ours[0]),
                "tail_theirs": theirs[1],
                "tail": round(ours[1]),
                "sharing_alone": round(_alone(settings, ratio)),
                "factor_off": round(error, 2),
            }


def _claims(settings: Mapping[str, Any], curves: Mapping[str, Curve]) -> Iterator[Claim]:
    measured = settings["measured"]
    for name in measured:
        for place, what in enumerate(("mean", "tail")):
            theirs = {f"1:{ratio}": measured[name][ratio][place] for ratio in settings["ratios"]}
            ours = {f"1:{ratio}": round(curves[name][ratio][place]) for ratio in settings["ratios"]}
            off = {key: max(ours[key] / theirs[key], theirs[key] / ours[key]) for key in theirs}
            worst = max(off, key=lambda key: off[key])
            yield Claim(
                claim=f"{name}, {what} in per cent of isolated: each within a factor of {_CLOSE:g}",
                paper=theirs,
                ours=ours,
                met=off[worst] <= _CLOSE,
                note=None if off[worst] <= _CLOSE else f"Off by {off[worst]:.2g} at {worst}.",
            )
    for name in measured:
        is_jump = name in settings["collapsing"]
        theirs_x, ours_x = (rows[2][0] / rows[1][0] for rows in (measured[name], curves[name]))
        yield Claim(
            claim=f"{name}, mean from 1:1 to 1:2 "
            + ("jumps by more than sharing alone explains" if is_jump else "grows as sharing alone explains"),
            paper=f"x {theirs_x:.2g}",
            ours=f"x {ours_x:.2g} (sharing alone: x {_alone(settings, 2) / _alone(settings, 1):.3g})",
            met=(ours_x > 2) == is_jump,
        )
    yield from _last_claims(settings, curves)


def _last_claims(settings: Mapping[str, Any], curves: Mapping[str, Curve]) -> Iterator[Claim]:
    measured = settings["measured"]
    theirs_x, ours_x = (rows["Base64"][2][0] / rows["Base64"][1][0] for rows in (measured, curves))
    yield Claim(
        claim="Base64 jumps by more than 5 times from 1:1 to 1:2",
        paper=f"x {theirs_x:.2g}",
        ours=f"x {ours_x:.2g}",
        met=ours_x > 5,
    )
    orders = [sorted(rows, key=lambda name: -rows[name][4][0]) for rows in (measured, curves)]
    yield Claim(
        claim="order of the functions by their mean at 1:4",
        paper=" > ".join(orders[0]),
        ours=" > ".join(orders[1]),
        met=orders[0] == orders[1],
    )


def _figure(settings: Mapping[str, Any], curves: Mapping[str, Curve]) -> Figure:
    title = "Mean latency beside a CPU hog, in per cent of isolated"
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, measured in settings["measured"].items():
        lines[name] = [(float(ratio), curves[name][ratio][0]) for ratio in settings["ratios"]]
        lines[f"{name}, measured"] = [(float(ratio), float(measured[ratio][0])) for ratio in settings["ratios"]]
    svg = line_figure(title, lines, x_label="CPU shares of the hog over the function's", y_label="%", is_log_y=True)
    return Figure(name="slow-downs", title=title, svg=svg)
