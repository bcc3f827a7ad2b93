"""The `host` part of a scenario file: the machine that serves, its gateway and its cores."""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from fairlead.errors import ConfigError
from fairlead.profile import Host, Link
from fairlead.profile.host import read_machine
from fairlead.workload.parse.reader import Section, integer, mapping, number, text

_WHOLE = ("cores", "max_open", "max_sent")
_LISTS = ("wake_s", "wake_busy_s")
_LISTS_BY_NAME = ("run_delay_s", "run_delay_busy_s")
_BY_NAME = ("decision_s", "decision_waiting_s", "cpu_share", "run_s", "run_share", "values_mb")
_NESTED = ("arms", "items", "cores_used")

_MAPPING: Callable[[object], Mapping[object, object]] = mapping


def parse_host(top: Section, folder: Path) -> Host | None:
    """The host; None where there is none, or with its faults. `machine` names a machine file, which the rest amends."""
    section = None if top.raw("host") is None else top.part("host")
    if section is None:
        return None
    before = len(top.faults)
    values = _from_file(section, folder)
    names = [field.name for field in msgspec.structs.fields(Host)]
    for name in names:
        if name in _LISTS:
            if name in section:
                values[name] = tuple(section.all_of(name, number))
        elif name in _LISTS_BY_NAME:
            values |= {name: delays} if (delays := _lists(section, name)) is not None else {}
        elif name in _BY_NAME:
            values |= {name: found} if (found := _numbers(section, name)) is not None else {}
        elif name in _NESTED:
            values |= {name: nested} if (nested := _nested(section, name)) is not None else {}
        elif name == "links":
            values |= {name: _links(section.section(name))} if name in section else {}
        else:
            values |= section.read({name: integer if name in _WHOLE else number})
    section.finish()
    if "cores" not in values:
        section.fault("cores", "is missing.")
    host = section.build(Host, values, {"cores": 1})
    return host if len(top.faults) == before else None


def _links(section: Section) -> dict[str, Link]:
    found = {}
    checks = {"way_s": number, "cpu_s": number, "mb_s": number, "machine": text, "cores": integer}
    for name, part in section.named_sections():
        link = part.build(Link, part.read(checks))
        part.finish()
        if link is not None:
            found[name] = link
    return found


def _from_file(section: Section, folder: Path) -> dict[str, object]:
    file = section.get("machine", text, None)
    if file is None:
        return {}
    try:
        return msgspec.structs.asdict(read_machine(folder / file).host)
    except ConfigError as error:
        for fault in error.faults:
            section.fault("machine", f"{folder / file}: {fault}")
        return {"cores": 1}


def _numbers(section: Section, key: str) -> dict[str, float] | None:
    """Numbers by name; None where the key is not there."""
    return None if key not in section else _read(section, key, section.get(key, _MAPPING, {}), number)


def _lists(section: Section, key: str) -> dict[str, tuple[float, ...]] | None:
    """Lists of numbers by name; None where the key is not there."""
    if key not in section:
        return None
    inner = section.section(key)
    return {name: tuple(inner.all_of(name, number)) for name in inner.names()}


def _nested(section: Section, key: str) -> dict[str, dict[str, float]] | None:
    """Numbers by two names, such as workflow and stage; whole ones of items. None where the key is not there."""
    if key not in section:
        return None
    found: dict[str, dict[str, float]] = {}
    for name, inner in section.get(key, _MAPPING, {}).items():
        try:
            found[str(name)] = _read(section, f"{key}.{name}", mapping(inner), integer if key == "items" else number)
        except ValueError as error:
            section.fault(f"{key}.{name}", str(error))
    return found


def _read(
    section: Section, path: str, values: Mapping[object, object], check: Callable[[object], float]
) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in values.items():
        try:
            found[str(name)] = check(value)
        except ValueError as error:
            section.fault(f"{path}.{name}", str(error))
    return found
