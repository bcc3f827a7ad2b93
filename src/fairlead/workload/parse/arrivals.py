"""The `arrivals` part of a scenario file: one entry per stream of requests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fairlead.errors import ConfigError, Fault
from fairlead.model import Cluster, Function, Workflow
from fairlead.profile import Profile
from fairlead.workload.arrivals import (
    AzureLike,
    Burst,
    ClosedLoop,
    Deterministic,
    Listed,
    MinuteCounts,
    Pillar,
    Poisson,
    UniformInterval,
    scale_counts,
)
from fairlead.workload.parse.load import rate_for_load
from fairlead.workload.parse.reader import Check, Section, choice, integer, number, one_of_names, text
from fairlead.workload.streams import OpenLoop, Share, Window

if TYPE_CHECKING:
    from fairlead.workload.azure import MinuteTrace

MAX_ARRIVALS = 1e9  # of one entry: beyond, the instants alone take more memory than a machine has

_WINDOW: dict[str, Check] = {"from_s": number, "until_s": number}
_CLOSED = "closed-loop"
_SPREAD = choice("uniform", "even", "start")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the entries refer to. `complete` says that all of it was read without a fault.

    `traces` keeps the files that were read, for the other points of a sweep.
    """

    workflow_names: tuple[str, ...] | None  # None where they are not known
    workflows: Mapping[str, Workflow]
    functions: Mapping[str, Function]
    profiles: Mapping[str, Profile]
    cluster: Cluster | None
    folder: Path
    complete: bool
    traces: dict[Path, "MinuteTrace"] = field(default_factory=dict)


Parse = Callable[[Section, str, Setting], OpenLoop | ClosedLoop | None]


def parse_arrivals(
    entries: list[Section], setting: Setting, duration_s: float, rate_scale: float
) -> list[OpenLoop | ClosedLoop]:
    """Every entry that is right, its rate multiplied by `rate_scale`."""
    found: list[OpenLoop | ClosedLoop] = []
    for stream, entry in enumerate(entries):
        parts = _parse_parts(entry, setting)
        workflow = parts[0][0] if parts else None
        arrivals = _parse_process(entry, workflow, setting, rate_scale)
        if arrivals is None:
            continue
        if not isinstance(arrivals, ClosedLoop):
            expected = arrivals.expected(duration_s)
            if expected > MAX_ARRIVALS:
                entry.fault(None, f"about {expected:.3g} requests would arrive; at most {MAX_ARRIVALS:.0e} can.")
        if len(parts) == 1:
            found.append(arrivals)
        elif isinstance(arrivals, ClosedLoop):
            entry.fault("workflows", "cannot be several for a closed loop, whose users call one workflow each.")
        else:
            found += _shares(arrivals, parts, stream)
    return found


def _parse_parts(entry: Section, setting: Setting) -> list[tuple[str, float]]:
    """Whom an entry calls, and how often each of them; empty where that is wrong."""
    if "workflows" not in entry:
        workflow = entry.known_name("workflow", setting.workflow_names, "workflow")
        return [] if workflow is None else [(workflow, 1.0)]
    if "workflow" in entry:
        entry.raw("workflow")
        entry.fault("workflow", "must be left out beside workflows.")
    if "load" in entry:
        entry.fault("load", "is defined for one workflow only; give rate_rps for several.")
    before = len(entry.faults)
    weights = entry.section("workflows")
    known = one_of_names(setting.workflow_names, "workflow")
    parts = []
    for name in weights.names():
        weight = weights.get(name, _scale, None)
        try:
            known(name)
        except ValueError as error:
            weights.fault(name, str(error))
        if weight is not None:
            parts.append((name, weight))
    if not parts and len(entry.faults) == before:
        entry.fault("workflows", "is empty; name at least one, with its weight.")
    return parts if len(entry.faults) == before else []


