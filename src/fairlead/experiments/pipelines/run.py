"""Clipper and Cloudburst as they differ, what each optimisation does, and throughput against the size of batches."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from fairlead.experiments.cases import Case, Progress, Runs, measure, origin, read_settings
from fairlead.experiments.pipelines.claims import judge
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import by_seed
from fairlead.report.figure import line_figure

__all__ = ["judge", "run"]

Settings = Mapping[str, Any]
Row = dict[str, object]
Planned = tuple[Row, Case]

_WARM = {"functions.*.cold_start_s": 0}


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Table 3.1, the optimisations one by one and together, and figure 3.3."""
    settings = read_settings(__package__)
    seeds = range(settings["quick_seeds" if quick else "seeds"])
    planned = [*_table(settings, quick), *_latency(settings, quick), *_throughput(settings, quick)]
    found = measure([case for _, case in planned], seeds, progress)
    rows = tuple({**row, **_figures(str(row["part"]), found[case.name])} for row, case in planned)
    return Reproduction(
        name="pipelines",
        title="Ensemble and cascade of vision models: systems, optimisations, batches",
        rows=rows,
        notes=(
            origin(seeds),
            "Neither Clipper nor Cloudburst is run: table 3.1 is modelled. Cloudburst is the graph run in the cluster, "
            f"its models side by side, with {settings['table']['hop_s'] * 1e3:g} ms per scheduling decision. Clipper "
            "is a client that calls preprocessing and each model in turn through the front end, at "
            f"{settings['table']['call_s'] * 1e3:g} ms per call; both figures are assumed, and the rows have others.",
            "Times of ResNet-101 on the GPU are interpolated from published ones; AlexNet, Inception v3, all times on "
            "vCPUs, the share of images that the cascade passes on (40 %) and the noise of ResNet are ours.",
            "Every instance is warm.",
        ),
        figures=tuple(_draw(rows)),
    )


def _table(settings: Settings, quick: bool) -> Iterator[Planned]:
    table = settings["table"]
    requests = table["quick_requests" if quick else "requests"]
    for pipeline, scenario in settings["scenarios"].items():
        base = {
            **_WARM,
            "cluster.nodes": [table["node"]],
            **{f"functions.{name}.space": {"vcpus": [table["vcpus"]]} for name in settings["models"][pipeline]},
            "arrivals": [_clients(1, table["pause_s"])],
            "duration_s": (requests + 0.5) * table["pause_s"],
            "warmup_s": 0,
            "functions.*.noise": table["noise"],
        }
        row: Row = {"part": "table 3.1", "pipeline": pipeline, "system": "Cloudburst"}
        yield row, Case(f"{pipeline}, Cloudburst", scenario, base | {"decision": {"fixed_s": table["hop_s"]}})
        for call_s in table["quick_calls_s" if quick else "calls_s"]:
            call = {"latency": {"constant_s": call_s}, "idle_holds": "memory"}
            stages = {"functions.call": call, "workflows.main.stages": table["clipper"][pipeline]}
            row = {"part": "table 3.1", "pipeline": pipeline, "system": "Clipper", "call_s": call_s}
            yield row, Case(f"{pipeline}, Clipper at {call_s * 1e3:g} ms", scenario, base | stages)


def _latency(settings: Settings, quick: bool) -> Iterator[Planned]:
    part = settings["latency"]
    (competitor,) = part["compete"]
    switches = list(product((False, True), (1, part["compete"][competitor]), ("none", part["batching"])))
    for (pipeline, scenario), (load, rates) in product(settings["scenarios"].items(), part["loads"].items()):
        base = {
            **_WARM,
            "arrivals.0.rate_rps": rates[pipeline],
            "duration_s": rates["quick_duration_s" if quick else "duration_s"],
            "warmup_s": part["warmup_s"],
        }
        more = [(False, copies, "none") for copies in part["copies"]] if load == "light" else []
        for fuse, copies, batching in dict.fromkeys([*switches, *more]):
            row: Row = {"part": "latency", "pipeline": pipeline, "load": load}
            row |= {"fusion": fuse, "copies": copies, "batching": batching}
            overrides = {
                "workflows.main.optimise": {"fuse": fuse, "compete": {competitor: copies}},
                "policy.batching": batching,
            }
            name = f"{pipeline}, {load}, fusion {'on' if fuse else 'off'}, {copies} copies, batching {batching}"
            yield row, Case(name, scenario, base | overrides)


