"""What passes between gateway, runtime and instances.

A value is never looked into on its way: it is the bytes that an instance wrote (MessagePack), the name of a
shared-memory file that holds such bytes, or a list of values. Only instances, and the gateway's edge, decode it.
"""

from collections.abc import Sequence
from typing import Literal, Union

import msgspec

Value = Union[bytes, str, Sequence["Value"]]  # noqa: UP007 - an alias that names itself

Outcome = Literal["completed", "failed", "rejected", "dropped", "cancelled"]


class Result(msgspec.Struct, frozen=True, array_like=True):
    """What one invocation of a batch gave. `arm` is the label of the arm it chose; `items` the length of a split list.

    A split output is a list of values, one per item.
    """

    ok: bool
    value: Value = b""
    arm: str | None = None
    items: int = 1
    error: str | None = None


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended. Instants are seconds of the run's clock."""

    request: int
    workflow: str
    outcome: Outcome
    arrival: float
    end: float
    deadline: float
    value: Value | None = None  # of a completed request
    reason: str | None = None
    retry_after_s: float | None = None
    cost_usd: float = 0.0

    @property
    def latency_s(self) -> float:
        """From arrival to the end."""
        return self.end - self.arrival

    @property
    def is_in_time(self) -> bool:
        """Whether it was answered by its deadline."""
        return self.outcome == "completed" and self.end <= self.deadline
