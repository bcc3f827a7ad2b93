"""Throughput against clients on two real devices: served kernels, actors that own a device, and the simulator."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import perf_counter

from fairlead.experiments.cases import Progress, Settings, read_settings
from fairlead.experiments.kaas_alone import Alone, Times, for_all, with_decisions, with_delays
from fairlead.experiments.kaas_clients import clients_of
from fairlead.experiments.kaas_live.claims import judge
from fairlead.experiments.kaas_live.predicting import Session, actors, figures_of, kernels, predict
from fairlead.experiments.kaas_live.starting import measure_starts, place_of
from fairlead.experiments.kaas_pools import Actors, Place
from fairlead.experiments.kaas_served import Asker, Span, live_records, served_clients
from fairlead.experiments.live_bench import busy_share
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import columns
from fairlead.kaas.graphs import Example
from fairlead.model import Recording
from fairlead.profile import Host
from fairlead.report.figure import line_figure
from fairlead.workload import Scenario

__all__ = ["judge", "run"]

_DIGITS = {"rps": 3, "p50_ms": 3, "hit_share": 5, "evictions_per_run": 5}

Row = dict[str, object]
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Served:
    """What was measured of served kernels under one policy: points by number of clients, and one client alone."""

    way: str
    policy: Mapping[str, object]
    session: Session  # what was asked
    recording: Recording
    points: Mapping[int, Sequence[Span]]
    alone: Alone
    busy: float  # share of the CPUs that was in use


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Starts, served kernels under each policy, and actors; then what the simulator says of the same."""
    settings = read_settings(__package__)
    clients = clients_of([settings["model"]], settings["most_clients"])
    rows: list[Row] = []
    served = []
    with TemporaryDirectory(prefix="fairlead-kaas-live-") as name:
        folder = Path(name)
        place = place_of(settings["devices"], folder / "actors")
        rows.append(starts(place, clients))
        progress(0.1, "cold, cached and warm starts")
        for i, (way, policy) in enumerate(settings["ways"].items()):
            served.append(serve(settings, folder / f"served-{i}", way, policy, quick=quick))
            progress(0.1 + 0.2 * (i + 1), way)
        acted = asyncio.run(act(settings, place, clients, quick=quick))
    for each in served:
        rows += beside_prediction(settings, each, clients)
        progress(0.9, f"prediction of {each.way}")
    rows += acted
    return reproduction(settings, rows, quick=quick)


def reproduction(settings: Settings, rows: Sequence[Row], *, quick: bool) -> Reproduction:
    """The rows with notes and the picture."""
    return Reproduction(
        name="kaas-live",
        title="KaaS live: up to 16 clients on two PoCL devices whose memory holds ten",
        rows=tuple(rows),
        notes=tuple(_notes(settings, quick=quick)),
        figures=(_figure(rows),),
    )


def starts(place: Place, clients: Mapping[str, Example]) -> Row:
    """The row of cold, cached and warm starts."""
    return {"way": "starts", **{kind: round(value, 5) for kind, value in measure_starts(place, clients).items()}}


def serve(settings: Settings, folder: Path, way: str, policy: Mapping[str, object], *, quick: bool) -> Served:
    """Measure one client alone, and then every point."""
    repeats, seconds, counts = (settings[f"quick_{key}" if quick else key] for key in ("repeats", "seconds", "clients"))
    points: dict[int, list[Span]] = {count: [] for count in counts}
    with (
        busy_share() as busy,
        served_clients(folder, [settings["model"]], settings["most_clients"], settings["devices"], policy) as asker,
    ):
        seen = asker.one_by_one(asker.clients)  # compiled and written once
        for _ in range(settings["rounds"] - 1):
            asker.one_by_one(asker.clients)
        users = 1, len(settings["devices"]["names"]), settings["alone_outstanding"]
        alone: dict[int, list[Span]] = {outstanding: [] for outstanding in users}
        for _ in range(repeats):
            for outstanding, spans in alone.items():
                spans.append(_alone(asker, settings, outstanding))
            for count in counts:
                _point(asker, count, settings["outstanding"], settings["settle_s"])
                points[count].append(_point(asker, count, settings["outstanding"], seconds))
    first = asker.clients[0]
    one, two, many = alone.values()
    return Served(
        way=way,
        policy=policy,
        session=Session(
            asker.clients,
            settings["rounds"],
            list(counts) * repeats,
            settings["outstanding"],
            settings["settle_s"],
            seconds,
        ),
        recording=live_records(folder),
        points=points,
        alone=Alone({first: one}, {first: two}, {first: many}, users, (seen.end, many[0].end)),
        busy=busy[0],
    )