def _throughput(settings: Settings, quick: bool) -> Iterator[Planned]:
    part = settings["throughput"]
    batches = part["quick_batches" if quick else "batches"]
    for (pipeline, scenario), (kind, where), batch in product(
        settings["scenarios"].items(), part["nodes"].items(), batches
    ):
        duration_s = where["quick_duration_s" if quick else "duration_s"]
        overrides = {
            **_WARM,
            "cluster.nodes": [where["node"]],
            **{
                f"functions.{name}.space": {"batch": [batch], **where["space"]} for name in settings["models"][pipeline]
            },
            "workflows.main.slo": {},
            # Without an objective the limit grows until batches are full.
            "policy": {"dispatch": "least-loaded", "batching": "aimd", "batch_wait_s": where["batch_wait_s"]},
            "arrivals": [_clients(part["users_per_batch"] * batch, 0)],
            "duration_s": duration_s,
            "warmup_s": duration_s * part["warmup_share"],
        }
        row: Row = {"part": "throughput", "pipeline": pipeline, "node": kind, "batch": batch}
        yield row, Case(f"{pipeline}, {kind}, batches of {batch}", scenario, overrides)


def _clients(users: int, pause_s: float) -> dict[str, object]:
    return {"workflow": "main", "process": "closed-loop", "users": users, "think_s": pause_s, "think": "constant"}


def _figures(part: str, runs: Runs) -> Row:
    """What is measured in each part, in ms or per second."""
    estimates = runs.estimates
    if part == "throughput":
        answers = "goodput_rps"
        return {
            "answers_rps": round(estimates[answers].mean, 2),
            "answers_rps_by_seed": by_seed(runs.by_seed(answers), 2),
        }
    figures = {"latency_ms": "latency_s.mean"}
    if part == "latency":
        figures |= {f"{name}_ms": f"latency_s.{name}" for name in ("p50", "p99")}
    row: Row = {name: round(estimates[path].mean * 1e3, 3) for name, path in figures.items()}
    if part == "latency":
        row["attainment"] = round(estimates["slo_attainment"].mean, 4)
        row["cost_usd_per_1000"] = round(estimates["cost_usd"].mean / estimates["requests"].mean * 1e3, 6)
    for name, path in figures.items():
        row[f"{name}_by_seed"] = by_seed((1e3 * value for value in runs.by_seed(path)), 3)
    return row


def _draw(rows: tuple[Row, ...]) -> Iterator[Figure]:
    answers: dict[str, list[tuple[float, float]]] = {}
    copies: dict[str, list[tuple[float, float]]] = {}
    calls: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["part"] == "throughput":
            point = (_number(row["batch"]), _number(row["answers_rps"]))
            answers.setdefault(f"{row['pipeline']}, {row['node']} node", []).append(point)
        elif row["part"] == "table 3.1":
            at = [_number(row["call_s"]) * 1e3] if "call_s" in row else [0.0, 60.0]
            line = calls.setdefault(f"{row['pipeline']}, {row['system']}", [])
            line += [(x, _number(row["latency_ms"])) for x in at]
        elif (row["load"], row["fusion"], row["batching"]) == ("light", False, "none"):
            for name in ("p50", "p99"):
                point = (_number(row["copies"]), _number(row[f"{name}_ms"]))
                copies.setdefault(f"{row['pipeline']}, {name}", []).append(point)
    title = "Throughput of one node against the size of batches"
    svg = line_figure(title, answers, x_label="batch size", y_label="answers per second", is_log_x=True, is_log_y=True)
    yield Figure(name="throughput-by-batch", title=title, svg=svg)
    title = "Latency against the number of competing copies of ResNet, light load"
    lines = {name: sorted(points) for name, points in copies.items()}
    yield Figure(name="latency-by-copies", title=title, svg=line_figure(title, lines, x_label="copies", y_label="ms"))
    title = "Mean latency against what a call through the front end costs"
    svg = line_figure(title, calls, x_label="ms per call", y_label="ms")
    yield Figure(name="latency-by-call", title=title, svg=svg)


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
