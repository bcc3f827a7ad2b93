"""The `functions` part of a scenario file: what each needs, how long it takes, and in which configurations."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf, prod
from pathlib import Path

from fairlead.errors import ConfigError
from fairlead.model import Buffer, Cluster, Configuration, Function, Node
from fairlead.model.slots import slots
from fairlead.profile import Constant, Exponential, Law, LogNormal, Profile, Row, ScalingLaw, Table, space
from fairlead.profile.measured import MeasuredFunction, MeasuredProfiles, read_measured
from fairlead.workload.parse.cluster import why_not
from fairlead.workload.parse.document import describe
from fairlead.workload.parse.reader import (
    Check,
    Section,
    a_name,
    choice,
    integer,
    number,
    number_or_inf,
    one_of_names,
    sequence,
    text,
)

MAX_CONFIGURATIONS = 10_000

_FUNCTION: dict[str, Check] = {
    "memory_gb": number,
    "device_memory_gb": number,
    "output_mb": number,
    "keep_alive_s": number_or_inf,
    "warm": integer,
    "idle_holds": choice("slice", "memory"),
    "retries": integer,
    "run_limit_s": number_or_inf,
    "start_limit_s": number_or_inf,
    "hit_rate": number,
}
_BUFFER: dict[str, Check] = {
    "name": a_name,
    "size_mb": number,
    "kind": choice("constant", "input", "output", "temporary"),
}
_PROFILE: dict[str, Check] = {
    "noise": number,
    "bias": number,
    "failure_rate": number,
    "sensitivity": number,
    "pressure": number,
    "gpu_sensitivity": number,
    "overhead_s": number,
    "assumed_most_s": number_or_inf,
}
_LAW: dict[str, Check] = {
    "t1_s": number,
    "fixed": number,
    "beta": number,
    "gamma": number,
    "delta": number,
    "threads": number_or_inf,
}
_LOGNORMAL: dict[str, Check] = {"median_s": number, "sigma": number}
_ROW: dict[str, Check] = {"seconds": number, "batch": integer, "vcpus": number, "vgpus": number}
_CONFIGURATION: dict[str, Check] = {"batch": integer, "vcpus": number, "vgpus": number, "memory_gb": number}
_MEASURED: dict[str, Check] = {"profile": text, "function": a_name}


def parse_functions(
    section: Section, cluster: Cluster | None, folder: Path = Path()
) -> tuple[dict[str, Function], dict[str, Profile]]:
    """Functions and their profiles by name. Without a cluster, nothing is checked against it.

    Measured files are looked for in `folder`. What a scenario says itself goes before what was measured.
    """
    functions: dict[str, Function] = {}
    profiles: dict[str, Profile] = {}
    files: dict[Path, MeasuredProfiles] = {}
    for name, entry in section.named_sections():
        measured = _parse_measured(entry, name, folder, files)
        needs = {} if measured is None else {"memory_gb": measured.memory_gb, "output_mb": measured.output_mb}
        function = entry.build(partial(Function, name=name), needs | entry.read(_FUNCTION) | _parse_buffers(entry))
        profile = _parse_profile(entry, cluster, measured)
        entry.finish()
        if function is None or profile is None:
            continue
        if cluster is not None:
            _check_placement(entry, function, profile, cluster)
        functions[name], profiles[name] = function, profile
    return functions, profiles


def _parse_buffers(entry: Section) -> dict[str, object]:
    if "buffers" not in entry:
        return {}
    before = len(entry.faults)
    buffers: list[Buffer] = []
    for part in entry.sections("buffers"):
        is_whole = part.require("name", "size_mb")
        buffer = part.build(Buffer, part.read(_BUFFER), {"name": "", "size_mb": 1.0})
        part.finish()
        if is_whole and buffer is not None:
            buffers.append(buffer)
    if not buffers and len(entry.faults) == before:
        entry.fault("buffers", "a kernel needs at least one buffer.")
    return {"buffers": tuple(buffers)} if buffers else {}


def _parse_measured(
    entry: Section, name: str, folder: Path, files: dict[Path, MeasuredProfiles]
) -> MeasuredFunction | None:
    """The function's part of a measured file; None where it names none, or with a fault."""
    raw = entry.raw("latency")
    if not isinstance(raw, Mapping) or "profile" not in raw:
        return None
    latency = entry.section("latency")
    named = latency.read(_MEASURED)
    file, function = named.get("profile"), str(named.get("function", name))
    if file is None:
        return None
    path = folder / str(file)
    if path not in files:
        try:
            files[path] = read_measured(path)
        except ConfigError as error:
            for fault in error.faults:
                latency.fault("profile", f"{path}: {fault}")
            return None
    try:
        one_of_names(files[path].functions, f"function in {path} named")(function)
    except ValueError as error:
        latency.fault("function" if "function" in latency else "profile", str(error))
        return None
    return files[path].functions[function]


