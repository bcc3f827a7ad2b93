"""The loads that tell what a machine costs: about 20 s, in gateways of their own."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import copyfile
from time import process_time, sleep, time

import msgspec

from fairlead.app.describe import describe
from fairlead.calibrate.fit import Sample, make_host
from fairlead.calibrate.serving import Gateway, ServingError, is_measurable, served
from fairlead.calibrate.speed import SpeedProbe
from fairlead.engine.core import events as ev
from fairlead.engine.live.eventlog import decode_instant
from fairlead.engine.live.measuring import Effort, measure_app
from fairlead.engine.live.measuring.machine import OthersMeter
from fairlead.load import Closed, Open, Plan, run_load
from fairlead.profile.host import MachineProfile, cpu_name
from fairlead.report.live import latest_run
from fairlead.runlog import Kind, read_frames, read_head

POLICIES = ("fairlead", "earliest-deadline", "clockwork")
"""Whose decision times are measured besides that of the reference, if nothing is said."""

REFERENCE = "fifo"
_BETWEEN_S = 0.1
_EFFORT = Effort(budget_s=3.0, cold_starts=1)  # for the functions alone
_LARGE = 256 << 10  # letters of the input of the load `large`

Tell = Callable[[float, str], None]
"""Is told the share that is done, and what is being measured."""


class _Load(msgspec.Struct, frozen=True, kw_only=True):
    """A name, the workflow, and who calls it how."""

    name: str
    workflow: str
    arrivals: Open | Closed
    body: bytes = b'{"input":1}'
    deadline_s: float = 10.0
    seconds: float = 1.2


_REFERENCE_LOADS = (
    _Load(name="hop", workflow="single", arrivals=Closed(1)),
    _Load(name="single", workflow="single", arrivals=Closed(32)),
    _Load(name="chain", workflow="chain", arrivals=Closed(32)),
    _Load(name="brisk", workflow="single", arrivals=Open(rate_rps=250)),
    _Load(name="slow", workflow="single", arrivals=Open(rate_rps=50)),
    _Load(name="large", workflow="single", arrivals=Closed(2), body=b'{"input":"%b"}' % (b"x" * _LARGE)),
)
_POLICY_LOADS = (_Load(name="chain", workflow="chain", arrivals=Closed(8)),)
_FIRST_POLICY_LOADS = (
    *_POLICY_LOADS,
    _Load(name="many", workflow="many", arrivals=Closed(64)),
    _Load(name="refused", workflow="spin", arrivals=Closed(32), body=b'{"input":400000}', deadline_s=0.001),
)


def calibrate(policies: Sequence[str] = POLICIES, tell: Tell = lambda share, doing: None) -> MachineProfile:
    """Measure this machine.

    Raises:
        ServingError: A gateway does not start, or the machine does not tell CPU times.
    """
    if not is_measurable():
        raise ServingError("This machine does not tell the CPU time of a process exactly enough (/proc/PID/schedstat).")
    others = [name for name in dict.fromkeys(policies) if name != REFERENCE]
    rounds = 1 + len(others)
    watch = OthersMeter()
    with tempfile.TemporaryDirectory(prefix="fairlead-") as name, SpeedProbe() as probe:
        folder = Path(name)
        app = small_app(folder)
        tell(0.0, "a function that does nothing")
        manifest = describe(app)
        profiles = asyncio.run(measure_app(str(app), manifest, effort=_EFFORT, functions=["one"])).profiles
        tell(0.1, f"the gateway under {REFERENCE}")
        samples = _measure(app, folder, REFERENCE, _REFERENCE_LOADS)
        found: dict[str, dict[str, Sample]] = {}
        for i, policy in enumerate(others):
            tell(0.2 + 0.8 * (i + 1) / rounds, f"the gateway under {policy}")
            found[policy] = _measure(app, folder, policy, _POLICY_LOADS if i else _FIRST_POLICY_LOADS)
    cores = len(os.sched_getaffinity(0))
    hop = profiles.functions["one"].points[0]
    host = make_host(cores, samples, found, REFERENCE, hop.mean_s if hop.p50_s is None else hop.p50_s)
    host = msgspec.structs.replace(host, spin_s=probe.spin_s or 0.0)
    return MachineProfile(cpu=cpu_name(), others_share=watch.share(), host=host)


def small_app(folder: Path) -> Path:
    """The app that is served to measure a machine, in this folder."""
    app = folder / "calibration.py"
    copyfile(Path(__file__).with_name("app.py"), app)
    return app


def served_loads(app: Path, folder: Path, options: Sequence[str]) -> dict[str, Sample]:
    """The loads of the reference policy, served with these further options of `fairlead serve`."""
    return _measure(app, folder, REFERENCE, _REFERENCE_LOADS, options)


def _measure(
    app: Path, folder: Path, policy: str, loads: Sequence[_Load], options: Sequence[str] = ()
) -> dict[str, Sample]:
    """One gateway, its loads one after the other, and what its records tell of each."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        marks: list[tuple[_Load, float, float, float, float]] = []
        with served(app, place, policy, options) as gateway:
            for load in loads:
                began = time()
                gateway_s, client_s = _run(gateway, load)
                marks.append((load, began, time(), gateway_s, client_s))
                sleep(_BETWEEN_S)
            state = gateway.state
        run = latest_run(state)
        if run is None:
            raise ServingError("the gateway left no records, so that nothing can be said of it.")
        instants = _instants(run)
        zero = read_head(run).started_unix
    samples = {}
    for load, began, ended, gateway_s, client_s in marks:
        inside = [(now, events) for now, events in instants if began - zero <= now <= ended - zero]
        finished = [event for _, events in inside for event in events if isinstance(event, ev.Finished)]
        samples[load.name] = Sample(
            load=load.name,
            duration_s=load.seconds,
            requests=max(1, sum(isinstance(event, ev.Arrived) for _, events in inside for event in events)),
            turns=max(1, len(inside)),
            batches=len(finished),
            gateway_cpu_s=gateway_s,
            client_cpu_s=client_s,
            runs_s=tuple(event.work_s + event.transfer_s for event in finished) or (0.0,),
            mb=2 * len(load.body) / 2**20,
        )
    return samples


def _run(gateway: Gateway, load: _Load) -> tuple[float, float]:
    plan = Plan(arrivals=load.arrivals, duration_s=load.seconds, deadline_s=load.deadline_s, body=load.body)
    gateway_s, client_s = gateway.cpu_s(), process_time()
    run_load(f"{gateway.url}/v1/workflows/{load.workflow}", plan)
    return gateway.cpu_s() - gateway_s, process_time() - client_s


def _instants(run: Path) -> list[tuple[float, list[ev.Event]]]:
    return [
        decode_instant(entry) for frame in read_frames(run) if frame.kind == Kind.INSTANTS for entry in frame.entries
    ]