def beside_prediction(settings: Settings, served: Served, clients: Mapping[str, Example]) -> Iterator[Row]:
    """What the simulator was given, and each point beside its prediction."""
    alone, recording, session, policy = served.alone, served.recording, served.session, served.policy
    (first,) = alone.one
    host = alone.host(recording)
    times = alone.times(recording, host)[first]

    def scenario_of(host: Host, arrivals: Sequence[Mapping[str, object]], end_s: float) -> Scenario:
        own = dict.fromkeys(clients, times)
        return kernels(clients, own, host, settings["devices"], policy, arrivals, duration_s=end_s)

    few = replace(session, counts=tuple(served.points), seconds=settings["predicted"]["decisions_s"])
    host = with_decisions(host, scenario_of(host, few.arrivals(), few.end_s))
    host = for_all(with_delays(host, alone, recording, scenario_of), first, clients)
    scenario = scenario_of(host, session.arrivals(), session.end_s)
    told = [session.figures(predict(scenario, seed)) for seed in settings["predicted"]["seeds"]]
    given = _given(times, host, policy)
    yield {"way": served.way, "profile": True, "busy": round(served.busy, 3), **given}
    for i, (count, spans) in enumerate(served.points.items()):
        live = [_answered(figures_of(recording, one.begin, one.end), one) for one in spans]
        predicted = [point for run in told for point in run[i :: len(served.points)]]
        row: Row = {"way": served.way, "clients": count, "printed_rps": _printed(settings, count)}
        for figure, digits in _DIGITS.items():
            row |= columns(figure, [one[figure] for one in live], digits)
            row[f"{figure}_predicted"] = round(sum(one[figure] for one in predicted) / len(predicted), digits)
        yield row


def _given(times: Times, host: Host, policy: Mapping[str, object]) -> dict[str, float]:
    """The columns of what the simulator was given, in seconds."""
    name = str(policy["dispatch"])
    gateway_s = host.request_s + host.answer_s + 2 * (host.turn_s + host.decision_s[name]) + host.send_s + host.end_s
    first = next(iter(host.run_delay_s))
    found = {**asdict(times), "gateway_s": gateway_s, "client_s": host.client_s}
    found |= {"decision_s": host.decision_s[name], "decision_waiting_s": host.decision_waiting_s[name]}
    found |= {"delay_s": fmean(host.run_delay_s[first]), "delay_busy_s": fmean(host.run_delay_busy_s[first])}
    return {key: round(value, 7) for key, value in found.items()}


def _alone(asker: Asker, settings: Settings, outstanding: int) -> Span:
    asker.closed(asker.clients[:1], outstanding, settings["settle_s"])
    return asker.closed(asker.clients[:1], outstanding, settings["profile_s"])


def _point(asker: Asker, count: int, outstanding: int, seconds: float) -> Span:
    return asker.closed(asker.clients[:count], outstanding, seconds)


