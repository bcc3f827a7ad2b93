"""Serve the video workflow in its four granularities, through a real object store and with real queue-workers."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from fairlead.experiments.cases import Progress, Settings, read_settings
from fairlead.experiments.granularity_live.judging import at, judge, rows_of
from fairlead.experiments.granularity_live.parts import PARTS
from fairlead.experiments.granularity_live.s3 import bucket, s3rver_command
from fairlead.experiments.granularity_live.serving import Session, Taken, cells_of, serve_and_ask
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows, difference, measured, select
from fairlead.experiments.video_bench import check_video

__all__ = ["judge", "run"]

SESSIONS_VARIABLE = "FAIRLEAD_SESSIONS"
"""The environment variable that names a folder for sessions that are done: a run that was ended goes on after them."""


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Latency of versions 1 to 4 and where it goes, by passing and queue-workers."""
    check_video()
    s3rver_command()
    settings = read_settings(__package__)
    sessions = settings["quick_sessions" if quick else "sessions"]
    # In units of a frame: what a request takes, and so how much of the whole is done, goes by its frames.
    total = sum(_frames(settings, session) for session in sessions)
    taken: list[Taken] = []
    busy: dict[int, float] = {}
    done = 0
    with TemporaryDirectory(prefix="fairlead-granularity-") as folder:
        for number, session in enumerate(sessions):
            place = Path(folder, str(number))
            place.mkdir()

            def on_answer(what: str, frames: int = session["frames"]) -> None:
                nonlocal done
                done += frames
                progress(min(1.0, done / total), what)

            found = _kept(session)
            if found is None:
                with bucket(place / "s3") as store:
                    found = serve_and_ask(place, settings, session, store, on_answer)
                _keep(found)
            else:
                done += _frames(settings, session)
            taken += found.taken
            busy[session["workers"]] = max(found.busy_before, busy.get(session["workers"], 0.0))
    rows = rows_of(taken, busy)
    return Reproduction(
        name="granularity-live",
        title="Darly (thesis 4.4) live: what splitting a video workflow costs, through a store and queue-workers",
        rows=tuple(rows),
        notes=tuple(_notes(select(rows, part="request"), select(rows, part="function"))),
    )


def _frames(settings: Settings, session: Mapping[str, Any]) -> int:
    """How many frames a session asks for in all."""
    requests = (settings["warm_up"] + session["repeats"]) * len(cells_of(settings, session))
    return int(requests * session["frames"])


def _kept(session: Mapping[str, Any]) -> Session | None:
    """What a former run has kept of a session."""
    path = _path(session)
    return None if path is None or not path.exists() else msgspec.json.decode(path.read_bytes(), type=Session)


def _keep(session: Session) -> None:
    path = _path(session.asked)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(session))


def _path(session: Mapping[str, Any]) -> Path | None:
    """Where a session is kept: its name says all that was asked for."""
    folder = os.environ.get(SESSIONS_VARIABLE)
    if not folder:
        return None
    versions = "".join(map(str, session.get("versions", ())))
    name = f"{session['frames']}-frames-{session['workers']}-workers-{session['repeats']}-repeats"
    return Path(folder, f"{name}{versions and f'-versions-{versions}'}.json")


def _notes(requests: Rows, functions: Rows) -> list[str]:
    found = [
        "Parts of a latency add up to it: compute, get and put are what functions say that they did; hop is what a "
        "call took besides; gateway is when no call was under way. While several calls are under way an instant counts "
        "for each in equal parts. wait is from when a call could start until a worker took it, and is no part."
    ]
    for workers, frames in sorted({(row["workers"], row["frames"]) for row in requests}):
        own = select(requests, workers=workers, frames=frames)
        found.append(f"{workers} queue-worker(s), {frames} frames: {'; '.join(_told(own))}.")
        if workers == 1:
            found += [_explained(own, passing, frames) for passing in dict.fromkeys(row["passing"] for row in own)]
            found += _by_function(select(functions, workers=workers, frames=frames, passing="store"))
    found.append(
        f"{os.cpu_count()} CPU cores hold functions, gateway, store server and client at once. With one worker the "
        "store and the gateway have a core to themselves, so get and put are what a nearby, idle store would take; "
        "with more workers than cores, calls slow each other down and nothing is said of more nodes. Between machines "
        "the way to a store would take longer than on a loopback."
    )
    return found


def _told(rows: Rows) -> Sequence[str]:
    return [
        f"version {row['version']} ({row['passing']}) {measured(row, 'latency_s').text()} s"
        for row in sorted(rows, key=lambda row: (row["passing"] != "store", row["version"]))
    ]


def _explained(rows: Rows, passing: str, frames: int) -> str:
    """What version 1 takes more than version 4 per frame, part by part."""
    five, one = (at(rows, version, passing, 1, frames) for version in (1, 4))
    per_frame = 1e3 / frames
    whole = difference(five, one, "latency_s").text(1, per_frame)
    parts = ", ".join(f"{part} {difference(five, one, f'{part}_s').text(1, per_frame)}" for part in PARTS)
    return f"Version 1 takes {whole} ms per frame more than version 4, {passing}, {frames} frames: {parts}."


def _by_function(rows: Rows) -> Iterator[str]:
    """What a call of each function takes, version by version."""
    for version in dict.fromkeys(row["version"] for row in rows):
        calls = "; ".join(
            f"{row['function']} ({row['calls']:g} calls) "
            + ", ".join(f"{name} {row[f'{name}_ms']:.1f}" for name in ("run", "get", "put", "hop", "wait"))
            for row in select(rows, version=version)
        )
        yield f"Milliseconds per call, version {version}, store, {rows[0]['frames']} frames: {calls}."
