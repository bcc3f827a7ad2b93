"""Agents in processes of their own, as if on other servers: one that stops or stands still leaves the others alone.

For live runs: which answers are in time depends on the machine, so such a run is not repeated by its seed and cannot be
replayed exactly. With `hosts=0`, the default, all agents are in the scaler's own process and a run is deterministic.

The scaler never waits longer than `answer_s` per control period for all processes together, whatever they do: it reads
and writes without blocking, up to that deadline. A late answer is known by its number and thrown away.
"""

import os
import select
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead.policy.simppo.agents import NO_ANSWER
from fairlead.policy.simppo.frames import HELLO, Answer, Assignment, Inbox, Question, framed
from fairlead.policy.simppo.observation import Observations
from fairlead.policy.simppo.reward import Actions

PROGRAM = (sys.executable, "-m", "fairlead.policy.simppo.host")
PATIENCE = 10
"""A process that has not answered for so many periods is ended, and another one started."""

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""Before a process that ended is started again; twice as long each time until it answers."""

_LOADING_S = 60.0  # for a process to say that its agents are loaded


class Hosts:
    """Agents spread over processes, function by function in turn.

    Args:
        checkpoint: File of the agents.
        numbers: For each function, the number of its agent in the file.
        processes: How many.
        answer_s: How long an answer may take, above 0.
        rng: Gives each process its seed; without, agents take the likeliest action.
    """

    def __init__(
        self,
        checkpoint: str,
        numbers: NDArray[np.intp],
        processes: int,
        answer_s: float,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._functions, self._answer_s, self._period = len(numbers), answer_s, HELLO
        self._hosts = [
            _Host(
                np.arange(first, len(numbers), processes),
                Assignment(
                    checkpoint=checkpoint,
                    numbers=tuple(numbers[first::processes].tolist()),
                    seed=None if rng is None else int(rng.integers(2**32)),
                ),
            )
            for first in range(min(processes, len(numbers)))
        ]
        self._end = weakref.finalize(self, _end_all, self._hosts)
        for host in self._hosts:
            host.tend()

    @property
    def processes(self) -> tuple[int | None, ...]:
        """The process id of each, None while it is down."""
        return tuple(host.pid for host in self._hosts)

    def wait(self, limit_s: float) -> bool:
        """Wait until all have loaded their agents; False if that took too long."""
        until = monotonic() + limit_s
        while any(not host.is_loaded and host.pid for host in self._hosts) and monotonic() < until:
            _exchange([host for host in self._hosts if not host.is_loaded], until)
        return all(host.is_loaded for host in self._hosts)

    def choose(self, seen: Observations, allowed: NDArray[np.bool_]) -> Actions:
        """What the agents answer in time; `NO_ANSWER` for those that do not."""
        self._period += 1
        until = monotonic() + self._answer_s
        for host in self._hosts:
            host.tend()
        _exchange(self._hosts, 0.0)  # what came since the last time: late answers, and word of those that have loaded
        for host in self._hosts:
            host.ask(self._period, seen, allowed)
        while any(host.is_asked for host in self._hosts) and monotonic() < until:
            _exchange(self._hosts, until)
        found = np.full(self._functions, NO_ANSWER)
        for host in self._hosts:
            found[host.rows] = host.answer
        return found

    def close(self) -> None:
        """End all processes."""
        self._end()


class _Host:
    """One process, from its start to the next."""

    def __init__(self, rows: NDArray[np.intp], assignment: Assignment) -> None:
        self.rows = rows
        self.answer: Actions = np.full(len(rows), NO_ANSWER)
        self.is_loaded = self.is_asked = False
        self._assignment = assignment
        self._process: subprocess.Popen[bytes] | None = None
        self._inbox, self._outbox = Inbox(), bytearray()
        self._period = HELLO
        self._silent = 0
        self._wait_s, self._not_before, self._started = FIRST_WAIT_S, 0.0, 0.0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def tend(self) -> None:
        """End a process that does not answer any more, and start one where there is none and it is time."""
        if self._process is not None:
            has_ended = self._process.poll() is not None
            is_slow = not self.is_loaded and monotonic() - self._started > _LOADING_S
            if has_ended or is_slow or self._silent >= PATIENCE:
                self.end()
        if self._process is None and monotonic() >= self._not_before:
            self._start()

    def _start(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._started = monotonic()
        process = subprocess.Popen(PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment)
        assert process.stdin is not None
        assert process.stdout is not None
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)
        self._process, self._inbox, self._outbox = process, Inbox(), bytearray(framed(self._assignment))
        self._silent = 0

    def end(self) -> None:
        """End the process, if there is one; it may be started again after a while."""
        self.is_loaded = self.is_asked = False
        self.answer = np.full(len(self.rows), NO_ANSWER)
        self._not_before = monotonic() + self._wait_s
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
        if self._process is not None:
            self._process.kill()  # also ends one that is frozen; agents have nothing to put in order
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            self._process = None

    def ask(self, period: int, seen: Observations, allowed: NDArray[np.bool_]) -> None:
        """Put a question, unless it cannot take one: then there will be no answer in this period."""
        self.answer = np.full(len(self.rows), NO_ANSWER)
        self._period = period
        self.is_asked = self.is_loaded and not self._outbox
        if self.is_loaded:
            self._silent += 1
        if self.is_asked:
            question = Question(period=period, seen=seen[self.rows].tobytes(), allowed=allowed[self.rows].tobytes())
            self._outbox += framed(question)

    def files(self) -> tuple[tuple[int, int], ...]:
        """What to wait for: (file, kind of event)."""
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            return ()
        reading = (self._process.stdout.fileno(), select.POLLIN)
        return (reading, (self._process.stdin.fileno(), select.POLLOUT)) if self._outbox else (reading,)

    def move(self) -> None:
        """Write and read what is possible now. A process that sends what cannot be right is ended."""
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            return
        try:
            if self._outbox:
                with suppress(BlockingIOError):
                    del self._outbox[: os.write(self._process.stdin.fileno(), self._outbox)]
            with suppress(BlockingIOError):
                while part := os.read(self._process.stdout.fileno(), 1 << 16):
                    for body in self._inbox.add(part):
                        self._take(msgspec.msgpack.decode(body, type=Answer))
                self.end()  # the end of its output
        except (OSError, ValueError, OverflowError, msgspec.MsgspecError):
            self.end()

    def _take(self, answer: Answer) -> None:
        if answer.period == HELLO:
            self.is_loaded = True
            return
        if len(answer.actions) != len(self.rows):
            raise ValueError(f"an answer must have {len(self.rows)} actions; got {len(answer.actions)}.")
        self._silent, self._wait_s = 0, FIRST_WAIT_S  # late or not, it is alive
        if answer.period == self._period and self.is_asked:
            self.answer, self.is_asked = np.array(answer.actions, np.int64), False


def _exchange(hosts: Sequence[_Host], until: float) -> None:
    """Wait until one of them can be written to or read from, or it is time, and do so."""
    poll, owners = select.poll(), {}
    for host in hosts:
        for file, event in host.files():
            poll.register(file, event)
            owners[file] = host
    ready = poll.poll(max(0.0, 1000 * (until - monotonic())))
    for host in {id(owners[file]): owners[file] for file, _ in ready}.values():
        host.move()


def _end_all(hosts: Sequence[_Host]) -> None:
    for host in hosts:
        host.end()
