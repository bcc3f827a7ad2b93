"""What goes into the journal and what comes out of it, and how it can refuse.

Instants here are Unix times: they must mean the same after a restart, unlike the run's clock. Ages are not measured by
them, since the wall clock can be set: see `age.Age`.
"""

import re
from collections.abc import Callable
from math import isnan
from typing import Literal

import msgspec

from fairlead.engine.live.values import Outcome
from fairlead.errors import FairleadError

State = Literal["accepted", "completed", "failed", "rejected", "dropped", "cancelled"]
Delivery = Literal["pending", "delivered", "failed"]

ID_PATTERN = re.compile(r"[0-9a-f]{32}", re.ASCII)
MAX_TEXT = 2048  # characters of a key, a URL or a header that is kept

_TEXT = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?", re.ASCII)


class JournalFullError(FairleadError):
    """The journal cannot take this in now; nothing of it was kept."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class KeyConflictError(FairleadError):
    """The idempotency key belongs to another input of the same workflow."""

    def __init__(self, workflow: str, key: str, id: str) -> None:
        self.id = id
        super().__init__(
            f"The idempotency key {key!r} was used for another input of {workflow!r} (request {id}). "
            "Send the same input again, or use a new key."
        )


class Accept(msgspec.Struct, frozen=True, kw_only=True):
    """A request to be kept. `deadline` is a Unix instant; None: the workflow's SLO from its hand-over; inf: none.

    `body` is the input as MessagePack. Texts are printable ASCII of at most 2048 characters.
    """

    workflow: str
    body: bytes
    deadline: float | None = None
    budget_usd: float | None = None
    callback_url: str | None = None
    key: str | None = None
    request_id: str | None = None
    traceparent: str | None = None

    def __post_init__(self) -> None:
        for name in ("callback_url", "key", "request_id", "traceparent"):
            text = getattr(self, name)
            if text is not None and (len(text) > MAX_TEXT or not _TEXT.fullmatch(text)):
                raise ValueError(f"{name} must be 1 to {MAX_TEXT} printable ASCII characters; got {text[:80]!r}.")
        for name in ("deadline", "budget_usd"):
            number = getattr(self, name)
            if number is not None and isnan(number):
                raise ValueError(f"{name} must be a number; got nan.")


class Accepted(msgspec.Struct, frozen=True):
    """The acknowledgement. Not new: the key was seen before, and `id` is the request that it named then."""

    id: str
    is_new: bool


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was accepted by an earlier process and has not ended. Its input is what `resume` gives."""

    id: str
    workflow: str
    deadline: float | None
    budget_usd: float | None
    request_id: str | None
    traceparent: str | None
    accepted_at: float
    attempts: int


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended. `result` is MessagePack; `ran_as` names it in the records of the run ("app-1-17")."""

    state: Outcome
    result: bytes | None = None
    reason: str | None = None
    cost_usd: float = 0.0
    ran_as: str | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal knows of a request."""

    id: str
    workflow: str
    state: State
    attempts: int
    accepted_at: float
    deadline: float | None
    request_id: str | None
    traceparent: str | None
    callback_url: str | None
    finished_at: float | None
    reason: str | None
    cost_usd: float
    delivery: Delivery | None  # of the callback; None before the end, and where none was asked for
    delivery_attempts: int
    delivery_note: str | None  # why it failed
    result: bytes | None

    @property
    def is_final(self) -> bool:
        """Whether the request has ended."""
        return self.state != "accepted"


class Undelivered(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has ended, and whose callback is still to be called."""

    id: str
    callback_url: str
    attempts: int


class JournalStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts for metrics. Totals are since the journal was opened."""

    open: int  # accepted, not ended
    finished: int  # ended and still kept
    keys: int  # idempotency keys that are kept without their request
    undelivered: int
    unwritten: int  # endings that are not on disk yet
    bytes: int  # of the file and its log
    commits: int
    operations: int
    errors: int  # transactions that failed
    ignored: int  # endings of requests that had ended, or are unknown
    pruned: int
    last_commit_s: float  # how long the last transaction took, with its fsync
    fault: str | None  # why the last write failed; None once one has succeeded

    @property
    def mean_group(self) -> float:
        """Operations per transaction."""
        return self.operations / self.commits if self.commits else 0.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept, and for how long."""

    retention_s: float = 3600.0
    keep_finished: int = 100_000
    keep_keys: int = 4_000_000
    max_open: int = 100_000
    max_bytes: int = 4 * 2**30
    max_attempts: int = 100

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0; got {getattr(self, name)}.")


# What the writer is asked to do. Plain structs, made by the loop's thread and read by the writer's.


class AcceptOp(msgspec.Struct, frozen=True, eq=False):
    """Keep a request; `answer` is called on the loop's thread with what became of it."""

    id: str
    entry: Accept
    accepted_at: float
    answer: Callable[[Accepted | FairleadError], None]


class StartOp(msgspec.Struct, frozen=True):
    """Count an attempt."""

    id: str


class FinalOp(msgspec.Struct, frozen=True):
    """End a request, unless it has ended."""

    id: str
    final: Final
    finished_at: float


class DeliveryOp(msgspec.Struct, frozen=True):
    """Note how a callback stands after one more attempt."""

    id: str
    delivery: Delivery
    note: str | None


Op = AcceptOp | StartOp | FinalOp | DeliveryOp
Kept = FinalOp | DeliveryOp  # what is written again after a failure; accepts are refused, and starts not counted
