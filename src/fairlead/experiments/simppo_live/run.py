"""Serve four functions under each scaler in turn, with the same arrivals, and compare what came of it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import Claim, at_least, below, decide, paired, sampled
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, select
from fairlead.experiments.simppo_live.serving import Served, prepare_app, serve_and_load
from fairlead.policy.simppo.policy import SHIPPED
from fairlead.report.figure import line_figure

LEARNED = "simppo"
BUSY = 0.25
"""Share of all cores' time in use by others from which on a live comparison is none."""

_NOT_PUBLISHED = "not published: the slides' figures are from an OpenWhisk cluster"

Runs = Mapping[str, Sequence[Served]]  # by scaler, in the order of the repeats


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Attainment, latency and CPU time of every scaler on real processes."""
    settings = read_settings(__package__)
    repeats, duration_s = (settings[f"quick_{key}" if quick else key] for key in ("repeats", "duration_s"))
    notes = []
    with TemporaryDirectory(prefix="fairlead-live-") as folder:
        app = prepare_app(Path(folder))
        scalers = dict(settings["scalers"])
        if LEARNED in scalers and not SHIPPED.is_file():
            notes.append(f"simppo is left out: there is no network of trained agents ({SHIPPED.name}).")
            del scalers[LEARNED]
        runs: dict[str, list[Served]] = {name: [] for name in scalers}
        for repeat in range(repeats):
            # In turn from another one each time: what the machine does besides must not always hit the same.
            names = list(scalers)
            for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
                runs[name].append(serve_and_load(app, settings, scalers[name], duration_s, repeat))
                done = sum(map(len, runs.values())) / (repeats * len(scalers))
                progress(done, f"{name}, repeat {repeat + 1}")
    return Reproduction(
        name="simppo-live",
        title="Scalers live: four real functions on this machine, the same wandering load under each",
        rows=tuple(
            row(settings, name, repeat, served) for name, own in runs.items() for repeat, served in enumerate(own)
        ),
        notes=(*notes, *_notes(settings, duration_s, repeats, runs)),
        figures=(_figure(runs),),
    )


def row(settings: Mapping[str, Any], scaler: str, repeat: int, served: Served) -> dict[str, object]:
    """One run as a row of the table."""
    found: dict[str, object] = {"scaler": scaler, "repeat": repeat, "requests": _offered(served)}
    found["attainment"] = round(attainment(served), 4)
    for name in settings["rates_rps"]:
        p99_s = served.loads[name].latency.p99_s
        found[f"p99_ms_{name}"] = None if p99_s is None else round(p99_s * 1000, 1)
    found["cpu_s"] = round(served.cpu_s, 2)
    found["held_vcpu_s"] = round(served.held_vcpu_s, 1)
    found["most_replicas"] = max((one.replicas for one in served.scaling), default=0)
    found["fewest_ready"] = fewest_ready(served)
    found["machine_busy"] = round(served.machine_busy, 3)
    found["busy_before"] = round(served.busy_before, 3)
    found["generator_lag_ms"] = round(1000 * max(load.lag.p99_s or 0.0 for load in served.loads.values()), 1)
    return found


def judge(rows: Rows) -> Iterator[Claim]:
    """What is to be seen, over the repeats; none of it was published."""
    scalers = list(dict.fromkeys(row["scaler"] for row in rows))
    busy = max(row["busy_before"] for row in rows)
    note = None
    if busy > BUSY:
        note = f"Of all cores' time up to {busy:.0%} was in use before the loads: others worked, and this says little."

    def of(figure: str) -> dict[str, list[float]]:
        return {scaler: [float(row[figure]) for row in select(rows, scaler=scaler)] for scaler in scalers}

    fewest = of("fewest_ready")
    yield decide(
        "No function is without a started replica at the end of any control period under load",
        at_least(1, "at least 1 under every scaler, over the repeats"),
        *(sampled(values) for values in fewest.values()),
        paper="required of a scaler here; not published",
        ours={scaler: min(values) for scaler, values in fewest.items()},
        kind="own",
    )
    if LEARNED not in scalers:
        return
    for what, figure, rule in (
        ("answers as many in time as", "attainment", at_least(-0.01, "at most 0.01 behind, repeat by repeat")),
        ("holds fewer vCPU-seconds than", "held_vcpu_s", below(0, "fewer, repeat by repeat")),
        ("uses fewer CPU-seconds than", "cpu_s", below(0, "fewer, repeat by repeat")),
    ):
        values = of(figure)
        yield decide(
            f"simppo {what} each of its rivals",
            rule,
            *(paired(values[LEARNED], values[rival]) for rival in scalers if rival != LEARNED),
            paper=_NOT_PUBLISHED,
            ours={scaler: spread(own) for scaler, own in values.items()},
            kind="own",
            note=note,
        )


def attainment(served: Served) -> float:
    """Share of all requests, of all functions, that were answered in time."""
    return sum(load.in_time for load in served.loads.values()) / max(1, _offered(served))


def fewest_ready(served: Served) -> int:
    """The fewest started replicas that any function had at the end of a control period under load."""
    return min((one.ready for one in served.scaling if one.now >= 0), default=0)


def spread(values: Sequence[float]) -> str:
    """The mean, and from what to what it went."""
    if len(values) == 1:
        return f"{values[0]:.3g}"
    return f"{mean(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def _offered(served: Served) -> int:
    return sum(load.offered for load in served.loads.values())


def _figure(runs: Runs) -> Figure:
    title = "vCPUs held under the wandering load"
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, own in runs.items():
        held: dict[float, float] = {}
        for one in own[0].scaling:
            if one.now >= 0:
                held[one.now] = held.get(one.now, 0.0) + one.vcpus
        lines[name] = list(held.items())
    svg = line_figure(title, lines, x_label="seconds of the first repeat", y_label="vCPUs of all functions")
    return Figure(name="simppo-live-vcpus", title=title, svg=svg)


def _notes(settings: Mapping[str, Any], duration_s: float, repeats: int, runs: Runs) -> list[str]:
    every = [served for own in runs.values() for served in own]
    during, before = ([getattr(served, name) for served in every] for name in ("machine_busy", "busy_before"))
    return [
        f"{repeats} repeat(s) of {duration_s:g} s per scaler, the first {settings['warm_up_s']} s not counted, control "
        f"period {settings['control_period']}; the same arrival instants under every scaler.",
        "Measured, not simulated: numbers depend on the machine and on what else it does. All functions together need "
        "about one core; gateway, load generator and starting instances take their part of the rest, so on two cores "
        f"contention is real. Of all cores' time, {spread(before)} was in use before the loads and {spread(during)} "
        "under them.",
        "cpu_s is CPU time of the instances by their control groups, starts included; held_vcpu_s what they were "
        "given. Both count the whole load, its first seconds included.",
    ]
