"""Questions about the records of a run, answered by the command line in a process of its own.

What `fairlead explain` and `fairlead replay` do takes seconds of CPU and much memory, so the gateway does none of it:
one process at a time, of the lowest priority, with a limit on its CPU time and on how long it may take in all.
"""

import asyncio
import os
import re
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fairlead.app.secrets import public_environment
from fairlead.engine.live.gateway.problems import Problem

LIMIT_S = 120.0
_CPU_S = 90
_MOST_WAITING = 4  # questions that may wait for the one that is being answered
_MOST_BYTES = 8 << 20
_NEWEST_MB = 24  # of the records of a run that are read: those of the last minutes
_ID = re.compile(r"(?P<app>[A-Za-z_][A-Za-z0-9_-]*)-(?P<generation>[0-9]{1,9})-(?P<number>[0-9]{1,18})").fullmatch


class Analyses:
    """Answers questions, one at a time."""

    def __init__(self, state: Path) -> None:
        self._runs = state / "runs"
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def story(self, id: str) -> bytes:
        """What `fairlead explain` says of a request, as JSON."""
        found = _ID(id)
        if found is None:
            raise Problem(404, "unknown_request", f"{id[:80]!r} is not the id of a request, such as shop-1-17.")
        run = self._run(found["app"], int(found["generation"]))
        command = ("explain", found["number"], "--run", str(run), "--newest-mb", str(_NEWEST_MB), "--json", "-")
        return await self._ask(command)

    async def replays(self, app: str, generation: int, policies: Sequence[str], last_s: float) -> bytes:
        """What `fairlead replay` gives for the last part of a run, under each of these policies, as JSON."""
        run = self._run(app, generation)
        chosen = [text for name in policies for text in ("--policy", name)]
        command = ("replay", str(run), *chosen, "--last", f"{last_s:g}s", "--newest-mb", str(_NEWEST_MB), "--quiet")
        return await self._ask((*command, "--json", "-"))

    def _run(self, app: str, generation: int) -> Path:
        run = self._runs / str(generation)
        if not run.is_dir():
            why = (
                f"There are no records of {app}, generation {generation}: it was served with --no-records, or long ago."
            )
            raise Problem(409, "no_records", why)
        return run

    async def _ask(self, command: Sequence[str]) -> bytes:
        if self._waiting >= _MOST_WAITING:
            raise Problem(429, "too_many_analyses", "Others wait for their turn already.", retry_after_s=5.0)
        self._waiting += 1
        try:
            async with self._turn:
                return await self._answer(command)
        finally:
            self._waiting -= 1

    async def _answer(self, command: Sequence[str]) -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "fairlead.cli",
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**public_environment(), "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
        )
        try:
            _restrain(process.pid)
            assert process.stdout is not None
            assert process.stderr is not None
            async with asyncio.timeout(LIMIT_S):
                out, err, _ = await asyncio.gather(_read(process.stdout), _read(process.stderr), process.wait())
        except TimeoutError:
            raise Problem(503, "analysis_too_long", f"It took more than {LIMIT_S:g} s and was given up.") from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if process.returncode == 0:
            return out
        if process.returncode == -signal.SIGXCPU or process.returncode == -signal.SIGKILL:
            raise Problem(503, "analysis_too_long", f"It took more than {_CPU_S} s of CPU time and was given up.")
        told = " ".join(err.decode(errors="replace").split())[-600:]
        raise Problem(422, "not_analysed", told.removeprefix("Error: ") or "The records could not be analysed.")


async def _read(stream: asyncio.StreamReader) -> bytes:
    """All of it; what is beyond the limit is read and dropped."""
    parts, size = [], 0
    while part := await stream.read(1 << 16):
        size += len(part)
        if size <= _MOST_BYTES:
            parts.append(part)
    return b"".join(parts)


def _restrain(pid: int) -> None:
    """Let everything else go first."""
    with suppress(ProcessLookupError, PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, 19)
        resource.prlimit(pid, resource.RLIMIT_CPU, (_CPU_S, _CPU_S + 5))
