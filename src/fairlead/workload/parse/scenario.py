"""A whole scenario file, and the points of its sweep."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.errors import ConfigError, Fault
from fairlead.model import Bounds, Cluster, Node
from fairlead.workload.parse.arrivals import Setting, parse_arrivals
from fairlead.workload.parse.cluster import parse_cluster
from fairlead.workload.parse.document import describe, parse_document, plain_copy
from fairlead.workload.parse.functions import parse_functions
from fairlead.workload.parse.host import parse_host
from fairlead.workload.parse.optimise import optimised, parse_optimise
from fairlead.workload.parse.overrides import apply_override, read_overrides
from fairlead.workload.parse.reader import Check, Section, a_name, choice, integer, number, sequence, text
from fairlead.workload.parse.source import Document, read_source, shipped_names, shipped_scenarios
from fairlead.workload.parse.workflows import parse_workflows
from fairlead.workload.scenario import DecisionTime, NodeFault, PolicyChoice, PressureChange, Scenario, Sweep

if TYPE_CHECKING:
    from fairlead.workload.azure import MinuteTrace

__all__ = [
    "CheckPolicy",
    "Document",
    "load_scenario",
    "parse_scenario",
    "scenario_points",
    "shipped_names",
    "shipped_scenarios",
]

CheckPolicy = Callable[[PolicyChoice, str], list[Fault]]
"""Gives the faults of a choice; the second argument is its path, `policy` or `scaler`, with which theirs begin."""

MAX_POINTS = 1_000

_RUN: dict[str, Check] = {
    "description": text,
    "duration_s": number,
    "warmup_s": number,
    "control_period_s": number,
    "on_loss": choice("retry", "fail"),
    "max_attempts": integer,
    "retry_delay_s": number,
    "provision_s": number,
}
_BOUNDS: dict[str, Check] = {"least": integer, "most": integer, "usd_per_hour": number, "provision_s": number}
_DECISION: dict[str, Check] = {"fixed_s": number, "per_step_s": number}

_NO_CLUSTER = Cluster(nodes=(Node(name="node", kind="node", vcpus=1),))  # while faults are looked for

_Data = dict[object, object]


def load_scenario(
    source: str | Path | Document, *, overrides: Mapping[str, object] = {}, check_policy: CheckPolicy | None = None
) -> Scenario:
    """The scenario in a file, or the shipped one of that name, with `overrides` by dotted path.

    A sweep is checked at each of its values but not carried out: see `scenario_points`. Without `check_policy`,
    policies are taken as they are. Raises `ConfigError` with every fault, and `UnknownNameError`.
    """
    return _File.open(source, overrides, check_policy).scenario()


def scenario_points(
    source: str | Path | Document, overrides: Mapping[str, object] = {}, *, check_policy: CheckPolicy | None = None
) -> list[tuple[dict[str, object], Scenario]]:
    """One scenario per value of the sweep, with the setting that makes it; without a sweep, the only one.

    An override of the very setting that is swept takes the sweep's place.
    """
    return _File.open(source, overrides, check_policy).points()


def parse_scenario(
    document: str | bytes | Mapping[str, object],
    source_name: str,
    *,
    overrides: Mapping[str, object] = {},
    check_policy: CheckPolicy | None = None,
    folder: Path = Path(),
) -> Scenario:
    """The scenario in a YAML text or a mapping; `source_name` stands for the file in errors and is its default name.

    Files that it refers to are looked for in `folder`.
    """
    data: Mapping[object, object] = (
        dict(document.items()) if isinstance(document, Mapping) else parse_document(document, source_name)
    )
    return _File(data, source_name, Path(source_name).stem, folder, overrides, check_policy).scenario()


class _File:
    """One file with its overrides: parses to a scenario, or to one per point of its sweep."""

    def __init__(
        self,
        data: Mapping[object, object],
        source: str,
        name: str,
        folder: Path,
        overrides: Mapping[str, object],
        check_policy: CheckPolicy | None,
    ) -> None:
        self._source = source
        self._name = name
        self._folder = folder
        self._check_policy = check_policy
        self._traces: dict[Path, MinuteTrace] = {}
        self._faults: list[Fault] = []
        self._data: _Data = plain_copy(data, source)
        settings = read_overrides(overrides, self._faults)
        for path, value in settings.items():
            self._faults += apply_override(self._data, path, plain_copy(value, source))
        self._pinned = self._pin_sweep(settings)

    @classmethod
    def open(
        cls, source: str | Path | Document, overrides: Mapping[str, object], check_policy: CheckPolicy | None
    ) -> "_File":
        data, name, folder = read_source(source)
        return cls(data, str(source), name, folder, overrides, check_policy)

    def _pin_sweep(self, settings: Mapping[str, object]) -> dict[str, object]:
        sweep = self._data.get("sweep")
        key = sweep.get("key") if isinstance(sweep, dict) else None
        if not isinstance(key, str) or key not in settings:
            return {}
        del self._data["sweep"]
        return {key: settings[key]}

    def scenario(self) -> Scenario:
        return self._parse()[0]

    def points(self) -> list[tuple[dict[str, object], Scenario]]:
        scenario, points = self._parse()
        return points or [(self._pinned, scenario)]

    def _parse(self) -> tuple[Scenario, list[tuple[dict[str, object], Scenario]]]:
        faults = list(self._faults)
        scenario = self._parse_data(self._data, faults)
        points: list[tuple[dict[str, object], Scenario]] = []
        if not faults and scenario is not None and scenario.sweep is not None:
            points = self._sweep(scenario.sweep, faults)
        if faults or scenario is None:
            raise ConfigError(self._source, faults)
        return scenario, points

    def _sweep(self, sweep: Sweep, faults: list[Fault]) -> list[tuple[dict[str, object], Scenario]]:
        points = []
        for i, value in enumerate(sweep.values):
            data: _Data = plain_copy(self._data, self._source)
            del data["sweep"]
            found = apply_override(data, sweep.key, plain_copy(value, self._source))
            scenario = None if found else self._parse_data(data, found)
            faults += [Fault(f"sweep.values.{i}", f"with {value}, {fault}") for fault in found]
            if scenario is not None:
                points.append(({sweep.key: value}, scenario))
        return points

    def _parse_data(self, data: _Data, faults: list[Fault]) -> Scenario | None:
        """The scenario; None, with the faults added, where it has any."""
        top = Section(data, "", faults)
        before = len(faults)
        name = top.get("name", a_name, self._name)
        top.require("cluster", "functions", "workflows", "arrivals")
        part = top.part("cluster")
        cluster = None if part is None else parse_cluster(part)
        functions, profiles = parse_functions(top.section("functions"), cluster, self._folder)
        flows = top.section("workflows")
        workflows = parse_workflows(flows, _names(data, "functions"))
        wishes = parse_optimise(flows, workflows)
        for key, found in (("functions", functions), ("workflows", workflows)):
            if data.get(key) == {} and not found:
                top.fault(key, "is empty; a scenario needs at least one.")
        is_complete = len(faults) == before
        settings = top.read(_RUN)
        setting = Setting(
            workflow_names=_names(data, "workflows"),
            workflows=workflows,
            functions=functions,
            profiles=profiles,
            cluster=cluster,
            folder=self._folder,
            complete=is_complete,
            traces=self._traces,
        )
        rate_scale = top.get("rate_scale", _rate_scale, 1.0)
        if data.get("arrivals") == []:
            top.fault("arrivals", "is empty; a scenario needs at least one.")
        duration_s = settings.get("duration_s", 60.0)
        assert isinstance(duration_s, float)
        arrivals = parse_arrivals(top.sections("arrivals"), setting, max(duration_s, 0.0), rate_scale)
        for key, parsed in (
            ("policy", self._parse_choice(top, "policy", "dispatch")),
            ("scaler", self._parse_choice(top, "scaler", "scale")),
        ):
            if parsed is not None:
                settings[key] = parsed
        settings["decision"] = _parse_decision(top)
        settings["node_faults"] = tuple(_parse_node_faults(top, cluster))
        settings["pressures"] = tuple(_parse_pressures(top, cluster))
        settings["growth"] = _parse_growth(top.section("growth"), cluster)
        settings["sweep"] = _parse_sweep(top)
        settings["host"] = parse_host(top, self._folder)
        top.finish()
        make = partial(
            Scenario,
            name=name,
            cluster=cluster or _NO_CLUSTER,
            functions=functions,
            profiles=profiles,
            workflows=workflows,
            arrivals=tuple(arrivals),
        )
        scenario = top.build(make, settings)
        if scenario is not None and len(faults) == before:
            scenario = optimised(scenario, wishes)
        return scenario if len(faults) == before else None

    def _parse_choice(self, top: Section, key: str, name_key: str) -> PolicyChoice | None:
        section = None if top.raw(key) is None else top.part(key)
        if section is None or not section.require(name_key):
            return None
        name = section.get(name_key, text, None)
        if name is None:
            return None
        parameters = {str(k): v for k, v in section.rest(name_key).items()}
        choice = PolicyChoice(name=name, parameters=parameters)
        if self._check_policy is not None:
            top.faults += self._check_policy(choice, key)
        return choice


def _names(data: _Data, key: str) -> tuple[str, ...] | None:
    """Everything declared under a key, its faults left aside, so that one fault does not cause others."""
    found = data.get(key)
    return tuple(str(name) for name in found) if isinstance(found, dict) else None


def _rate_scale(value: object) -> float:
    found = number(value)
    if found <= 0:
        raise ValueError(f"must be positive and finite; got {found:g}.")
    return found


def _parse_decision(top: Section) -> DecisionTime:
    value = top.raw("decision")
    if value is None or value == "none":
        return DecisionTime()
    if not isinstance(value, Mapping):
        top.fault("decision", f"must be none, or a mapping with fixed_s or per_step_s; got {describe(value)}.")
        return DecisionTime()
    section = top.section("decision")
    decision = section.build(DecisionTime, section.read(_DECISION))
    section.finish()
    return decision or DecisionTime()


def _parse_node_faults(top: Section, cluster: Cluster | None) -> list[NodeFault]:
    found = []
    for entry in top.sections("faults"):
        node = _parse_node(entry, cluster)
        entry.require("at_s")
        values = entry.read({"at_s": number, "back_s": number})
        entry.finish()
        found.append(entry.build(partial(NodeFault, node=node), values, {"at_s": 0.0}))
    return [fault for fault in found if fault is not None]


def _parse_pressures(top: Section, cluster: Cluster | None) -> list[PressureChange]:
    found = []
    for entry in top.sections("pressure"):
        node = _parse_node(entry, cluster)
        entry.require("at_s", "pressure")
        values = entry.read({"at_s": number, "pressure": number})
        entry.finish()
        found.append(entry.build(partial(PressureChange, node=node), values, {"at_s": 0.0, "pressure": 0.0}))
    return [change for change in found if change is not None]


def _parse_growth(section: Section, cluster: Cluster | None) -> dict[str, Bounds]:
    found = {}
    for kind, entry in section.named_sections():
        entry.require("most")
        values = entry.read(_BOUNDS)
        entry.finish()
        bounds = entry.build(Bounds, values, {"most": values.get("least", 1)})
        if cluster is None or bounds is None:  # there are faults already
            continue
        there = sum(node.kind == kind for node in cluster.nodes)
        if not there:
            section.fault(kind, f"there is no node of this kind; there are: {', '.join(cluster.kinds)}.")
        elif not bounds.least <= there <= bounds.most:
            section.fault(kind, f"nodes must be from {bounds.least} to {bounds.most} at the start; got {there}.")
        else:
            found[kind] = bounds
    return found


def _parse_node(entry: Section, cluster: Cluster | None) -> str:
    if cluster is None:  # it has faults of its own
        entry.raw("node")
        return ""
    return entry.known_name("node", [node.name for node in cluster.nodes], "node") or ""


def _parse_sweep(top: Section) -> Sweep | None:
    section = None if top.raw("sweep") is None else top.part("sweep")
    if section is None:
        return None
    section.require("key", "values")
    key = section.get("key", text, "")
    values: list[object] = section.get("values", sequence, [])
    section.finish()
    if len(values) > MAX_POINTS:
        section.fault("values", f"holds more than {MAX_POINTS:,} values.")
    elif key.partition(".")[0] == "sweep":
        section.fault("key", "a sweep cannot sweep itself.")
    elif key and "values" in section and isinstance(section.raw("values"), list):
        return section.build(Sweep, {"key": key, "values": tuple(values)}, {"key": "name", "values": (0,)})
    return None
