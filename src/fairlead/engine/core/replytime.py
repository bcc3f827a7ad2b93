"""How long an answer takes to leave: from the event that ended the last batch of a request until it is written.

In between lie the decision that the same event brings about, what else the event loop has to do, and the other answers
of the batch. No policy can know this time, so it is taken off deadlines here: the controller is given a deadline by
which an answer must be ready if it is to leave in time. In a simulation without a `host` it is zero.
"""

from math import inf
from typing import Protocol, runtime_checkable

import msgspec

from fairlead.model import Request
from fairlead.policy.base import Policy

_FOLLOW = 0.1  # weight of the newest observation
_MOST = 0.1  # of the time that a request is given, at most


@runtime_checkable
class KeepsTime(Protocol):
    """A dispatcher that keeps time for the reply by itself."""

    def reply_s(self, given_s: float) -> float:
        """What it keeps of the time that a request is given."""
        ...


class ReplyTime:
    """Follows the time that answers take to leave: its mean plus its mean absolute deviation."""

    __slots__ = ("_deviation_s", "_dispatcher", "_mean_s")

    def __init__(self, dispatcher: Policy) -> None:
        self._dispatcher = dispatcher if isinstance(dispatcher, KeepsTime) else None
        self._mean_s = self._deviation_s = 0.0

    @property
    def seconds(self) -> float:
        """How long an answer takes to leave; 0 before the first."""
        return self._mean_s + self._deviation_s

    def observe(self, seconds: float) -> None:
        """See how long the answers of one turn took to leave, the last one included."""
        off_s = abs(seconds - self._mean_s)
        self._mean_s += _FOLLOW * (seconds - self._mean_s)
        self._deviation_s += _FOLLOW * (off_s - self._deviation_s)

    def before(self, request: Request) -> Request:
        """The request with the deadline by which its answer must be ready, less what the dispatcher keeps itself."""
        given_s = request.deadline - request.arrival
        if given_s == inf:
            return request
        own_s = 0.0 if self._dispatcher is None else self._dispatcher.reply_s(given_s)
        kept_s = max(0.0, min(self.seconds, _MOST * given_s) - own_s)
        return msgspec.structs.replace(request, deadline=request.deadline - kept_s) if kept_s else request
