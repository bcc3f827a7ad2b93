"""Lets PoCL 3 compile on processors that are newer than its LLVM.

LLVM 14 calls such a processor "generic", PoCL hands that name to Clang, and Clang refuses it: every build fails (PoCL
issue 1049). PoCL 3 has no setting for it, so the name is replaced where PoCL keeps it: in the device's structure, as
the pointer after the one to the target triple. Nothing is touched unless both are found as expected.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_STRUCTURE = 1024  # bytes of it that are searched
_TRIPLE = b"x86_64-unknown-linux-gnu\0"
_UNKNOWN = b"generic\0"
_V3 = frozenset({"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})
_names: list[ctypes.Array[ctypes.c_char]] = []  # PoCL keeps pointers to them


def name_processor(device: int) -> str | None:
    """Give a PoCL device (its handle) a processor that LLVM 14 knows; gives the name, None if that is not needed."""
    if sys.platform != "linux":
        return None
    readable = _readable()
    for address in range(device, device + _STRUCTURE, 8):
        if not _is_text(address, _TRIPLE, readable) or not _is_text(address + 8, _UNKNOWN, readable):
            continue
        name = "x86-64-v3" if _flags() >= _V3 else "x86-64"
        _names.append(ctypes.create_string_buffer(name.encode()))
        ctypes.c_uint64.from_address(address + 8).value = ctypes.addressof(_names[-1])
        return name
    return None


def mapped_file(name: str) -> str | None:
    """The path of a library of this process whose name begins so; None if there is none, or this is not Linux."""
    if sys.platform != "linux":
        return None
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        path = line.split(maxsplit=5)[5:]
        if path and Path(path[0]).name.startswith(name):
            return path[0]
    return None


def _is_text(address: int, text: bytes, readable: list[tuple[int, int]]) -> bool:
    """Whether a pointer to this text lies at an address."""
    if not _holds(address, 8, readable):
        return False
    pointer = ctypes.c_uint64.from_address(address).value
    return _holds(pointer, len(text), readable) and ctypes.string_at(pointer, len(text)) == text


def _holds(address: int, size: int, ranges: list[tuple[int, int]]) -> bool:
    return any(start <= address and address + size <= end for start, end in ranges)


def _readable() -> list[tuple[int, int]]:
    """The ranges of this process's memory that may be read."""
    ranges = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        place, rights, *_ = line.split()
        if rights.startswith("r"):
            start, _, end = place.partition("-")
            ranges.append((int(start, 16), int(end, 16)))
    return ranges


def _flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()
