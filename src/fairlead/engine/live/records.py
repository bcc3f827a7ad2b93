"""What a live run leaves on disk, written by a thread of its own: serving never waits for the disk.

The event loop's thread only appends to lists. The writer takes from their front what is there, several times per
second, packs it in small pieces and lets go of the interpreter between them, so that nobody waits long for it. A disk
that fails ends the records, not the serving.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from time import sleep
from typing import TypeVar

import msgspec

from fairlead.engine.core.changes import Row
from fairlead.engine.core.events import Event
from fairlead.engine.live.eventlog import encode_instant
from fairlead.model import Refusal
from fairlead.runlog import Kind, RunHead, ScalingRow, SegmentWriter, write_head

__all__ = ["RunHead", "RunLog"]

Entry = TypeVar("Entry")

_PERIOD_S = 0.25  # what a kill loses at most, about
_PIECE = 96  # entries per frame: packed in about 0.1 ms, which is how long the event loop may wait for it
_MOST = 200_000  # entries that may wait for a disk that hangs; beyond, they are given up
_CLOSE_S = 10.0  # how long an ending run waits for the disk


class RunLog:
    """The recorder of a live run: rows from the controller's books, and every instant that the controller handled.

    Args:
        folder: The run's own; made if need be.
        head: What the run was given.
        segment_bytes: When a segment ends and the next begins.
        keep_bytes: What all segments may take; the oldest go first. A run that lost its beginning can still be
            reported and replayed, but not exactly.
        say: Told once, in words, if the disk fails.
    """

    __slots__ = (
        "_end",
        "_has_failed",
        "_instants",
        "_kinds",
        "_note",
        "_pack",
        "_refusals",
        "_say",
        "_scalings",
        "_segments",
        "_thread",
        "_wake",
        "instances",
        "invocations",
        "lost",
        "requests",
        "times_s",
    )

    def __init__(
        self,
        folder: Path,
        head: RunHead,
        *,
        segment_bytes: int = 8 << 20,
        keep_bytes: int = 512 << 20,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.requests: list[Row] = []
        self.invocations: list[Row] = []
        self.instances: list[Row] = []
        self.times_s: list[float] = []  # of each call of the dispatcher
        self.lost = 0  # entries that are not on disk, for want of it
        self._instants: list[tuple[float, Sequence[Event]]] = []
        self._note = self._instants.append  # bound once: `log` is called for every event
        self._refusals: list[Row] = []
        self._scalings: list[Row] = []
        self._kinds: tuple[tuple[Kind, list[Row]], ...] = (
            (Kind.INVOCATIONS, self.invocations),
            (Kind.REQUESTS, self.requests),
            (Kind.INSTANCES, self.instances),
            (Kind.REFUSALS, self._refusals),
            (Kind.SCALING, self._scalings),
        )
        self._pack = msgspec.msgpack.Encoder(enc_hook=_plain).encode
        self._say = say or _to_stderr
        self._segments = SegmentWriter(folder, segment_bytes, keep_bytes)
        self._has_failed = False
        self._end: Row | None = None
        self._wake = Flag()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_head(head, folder)
        except OSError as error:
            self._fail(error.strerror or str(error))
        self._thread = Thread(target=self._write, name="fairlead-records", daemon=True)
        self._thread.start()

    def log(self, now: float, events: Sequence[Event]) -> None:
        """Every call of the controller, in order and before it is made. The sequence must not change afterwards."""
        self._note((now, events))

    def refused(self, refusal: Refusal) -> None:
        """An action that could not be carried out."""
        self._refusals.append((refusal.now, refusal.action, refusal.reason))

    def scaled(self, rows: Sequence[ScalingRow]) -> None:
        """What a scaler made of the functions, after a control period."""
        self._scalings += [msgspec.structs.astuple(row) for row in rows]

    def trim(self) -> None:
        """Nothing, unless the disk hangs: then the memory that rows take is bounded by giving them up."""
        if len(self._instants) > _MOST or len(self.invocations) > _MOST:
            self._fail("the disk does not keep up")
            self._give_up()

    @property
    def has_failed(self) -> bool:
        """Whether the disk failed, so that records have ended."""
        return self._has_failed

    def flush(self) -> None:
        """Let the writer begin now with what there is. Does not wait for it."""
        self._wake.set()

    def close(self, end_s: float, stale_events: int = 0) -> None:
        """Write what is left and the end; waits for the disk a few seconds at most."""
        if self._end is None:
            self._end = (end_s, stale_events)
            self._wake.set()
            self._thread.join(_CLOSE_S)

    # --- the writer's thread -------------------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            while self._end is None:
                self._wake.wait(_PERIOD_S)
                self._wake.clear()
                self._take_all()
            self._take_all()
            if not self._has_failed:
                self._segments.append(self._pack((Kind.END, [self._end])))
        except OSError as error:
            self._fail(error.strerror or str(error))
        finally:
            self._segments.close()

    def _take_all(self) -> None:
        """Write what is there now; what comes meanwhile waits for the next time."""
        if self._has_failed:
            self._give_up()
            return
        try:
            pieces = max(len(self._instants), len(self.times_s), *(len(rows) for _, rows in self._kinds))
            for _ in range(0, pieces, _PIECE):  # in turn, so that a kill finds all tables about equally far
                self._take_piece()
        except OSError as error:
            self._fail(error.strerror or str(error))

    def _take_piece(self) -> None:
        """A piece of everything, letting go of the interpreter after each."""
        for kind, rows in self._kinds:
            if rows:
                self._segments.append(self._pack((kind, _front(rows))))
                sleep(0)
        if self.times_s:
            self._segments.append(self._pack((Kind.DECISIONS, [(time_s,) for time_s in _front(self.times_s)])))
            sleep(0)
        if self._instants:
            piece = [encode_instant(now, events) for now, events in _front(self._instants)]
            self._segments.append(self._pack((Kind.INSTANTS, piece)))
            sleep(0)

    def _give_up(self) -> None:
        for _, rows in self._kinds:
            self.lost += _clear(rows)
        self.lost += _clear(self._instants) + _clear(self.times_s)

    def _fail(self, why: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._say(f"The records of this run end here: {why}. Requests are served as before.")


def _front(entries: list[Entry]) -> list[Entry]:
    """The first entries, taken out. Each of the two steps is one for other threads, which only append."""
    piece = entries[:_PIECE]
    del entries[: len(piece)]
    return piece


def _clear(entries: list[Entry]) -> int:
    count = len(entries)
    del entries[:count]
    return count


def _plain(value: object) -> object:
    item = getattr(value, "item", None)  # a NumPy number
    return item() if item is not None else str(value)


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"Warning: {text}\n")
    sys.stderr.flush()