def _parse_profile(entry: Section, cluster: Cluster | None, measured: MeasuredFunction | None) -> Profile | None:
    before = len(entry.faults)
    law = _parse_latency(entry, cluster, measured)
    configurations = _parse_configurations(entry)
    settings = {**_parse_cold_start(entry, cluster), **entry.read(_PROFILE), **_parse_curves(entry, cluster)}
    if measured is not None:
        found = measured.profile()
        settings = {"noise": found.noise, "cold_start_s": found.cold_start_s} | settings
    profile = entry.build(partial(Profile, law=law or Constant(0.0), configurations=configurations), settings)
    return profile if len(entry.faults) == before else None


def _parse_cold_start(entry: Section, cluster: Cluster | None) -> dict[str, object]:
    if not isinstance(entry.raw("cold_start_s"), Mapping):
        return entry.read({"cold_start_s": number})
    by_kind = entry.section("cold_start_s")
    seconds: dict[str, float] = {}
    for kind in by_kind.names():
        by_kind.accept(kind, kind, one_of_names(cluster.kinds if cluster else None, "node kind"), "")
        value = by_kind.get(kind, number, 0.0)
        if value < 0:
            by_kind.fault(kind, f"must be finite and not negative; got {value}.")
        seconds[kind] = max(0.0, value)
    return {"cold_start_by_kind": seconds}


def _parse_curves(entry: Section, cluster: Cluster | None) -> dict[str, object]:
    """What load from outside costs by kind of node, as points; what a profile refuses is a fault of that kind."""
    if "pressure_curves" not in entry:
        return {}
    by_kind = entry.section("pressure_curves")
    curves: dict[str, tuple[tuple[float, float], ...]] = {}
    for kind in by_kind.names():
        before = len(entry.faults)
        by_kind.accept(kind, kind, one_of_names(cluster.kinds if cluster else None, "node kind"), "")
        points = tuple(by_kind.all_of(kind, _point))
        if len(entry.faults) == before:
            try:
                Profile(law=Constant(0.0), pressure_curves={kind: points})
            except ValueError as error:
                by_kind.fault(kind, str(error).partition(" ")[2])
                continue
            curves[kind] = points
    return {"pressure_curves": curves}


def _point(value: object) -> tuple[float, float]:
    """[pressure, factor]."""
    pair = sequence(value)
    if len(pair) != 2:
        raise ValueError(f"must be [pressure, factor]; got {describe(value)}.")
    pressure, factor = (number(one) for one in pair)
    return pressure, factor


def _parse_latency(entry: Section, cluster: Cluster | None, measured: MeasuredFunction | None) -> Law | None:
    latency = entry.part("latency") if entry.require("latency") else None
    if latency is None:
        return None
    law: Law | None = None
    match latency.one_of("constant_s", "exponential_s", "lognormal", "table", "law", "profile"):
        case "constant_s":
            law = latency.build(
                lambda constant_s: Constant(constant_s), latency.read({"constant_s": number}), {"constant_s": 0.0}
            )
        case "exponential_s":
            law = latency.build(
                lambda exponential_s: Exponential(exponential_s),
                latency.read({"exponential_s": number}),
                {"exponential_s": 0.0},
            )
        case "lognormal":
            law = _parse_lognormal(latency)
        case "table":
            law = _parse_table(latency, cluster)
        case "law":
            law = _parse_law(latency)
        case "profile":
            for key in _MEASURED:
                latency.raw(key)
            law = None if measured is None else measured.profile().law
    latency.finish()
    return law


def _parse_law(latency: Section) -> ScalingLaw | None:
    part = latency.section("law")
    part.require("t1_s")
    values = part.read(_LAW)
    part.finish()
    return part.build(ScalingLaw, values, {"t1_s": 0.0})


