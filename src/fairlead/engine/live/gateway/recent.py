"""The requests of a workflow that ended last, a bounded number of each kind of end, so that refusals hide no answer."""

from collections import deque
from heapq import merge
from math import inf
from operator import attrgetter
from time import time

import msgspec

from fairlead.engine.live.values import Ending

KEPT = 50
"""Requests that are kept of each kind of end."""

_LONGEST_REASON = 300
_KINDS = ("in_time", "late", "rejected", "dropped", "failed", "cancelled")


class Ended(msgspec.Struct, frozen=True, gc=False):
    """A request that ended: `number` counts those of its workflow, `at` is an instant of the wall clock."""

    number: int
    id: str
    kind: str
    at: float
    latency_s: float
    allowed_s: float | None
    wait_s: float
    cold_s: float
    run_s: float
    cost_usd: float
    reason: str | None


_Entry = tuple[int, int, float, int, float, float, float, float, float, float, str | None]


class Recent:
    """Those of one workflow. Adding one costs a tuple; the rest happens when they are asked for."""

    __slots__ = ("_kept", "number")

    def __init__(self) -> None:
        self.number = 0  # of the last one
        self._kept: dict[str, deque[_Entry]] = {kind: deque(maxlen=KEPT) for kind in _KINDS}

    def add(self, ending: Ending, generation: int) -> None:
        """Note a request that has just ended."""
        kind = ending.outcome if ending.outcome != "completed" else "in_time" if ending.is_in_time else "late"
        self.number = number = self.number + 1
        arrival = ending.arrival
        self._kept[kind].append(  # not the ending itself: it has the answer
            (
                number,
                generation,
                time(),
                ending.request,
                ending.end - arrival,
                ending.deadline - arrival,
                ending.wait_s,
                ending.cold_s,
                ending.run_s,
                ending.cost_usd,
                ending.reason,
            )
        )

    def after(self, number: int, most: int, app: str) -> list[Ended]:
        """Those after this one, in order; of each kind of end at most `most`, the last ones."""
        parts = []
        for kind, kept in self._kept.items():
            found: list[Ended] = []
            for entry in reversed(kept):
                if entry[0] <= number or len(found) == most:
                    break
                found.append(_told(app, kind, entry))
            parts.append(found[::-1])
        return list(merge(*parts, key=attrgetter("number")))


def _told(app: str, kind: str, entry: _Entry) -> Ended:
    number, generation, at, request, latency_s, allowed_s, wait_s, cold_s, run_s, cost_usd, reason = entry
    return Ended(
        number=number,
        id=f"{app}-{generation}-{request}",
        kind=kind,
        at=round(at, 2),
        latency_s=round(latency_s, 6),
        allowed_s=None if allowed_s == inf else round(allowed_s, 6),
        wait_s=round(wait_s, 6),
        cold_s=round(cold_s, 6),
        run_s=round(run_s, 6),
        cost_usd=cost_usd,
        reason=None if reason is None else reason[:_LONGEST_REASON],
    )
