"""Measured profiles as a JSON file: what `fairlead profile` writes, and simulator, planner and server read."""

from collections.abc import Callable, Mapping
from math import inf
from os import PathLike
from pathlib import Path
from typing import TypeVar, get_args, get_type_hints

import msgspec

from fairlead.errors import ConfigError, Fault, suggestion
from fairlead.model import Configuration
from fairlead.profile.host import GATEWAY_TIMES, Host
from fairlead.profile.laws import Row, Table
from fairlead.profile.links import LinkedNode
from fairlead.profile.profile import Profile

FORMAT = 1
MAX_BYTES = 16 * 2**20
MOST_NOISE = 0.5  # of a profile: a wider spread is no spread of one law any more

S = TypeVar("S", bound=msgspec.Struct)


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long a warm run takes in one configuration, on a node of speed 1: measured `count` times, or predicted.

    Without `kind` it holds on every kind of node. A predicted point has a mean only. `cpu_s` is the mean CPU time of a
    run, without what it waited for its turn.
    """

    batch: int = 1
    vcpus: float = 1.0
    vgpus: float = 0.0
    kind: str | None = None
    mean_s: float
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    cpu_s: float | None = None
    count: int = 0
    is_predicted: bool = False

    def __post_init__(self) -> None:
        _check_not_negative(self, "mean_s", "p50_s", "p95_s", "p99_s", "cpu_s", "count")
        if self.is_predicted and self.count:
            raise ValueError(f"count must be 0 where is_predicted is true; got {self.count}.")
        self.configuration()

    def configuration(self) -> Configuration:
        """What it was measured in."""
        return Configuration(batch=self.batch, vcpus=self.vcpus, vgpus=self.vgpus)


class ColdStart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long an instance takes to start, and the parts of its mean: the process, its code, its `setup`."""

    mean_s: float
    p95_s: float
    count: int = 1
    process_s: float | None = None
    load_s: float | None = None
    setup_s: float | None = None

    def __post_init__(self) -> None:
        _check_not_negative(self, "mean_s", "p95_s", "count", "process_s", "load_s", "setup_s")


class MeasuredFunction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that was measured of a function.

    `memory_gb` is the most that an instance held, `output_mb` the mean size of one output. `noise` is the relative
    standard deviation of runs in the same configuration, `cpu_noise` that of their CPU time. `held_out_error` is the
    mean relative error of the predictor on measured points that it was not shown; None where nothing is predicted and
    nothing could be held out. `measured_at` is when (ISO 8601, UTC), and `source` a digest of the app's modules at that
    time; older files have neither.
    """

    points: tuple[Point, ...]
    cold_start: ColdStart | None = None
    memory_gb: float = 0.0
    output_mb: float = 0.0
    noise: float = 0.0
    cpu_noise: float | None = None
    held_out_error: float | None = None
    measured_at: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        _check_not_negative(self, "memory_gb", "output_mb", "noise", "cpu_noise", "held_out_error")
        if not self.points:
            raise ValueError("points must hold at least one point.")
        seen: set[tuple[str | None, Configuration]] = set()
        for point in self.points:
            key = (point.kind, point.configuration())
            if key in seen:
                raise ValueError(f"points must differ; two are for {point.configuration()}.")
            seen.add(key)

    def profile(self) -> Profile:
        """As simulator, planner and policies take it: a table of means."""
        rows = tuple(
            Row(seconds=p.mean_s, batch=p.batch, vcpus=p.vcpus, vgpus=p.vgpus, kind=p.kind) for p in self.points
        )
        return Profile(
            law=Table(rows),
            cold_start_s=0.0 if self.cold_start is None else self.cold_start.mean_s,
            noise=min(self.noise, MOST_NOISE),
        )


class Served(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What was seen of the app while it was served for a few seconds, and what a simulation needs to agree with it.

    Args:
        capacity_rps: Answers per second to users who always ask.
        rates_rps: The lowest and the highest rate of requests that it was loaded with.
        gateway: Times of the gateway, as a multiple of what the machine's profile says.
        cold_factor: Takes the place of the machine's own (`Host.cold_factor`).
        refusal_s: Takes the place of the machine's own (`Host.refusal_s`).
        run_s: See `Host.run_s`.
        run_share: See `Host.run_share`.
        run_delay_s: See `Host.run_delay_s`.
        decision_s: By policy: CPU time of a decision, and what each waiting invocation adds to it.
        arms: See `Host.arms`.
        items: See `Host.items`.
        off: By how much the simulated share in time differed from the real one, at each of the loads.
    """

    capacity_rps: float
    rates_rps: tuple[float, float]
    gateway: float = 1.0
    cold_factor: float = 0.0
    refusal_s: float = 0.0
    run_s: Mapping[str, float] = {}
    run_share: Mapping[str, float] = {}
    run_delay_s: Mapping[str, tuple[float, ...]] = {}
    decision_s: Mapping[str, tuple[float, float]] = {}
    arms: Mapping[str, Mapping[str, float]] = {}
    items: Mapping[str, Mapping[str, int]] = {}
    off: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _check_not_negative(self, "capacity_rps", "gateway", "cold_factor", "refusal_s")

    def host(self, machine: Host) -> Host:
        """The machine as it serves this app."""
        times = {name: getattr(machine, name) * self.gateway for name in GATEWAY_TIMES}
        return msgspec.structs.replace(
            machine,
            **(times | {"refusal_s": self.refusal_s}),
            cold_factor=self.cold_factor,
            run_s=self.run_s,
            run_share=self.run_share,
            run_delay_s=self.run_delay_s,
            decision_s={name: fixed_s for name, (fixed_s, _) in self.decision_s.items()} or machine.decision_s,
            decision_waiting_s={name: each_s for name, (_, each_s) in self.decision_s.items()},
            arms=self.arms,
            items=self.items,
        )


class MeasuredDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device for kernels: how fast buffers are copied to it, what a load pays besides, and its executor's start.

    `kernels` has, by kernel, the seconds to compile it with an empty cache and from the cache on disk.
    """

    load_gb_per_s: float
    allocation_s: float = 0.0
    executor_start_s: float = 0.0
    kernels: Mapping[str, tuple[float, float]] = {}

    def __post_init__(self) -> None:
        _check_not_negative(self, "allocation_s", "executor_start_s")
        if not self.load_gb_per_s > 0:
            raise ValueError(f"load_gb_per_s must be positive; got {self.load_gb_per_s}.")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where it was measured; `others_share` is the share of the CPUs that other programs used meanwhile."""

    cpu: str
    cores: int
    limits: str  # how CPU limits were kept: cgroup-v1, cgroup-v2 or affinity
    others_share: float | None = None

    def __post_init__(self) -> None:
        _check_not_negative(self, "others_share")
        if self.cores < 1:
            raise ValueError(f"cores must be at least 1; got {self.cores}.")


class MeasuredProfiles(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of an app, by function; and as a whole, where it was served for that.

    `nodes` are those of the cluster that served it; none where this machine did so alone. `devices` ran its kernels.
    """

    app: str
    machine: Machine
    functions: Mapping[str, MeasuredFunction]
    served: Served | None = None
    nodes: tuple[LinkedNode, ...] = ()
    devices: Mapping[str, MeasuredDevice] = {}

    def profiles(self) -> dict[str, Profile]:
        """The profile of each function, by name."""
        return {name: function.profile() for name, function in self.functions.items()}


def read_profiles(path: str | PathLike[str]) -> dict[str, Profile]:
    """The profiles in a measured file, by function. Raises `ConfigError` with every fault."""
    return read_measured(path).profiles()


def read_measured(path: str | PathLike[str]) -> MeasuredProfiles:
    """All that is in a measured file. Raises `ConfigError` with every fault."""
    source = str(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(source, [Fault("", f"cannot be read: {reason}.")]) from None
    return parse_measured(content, source)


def parse_measured(content: bytes, source: str) -> MeasuredProfiles:
    """The same from the text of such a file; `source` names it in errors."""
    if len(content) > MAX_BYTES:
        raise ConfigError(source, [Fault("", f"the file is larger than {MAX_BYTES // 2**20} MiB.")])
    try:
        data = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        what = f"not valid JSON, as `fairlead profile` writes it: {error}."
        raise ConfigError(source, [Fault("", what)]) from None
    reader = _Reader()
    found = reader.file(data)
    if reader.faults or found is None:
        raise ConfigError(source, reader.faults)
    return found


def write_measured(measured: MeasuredProfiles, path: str | PathLike[str]) -> None:
    """Write a measured file, whole or not at all. Raises `OSError`."""
    data = as_plain(measured)
    target = Path(path)
    draft = target.with_name(f".{target.name}.new")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def as_plain(measured: MeasuredProfiles) -> dict[str, object]:
    """As a measured file has it."""
    return {"format": FORMAT, **msgspec.to_builtins(measured)}


class _Reader:
    """Reads plain data strictly, field by field, so that every fault is found."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def file(self, data: object) -> MeasuredProfiles | None:
        if not isinstance(data, dict):
            self._fault("", f"must be an object; got {_shown(data)}.")
            return None
        number = data.get("format")
        if number != FORMAT or isinstance(number, bool):
            self._fault("format", f"must be {FORMAT}, the only one this version reads; got {_shown(number)}.")
            return None
        parts: dict[str, Callable[[object, str], object]] = {
            "machine": lambda part, at: self._struct(part, at, Machine),
            "functions": self._functions,
            "served": lambda part, at: self._converted(part, at, Served | None),
            "nodes": lambda part, at: self._converted(part, at, tuple[LinkedNode, ...]),
            "devices": lambda part, at: self._converted(part, at, dict[str, MeasuredDevice]),
        }
        return self._struct({key: data[key] for key in data if key != "format"}, "", MeasuredProfiles, parts)

    def _converted(self, data: object, path: str, kind: object) -> object:
        try:
            found: object = msgspec.convert(data, kind)
            return found
        except msgspec.ValidationError as error:
            self._fault(path, f"is not as `fairlead profile` writes it: {error}.")
            return None

    def _functions(self, data: object, path: str) -> object:
        if not isinstance(data, dict):
            self._fault(path, f"must be an object; got {_shown(data)}.")
            return None
        parts: dict[str, Callable[[object, str], object]] = {
            "points": self._points,
            "cold_start": lambda part, at: None if part is None else self._struct(part, at, ColdStart),
        }
        return {name: self._struct(part, f"{path}.{name}", MeasuredFunction, parts) for name, part in data.items()}

    def _points(self, data: object, path: str) -> object:
        if not isinstance(data, list):
            self._fault(path, f"must be a list; got {_shown(data)}.")
            return None
        return tuple(self._struct(part, f"{path}.{i}", Point) for i, part in enumerate(data))

    def _struct(
        self, data: object, path: str, kind: type[S], parts: Mapping[str, Callable[[object, str], object]] = {}
    ) -> S | None:
        """A value of this kind, its fields read by `parts` or as plain values; None where there is a fault."""
        before = len(self.faults)
        if not isinstance(data, dict):
            self._fault(path, f"must be an object; got {_shown(data)}.")
            return None
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        hints = get_type_hints(kind)
        values: dict[str, object] = {}
        for key, value in data.items():
            at = f"{path}.{key}" if path else key
            if key not in fields:
                self._fault(at, f"unknown key.{suggestion(key, fields)}")
            elif key in parts:
                values[key] = parts[key](value, at)
            else:
                values[key] = self._plain(value, at, hints[key])
        for field in fields.values():
            if field.required and field.name not in data:
                self._fault(f"{path}.{field.name}" if path else field.name, "is missing.")
        if len(self.faults) > before:
            return None
        try:
            return kind(**values)
        except ValueError as error:
            key, _, message = str(error).partition(" ")
            is_of_field = key in fields and message.startswith("must ")
            self._fault(f"{path}.{key}" if is_of_field else path, message if is_of_field else str(error))
            return None

    def _plain(self, value: object, path: str, kind: object) -> object:
        try:
            found: object = msgspec.convert(value, kind)
        except msgspec.ValidationError:
            wanted = " or ".join(_WORDS[part] for part in get_args(kind) or (kind,))
            self._fault(path, f"must be {wanted}; got {_shown(value)}.")
            return None
        return found

    def _fault(self, path: str, message: str) -> None:
        self.faults.append(Fault(path, message))


_WORDS: Mapping[object, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "null",
}


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else f"{text[:37]}..."


def _check_not_negative(value: msgspec.Struct, *names: str) -> None:
    for name in names:
        found = getattr(value, name)
        if found is not None and not 0 <= found < inf:
            raise ValueError(f"{name} must be finite and not negative; got {found}.")
