"""Every policy at every rate, once with the time that loads take and once believing that they take none."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from fairlead.engine import simulate
from fairlead.engine.sim.physics import Physics
from fairlead.experiments.cases import Progress, Settings, each, origin, read_settings
from fairlead.experiments.claims import Claim, above, at_most, decide
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows, columns, difference, measured, select
from fairlead.model import Recording
from fairlead.workload import Scenario, load_scenario

KNOWS, IGNORES = "knows", "ignores"
_BASE = "kaas-contention"  # all of which but the name is overridden


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Every policy, rate and belief."""
    settings = read_settings(__package__)
    seeds = settings["quick_seeds" if quick else "seeds"]
    rates = settings["quick_rates"] if quick else settings["rates"]
    cells = [(policy, rate, loads) for rate in rates for policy in settings["policies"] for loads in (KNOWS, IGNORES)]
    found: dict[int, Mapping[str, object]] = {}
    for position, row in each(partial(run_cell, settings, seeds), cells, in_parallel=not quick):
        found[position] = row
        policy, rate, loads = cells[position]
        progress(len(found) / len(cells), f"{policy}, {rate}, {loads} loads")
    return Reproduction(
        name="kaas-deadlines",
        title="Deadlines on workflows of CPU functions and kernels, under a cap on device memory that evicts",
        rows=tuple(found[i] for i in range(len(cells))),
        notes=tuple(_notes(settings, seeds)),
    )


def run_cell(settings: Settings, seeds: Sequence[int], cell: tuple[str, str, str]) -> dict[str, object]:
    """The row of a policy at a rate, with or without knowledge of loads."""
    policy, rate, loads = cell
    rate_rps = settings["rates"][rate]
    runs = [figures(run_once(settings, policy, rate_rps, seed, knows=loads == KNOWS)) for seed in seeds]
    row: dict[str, object] = {"policy": policy, "rate": rate, "rate_rps": rate_rps, "loads": loads}
    for name, digits in _FIGURES.items():
        row |= columns(name, [one[name] for one in runs], digits)
    return row


_FIGURES = {"goodput_rps": 3, "refused": 5, "late": 5, "broken": 5, "cold": 4, "evictions": 0}


def run_once(settings: Settings, policy: str, rate_rps: float, seed: int, *, knows: bool) -> Recording:
    """One run. Devices load at their true rate; who does not know it believes that loads take no time."""
    true = scenario(settings, rate_rps)
    told = true if knows else scenario(settings, rate_rps, are_loads_free=True)
    recording = simulate(told, policy, seed=seed, physics=Physics(true, seed))
    assert not recording.refusals, recording.refusals[0]
    return recording


def figures(recording: Recording) -> dict[str, float]:
    """Of the requests after the warm-up: answers in time per second, and shares.

    `refused` is of all requests. `late` and `broken` (late, or dropped after it was admitted) are of the admitted ones.
    `cold` is the share of kernels' runs that loaded something first.
    """
    asked = recording.requests.filter(pl.col("arrival") >= recording.warmup_s)
    admitted = asked.filter(pl.col("outcome") != "rejected")
    answered = admitted.filter(pl.col("outcome") == "completed")
    in_time = answered.filter(pl.col("end") <= pl.col("deadline") + 1e-9).height
    runs = recording.invocations.filter((pl.col("device") >= 0) & (pl.col("outcome") == "done"))
    most = max(1, admitted.height)
    return {
        "goodput_rps": in_time / (recording.duration_s - recording.warmup_s),
        "refused": 1 - admitted.height / asked.height,
        "late": (answered.height - in_time) / most,
        "broken": (admitted.height - in_time) / most,
        "cold": runs.filter(pl.col("cold_s") > 0).height / max(1, runs.height),
        "evictions": float(sum(device.evictions for device in recording.device_memory)),
    }


def scenario(settings: Settings, rate_rps: float, *, are_loads_free: bool = False) -> Scenario:
    """Eight workflows of a CPU function, a model and a CPU function, and one that runs two models side by side."""
    count, share = settings["models"], settings["pair_share"]
    models = [f"model-{i + 1}" for i in range(count)]
    shares = [(i + 1) ** -settings["skew"] for i in range(count)]
    node: dict[str, Any] = {**settings["node"]}
    if are_loads_free:
        node |= {"load_gb_per_s": float("inf"), "allocation_s": 0.0, "executor_start_s": 0.0}
    workflows: dict[str, object] = {
        f"ask-{model}": {
            "stages": {"prepare": [], model: ["prepare"], "label": [model]},
            "slo": {"latency_s": settings["slo_s"]},
        }
        for model in models
    }
    rates = {
        f"ask-{model}": (1 - share) * rate_rps * own / sum(shares) for model, own in zip(models, shares, strict=True)
    }
    workflows["pair"] = {
        "stages": {"prepare": [], **{model: ["prepare"] for model in models[:2]}, "label": models[:2]},
        "slo": {"latency_s": settings["pair_slo_s"]},
    }
    rates["pair"] = share * rate_rps
    overrides = {
        "cluster": {"nodes": [node]},
        "functions": {
            "prepare": settings["prepare"], "label": settings["label"], **dict.fromkeys(models, settings["model"])
        },
        "workflows": workflows,
        "arrivals": [{"workflow": name, "process": "poisson", "rate_rps": rate} for name, rate in rates.items()],
        "warmup_s": settings["warmup_s"],
        "duration_s": settings["duration_s"],
    }  # fmt: skip
    return load_scenario(_BASE, overrides=overrides)


def judge(rows: Rows) -> Iterator[Claim]:
    """Promises are kept, and knowing of loads yields more answers in time."""
    settings = read_settings(__package__)
    for policy in dict.fromkeys(row["policy"] for row in rows):
        knows = select(rows, policy=policy, loads=KNOWS)
        for figure, what, bar in (
            ("late", "late", settings["most_late"]),
            ("broken", "late, or dropped after they were admitted", settings["most_broken"]),
        ):
            yield decide(
                f"{policy}: admitted requests that are {what}",
                at_most(bar, f"at most {bar:.0%} of the admitted, at every rate"),
                *(measured(row, figure) for row in knows),
                paper="left open (UCB/EECS-2022-88)",
                ours={row["rate"]: measured(row, figure).text(2, 100) + " %" for row in knows},
                kind="own",
            )
        for row in knows:
            (other,) = select(rows, policy=policy, loads=IGNORES, rate=row["rate"])
            yield decide(
                f"{policy}, {row['rate']}: answers in time with knowledge of loads over those without",
                above(0, "more, seed by seed"),
                difference(row, other, "goodput_rps"),
                paper="left open (UCB/EECS-2022-88)",
                ours=" against ".join(measured(one, "goodput_rps").text() for one in (row, other)) + " per second",
                kind="own",
            )


def _notes(settings: Settings, seeds: Sequence[int]) -> Iterator[str]:
    yield f"{origin(seeds)} Simulated; {settings['duration_s']} s each, the first {settings['warmup_s']} not counted."
    yield (
        "Without knowledge of loads, a policy believes that a device loads at once; what devices do is the same. It "
        "still sees what is warm and what finishes when."
    )
    yield (
        "late and broken are shares of the admitted requests; broken are those that were late or dropped later. "
        "Answers in time are counted against all requests."
    )
