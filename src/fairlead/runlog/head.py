"""The head of a live run: everything that was declared to the controller, so that the run can be done again.

It holds the scenario itself, not only the app: profiles as they were when the run began, prices, and who decided with
which parameters.
"""

import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from fairlead.errors import ConfigError, Fault
from fairlead.model import Bounds, Cluster, Configuration, Function, Workflow
from fairlead.profile import Constant, Exponential, Law, LogNormal, Profile, Row, ScalingLaw, Sum, Table
from fairlead.runlog.floats import tag_floats, untag_floats
from fairlead.workload import DecisionTime, PolicyChoice, Scenario

FORMAT = 1
HEAD = "live.json"

_LAWS: Mapping[str, type[Law]] = {
    law.__name__: law for law in (Constant, Exponential, LogNormal, Table, ScalingLaw, Sum)
}
_SETTINGS = ("control_period_s", "on_loss", "max_attempts", "retry_delay_s", "provision_s")


class RunHead(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was given. `started_unix` is the wall clock at instant 0 of the run; `manifest` is kept as JSON.

    `awaits_end` says whether what a stopped instance used was free only when it had ended (`Controller`).
    """

    app: str
    scenario: Scenario  # without arrivals: those are in the segments
    seed: int = 0
    generation: int = 0
    started_unix: float = 0.0
    version: str = ""
    manifest: object = None
    awaits_end: bool = False


class _ProfileFile(msgspec.Struct, kw_only=True):
    """A profile whose law is still a mapping that names its kind."""

    law: dict[str, object]
    configurations: tuple[Configuration, ...]
    cold_start_s: float
    cold_start_by_kind: dict[str, float]
    noise: float
    bias: float
    failure_rate: float
    sensitivity: float
    pressure: float
    gpu_sensitivity: float = 0.0  # older runs have none of these
    pressure_curves: dict[str, tuple[tuple[float, float], ...]] = {}
    overhead_s: float = 0.0
    assumed_most_s: float | None = None


class _HeadFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    format: int
    version: str
    app: str
    generation: int
    started_unix: float
    seed: int
    policy: PolicyChoice
    scaler: PolicyChoice | None
    cluster: Cluster
    functions: dict[str, Function]
    profiles: dict[str, _ProfileFile]
    workflows: dict[str, Workflow]
    decision: DecisionTime
    settings: dict[str, object]
    manifest: object
    growth: dict[str, Bounds] = {}  # older runs have none
    awaits_end: bool = False  # nor did they wait


def write_head(head: RunHead, folder: Path) -> None:
    """Write `live.json` into a folder, readable by its owner only: what an app is called may be nobody's business.

    The file appears whole or not at all.
    """
    scenario = head.scenario
    values = _HeadFile(
        format=FORMAT,
        version=head.version or _version(),
        app=head.app,
        generation=head.generation,
        started_unix=head.started_unix,
        seed=head.seed,
        policy=scenario.policy,
        scaler=scenario.scaler,
        cluster=scenario.cluster,
        functions=dict(scenario.functions),
        profiles={name: _profile_file(profile, scenario.cluster) for name, profile in scenario.profiles.items()},
        workflows=dict(scenario.workflows),
        decision=scenario.decision,
        settings={name: getattr(scenario, name) for name in _SETTINGS},
        manifest=head.manifest,
        growth=dict(scenario.growth),
        awaits_end=head.awaits_end,
    )
    plain = tag_floats(msgspec.to_builtins(values, enc_hook=_plain_number))
    text = msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"
    part = folder / f"{HEAD}.part"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(text)
    part.rename(folder / HEAD)


def read_head(folder: Path) -> RunHead:
    """The head that `write_head` left in a folder; ConfigError if there is none, or not one of this version."""
    path = folder / HEAD
    try:
        data = path.read_bytes()
    except OSError as error:
        what = f"no live run is here: {HEAD} cannot be read ({error.strerror or error}). `fairlead serve` writes runs."
        raise ConfigError(str(folder), [Fault("", what)]) from error
    try:
        values = untag_floats(msgspec.json.decode(data))
        found = values.get("format") if isinstance(values, dict) else None
        if found != FORMAT:
            what = f"format must be {FORMAT}; got {found}. Another version of Fairlead wrote it, or it is no live run."
            raise ConfigError(str(path), [Fault("", what)])
        return _head(msgspec.convert(values, _HeadFile))
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise ConfigError(str(path), [Fault("", f"not the head of a live run: {error}")]) from error


def _head(file: _HeadFile) -> RunHead:
    settings = {name: value for name, value in file.settings.items() if name in _SETTINGS}
    scenario = Scenario(
        name=file.app,
        cluster=file.cluster,
        functions=file.functions,
        profiles={name: _profile(profile) for name, profile in file.profiles.items()},
        workflows=file.workflows,
        arrivals=(),
        policy=file.policy,
        scaler=file.scaler,
        decision=file.decision,
        growth=file.growth,
        **settings,  # type: ignore[arg-type]  # the constructor checks them
    )
    return RunHead(
        app=file.app,
        scenario=scenario,
        seed=file.seed,
        generation=file.generation,
        started_unix=file.started_unix,
        version=file.version,
        manifest=file.manifest,
        awaits_end=file.awaits_end,
    )


def _profile_file(profile: Profile, cluster: Cluster) -> _ProfileFile:
    fields = {name: getattr(profile, name) for name in _ProfileFile.__struct_fields__ if name != "law"}
    return _ProfileFile(law=_law_values(_known_law(profile, cluster)), **fields)


def _profile(file: _ProfileFile) -> Profile:
    fields = {name: getattr(file, name) for name in _ProfileFile.__struct_fields__ if name != "law"}
    return Profile(law=_law(file.law), **fields)


def _known_law(profile: Profile, cluster: Cluster) -> Law:
    """The law itself; one that is none of ours (a learned model) becomes a table of its own space."""
    if type(profile.law) in _LAWS.values():
        return profile.law
    rows = tuple(
        Row(seconds=seconds, batch=c.batch, vcpus=c.vcpus, vgpus=c.vgpus, kind=kind)
        for c in dict.fromkeys(
            Configuration(batch=c.batch, vcpus=c.vcpus, vgpus=c.vgpus) for c in profile.configurations
        )
        for kind in cluster.kinds
        if (seconds := profile.law.mean_s(c, kind)) < float("inf")
    )
    return Table(rows)


def _law_values(law: Law) -> dict[str, object]:
    kind = {"law": type(law).__name__}
    if isinstance(law, Sum):
        return {**kind, "parts": [_law_values(part) for part in law.parts]}
    values = msgspec.to_builtins(law)
    return {**kind, **values}


def _law(values: Mapping[str, object]) -> Law:
    fields = dict(values)
    name = fields.pop("law", None)
    if not isinstance(name, str) or name not in _LAWS:
        raise ValueError(f"law must be one of {', '.join(_LAWS)}; got {name!r}.")
    if name == "Sum":
        parts = fields.get("parts")
        if not isinstance(parts, list):
            raise ValueError(f"parts of a sum must be a list; got {parts!r}.")
        return Sum(tuple(_law(msgspec.convert(part, dict[str, object])) for part in parts))
    return msgspec.convert(fields, _LAWS[name])


def _plain_number(value: object) -> object:
    item = getattr(value, "item", None)  # a NumPy number
    return item() if item is not None else str(value)


def _version() -> str:
    try:
        return version("fairlead")
    except PackageNotFoundError:  # run from a source folder that was never installed
        return "unknown"
