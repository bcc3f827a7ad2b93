"""Which devices the nodes of this machine have for kernels: those that are named, else every one that is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

import msgspec

from fairlead.app.secrets import public_environment
from fairlead.errors import ConfigError, Fault
from fairlead.kaas.devices.found import FoundDevice, find_devices
from fairlead.kaas.errors import DeviceLostError
from fairlead.model import Device, Node

NUMPY = "numpy"


class DeviceChoice(msgspec.Struct, frozen=True):
    """What `--device` and `--device-memory` say; 0 bytes for what the driver reports."""

    names: tuple[str, ...] = ()
    memory_bytes: int = 0


class DeviceFinder:
    """Looks devices up, each only once.

    Args:
        cache: Folder for compiled code.
        choice: Devices for the first node, in the place of those that its app names.
        log: Told what is used where nothing was named.
    """

    def __init__(self, cache: Path, choice: DeviceChoice, log: Callable[[str], None]) -> None:
        self._cache = cache
        self._choice = choice
        self._log = log
        self._is_needed = False
        self._found: dict[tuple[str, ...], list[FoundDevice]] = {}

    def complete(self, nodes: Sequence[Node], *, is_needed: bool) -> tuple[Node, ...]:
        """The nodes with their devices, and the memory of each. Blocks. ConfigError for one that does not exist.

        Where none is named and one `is_needed`, the first node gets every OpenCL device, or NumPy.
        """
        choice = self._choice
        found = list(nodes)
        is_needed = self._is_needed = is_needed or self._is_needed  # what one app has seen of a node all others see
        if choice.names:
            first = next((i for i, node in enumerate(found) if node.devices), 0)
            found = [msgspec.structs.replace(node, devices=()) for node in found]
            devices = tuple(Device(vgpus=1, name=name, serves="kernels") for name in choice.names)
            found[first] = msgspec.structs.replace(found[first], devices=devices)
        elif is_needed and not any(node.devices for node in found):
            there = self._look(()) or self._look((NUMPY,))
            names = ", ".join(f"{each.device} ({each.name})" for each in there)
            hint = "" if there[0].device != NUMPY else ": there is no OpenCL device; install 'fairlead[kaas]' for one"
            self._log(f"kernels run on {names}{hint}")
            devices = tuple(Device(vgpus=1, name=each.device, serves="kernels") for each in there)
            found[0] = msgspec.structs.replace(found[0], devices=devices)
        return tuple(self._with_memory(node) for node in found)

    def _with_memory(self, node: Node) -> Node:
        if not node.devices:
            return node
        there = self._look(tuple(device.name for device in node.devices))
        devices = tuple(
            msgspec.structs.replace(device, memory_gb=self._memory_gb(device, each))
            for device, each in zip(node.devices, there, strict=True)
        )
        return msgspec.structs.replace(node, devices=devices)

    def _memory_gb(self, device: Device, found: FoundDevice) -> float:
        """Its cap: what was asked for, at most what there is. NumPy has no memory of its own."""
        asked = self._choice.memory_bytes / 2**30 or device.memory_gb
        return asked if device.name == NUMPY else min(asked, found.memory_bytes / 2**30 or inf)

    def _look(self, names: tuple[str, ...]) -> list[FoundDevice]:
        if names not in self._found:
            try:
                self._found[names] = find_devices(self._cache, names, public_environment())
            except DeviceLostError as error:
                raise ConfigError("devices", [Fault("", str(error))]) from None
        return self._found[names]