def _shares(process: OpenLoop, parts: list[tuple[str, float]], stream: int) -> list[OpenLoop]:
    total = sum(weight for _, weight in parts)
    edges = [0.0]
    for _, weight in parts:
        edges.append(edges[-1] + weight / total)
    edges[-1] = 1.0  # whatever rounding says
    return [Share(name, process, edges[i], edges[i + 1], stream) for i, (name, _) in enumerate(parts)]


def _parse_process(
    entry: Section, workflow: str | None, setting: Setting, rate_scale: float
) -> OpenLoop | ClosedLoop | None:
    process = entry.get("process", choice(*_PROCESSES), None) if entry.require("process") else None
    if process is None:
        return None  # without it, nobody knows which keys belong here
    before = len(entry.faults)
    arrivals = _PROCESSES[process](entry, workflow or "", setting)
    window = None if process == _CLOSED else _parse_window(entry)
    entry.finish()
    if arrivals is None or workflow is None or len(entry.faults) > before:
        return None
    if rate_scale != 1:
        if isinstance(arrivals, ClosedLoop | Listed):
            entry.fault("process", f"{process} has no rate, so rate_scale must be 1; got {rate_scale:g}.")
            return None
        try:
            arrivals = arrivals.scaled(rate_scale)
        except (ValueError, OverflowError) as error:
            entry.fault(None, f"cannot be multiplied by a rate_scale of {rate_scale:g}: {error}")
            return None
    if window is None or isinstance(arrivals, ClosedLoop):
        return arrivals  # users have a window of their own
    return msgspec.structs.replace(window, workflow=workflow, process=arrivals)


def _parse_window(entry: Section) -> Window | None:
    """When the entry begins and ends, around a stand-in for its process; None where it lasts for the whole run."""
    values = entry.read(_WINDOW)
    return entry.build(partial(Window, "", Poisson("", 1.0)), values) if values else None


def _simple(
    make: Callable[..., OpenLoop | ClosedLoop], required: Mapping[str, Check], optional: Mapping[str, Check]
) -> Parse:
    """A process whose settings are the fields of its value."""

    def parse(entry: Section, workflow: str, setting: Setting) -> OpenLoop | ClosedLoop | None:
        complete = entry.require(*required)
        values = entry.read({**required, **optional})
        if not complete or not values.keys() >= required.keys():
            return None
        return _build(entry, partial(make, workflow), values, required)

    return parse


def _build(
    entry: Section,
    make: Callable[..., OpenLoop | ClosedLoop],
    values: Mapping[str, object],
    required: Mapping[str, Check],
) -> OpenLoop | ClosedLoop | None:
    stand_ins: dict[str, object] = dict.fromkeys(required, 1)
    return entry.build(make, values, stand_ins)


def _poisson(entry: Section, workflow: str, setting: Setting) -> OpenLoop | ClosedLoop | None:
    rate_rps = _rate_rps(entry, workflow, setting, entry.one_of("rate_rps", "load"))
    return (
        None if rate_rps is None else entry.build(partial(Poisson, workflow), {"rate_rps": rate_rps}, {"rate_rps": 1.0})
    )


def _deterministic(entry: Section, workflow: str, setting: Setting) -> OpenLoop | ClosedLoop | None:
    values = entry.read({"offset_s": number})
    given = entry.one_of("interval_s", "rate_rps", "load")
    if given == "interval_s":
        values |= entry.read({"interval_s": number})
    else:
        rate_rps = _rate_rps(entry, workflow, setting, given)
        if rate_rps is None:
            return None
        values["interval_s"] = 1 / rate_rps
    return entry.build(partial(Deterministic, workflow), values, {"interval_s": 1.0})


