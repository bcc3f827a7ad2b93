"""Throughput against clients for every way to share the GPUs, and what idle GPUs cost three kinds of user."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from fairlead.experiments.cases import Progress, origin, read_settings
from fairlead.experiments.kaas_contention.claims import GEMM, judge
from fairlead.experiments.kaas_contention.clients import answers, run_clients, throughput_rps
from fairlead.experiments.kaas_contention.costs import cost_rows
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import by_seed
from fairlead.model import Recording
from fairlead.report.figure import line_figure

__all__ = ["judge", "run"]

_COST_SHARE = 0.1  # of the progress


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Every model, way and number of clients; then the costs."""
    settings = read_settings(__package__)
    seeds = settings["quick_seeds" if quick else "seeds"]
    points = list(_points(settings, quick))
    rows: list[dict[str, object]] = []
    curves: dict[str, dict[str, dict[int, float]]] = {}
    for i, (model, way, count) in enumerate(points):
        judged = way in settings["judged"]["ways"] and count in settings["judged"]["clients"]
        runs = [run_clients(settings, model, way, count, seed) for seed in (seeds if judged else seeds[:1])]
        rates = [throughput_rps(recording) for recording in runs]
        curves.setdefault(model, {}).setdefault(way, {})[count] = fmean(rates)
        rows.append(_row(settings, model, way, count, rates, runs[0]))
        progress((1 - _COST_SHARE) * (i + 1) / len(points), f"{model}, {way}, {count} clients")
    cost = settings["cost"]
    costs = list(cost_rows(cost, seeds, cost["quick_duration_s" if quick else "duration_s"]))
    progress(1, "costs")
    return Reproduction(
        name="kaas-contention",
        title="KaaS under finite device memory: four GPUs, up to 32 clients",
        rows=(*rows, *costs),
        notes=_notes(settings, curves),
        figures=tuple(_figures(settings, curves, costs)),
    )


def _points(settings: Mapping[str, Any], quick: bool) -> Iterator[tuple[str, str, int]]:
    for model in settings["models"]:
        for way, how in settings["ways"].items():
            if model not in how.get("models", settings["models"]) or (quick and not how.get("is_quick", True)):
                continue
            counts = set(settings["quick_clients" if quick else "clients"])
            if model == GEMM:
                counts.update(settings["memory_clients"])
            for count in sorted(counts.intersection(how.get("clients", counts))):
                yield model, way, count


def _row(
    settings: Mapping[str, Any], model: str, way: str, count: int, rates: Sequence[float], recording: Recording
) -> dict[str, object]:
    """Throughput as the mean over the seeds; everything else is of the first."""
    served = answers(recording)
    row: dict[str, object] = {
        "model": model,
        "way": way,
        "clients": count,
        "rps": round(fmean(rates), 3),
        "rps_by_seed": by_seed(rates, 3),
        "printed_rps": settings["printed"].get(way, {}).get(model, {}).get(count, ""),
        "least_answers": served[0],
        "most_answers": served[-1],
        "cold_starts": int(recording.invocations["is_cold"].sum()),
    }
    if settings["ways"][way]["as"] == "kernel":
        use = recording.device_memory
        row |= {
            "hits": sum(device.hits for device in use),
            "compulsory_misses": sum(device.compulsory_misses for device in use),
            "capacity_misses": sum(device.capacity_misses for device in use),
            "evictions": sum(device.evictions for device in use),
        }
    return row


def _figures(
    settings: Mapping[str, Any],
    curves: Mapping[str, Mapping[str, Mapping[int, float]]],
    costs: Sequence[Mapping[str, Any]],
) -> Iterator[Figure]:
    for model, ways in curves.items():
        lines = {way: sorted(curve.items()) for way, curve in ways.items()}
        lines |= {
            f"{way}, published": sorted(of[model].items()) for way, of in settings["printed"].items() if way in ways
        }
        title = f"{model} on four GPUs: throughput against clients"
        name = f"contention-{model.lower().replace(' ', '-')}"
        yield Figure(
            name=name,
            title=title,
            svg=line_figure(title, lines, x_label="clients", y_label="requests per second", is_log_y=True),
        )
    users: dict[str, list[tuple[float, float]]] = {}
    for row in costs:
        users.setdefault(row["user"], []).append((row["utilisation"], row["usd_per_1000_requests"]))
    title = "What idle GPUs cost: USD per thousand requests"
    svg = line_figure(title, users, x_label="GPU utilisation by the tasks", y_label="USD", is_log_x=True, is_log_y=True)
    yield Figure(name="contention-cost", title=title, svg=svg)


def _notes(settings: Mapping[str, Any], curves: Mapping[str, Mapping[str, Mapping[int, float]]]) -> tuple[str, ...]:
    rivals = "; ".join(
        f"{way} {', '.join(f'{curve[count]:.1f}' for count in settings['memory_clients'])}"
        for way, curve in curves[GEMM].items()
    )
    return (
        origin(settings["seeds"]) + " Every client keeps 4 requests open; runs vary by 2 %.",
        "A kernel starts after loading what its device lacks: size / (8 GB/s) + 2 ms; the executor of a device takes "
        "2.65 s once. No memory is reserved: with the 300 MB that the authors keep free, six clients of 2.24 GB would "
        "fit, and the cliff would lie at 24. Their footprint was measured with the process around it.",
        f"{GEMM}, requests per second with 28, 29 and 32 clients: {rivals}. The cliff is as published if each client "
        "has a fixed home device, as in the authors' scheduler (here dealt in turn). A scheduler that looks at what is "
        "in memory serves the warm clients for a while before it swaps one in, and loses little; how evenly, say "
        "least_answers and most_answers, of any client in the time counted.",
        "Constants are what stays on a device: 98, 1278 and 2267 MB, none for Jacobi; the rest of each footprint is a "
        "run's. If all of BERT's 3.5 GB stayed, it would fall off a cliff at 17 clients, which is not published.",
        "static quarters: the time of a run on a quarter of a GPU is that which the published throughput of 16 clients "
        "implies, so only what happens beyond 16 is a result.",
        "Costs are those of a machine with 8 vCPUs at 0.034 USD per hour and a GPU at 60 times that. serverful: kept "
        "= machine x time - used. FaaS: used = (vCPU + GPU) x (run + cold start), kept = (vCPU + GPU) x idle until "
        "expiry, 600 s. KaaS: used = vCPU x host part + GPU x (load + copy + kernel), kept = vCPU x idle of the host.",
    )
