"""Sweep one setting at a time under every policy."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

from fairlead.experiments.cases import Case, Progress, Runs, measure, origin, read_settings
from fairlead.experiments.kaas_sweeps.claims import judge
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import by_seed

__all__ = ["judge", "run"]


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Mean waits, overall and by model, at every point of every sweep."""
    settings = read_settings(__package__)
    seeds = range(settings["quick_seeds" if quick else "seeds"])
    points = [
        (sweep, value, policy)
        for sweep, declared in settings["sweeps"].items()
        for value in declared["quick_values" if quick else "values"]
        for policy in settings["policies"]
    ]
    found = measure([_case(settings, *point) for point in points], seeds, progress)
    rows = [
        {"sweep": sweep, "value": value, "policy": policy}
        | _figures(settings, sweep, value, found[_name(sweep, value, policy)])
        for sweep, value, policy in points
    ]
    return Reproduction(
        name="kaas-sweeps",
        title="KaaS: mean waits against load, GPUs, cold-start time, execution time and clients",
        rows=tuple(rows),
        notes=(
            origin(seeds),
            "Load is sum(rate x execution time) / GPUs, with equal rates of both models; mode online.",
            "The report gives these sweeps as figures without numbers, so its side is what its text says of them.",
            "No effect means that the wait at the greatest value over that at the least is within a factor of 1.5, "
            "with its whole interval. Differences and ratios are taken seed by seed.",
        ),
    )


def _name(sweep: str, value: float, policy: str) -> str:
    return f"{sweep} {value:g}, {policy}"


def _case(settings: Mapping[str, Any], sweep: str, value: float, policy: str) -> Case:
    declared = settings["sweeps"][sweep]
    overrides: dict[str, object] = {"policy": settings["policies"][policy], **declared.get("settings", {})}
    overrides |= dict.fromkeys(declared.get("set", ()), value)
    overrides |= {key: number * value for key, number in declared.get("times", {}).items()}
    if declared.get("clients"):
        overrides |= _clients(settings, int(value))
    return Case(_name(sweep, value, policy), declared["scenario"], overrides)


def _clients(settings: Mapping[str, Any], count: int) -> dict[str, object]:
    """So many clients, alternately of each model, that share its load."""
    models = list(settings["loads"])
    workflows: dict[str, object] = {}
    arrivals: list[object] = []
    for i in range(count):
        model = models[i % len(models)]
        load = settings["loads"][model] * len(models) / count
        workflows[f"client-{i + 1}"] = {"stages": {model: []}}
        arrivals.append({"workflow": f"client-{i + 1}", "process": "poisson", "load": load})
    return {"workflows": workflows, "arrivals": arrivals}


def _figures(settings: Mapping[str, Any], sweep: str, value: float, runs: Runs) -> dict[str, object]:
    execution_s = mean(settings["execution_s"].values()) * (value if sweep == "execution time" else 1)
    estimates = runs.estimates
    wait, waits = estimates["wait_s.mean"], runs.by_seed("wait_s.mean")
    count = int(value) if sweep == "clients" else len(settings["loads"])
    figures = {
        "wait": wait.mean,
        "wait_per_execution": wait.mean / execution_s,
    }
    for i, model in enumerate(settings["loads"]):
        clients = range(i + 1, count + 1, len(settings["loads"]))
        figures[f"wait_{model}"] = mean(estimates[f"by_workflow.client-{k}.wait_s.mean"].mean for k in clients)
    figures |= {name: estimates[name].mean for name in ("cold_starts", "cache_hits", "cache_hit_ratio")}
    rounded: dict[str, object] = {name: round(figure, 4) for name, figure in figures.items()}
    rounded["wait_interval"] = None if wait.half_width is None else round(wait.half_width, 4)
    rounded["wait_by_seed"] = by_seed(waits)
    return rounded | {"wait_per_execution_by_seed": by_seed(w / execution_s for w in waits)}