def _rate_rps(entry: Section, workflow: str, setting: Setting, given: str | None) -> float | None:
    if given is None:
        return None
    value = entry.get(given, number, None)
    if value is None:
        return None
    if value <= 0:
        entry.fault(given, f"must be positive and finite; got {value}.")
        return None
    if given == "rate_rps":
        return value
    if not setting.complete or setting.cluster is None or workflow not in setting.workflows:
        return None  # what it needs has faults of its own
    declared = setting.workflows[workflow]
    try:
        return rate_for_load(value, declared, setting.functions, setting.profiles, setting.cluster)
    except ValueError as error:
        entry.fault("load", str(error))
        return None


def _listed(entry: Section, workflow: str, setting: Setting) -> OpenLoop | ClosedLoop | None:
    if not entry.require("at"):
        return None
    before = len(entry.faults)
    at = tuple(entry.all_of("at", _instant))
    return entry.build(partial(Listed, workflow), {"at": at}, {"at": (0.0,)}) if len(entry.faults) == before else None


def _minute_counts(entry: Section, workflow: str, setting: Setting) -> OpenLoop | ClosedLoop | None:
    if not entry.require("counts"):
        return None
    before = len(entry.faults)
    values = {"counts": tuple(entry.all_of("counts", _count)), **entry.read({"spread": _SPREAD})}
    return (
        entry.build(partial(MinuteCounts, workflow), values, {"counts": (1,)}) if len(entry.faults) == before else None
    )


def _azure(entry: Section, workflow: str, setting: Setting) -> OpenLoop | ClosedLoop | None:
    entry.require("file")
    before = len(entry.faults)
    file = entry.get("file", text, None)
    function: str | int = entry.get("function", _function, "total")
    values = entry.read({"spread": _SPREAD})
    scale = entry.get("scale", _scale, 1.0)
    minutes = entry.get("minutes", _minutes, None)
    if file is None or len(entry.faults) > before:
        return None
    try:
        trace = _trace(setting, setting.folder / file)
        counts = scale_counts(trace.counts(function, minutes), scale)
    except ConfigError as error:
        entry.faults += [Fault(entry.at("file"), f"{error.source}: {fault}") for fault in error.faults]
        return None
    except ValueError as error:
        key, _, message = str(error).partition(" ")
        entry.fault(key, message)
        return None
    return MinuteCounts(workflow, counts, **values)  # type: ignore[arg-type]


def _trace(setting: Setting, path: Path) -> "MinuteTrace":
    if path not in setting.traces:
        from fairlead.workload.azure import read_trace  # noqa: PLC0415 - who serves needs no table library

        setting.traces[path] = read_trace(path)
    return setting.traces[path]


def _instant(value: object) -> float:
    found = number(value)
    if found < 0:
        raise ValueError(f"must not be negative; got {found:g}.")
    return found


def _count(value: object) -> int:
    found = integer(value)
    if found < 0:
        raise ValueError(f"must not be negative; got {found}.")
    return found


def _scale(value: object) -> float:
    found = number(value)
    if found <= 0:
        raise ValueError(f"must be positive and finite; got {found:g}.")
    return found


def _function(value: object) -> str | int:
    return text(value) if isinstance(value, str) else integer(value)


def _minutes(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("must be the first and the last minute, such as [480, 539].")
    return integer(value[0]), integer(value[1])


_PROCESSES: dict[str, Parse] = {
    "poisson": _poisson,
    "uniform-interval": _simple(UniformInterval, {"low_s": number, "high_s": number}, {}),
    "deterministic": _deterministic,
    "burst": _simple(Burst, {"count": integer}, {"share": number, "within": number, "step_s": number}),
    "pillar": _simple(Pillar, {"count": integer, "pillars": integer}, {}),
    "list": _listed,
    "minute-counts": _minute_counts,
    "azure": _azure,
    "azure-like": _simple(AzureLike, {"rate_rps": number}, {"cv": number, "correlation": number, "period_s": number}),
    _CLOSED: _simple(
        ClosedLoop, {"users": integer, "think_s": number}, {"think": choice("exponential", "constant"), **_WINDOW}
    ),
}
