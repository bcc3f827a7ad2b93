"""One contestant, served for real: `fairlead serve` on emulated nodes, pressed on as the schedule says."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import msgspec
import polars as pl
import yaml

from fairlead.engine.live.limits.places import find_places
from fairlead.engine.live.status import AppStatus
from fairlead.experiments.darly_live.asking import Asked, ask_on_time
from fairlead.experiments.live_bench import busy_share, scaler_options, serving, settle, status_of
from fairlead.experiments.video_bench import ask
from fairlead.monitor import Place
from fairlead.report.live import read_live_run
from fairlead.stress import Schedule, run_schedule

_LOOK_EVERY_S = 1.0
_BUSY_LOOK_S = 2.0  # how long the machine is watched before the schedule begins
_WARM_UP_LIMIT_S = 60.0

_APP = """\
from fairlead.video.versions import make_app

app = make_app(1, name="video", slo={slo_s}, items=({frames}, {frames}))
"""

SIGNALS = ("pressure", "c0", "psi_cpu", "wait_share", "throttled")
"""What is noted of each node."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the monitor said of the nodes at an instant of the schedule: by node, by signal."""

    at_s: float
    nodes: Mapping[str, Mapping[str, float]]


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that became ready: of which function, on which node, and since which second of the schedule."""

    function: str
    node: str
    ready_s: float


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a function takes of one request before the schedule: CPU time, and the time of its calls one by one."""

    cpu_s: float
    calls_s: float


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one contestant.

    `cpu_s` is CPU time by function over the schedule, starts of instances included; `costs` what a request takes where
    nobody disturbs. `busy_before` is the share of all cores' time in use right before the schedule, so by others;
    `overhead` the share of one core that watching the nodes takes.
    """

    asked: Sequence[Asked]
    seen: Sequence[Seen]
    stays: Sequence[Stay]
    cpu_s: Mapping[str, float]
    costs: Mapping[str, Cost]
    busy_before: float
    overhead: float

    @property
    def moves(self) -> int:
        """How often a function's newest instance was on another node than the one before it, during the schedule."""
        count = 0
        for function in {stay.function for stay in self.stays}:
            own = sorted((stay for stay in self.stays if stay.function == function), key=lambda stay: stay.ready_s)
            count += sum(later.node != earlier.node and later.ready_s >= 0 for earlier, later in pairwise(own))
        return count


def prepare_files(folder: Path, settings: Mapping[str, Any]) -> None:
    """The app, its measured profile and the nodes, as `fairlead serve` takes them."""
    (folder / "video.py").write_text(_APP.format_map(settings), encoding="utf-8")
    profile = (files(__package__) / "profile.json").read_text(encoding="utf-8")
    (folder / "video.profile.json").write_text(profile, encoding="utf-8")
    (folder / "nodes.yaml").write_text(yaml.safe_dump({"nodes": settings["nodes"]}), encoding="utf-8")


def serve_and_press(
    folder: Path, settings: Mapping[str, Any], contestant: Mapping[str, Any], schedule: Schedule
) -> Served:
    """Serve the app under a contestant, press and ask as the schedule says, and end it."""
    state = folder / "state"
    shutil.rmtree(state, ignore_errors=True)
    options = ["--nodes", str(folder / "nodes.yaml"), *_options(settings, contestant)]
    results = {"FAIRLEAD_STORE": (folder / "results").as_uri()}
    with serving(folder / "video.py", state, options, results) as address:
        settle(address, is_scaled=contestant["scaler"] is not None)
        first = status_of(address)
        with _looking(address) as seen:
            for _ in range(settings["warm_up"]):
                ask(address, settings["frames"], _WARM_UP_LIMIT_S)
            before = status_of(address)
            with busy_share() as busy_before:
                sleep(_BUSY_LOOK_S)
            begin = status_of(address)
            with _pressing(schedule, _places(state)) as began:
                asked = ask_on_time(settings, schedule.seconds, began, address)
        after = status_of(address)
    assert after.monitor is not None
    recording = read_live_run(state / "runs" / "1")
    calls = recording.invocations.filter(pl.col("end") < before.uptime_s, pl.col("end") > first.uptime_s)
    return Served(
        asked=asked,
        seen=[msgspec.structs.replace(one, at_s=one.at_s - began) for one in seen],
        stays=_stays(recording.instances, begin.uptime_s, after.uptime_s),
        cpu_s=_cpu_s(begin, after),
        costs=_costs(_cpu_s(first, before), calls, settings["warm_up"]),
        busy_before=busy_before[0],
        overhead=after.monitor.overhead,
    )


def _options(settings: Mapping[str, Any], contestant: Mapping[str, Any]) -> list[str]:
    found = ["--policy", settings["dispatcher"], "--monitor", "--drain", "1s"]
    if contestant["scaler"] is not None:
        found += scaler_options(contestant["scaler"], contestant["parameters"], settings["control_period"])
    return found


def _places(state: Path) -> list[Place]:
    """Where our nodes are: others may serve nodes of the same names, but ours are in the group of our gateway."""
    gateway = str(msgspec.json.decode((state / "gateway.json").read_bytes())["pid"])
    return [place for place in find_places() if place.cgroup and gateway in place.cgroup.parent.name.split("-")]


@contextmanager
def _pressing(schedule: Schedule, places: Sequence[Place]) -> Iterator[float]:
    """The schedule, from now on and beside what follows; gives when it began. Raises what it ended with."""
    began, stop, failures = Event(), Event(), list[BaseException]()

    def press() -> None:
        try:
            run_schedule(schedule, places, stop=stop, on_phase=lambda *_: began.set())
        except BaseException as error:
            failures.append(error)
        finally:
            began.set()

    thread = Thread(target=press, name="pressure")
    thread.start()
    try:
        began.wait()
        if not failures:
            yield monotonic()
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


@contextmanager
def _looking(address: str) -> Iterator[list[Seen]]:
    """What the monitor says, every second and beside what follows; instants are of the monotonic clock."""
    stop, seen = Event(), list[Seen]()

    def look() -> None:
        while not stop.wait(_LOOK_EVERY_S):
            nodes = status_of(address).nodes
            values = {
                node.name: {name: node.signals[name] for name in SIGNALS if name in node.signals} for node in nodes
            }
            seen.append(Seen(at_s=monotonic(), nodes=values))

    thread = Thread(target=look, name="looking")
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def _stays(instances: pl.DataFrame, begin: float, end: float) -> list[Stay]:
    """Every instance that became ready, by the seconds of the schedule."""
    rows = instances.filter(pl.col("ready") < end).iter_rows(named=True)
    return [Stay(function=row["function"], node=row["node"], ready_s=row["ready"] - begin) for row in rows]


def _cpu_s(before: AppStatus, after: AppStatus) -> dict[str, float]:
    """CPU time of each function between two looks."""
    used = {function.name: function.cpu_s or 0.0 for function in before.functions}
    return {function.name: (function.cpu_s or 0.0) - used[function.name] for function in after.functions}


def _costs(cpu_s: Mapping[str, float], calls: pl.DataFrame, requests: int) -> dict[str, Cost]:
    spans = calls.select("function", took=pl.col("end") - pl.col("start") - pl.col("cold_s"))
    took_s = dict(spans.group_by("function").sum().iter_rows())
    return {
        name: Cost(cpu_s=seconds / requests, calls_s=took_s.get(name, 0.0) / requests)
        for name, seconds in cpu_s.items()
    }