def _answered(figures: Figures, span: Span) -> Figures:
    """The figures with the latency that clients saw, in place of the gateway's."""
    latencies = sorted(span.all_s)
    return {**figures, "p50_ms": 1000 * latencies[len(latencies) // 2]}


async def act(settings: Settings, place: Place, clients: Mapping[str, Example], *, quick: bool) -> list[Row]:
    """Points of actors: each client's process owns a device, or a fixed part of one."""
    found = []
    for way, part in (("exclusive actors", settings["exclusive"]), ("static parts", settings["static"])):
        if quick and "quick_clients" not in part:
            continue
        for count in part["quick_clients" if quick else "clients"]:
            some = {name: clients[name] for name in list(clients)[:count]}
            runs = [
                await _act(settings, place, some, part["places"], settings["quick_seconds" if quick else "seconds"])
                for _ in range(settings["quick_repeats" if quick else "repeats"])
            ]
            row: Row = {"way": way, "clients": count}
            for figure, digits in (("rps", 3), ("p50_ms", 1), ("start_s", 4), ("run_s", 5)):
                values = [one[figure] for one in runs if one[figure] > 0]
                row |= columns(figure, values, digits) if values else {}
            if way == "exclusive actors" and "start_s" in row:
                run_s, start_s = float(str(row["run_s"])), float(str(row["start_s"]))
                names = list(some)
                scenario = actors(names, run_s, start_s, settings["devices"], settings["outstanding"], 40.0)
                told = predict(scenario, 0)
                row["rps_predicted"] = round(figures_of(told, told.warmup_s, told.duration_s)["rps"], 3)
            found.append(row)
    return found


async def _act(
    settings: Settings, place: Place, clients: Mapping[str, Example], places: int, seconds: float
) -> dict[str, float]:
    """One point: clients keep requests open; `start_s` is what a process takes from its start to its first answer."""
    taken: list[float] = []
    runs: list[float] = []
    async with Actors(place, clients, places=places) as pool:
        await asyncio.gather(*(pool.run(client) for client in clients))  # each has started once
        before = {client: use.cold for client, use in pool.uses.items()}
        began = perf_counter()
        until = began + seconds

        async def user(client: str) -> None:
            while perf_counter() < until:
                asked = perf_counter()
                answer = await pool.run(client)
                taken.append(perf_counter() - asked)
                runs.append(answer.timings.run_s)

        await asyncio.gather(*(user(client) for client in clients for _ in range(settings["outstanding"])))
        passed_s = perf_counter() - began
        starts = sum(use.cold - before[client] for client, use in pool.uses.items())
        spent_s = sum(use.loaded_s for use in pool.uses.values())
        colds = sum(use.cold for use in pool.uses.values())
    return {
        "rps": len(taken) / passed_s,
        "p50_ms": 1000 * sorted(taken)[len(taken) // 2],
        "start_s": spent_s / colds,
        "run_s": sorted(runs)[len(runs) // 2],
        "starts": starts,
    }


def _printed(settings: Settings, count: int) -> object:
    """What the authors have for as many clients, relative to the number that fits."""
    return settings["paper"]["flat"].get(count, "")


def _figure(rows: Sequence[Row]) -> Figure:
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.get("clients"):
            at = float(str(row["clients"]))
            curves.setdefault(str(row["way"]), []).append((at, float(str(row["rps"]))))
            if row.get("rps_predicted") is not None:
                curves.setdefault(f"{row['way']}, predicted", []).append((at, float(str(row["rps_predicted"]))))
    title = "Clients on two devices: throughput"
    svg = line_figure(title, curves, x_label="clients", y_label="requests per second", is_log_y=True)
    return Figure(name="kaas-live", title=title, svg=svg)


def _notes(settings: Settings, *, quick: bool) -> Iterator[str]:
    repeats, seconds = (settings[f"quick_{key}" if quick else key] for key in ("repeats", "seconds"))
    yield (
        f"Measured: {repeats} repeat(s) of {seconds:g} s per point; every client keeps {settings['outstanding']} "
        "requests open. Kernels are served by `fairlead serve` and asked over HTTP; actors are run by a small program "
        "without a gateway."
    )
    yield (
        "The prediction knows what one client alone measured while it was served: the time of a run and of a load, and "
        "the CPU time of the gateway, the client and the device for a request. Decisions are timed in the simulator."
    )
    yield (
        "PoCL's two devices are the two cores of the machine, which also run the gateway and the clients. Comparable "
        "with the paper: the shape, not the figures."
    )