def _parse_lognormal(latency: Section) -> LogNormal | None:
    part = latency.section("lognormal")
    is_whole = part.require("median_s", "sigma")
    law = part.build(LogNormal, part.read(_LOGNORMAL), {"median_s": 0.0, "sigma": 0.0})
    part.finish()
    return law if is_whole else None


def _parse_table(latency: Section, cluster: Cluster | None) -> Table | None:
    before = len(latency.faults)
    rows: list[Row] = []
    seen: set[tuple[str | None, Configuration]] = set()
    for part in latency.sections("table"):
        before_row = len(latency.faults)
        part.require("seconds")
        kind = part.get("kind", one_of_names(cluster.kinds if cluster else None, "node kind"), None)
        row = part.build(partial(Row, kind=kind), part.read(_ROW), {"seconds": 0.0})
        part.finish()
        if row is None or len(latency.faults) > before_row:
            continue
        key = (kind, row.configuration())
        if key in seen:
            part.fault(None, f"another row has this configuration already: {row.configuration()}.")
        seen.add(key)
        rows.append(row)
    if not rows and len(latency.faults) == before:
        latency.fault("table", "a table needs at least one row.")
    return Table(tuple(rows)) if len(latency.faults) == before else None


def _parse_configurations(entry: Section) -> tuple[Configuration, ...]:
    listed, product = entry.raw("configurations"), entry.raw("space")
    if listed is not None and product is not None:
        entry.fault("space", "give either configurations or space, not both.")
        return ()
    if "configurations" in entry:
        found = [_parse_configuration(part) for part in entry.sections("configurations")]
        if listed == []:
            entry.fault("configurations", "a function needs at least one configuration.")
        return tuple(configuration for configuration in found if configuration is not None)
    return _parse_space(entry.section("space")) if "space" in entry else ()


def _parse_configuration(part: Section) -> Configuration | None:
    values = part.read(_CONFIGURATION)
    part.finish()
    return part.build(Configuration, values)


def _parse_space(part: Section) -> tuple[Configuration, ...]:
    before = len(part.faults)
    checks: dict[str, Callable[[object], float]] = {"batch": integer, "vcpus": number, "vgpus": number}
    axes = {key: tuple(part.all_of(key, check)) for key, check in checks.items() if key in part}
    for key in checks:
        part.raw(key)
    part.finish()
    for key, axis in axes.items():
        if not axis and len(part.faults) == before:
            part.fault(key, "must list at least one value.")
        elif len(set(axis)) < len(axis):
            part.fault(key, "a value is listed twice.")
    if prod(len(axis) for axis in axes.values()) > MAX_CONFIGURATIONS:
        part.fault(None, f"holds more than {MAX_CONFIGURATIONS:,} configurations.")
    if len(part.faults) > before:
        return ()
    return part.build(lambda **lists: space(**lists), axes) or ()


def _check_placement(entry: Section, function: Function, profile: Profile, cluster: Cluster) -> None:
    """Every configuration must run somewhere: a policy that chose another would wait for ever."""
    shapes = _shapes(cluster.nodes)
    able = [[node for node in shapes if slots(node, function, c) > 0] for c in profile.configurations]
    if not any(able):
        reason = why_not(shapes, function, profile.configurations[0])
        entry.fault(None, f"no node can hold it in any of its configurations: {reason}.")
        return
    for i, (configuration, nodes) in enumerate(zip(profile.configurations, able, strict=True)):
        where = _where(entry, i)
        if not nodes:
            entry.fault(where, f"no node can hold {configuration}: {why_not(shapes, function, configuration)}.")
        elif all(profile.latency_s(configuration, node.kind) == inf for node in nodes):
            kinds = ", ".join(dict.fromkeys(node.kind for node in nodes))
            entry.fault(where, f"no latency is given for {configuration} on a kind that can hold it ({kinds}).")
    kinds_used = {node.kind for nodes in able for node in nodes}
    missing = [kind for kind in cluster.kinds if kind in kinds_used and kind not in profile.cold_start_by_kind]
    if profile.cold_start_by_kind and missing:
        entry.fault("cold_start_s", f"no time is given for kind {', '.join(map(repr, missing))}.")


def _where(entry: Section, i: int) -> str:
    if "configurations" in entry:
        return f"configurations.{i}"
    return "space" if "space" in entry else "latency"


def _shapes(nodes: Sequence[Node]) -> list[Node]:
    """One node of each kind and size."""
    return list({(n.kind, n.capacity_vcpus, n.memory_gb, n.devices): n for n in nodes}.values())
