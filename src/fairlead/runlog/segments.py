"""Segments: append-only files of frames, each with its length and a checksum.

A process that is killed leaves a torn frame at the end at most; a reader stops there. When the files take more than
they may, the oldest go.

What frames hold, as MessagePack: rows of the three tables in the order of their columns (`model.tables`), refusals as
(now, action, reason), instants as (now, events), the end as (end_s, stale events), what a scaler made of a function as
in `scaling`, and decision times as (seconds,). An event is [kind, fields...], with the kinds of `EVENTS`; an arrival is
flat, so that it can be read without knowing requests.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from struct import Struct
from zlib import crc32

import msgspec

_PREFIX = Struct("<II")  # length of the payload, its checksum
_NAME = re.compile(r"segment-(\d{6})\.frames")
_LARGEST = 1 << 28  # no writer makes such a frame: it is damage

EVENTS = (
    "NodeLost",
    "NodeJoined",
    "Pressure",
    "InstanceLost",
    "InstanceReady",
    "Finished",
    "Cancelled",
    "Arrived",  # id, workflow, arrival, deadline, budget_usd, items
    "Ordered",
    "Signalled",
    "Expired",
    "InstanceGone",
    "ResizeRefused",
    "NodeChanged",
    "InstanceAdopted",
    "NodeDraining",
    "Recalled",
    "Tried",
    "BuffersEvicted",
)
"""The place of an event's class in here is its number on disk: append only."""

ARRIVED = EVENTS.index("Arrived")
READY = EVENTS.index("InstanceReady")


class Kind(IntEnum):
    """What a frame holds."""

    REQUESTS = 0
    INVOCATIONS = 1
    INSTANCES = 2
    INSTANTS = 3
    REFUSALS = 4
    END = 5
    SCALING = 6
    DECISIONS = 7


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A number of entries of one kind."""

    kind: int
    entries: list[list[object]]


class SegmentWriter:
    """Appends frames to the newest segment of a folder. Errors of the disk are the caller's to handle."""

    def __init__(self, folder: Path, segment_bytes: int, keep_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._keep_bytes = keep_bytes
        self._number = 0
        self._file = -1
        self._size = 0
        self._closed: list[tuple[Path, int]] = []  # earlier segments, oldest first, with their sizes

    def append(self, payload: bytes) -> None:
        """Write one frame with one call, so that a kill tears the last at most."""
        if self._file < 0 or self._size >= self._segment_bytes:
            self._next()
        data = _PREFIX.pack(len(payload), crc32(payload)) + payload
        written = os.write(self._file, data)
        while written < len(data):  # a disk that is nearly full takes a part
            written += os.write(self._file, data[written:])
        self._size += len(data)

    def close(self) -> None:
        """No more frames."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _next(self) -> None:
        if self._file >= 0:
            self.close()
            self._closed.append((self._path(), self._size))
        self._number += 1
        self._size = 0
        self._file = os.open(self._path(), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        kept = sum(size for _, size in self._closed)
        while self._closed and kept + self._segment_bytes > self._keep_bytes:
            path, size = self._closed.pop(0)
            path.unlink(missing_ok=True)
            kept -= size

    def _path(self) -> Path:
        return self._folder / f"segment-{self._number:06}.frames"


class Tail(msgspec.Struct):
    """What a reader found besides the frames: whether the beginning is still there, and what was torn or damaged."""

    is_whole: bool = True
    damaged_bytes: int = 0


def read_frames(folder: Path, tail: Tail | None = None, newest_bytes: int | None = None) -> Iterator[Frame]:
    """Every frame of a folder in the order of writing, also while it is being written to.

    What does not check ends its segment: the rest of it is counted in `tail`. With `newest_bytes`, of a longer run only
    the first segment, which tells how it began, and about this number of bytes at its end are read.
    """
    tail = tail if tail is not None else Tail()
    decoder = msgspec.msgpack.Decoder(Frame)
    numbers = sorted(int(match[1]) for path in folder.glob("segment-*") if (match := _NAME.fullmatch(path.name)))
    tail.is_whole = numbers == list(range(1, len(numbers) + 1))
    if newest_bytes is not None and len(newest := _newest(folder, numbers, newest_bytes)) < len(numbers):
        tail.is_whole = False
        numbers = [number for number in numbers if number == 1 or number in newest]
    for number in numbers:
        try:
            data = (folder / f"segment-{number:06}.frames").read_bytes()
        except FileNotFoundError:  # it was the oldest, and has just gone
            tail.is_whole = False
            continue
        place = 0
        while place + _PREFIX.size <= len(data):
            length, checksum = _PREFIX.unpack_from(data, place)
            payload = data[place + _PREFIX.size : place + _PREFIX.size + length]
            if length > _LARGEST or len(payload) < length or crc32(payload) != checksum:
                break
            try:
                frame = decoder.decode(payload)
            except (msgspec.DecodeError, UnicodeDecodeError):
                break
            yield frame
            place += _PREFIX.size + length
        tail.damaged_bytes += len(data) - place


def _newest(folder: Path, numbers: list[int], most_bytes: int) -> set[int]:
    """The last segments that together have at most this number of bytes; one at least."""
    newest: set[int] = set()
    size = 0
    for number in reversed(numbers):
        with suppress(FileNotFoundError):
            size += (folder / f"segment-{number:06}.frames").stat().st_size
        if newest and size > most_bytes:
            break
        newest.add(number)
    return newest


def prune_runs(runs: Path, keep: int) -> list[Path]:
    """Remove the oldest runs of a folder, by number, until so many are left; what was removed.

    A folder that holds anything but a run's own files is left alone.
    """
    numbered = sorted((int(path.name), path) for path in runs.iterdir() if path.name.isdigit() and path.is_dir())
    removed = []
    for _, folder in numbered[: max(0, len(numbered) - keep)]:
        files = list(folder.iterdir())
        if all(_NAME.fullmatch(file.name) or file.name.startswith("live.json") for file in files):
            for file in files:
                file.unlink(missing_ok=True)
            folder.rmdir()
            removed.append(folder)
    return removed
