"""What a load came to."""

import re
from collections import Counter
from math import inf

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead.load.plan import Closed, Plan
from fairlead.load.samples import ERRORS, UNSENT, Samples

REFUSALS = (408, 429, 503, 504)
"""Statuses that say: not now, or not in time."""

_FIGURE = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")
_MOST_LETTERS = 80  # of a reason, once its figures are gone
LATE_GENERATOR_S = 0.005
LATE_GENERATOR_SHARE = 0.1  # of the deadline


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles (linear interpolation) and the largest of a set of times; all None when the set is empty."""

    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    max_s: float | None

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> "Times":
        """Those of a set."""
        if not values.size:
            return cls(p50_s=None, p95_s=None, p99_s=None, max_s=None)
        p50, p95, p99 = (float(value) for value in np.percentile(values, [50, 95, 99]))
        return cls(p50_s=p50, p95_s=p95, p99_s=p99, max_s=float(values.max()))


class LoadResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of the arrivals after the warm-up.

    Every one of them is `offered`, also what was not sent. Of a closed loop, those count that *ended* in the time, for
    its rate is that of its answers. Latencies are from the scheduled arrival to the whole answer. Without a deadline,
    every answer is in time.

    Args:
        answered: Answers with a status of 200 to 299.
        in_time: Answers within the deadline.
        refused: 408, 429, 503 and 504, by status and reason.
        errors: Everything else, by what it was.
        unsent: Arrivals that found `max_in_flight` requests open.
        deadline_s: That of all requests; None without one, or where calls have different ones.
        attainment: `in_time` as a share of `offered`.
        goodput_rps: `in_time` per second.
        refused_in_time: Share of the refusals that came before the deadline; None without one, or without refusals.
        lag: How late the generator itself came to an arrival. It is part of every latency.
        generator_cpu: Share of one core that the generator used.
        is_generator_late: Whether its lag is too large for the latencies to be the server's.
        by_call: The same for the requests of each call, by its name, where the plan has calls. The lag and the CPU
            share are those of the whole load.
    """

    url: str
    duration_s: float
    warm_up_s: float
    deadline_s: float | None
    users: int | None
    offered: int
    answered: int
    in_time: int
    refused: dict[str, int]
    errors: dict[str, int]
    unsent: int
    attainment: float | None
    offered_rps: float
    answered_rps: float
    goodput_rps: float
    latency: Times
    refusal_latency: Times
    refused_in_time: float | None
    lag: Times
    generator_cpu: float
    is_generator_late: bool
    by_call: dict[str, "LoadResult"] = {}


def summarise(url: str, plan: Plan, samples: Samples, start: float, *, cpu_share: float) -> LoadResult:
    """The result of a run that began at this instant."""
    picks = plan.picks()
    picked = np.array([picks(row) for row in range(len(samples))], dtype=np.intp)
    found = _Columns(plan, samples, start, np.array(plan.budgets_s)[picked])
    names = [call.name for call in plan.calls]
    limits: dict[str, set[float | None]] = {}
    for call in plan.calls:
        limits.setdefault(call.name, set()).add(call.deadline_s)
    of_call = {name: np.isin(picked, [place for place, each in enumerate(names) if each == name]) for name in limits}
    everywhere = {plan.deadline_s} if not plan.calls else set().union(*limits.values())
    total = _result(url, plan, found, found.counts, _only(everywhere), cpu_share)
    return msgspec.structs.replace(
        total,
        by_call={
            name: msgspec.structs.replace(
                _result(url, plan, found, found.counts & which, _only(limits[name]), cpu_share),
                lag=total.lag,
                is_generator_late=total.is_generator_late,
            )
            for name, which in of_call.items()
        },
    )


class _Columns:
    """The rows of a load as arrays; times are seconds from its start."""

    def __init__(self, plan: Plan, samples: Samples, start: float, limit_s: NDArray[np.float64]) -> None:
        scheduled = np.frombuffer(samples.scheduled, dtype=np.float64) - start
        ended = np.frombuffer(samples.ended, dtype=np.float64) - start
        at = ended if isinstance(plan.arrivals, Closed) else scheduled
        self.counts = (at >= plan.warm_up_s) & (at < plan.duration_s)
        self.status = np.frombuffer(samples.status, dtype=np.int16)
        self.latency = ended - scheduled
        self.lag = np.frombuffer(samples.taken, dtype=np.float64) - start - scheduled
        self.is_within = self.latency <= limit_s
        self.reasons = samples.reasons


def _result(
    url: str, plan: Plan, found: _Columns, counts: NDArray[np.bool_], deadline_s: float | None, cpu_share: float
) -> LoadResult:
    """The result of the rows that count."""
    status, latency = found.status, found.latency
    is_answer = counts & (status >= 200) & (status < 300)
    is_in_time = is_answer & found.is_within
    is_refusal = counts & np.isin(status, REFUSALS)
    is_error = counts & ~is_answer & ~is_refusal & (status != UNSENT)
    lag = Times.of(found.lag[counts])
    seconds = plan.duration_s - plan.warm_up_s
    offered, in_time, refusals = int(counts.sum()), int(is_in_time.sum()), int(is_refusal.sum())
    early = int((is_refusal & found.is_within).sum())
    shortest_s = min(plan.budgets_s)
    return LoadResult(
        url=url,
        duration_s=plan.duration_s,
        warm_up_s=plan.warm_up_s,
        deadline_s=deadline_s,
        users=plan.arrivals.users if isinstance(plan.arrivals, Closed) else None,
        offered=offered,
        answered=int(is_answer.sum()),
        in_time=in_time,
        refused=_by_name(is_refusal, status, found.reasons),
        errors=_by_name(is_error, status, {}),
        unsent=int((counts & (status == UNSENT)).sum()),
        attainment=in_time / offered if offered else None,
        offered_rps=offered / seconds,
        answered_rps=float(is_answer.sum()) / seconds,
        goodput_rps=in_time / seconds,
        latency=Times.of(latency[is_answer]),
        refusal_latency=Times.of(latency[is_refusal]),
        refused_in_time=early / refusals if refusals and plan.is_timed else None,
        lag=lag,
        generator_cpu=cpu_share,
        is_generator_late=_is_late(lag, None if shortest_s == inf else shortest_s),
    )


def _only(limits: set[float | None]) -> float | None:
    """The deadline that all have; None where they differ."""
    return next(iter(limits)) if len(limits) == 1 else None


def _without_figures(reason: str) -> str:
    what, _, figures = reason.partition(": ")
    return _FIGURE.sub("…", what if _FIGURE.search(figures) else reason)


def _by_name(which: NDArray[np.bool_], status: NDArray[np.int16], reasons: dict[int, str]) -> dict[str, int]:
    """How many of each status and reason, the most frequent first. Reasons that differ in their figures are one."""
    found: Counter[str] = Counter()
    for row in np.flatnonzero(which):
        code = int(status[row])
        reason = _without_figures(reasons.get(int(row), ""))[:_MOST_LETTERS]
        found[f"{ERRORS.get(code, code)} {reason}".rstrip()] += 1
    return dict(found.most_common())


def _is_late(lag: Times, deadline_s: float | None) -> bool:
    allowed_s = LATE_GENERATOR_S if deadline_s is None else max(LATE_GENERATOR_S, LATE_GENERATOR_SHARE * deadline_s)
    return lag.p99_s is not None and lag.p99_s > allowed_s
