"""The traffic counters of memory controllers, as sysfs describes them."""

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from fairlead.monitor.files import parse_cpus, read, read_number

_NAMES = {"cas_count_read": "reads", "cas_count_write": "writes", "data_reads": "reads", "data_writes": "writes"}
_GB = {"MiB": 2**20 / 1e9, "MB": 1e-3, "": 64e-9}  # without a unit, a count is one line of the cache


class MemoryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of one memory controller; `cpu` is where the kernel wants it to be opened."""

    kind: int
    config: int
    cpu: int
    direction: str
    gb_per_count: float


def find_memory_events(
    cpus: Collection[int],
    devices: Path = Path("/sys/bus/event_source/devices"),
    cpu_folder: Path = Path("/sys/devices/system/cpu"),
) -> list[MemoryEvent]:
    """Those of the sockets that these CPUs belong to; none where there are no such devices."""
    sockets = {_socket(cpu_folder, cpu) for cpu in cpus}
    return [event for event in _all_events(devices) if _socket(cpu_folder, event.cpu) in sockets]


def _all_events(devices: Path) -> Iterator[MemoryEvent]:
    for device in sorted(devices.glob("uncore_imc*")):
        kind, where = read_number(device / "type"), read(device / "cpumask")
        if kind is None or not (where or "").strip():
            continue
        for name, direction in _NAMES.items():
            config = _config(device, read(device / "events" / name))
            if config is None:
                continue
            scale = float(read(device / "events" / f"{name}.scale") or 1)
            unit = (read(device / "events" / f"{name}.unit") or "").strip()
            for cpu in parse_cpus(where or ""):
                yield MemoryEvent(
                    kind=kind, config=config, cpu=cpu, direction=direction, gb_per_count=scale * _GB.get(unit, 0.0)
                )


def _config(device: Path, text: str | None) -> int | None:
    """`event=0x04,umask=0x03` put together as the device's `format` files say; None for what goes beyond that."""
    if text is None:
        return None
    config = 0
    for term in text.strip().split(","):
        name, _, value = term.partition("=")
        place = (read(device / "format" / name) or "").strip()
        field, _, bits = place.partition(":")
        if field != "config" or not bits:
            return None
        config |= int(value or "1", 0) << int(bits.partition("-")[0])
    return config


def _socket(cpu_folder: Path, cpu: int) -> int | None:
    return read_number(cpu_folder / f"cpu{cpu}" / "topology" / "physical_package_id")
