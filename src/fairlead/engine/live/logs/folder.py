"""Lines on disk: a folder of numbered segments that every process of a node appends to.

Appending is one `write` to a file that is open for appending, so lines of different processes never mix and no process
waits for another. Whoever finds the last segment full begins the next one and deletes the oldest, so the folder stays
bounded without anyone to look after it, also while its gateway is down.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from fairlead.engine.live.logs.lines import Wanted

MOST_BYTES = 256 << 20
"""Of a folder, where nothing else is said."""

LOGS = "logs"
"""The name of the folder within the state folder of a gateway or the folder of an agent."""

_SEGMENTS = 16  # a folder is divided into
_LEAST_SEGMENT = 16 << 10
_SUFFIX = ".ndjson"
_BLOCK = 1 << 18  # bytes that are searched at once; more than the longest line has
_MOST_FOUND = 8 << 20  # bytes of lines that are found at once
_MOST_LINE = 1 << 20  # bytes of one line that a tail waits for
_LATE_S = 0.05  # a process that found room in a segment may still append to it when another has begun the next


class Place(NamedTuple):
    """A place in the lines of a folder."""

    segment: int
    offset: int


START = Place(0, 0)
"""Before the oldest line."""


class LogFolder:
    """Where the lines of a node are. Made on the first line.

    Args:
        path: The folder.
        most_bytes: What it may take on disk; a line more for each process that writes at the same instant.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self.most_bytes = most_bytes
        self._segment_bytes = max(_LEAST_SEGMENT, most_bytes // _SEGMENTS)
        self._number = 0
        self._file = -1

    def append(self, lines: bytes) -> None:
        """Keep whole lines. OSError where the disk does not take them."""
        if self._file < 0 or os.fstat(self._file).st_size >= self._segment_bytes:
            self._advance()
        os.write(self._file, lines)

    def close(self) -> None:
        """Let go of the open segment."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def segments(self) -> list[int]:
        """The numbers of the segments, the oldest first."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return sorted(int(name[: -len(_SUFFIX)]) for name in names if name.endswith(_SUFFIX) and name[0].isdigit())

    def sizes(self) -> Iterator[tuple[int, int]]:
        """The number and the size in bytes of each segment."""
        for number in self.segments():
            with suppress(FileNotFoundError):
                yield number, self._segment(number).stat().st_size

    def open(self, number: int) -> int:
        """A segment, to be read: a file descriptor. FileNotFoundError once it was deleted."""
        return os.open(self._segment(number), os.O_RDONLY | os.O_CLOEXEC)

    def end(self) -> Place:
        """The end of what is there now."""
        numbers = self.segments()
        with suppress(FileNotFoundError):
            if numbers:
                return Place(numbers[-1], self._segment(numbers[-1]).stat().st_size)
        return Place(numbers[-1] if numbers else 0, 0)

    def last(self, wanted: Wanted, most: int, end: Place | None = None) -> list[bytes]:
        """The last of the lines that are asked for, as they are kept, the oldest first; those before `end`.

        Gives fewer where they have more than 8 MB together. Blocks; call it on a thread.
        """
        found: list[bytes] = []
        left = _MOST_FOUND
        for number in reversed(self.segments()):
            if end is not None and number > end.segment:
                continue
            with suppress(FileNotFoundError):
                file = self.open(number)
                try:
                    about = os.fstat(file)
                    if wanted.since is not None and about.st_mtime < wanted.since:
                        break
                    size = end.offset if end is not None and number == end.segment else about.st_size
                    for line in _backwards(file, size, wanted):
                        left -= len(line)
                        if left < 0:
                            return found[::-1]
                        found.append(line)
                        if len(found) == most:
                            return found[::-1]
                finally:
                    os.close(file)
        return found[::-1]

    def recent(self, wanted: Wanted, most: int) -> list[bytes]:
        """The same from the end of the last segment alone: quick enough for an event loop."""
        for number in reversed(self.segments()):
            with suppress(FileNotFoundError):
                file = self.open(number)
                try:
                    size = os.fstat(file).st_size
                    data = os.pread(file, _BLOCK, max(0, size - _BLOCK))
                finally:
                    os.close(file)
                return list(islice(reversed(list(wanted.among(data))), most))[::-1]
        return []

    def _segment(self, number: int) -> Path:
        return self.path / f"{number:08d}{_SUFFIX}"

    def _advance(self) -> None:
        """Open the last segment, or begin one more where that is full."""
        self.close()
        while True:
            numbers = self.segments()
            newest = numbers[-1] if numbers else 0
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
            with suppress(FileNotFoundError):
                if newest:
                    file = os.open(self._segment(newest), flags)
                    if os.fstat(file).st_size < self._segment_bytes:
                        break
                    os.close(file)
                newest += 1
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                with suppress(FileExistsError):  # another process was faster
                    file = os.open(self._segment(newest), flags | os.O_CREAT | os.O_EXCL, 0o600)
                    for number in numbers[: max(0, len(numbers) + 2 - _SEGMENTS)]:
                        self._segment(number).unlink(missing_ok=True)
                    break
        self._file, self._number = file, newest


def _backwards(file: int, end: int, wanted: Wanted) -> Iterator[bytes]:
    """The wanted lines of a segment, the last first. Whole blocks without what is searched for are not decoded."""
    needle = wanted.needle
    rest = b""  # the beginning of what follows, whose line begins before it
    while end > 0:
        begin = max(0, end - _BLOCK)
        data = os.pread(file, end - begin, begin) + rest
        end = begin
        if begin > 0:
            rest, _, data = data.partition(b"\n")
            rest += b"\n"
        if needle is None or needle in data:
            yield from reversed(list(wanted.among(data)))
        time.sleep(0)  # let the event loop have its turn


class Tail:
    """Reads on where it was before: what all processes append, in order.

    Args:
        folder: Where lines are.
        begin: Where to begin; None for the end of what is there when this is made.
    """

    def __init__(self, folder: LogFolder, begin: Place | None = None) -> None:
        self._folder = folder
        self._number, self._offset = folder.end() if begin is None else begin
        self.skipped_segments = 0  # deleted before they were read

    def read(self, most_bytes: int = _BLOCK) -> bytes:
        """Whole lines that are new, `most_bytes` or one line of them at most; empty if there are none."""
        while True:
            try:
                file = self._folder.open(self._number)
            except FileNotFoundError:
                if not self._step():
                    return b""
                continue
            try:
                data = os.pread(file, most_bytes, self._offset)
                end = data.rfind(b"\n") + 1
                if not end and len(data) == most_bytes:
                    data = os.pread(file, _MOST_LINE, self._offset)
                    end = data.find(b"\n") + 1
                is_quiet = time.time() - os.fstat(file).st_mtime > _LATE_S
            finally:
                os.close(file)
            if not end and len(data) == _MOST_LINE:  # no line of ours
                self._offset += len(data)
                continue
            if end:
                self._offset += end
                return data[:end]
            if not is_quiet or not self._step():
                return b""

    @property
    def behind_bytes(self) -> int:
        """How much is there that was not read yet."""
        return sum(
            size - (self._offset if number == self._number else 0)
            for number, size in self._folder.sizes()
            if number >= self._number
        )

    def skip(self) -> None:
        """Go to the end of what is there."""
        self._number, self._offset = self._folder.end()

    def _step(self) -> bool:
        """Go to the next segment; False if there is none."""
        later = [number for number in self._folder.segments() if number > self._number]
        if not later:
            return False
        if self._number:
            self.skipped_segments += later[0] - self._number - 1
        self._number, self._offset = later[0], 0
        return True
