"""Runs a plan: an open loop that never waits for answers, or users that do."""

import asyncio
import ssl
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import monotonic, process_time

import msgspec

from fairlead.client.target import Target
from fairlead.client.tls import client_context, tls_failure
from fairlead.load.clock import Alarm
from fairlead.load.connections import Pool
from fairlead.load.plan import Closed, Plan
from fairlead.load.result import LoadResult, summarise
from fairlead.load.samples import Samples

try:
    import uvloop
except ImportError:  # where there is none, such as Windows
    uvloop = None  # type: ignore[assignment]

WARM_CONNECTIONS = 32
SENT_AT_ONCE = 64  # then answers are read first, even if more is due
SWEEP_EVERY_S = 0.1
LEAD_S = 0.05  # between having connections and the first arrival
REFUSED_USER_WAITS_S = 0.01


class LoadProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a load is."""

    elapsed_s: float
    sent: int
    ended: int
    in_flight: int


def run_load(
    url: str, plan: Plan, *, cacert: Path | None = None, progress: Callable[[LoadProgress], None] | None = None
) -> LoadResult:
    """Send a load to this URL and wait for the last answer.

    A server that does not answer is not an error here: the result counts it.

    Args:
        url: An address with its path; `https` verifies the server's certificate. The calls of a plan have paths of
            their own, and only the server is taken from it.
        plan: What is sent, and when.
        cacert: PEM file of the certificates to trust instead of the system's.
        progress: Called several times a second.

    Raises:
        ValueError: Requests cannot be sent to the URL, or `cacert` holds no certificate.
        TLSError: The server's certificate is not trusted, or it does not speak TLS.
    """
    target = Target.of(url)
    tls = client_context(cacert) if target.is_tls else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop is not None else None) as runner:
        try:
            return runner.run(_Generator(url, target, plan, tls, progress).run())
        except ssl.SSLError as error:
            raise tls_failure(target.origin, error, cacert) from error


class _Generator:
    def __init__(
        self,
        url: str,
        target: Target,
        plan: Plan,
        tls: ssl.SSLContext | None,
        progress: Callable[[LoadProgress], None] | None,
    ) -> None:
        self._url = url
        self._plan = plan
        self._progress = progress
        self._samples = Samples()
        self._ended = 0
        self._start = inf
        self._next = 0  # the arrival to come
        self._instants: list[float] = []
        self._is_all_sent = False
        self._budgets_s = plan.budgets_s
        self._picks = plan.picks()
        sent = [(target.at(call.path), call.headers) for call in plan.calls] or [(target, ())] * len(plan.bodies)
        self._pool = Pool(
            target,
            [
                (place.head(body, (*plan.headers, *headers)), body)
                for (place, headers), body in zip(sent, plan.bodies, strict=True)
            ],
            self._picks,
            tls=tls,
            sends_deadline=plan.is_timed and plan.sends_deadline,
            most=plan.max_in_flight,
            timeout_s=plan.timeout_s,
            ended=self._end,
        )

    async def run(self) -> LoadResult:
        """The whole load."""
        plan = self._plan
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._done = loop.create_future()
        ring = self._send_for_users if isinstance(plan.arrivals, Closed) else self._fire
        alarm = self._alarm = Alarm(loop, ring)
        sweeping = loop.create_task(self._sweep())
        try:
            await self._pool.warm(plan.arrivals.users if isinstance(plan.arrivals, Closed) else WARM_CONNECTIONS)
            cpu_before = process_time()
            self._start = monotonic() + LEAD_S
            if not isinstance(plan.arrivals, Closed):
                instants = plan.arrivals.instants(plan.duration_s)[: plan.max_requests]
                self._instants = [self._start + instant for instant in instants]
            alarm.set(self._instants[0] if self._instants else self._start)
            await self._done
            cpu_s, wall_s = process_time() - cpu_before, monotonic() - self._start
        finally:
            sweeping.cancel()
            alarm.close()
            await self._pool.close()
        return summarise(self._url, plan, self._samples, self._start, cpu_share=cpu_s / wall_s)

    def _fire(self) -> None:
        """Send what is due, then wait for the next."""
        instants, count = self._instants, len(self._instants)
        now = monotonic()
        for _ in range(SENT_AT_ONCE):
            if self._next == count or instants[self._next] > now:
                break
            scheduled = instants[self._next]
            self._next += 1
            self._send(scheduled, now)
            now = monotonic()
        if self._next < count:
            self._alarm.set(instants[self._next])
        else:
            self._all_sent()

    def _send_for_users(self) -> None:
        """Send the first request of each user, not before the start: an answer from before it would not be counted."""
        assert isinstance(self._plan.arrivals, Closed)
        if monotonic() < self._start:  # a loop's own timer is rounded, and may ring early by a millisecond
            self._alarm.set(self._start)
            return
        for _ in range(self._plan.arrivals.users):
            self._send_for_user()

    def _send_for_user(self) -> None:
        now = monotonic()
        if now - self._start >= self._plan.duration_s or len(self._samples) >= self._plan.max_requests:
            self._all_sent()
        else:
            self._send(now, now)

    def _send(self, scheduled: float, now: float) -> None:
        row = self._samples.begin(scheduled, now)
        self._pool.send(row, scheduled + self._budgets_s[self._picks(row)])

    def _end(self, row: int, now: float, status: int, reason: str) -> None:
        self._samples.end(row, now, status, reason)
        self._ended += 1
        if isinstance(self._plan.arrivals, Closed) and not self._is_all_sent:
            if 200 <= status < 300:
                self._send_for_user()
            else:  # at once would be a storm of refusals, which is no user's behaviour
                self._loop.call_later(REFUSED_USER_WAITS_S, self._send_for_user)
        elif self._is_all_sent:
            self._check_done()

    def _all_sent(self) -> None:
        self._is_all_sent = True
        self._check_done()

    def _check_done(self) -> None:
        if self._ended == len(self._samples) and not self._done.done():
            self._done.set_result(None)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            self._pool.sweep()
            if self._progress is not None and self._start < inf:
                self._progress(
                    LoadProgress(
                        elapsed_s=max(0.0, monotonic() - self._start),
                        sent=len(self._samples),
                        ended=self._ended,
                        in_flight=self._pool.in_flight,
                    )
                )
