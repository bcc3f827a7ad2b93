"""What a call gives, as values that show themselves in a shell and in a notebook."""

from collections.abc import Iterable
from html import escape
from typing import Any, Literal

import msgspec

_MOST_LETTERS = 2000  # of an output in a notebook


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow answered.

    Args:
        output: The answer itself.
        id: The request's id, for `fairlead explain`; None where the gateway did not say.
        latency_s: Arrival to answer by the gateway's clock; by this program's where the gateway did not say.
        deadline_s: How much time it had, from its arrival; None without a deadline.
        in_time: Whether it was answered by its deadline; None where that is not known.
        elapsed_s: From the call to the answer by this program's clock, with the network and every retry.
        attempts: How often it was sent.
    """

    workflow: str
    output: Any
    id: str | None
    latency_s: float
    deadline_s: float | None
    in_time: bool | None
    elapsed_s: float
    attempts: int = 1

    def _repr_html_(self) -> str:
        mark = {True: "in time", False: "late", None: "–"}[self.in_time]
        due = "" if self.deadline_s is None else f" of {_ms(self.deadline_s)}"
        rows = [
            ("latency", f"{_ms(self.latency_s)}{due}, {mark}"),
            ("with the network", _ms(self.elapsed_s) + ("" if self.attempts == 1 else f", {self.attempts} attempts")),
            ("request", self.id or "–"),
        ]
        shown = repr(self.output)
        shown = shown if len(shown) <= _MOST_LETTERS else shown[:_MOST_LETTERS] + " …"
        return f"{_table(self.workflow, rows)}<pre>{escape(shown)}</pre>"


class RequestState(msgspec.Struct, frozen=True, kw_only=True):
    """How an asynchronous request stands. Instants are RFC 3339 texts."""

    id: str
    workflow: str
    state: Literal["accepted", "completed", "failed", "rejected", "dropped", "cancelled"]
    attempts: int
    accepted_at: str
    deadline: str | None = None
    finished_at: str | None = None
    reason: str | None = None
    cost_usd: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether it will not change any more."""
        return self.state != "accepted"

    def _repr_html_(self) -> str:
        rows = [
            ("state", self.state + (f": {self.reason}" if self.reason else "")),
            ("accepted", self.accepted_at),
            ("finished", self.finished_at or "–"),
            ("deadline", self.deadline or "none"),
            ("attempts", str(self.attempts)),
        ]
        return _table(f"{self.workflow}, request {self.id}", rows)


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th scope='row'>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table><caption>{escape(title)}</caption>{cells}</table>"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"
