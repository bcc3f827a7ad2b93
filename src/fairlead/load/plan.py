"""What is sent, when, and where to stop."""

from math import inf, isfinite
from typing import Literal, get_args

import msgspec
import numpy as np

from fairlead import workload

Pattern = Literal["poisson", "even"]
Mix = Literal["turn", "random"]

MAX_REQUESTS = 5_000_000
MAX_IN_FLIGHT = 1_000


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Arrivals at this mean rate, whatever the answers do."""

    rate_rps: float
    pattern: Pattern = "poisson"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate_rps < inf:
            raise ValueError(f"rate_rps must be positive and finite; got {self.rate_rps:g}.")
        if self.pattern not in get_args(Pattern):
            raise ValueError(f"pattern must be one of {', '.join(get_args(Pattern))}; got {self.pattern!r}.")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative; got {self.seed}.")

    def instants(self, duration_s: float) -> list[float]:
        """Sorted, in [0, duration_s); a longer run begins like a shorter one."""
        process: workload.Arrivals
        if self.pattern == "even":
            process = workload.Deterministic("load", 1 / self.rate_rps)
        else:
            process = workload.Poisson("load", self.rate_rps)
        found: list[float] = process.times(np.random.default_rng(self.seed), duration_s).tolist()
        return found


class Listed(msgspec.Struct, frozen=True):
    """Arrivals at these instants, in any order."""

    times: tuple[float, ...]

    def __post_init__(self) -> None:
        wrong = [time for time in self.times if not (isfinite(time) and time >= 0)]
        if wrong:
            raise ValueError(f"times must be finite and not negative; got {wrong[0]:g}.")

    def instants(self, duration_s: float) -> list[float]:
        """Sorted; those before `duration_s`."""
        return sorted(time for time in self.times if time < duration_s)


class Closed(msgspec.Struct, frozen=True):
    """Users who each send the next request when the last one has ended. This measures capacity, not latency.

    A slow server is asked less often, so its slowness hides itself.
    """

    users: int

    def __post_init__(self) -> None:
        if self.users < 1:
            raise ValueError(f"users must be at least 1; got {self.users}.")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of request of a plan that has several.

    Args:
        name: Under which its results are kept; those of calls with the same name are added up.
        path: Where it goes, on the server of the load's URL, such as `/v1/workflows/main`.
        body: What is sent.
        deadline_s: From the scheduled arrival; None for no deadline, so that every answer is in time.
        headers: Beside those of the plan.
    """

    name: str
    path: str
    body: bytes = b""
    deadline_s: float | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or any(sign in self.path for sign in " \r\n\0"):
            raise ValueError(f"path must begin with / and hold no blanks; got {self.path!r}.")
        if self.deadline_s is not None and not 0 < self.deadline_s < inf:
            raise ValueError(
                f"deadline_s of {self.name} must be positive and finite, or None; got {self.deadline_s:g}."
            )


class Picks:
    """Which of several calls each request is, by its place among the requests.

    In turn, or drawn at random, all equally likely: then the same seed gives the same calls, and a longer load begins
    like a shorter one.
    """

    _BLOCK = 4096

    def __init__(self, count: int, mix: Mix = "turn", seed: int = 0) -> None:
        self._count = count
        self._random = np.random.default_rng((seed, count)) if mix == "random" and count > 1 else None
        self._drawn: list[int] = []

    def __call__(self, place: int) -> int:
        """The number of the call that the request at this place is."""
        if self._random is None:
            return place % self._count
        while place >= len(self._drawn):
            self._drawn += self._random.integers(self._count, size=self._BLOCK).tolist()
        return self._drawn[place]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One load.

    The first `warm_up_s` are sent but not counted. `deadline_s` counts from the scheduled arrival; if `sends_deadline`,
    what is left of it when the request is sent goes along as `X-Deadline-Ms`. Several bodies are sent in turn. With
    `calls`, each request is one of them, in turn or at random (`mix`, `mix_seed`), and has its path, body and deadline
    instead of those of the URL and the plan. A request that has no answer `timeout_s` after it was sent is given up. At
    most `max_in_flight` are open at once: an arrival beyond that is not sent, and counts as missed.
    """

    arrivals: Open | Listed | Closed
    duration_s: float
    warm_up_s: float = 0.0
    deadline_s: float | None = None
    sends_deadline: bool = True
    body: bytes | tuple[bytes, ...] = b""
    headers: tuple[tuple[str, str], ...] = ()
    calls: tuple[Call, ...] = ()
    mix: Mix = "turn"
    mix_seed: int = 0
    timeout_s: float = 30.0
    max_in_flight: int = MAX_IN_FLIGHT
    max_requests: int = MAX_REQUESTS

    def __post_init__(self) -> None:
        for name in ("duration_s", "timeout_s"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} must be positive and finite; got {getattr(self, name):g}.")
        if self.deadline_s is not None and not 0 < self.deadline_s < inf:
            raise ValueError(f"deadline_s must be positive and finite, or None; got {self.deadline_s:g}.")
        if not 0 <= self.warm_up_s < self.duration_s:
            raise ValueError(
                f"warm_up_s must be in [0, duration_s), which is {self.duration_s:g}; got {self.warm_up_s:g}."
            )
        for name in ("max_in_flight", "max_requests"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if self.max_requests > MAX_REQUESTS:
            raise ValueError(f"max_requests must be at most {MAX_REQUESTS:,}; got {self.max_requests:,}.")
        if isinstance(self.arrivals, Open) and self.arrivals.rate_rps * self.duration_s > self.max_requests:
            asked = self.arrivals.rate_rps * self.duration_s
            raise ValueError(f"rate_rps x duration_s is {asked:,.0f} requests; at most {self.max_requests:,} are sent.")
        if isinstance(self.arrivals, Closed) and self.arrivals.users > self.max_in_flight:
            raise ValueError(f"users must be at most max_in_flight ({self.max_in_flight}); got {self.arrivals.users}.")
        if self.calls and (self.body or self.deadline_s is not None):
            raise ValueError("body and deadline_s are those of each call where a plan has calls; leave them out.")
        if self.mix not in get_args(Mix):
            raise ValueError(f"mix must be one of {', '.join(get_args(Mix))}; got {self.mix!r}.")
        if self.mix_seed < 0:
            raise ValueError(f"mix_seed must not be negative; got {self.mix_seed}.")
        if not self.bodies:
            raise ValueError("body must be bytes, or a tuple of at least one; got none.")
        for header in (*self.headers, *(header for call in self.calls for header in call.headers)):
            if any(sign in part for part in header for sign in "\r\n\0") or ":" in header[0] or not header[0]:
                raise ValueError(f"headers: {header[0]!r} is not a header that can be sent.")

    @property
    def bodies(self) -> tuple[bytes, ...]:
        """The bodies that are sent: of each call, or in turn."""
        if self.calls:
            return tuple(call.body for call in self.calls)
        return (self.body,) if isinstance(self.body, bytes) else self.body

    @property
    def budgets_s(self) -> tuple[float, ...]:
        """For each of the bodies, the time from the scheduled arrival to the deadline; infinite without one."""
        given = [call.deadline_s for call in self.calls] or [self.deadline_s] * len(self.bodies)
        return tuple(inf if deadline_s is None else deadline_s for deadline_s in given)

    @property
    def is_timed(self) -> bool:
        """Whether any request has a deadline."""
        return min(self.budgets_s) < inf

    def picks(self) -> Picks:
        """Which of the bodies each request has."""
        return Picks(len(self.bodies), self.mix, self.mix_seed)
