"""A live run as it was logged: its head, its records, and every instant that its controller handled."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from fairlead.engine.core import events as ev
from fairlead.engine.core.site import with_tried
from fairlead.engine.live.eventlog import decode_instant
from fairlead.errors import ConfigError, Fault
from fairlead.model import Recording
from fairlead.report.live import read_live_run
from fairlead.runlog import Kind, RunHead, Tail, read_frames, read_head
from fairlead.workload import Scenario

Row = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """All that a live run left. Without `is_whole` its oldest segments are gone; without `has_ended` it still goes on,
    or was killed."""

    folder: Path
    head: RunHead
    recording: Recording
    instants: tuple[tuple[float, tuple[ev.Event, ...]], ...]
    requests: tuple[Row, ...]  # rows as the controller wrote them; the recording has guesses besides
    invocations: tuple[Row, ...]
    instances: tuple[Row, ...]
    is_whole: bool
    has_ended: bool
    damaged_bytes: int

    @property
    def scenario(self) -> Scenario:
        """What was declared, with the times of functions that were tried out before the first request."""
        scenario = self.head.scenario
        for _, events in self.instants:
            for event in events:
                if isinstance(event, ev.Tried):
                    scenario = with_tried(scenario, event.times)
        return scenario


def read_logged_run(folder: Path | str, newest_bytes: int | None = None) -> LoggedRun:
    """The live run in a folder; ConfigError says what is wrong with it. For `newest_bytes`, see `read_frames`."""
    folder = Path(folder)
    head = read_head(folder)
    recording = read_live_run(folder, newest_bytes)
    tail = Tail()
    rows: dict[int, list[Row]] = {Kind.REQUESTS: [], Kind.INVOCATIONS: [], Kind.INSTANCES: []}
    instants: list[tuple[float, tuple[ev.Event, ...]]] = []
    has_ended = False
    try:
        for frame in read_frames(folder, tail, newest_bytes):
            if frame.kind in rows:
                rows[frame.kind] += [tuple(row) for row in frame.entries]
            elif frame.kind == Kind.INSTANTS:
                for entry in frame.entries:
                    now, events = decode_instant(entry)
                    instants.append((now, tuple(events)))
            elif frame.kind == Kind.END:
                has_ended = True
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        message = f"its events cannot be read, perhaps because another version wrote them: {error}"
        raise ConfigError(str(folder), [Fault("", message)]) from error
    return LoggedRun(
        folder=folder,
        head=head,
        recording=recording,
        instants=tuple(instants),
        requests=tuple(rows[Kind.REQUESTS]),
        invocations=tuple(rows[Kind.INVOCATIONS]),
        instances=tuple(rows[Kind.INSTANCES]),
        is_whole=tail.is_whole,
        has_ended=has_ended,
        damaged_bytes=tail.damaged_bytes,
    )
