"""The spans of one request, noted on its way through the runtime. Plain values: nothing here needs OpenTelemetry.

A request has one span, with a parent where its caller sent a `traceparent`. Its children are *admission*, from its
arrival to the first decision about it, and for each invocation *wait*, *cold start*, *transfer* and *run*. What
functions send themselves hangs below *run*.
"""

from collections.abc import Mapping
from itertools import count
from os import urandom
from typing import NamedTuple

from fairlead.engine.core import effects as fx
from fairlead.engine.live.values import Ending
from fairlead.model import Invocation

Attributes = Mapping[str, str | int | float | bool]

_MASK = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15  # odd: a multiple of it, modulo 2**64, comes once only
_MOST_SPANS = 500  # of one request: a map over thousands of items is not told item by item
_ids = count(int.from_bytes(urandom(7)))  # of spans: as many as there may ever be, and another start in each process


def new_trace() -> int:
    """The id of a new trace."""
    return int.from_bytes(urandom(16)) or 1


def new_id() -> int:
    """The id of a new span, which no other span of this process has."""
    return next(_ids) * _SPREAD & _MASK or 1


class Span(NamedTuple):
    """One span. Ids are numbers, `parent` 0 for none; instants are seconds since 1970."""

    trace: int
    id: int
    parent: int
    name: str
    start: float
    end: float
    attributes: Attributes
    error: str | None = None
    is_root: bool = False


class _Open(NamedTuple):
    """An invocation that an instance has in hand."""

    run: int  # id of the span
    began: float
    attributes: Attributes


class RequestTrace:
    """What is noted of one request. Instants are those of the run's clock.

    Args:
        parent: The caller's trace and span, from its `traceparent`; a new trace and 0 where it sent none.
        arrival: When it came.
        unix: The same instant, in seconds since 1970.
    """

    __slots__ = ("_arrival", "_decided", "_left_out", "_open", "_parent", "_root", "_spans", "_trace", "_unix")

    def __init__(self, parent: tuple[int, int], arrival: float, unix: float) -> None:
        self._trace, self._parent = parent
        self._root = new_id()
        self._arrival = arrival
        self._unix = unix - arrival
        self._decided: float | None = None
        self._open: dict[tuple[str, int, int, int], _Open] = {}  # by stage, item, copy, attempt
        self._spans: list[Span] = []
        self._left_out = 0

    def decided(self, now: float) -> None:
        """The policy has decided about it for the first time."""
        if self._decided is None:
            self._decided = now

    def begins(self, invocation: Invocation, effect: fx.RunBatch, start: float, cold_s: float, now: float) -> str:
        """An invocation is sent to an instance; gives the `traceparent` for what it does."""
        for attempt in range(1, invocation.attempt):
            self._lost(invocation, attempt)
        about: Attributes = {
            "fairlead.stage": invocation.stage,
            "fairlead.function": invocation.function,
            "fairlead.attempt": invocation.attempt,
            "fairlead.item": invocation.item,
            "fairlead.node": effect.node,
            "fairlead.instance": effect.instance,
            "fairlead.batch_size": len(effect.invocations),
        }
        self._add("wait", invocation.ready, max(invocation.ready, start), about)
        if cold_s > 0:
            self._add("cold start", start, start + cold_s, about)
        run = new_id()
        self._open[_key(invocation, invocation.attempt)] = _Open(run, now, about)
        return f"00-{self._trace:032x}-{run:016x}-01"

    def finished(self, invocation: Invocation, now: float, transfer_s: float, error: str | None) -> None:
        """An invocation has ended."""
        open_ = self._open.pop(_key(invocation, invocation.attempt), None)
        if open_ is None:
            return
        began = open_.began
        if transfer_s > 0:
            self._add("transfer", began, began + transfer_s, open_.attributes)
        self._add("run", began + transfer_s, now, open_.attributes, error, open_.run)

    def ended(self, ending: Ending, id: str) -> list[Span]:
        """The request has ended: all its spans."""
        for open_ in self._open.values():
            self._add("run", open_.began, ending.end, open_.attributes, "it did not end before the request", open_.run)
        self._open.clear()
        decided = ending.end if self._decided is None else self._decided
        self._add("admission", self._arrival, decided, {})
        attributes: dict[str, str | int | float | bool] = {
            "fairlead.request": id,
            "fairlead.workflow": ending.workflow,
            "fairlead.outcome": ending.outcome,
            "fairlead.in_time": ending.is_in_time,
            "fairlead.cost_usd": ending.cost_usd,
        }
        if ending.deadline < float("inf"):
            attributes["fairlead.deadline_s"] = ending.deadline - ending.arrival
        if self._left_out:
            attributes["fairlead.spans_left_out"] = self._left_out
        error = None if ending.outcome == "completed" else ending.reason or ending.outcome
        root = Span(
            self._trace,
            self._root,
            self._parent,
            ending.workflow,
            self._unix + self._arrival,
            self._unix + ending.end,
            attributes,
            error,
            is_root=True,
        )
        return [root, *self._spans]

    def _lost(self, invocation: Invocation, attempt: int) -> None:
        """A former attempt ended with its instance; that was known when the next became ready."""
        open_ = self._open.pop(_key(invocation, attempt), None)
        if open_ is not None:
            self._add("run", open_.began, invocation.ready, open_.attributes, "its instance was lost", open_.run)

    def _add(
        self,
        name: str,
        start: float,
        end: float,
        attributes: Attributes,
        error: str | None = None,
        id: int = 0,
    ) -> None:
        if len(self._spans) >= _MOST_SPANS:
            self._left_out += 1
            return
        unix = self._unix
        span = Span(self._trace, id or new_id(), self._root, name, unix + start, unix + end, attributes, error)
        self._spans.append(span)


def _key(invocation: Invocation, attempt: int) -> tuple[str, int, int, int]:
    return invocation.stage, invocation.item, invocation.copy, attempt
