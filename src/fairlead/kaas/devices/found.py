"""Which devices there are: `python -m fairlead.kaas.devices.found CACHE [NAME...]` prints them as JSON.

A process of its own, since a driver that is loaded once stays, and one that crashes should do no harm.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from fairlead.errors import FairleadError
from fairlead.kaas.devices.base import open_device
from fairlead.kaas.errors import DeviceLostError

_LIMIT_S = 60.0
_MOST = 64  # devices of one kind


class FoundDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device: its name here, what its driver calls it, and its memory."""

    device: str
    name: str
    memory_bytes: int


class _Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    devices: tuple[FoundDevice, ...] = ()
    error: str = ""


def find_devices(
    cache: Path, names: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> list[FoundDevice]:
    """The devices of these names; without names, every OpenCL device, and none where there is no OpenCL. Blocks.

    DeviceLostError if one that is named does not exist or cannot be opened.
    """
    command = [sys.executable, "-m", "fairlead.kaas.devices.found", str(cache), *names]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise DeviceLostError(f"The devices did not open within {_LIMIT_S:g} s.") from None
    try:
        reply = msgspec.json.decode(done.stdout, type=_Reply)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        tail = done.stderr.decode(errors="replace").strip()[-500:]
        if not names:
            return []
        raise DeviceLostError(f"Looking for {', '.join(names)} ended with {done.returncode}: {tail}") from None
    if reply.error:
        raise DeviceLostError(reply.error)
    return list(reply.devices)


def _look(cache: Path, names: Sequence[str]) -> _Reply:
    found = []
    for name in names or [f"opencl:{i}" for i in range(_MOST)]:
        try:
            device = open_device(name, cache)
            found.append(FoundDevice(name, device.name, device.memory().total))
        except (FairleadError, ValueError) as error:
            if names:
                return _Reply(error=str(error))
            break
    return _Reply(tuple(found))


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_look(Path(sys.argv[1]), sys.argv[2:])))
