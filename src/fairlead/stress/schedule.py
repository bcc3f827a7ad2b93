"""Pressure over time: phases, each with the pressure on each node; read from a file, or drawn.

```yaml
phases:
  - {seconds: 30, pressure: {w01: 25%, w04: 50%}}
  - {seconds: 30, pressure: {w01: {cpu: 50%, cache: true}}}
```
"""

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path

import msgspec
import numpy as np
import yaml

from fairlead.errors import ConfigError, Fault
from fairlead.stress.pressure import NONE, Pressure, parse_share
from fairlead.workload.parse.document import parse_document
from fairlead.workload.parse.reader import Section, number, truth

LEVELS = (0.0, 0.25, 0.5, 0.75)
"""The shares that a random schedule draws from: those of Darly's training."""

_MOST_BYTES = 2**20


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A while in which the pressure stays. Nodes that are not named have none."""

    seconds: float
    pressure: Mapping[str, Pressure] = {}

    def __post_init__(self) -> None:
        if not 0 < self.seconds < inf:
            raise ValueError(f"seconds must be positive and finite; got {self.seconds}.")

    def on(self, node: str) -> Pressure:
        """What presses on a node."""
        return self.pressure.get(node, NONE)


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Phases one after another."""

    phases: tuple[Phase, ...]

    @property
    def seconds(self) -> float:
        """Of all phases."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node that is named, in the order in which they first appear."""
        return tuple(dict.fromkeys(node for phase in self.phases for node in phase.pressure))


def draw_schedule(
    nodes: Sequence[str], *, phases: int, seconds: float, seed: int, levels: Sequence[float] = LEVELS
) -> Schedule:
    """A schedule with a level for each node and phase, each as likely as any other.

    The same seed gives the same schedule.
    """
    if phases < 1:
        raise ValueError(f"phases must be at least 1; got {phases}.")
    chosen = np.random.default_rng(seed).integers(0, len(levels), (phases, len(nodes)))
    return Schedule(
        phases=tuple(
            Phase(
                seconds=seconds,
                pressure={node: Pressure(share=levels[i]) for node, i in zip(nodes, row, strict=True)},
            )
            for row in chosen.tolist()
        )
    )


def write_schedule(schedule: Schedule) -> str:
    """The schedule as `read_schedule` takes it."""
    phases = [
        {
            "seconds": phase.seconds,
            "pressure": {node: _plain(pressure) for node, pressure in phase.pressure.items()},
        }
        for phase in schedule.phases
    ]
    text: str = yaml.safe_dump({"phases": phases}, sort_keys=False, default_flow_style=None, width=120)
    return text


def read_schedule(path: Path) -> Schedule:
    """A schedule from a file. Raises `ConfigError` with every fault and its line."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        message = f"cannot be read: {error.strerror}. Give the path of a YAML file with a list of phases."
        raise ConfigError(str(path), [Fault("", message)]) from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(str(path), [Fault("", f"is larger than {_MOST_BYTES // 2**20} MiB; no schedule is.")])
    return parse_schedule(content.decode("utf-8", "replace"), str(path))


def parse_schedule(text: str, source: str) -> Schedule:
    """A schedule from YAML text. Raises `ConfigError` with every fault and its line."""
    faults: list[Fault] = []
    section = Section(parse_document(text, source), "", faults)
    phases: list[Phase] = []
    if section.require("phases"):
        for part in section.sections("phases"):
            phase = _phase(part)
            if phase is not None:
                phases.append(phase)
        if not phases and not faults:
            section.fault("phases", "must hold at least one phase, such as {seconds: 30, pressure: {w01: 50%}}.")
    section.finish()
    if faults:
        raise ConfigError(source, _with_lines(text, faults))
    return Schedule(phases=tuple(phases))


def _phase(part: Section) -> Phase | None:
    count = len(part.faults)
    seconds = part.get("seconds", number, 1.0) if part.require("seconds") else 1.0
    inner = part.section("pressure")
    pressure = {node: _pressure(inner, node) for node in inner.names()}
    part.finish()
    built = part.build(Phase, {"seconds": seconds, "pressure": pressure}, {"seconds": 1.0})
    return built if len(part.faults) == count else None


def _pressure(nodes: Section, node: str) -> Pressure:
    """`50%`, or a mapping with `cpu`, `cache` and `memory_bandwidth`; none, with faults, where it is neither."""
    if not isinstance(nodes.raw(node), Mapping):
        return Pressure(share=nodes.get(node, parse_share, 0.0))
    section = nodes.section(node)
    share = section.get("cpu", parse_share, 0.0) if section.require("cpu") else 0.0
    kinds = [kind for key, kind in _SWITCHES.items() if section.get(key, truth, False)]
    section.finish()
    return Pressure(share=share, kinds=tuple(kinds) or ("cpu",))


_SWITCHES = {"cache": "cache", "memory_bandwidth": "memory-bandwidth"}


def _plain(pressure: Pressure) -> object:
    share = f"{100 * pressure.share:g}%"
    extras = {key: True for key, kind in _SWITCHES.items() if kind in pressure.kinds}
    return {"cpu": share, **extras} if extras else share


def _with_lines(text: str, faults: Sequence[Fault]) -> list[Fault]:
    """Each fault with the line of the deepest part of its path that is in the file."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    found = []
    for fault in faults:
        node, line = root, 1
        for key in fault.path.split(".") if fault.path else ():
            inner = _inner(node, key)
            if inner is None:
                break
            node, line = inner[0], inner[1] + 1
        found.append(Fault(f"line {line}, {fault.path}" if fault.path else f"line {line}", fault.message))
    return found


def _inner(node: yaml.Node | None, key: str) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                return value, name.start_mark.line
    if isinstance(node, yaml.SequenceNode) and key.isdigit() and int(key) < len(node.value):
        value = node.value[int(key)]
        return value, value.start_mark.line
    return None
