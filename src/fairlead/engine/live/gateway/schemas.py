"""Bodies that several endpoints share."""

from typing import Annotated, Any

import msgspec

MOST_MS = 1e12  # some thirty years
Milliseconds = Annotated[float, msgspec.Meta(gt=0, le=MOST_MS)]


class Call(msgspec.Struct, forbid_unknown_fields=True):
    """What a workflow is called with."""

    input: Annotated[Any, msgspec.Meta(description="What the workflow takes: any JSON value.")]
    deadline_ms: Annotated[
        Milliseconds | None, msgspec.Meta(description="From now; without it, the workflow's objective counts.")
    ] = None
    budget_usd: Annotated[float, msgspec.Meta(ge=0)] | None = None


class Answered(msgspec.Struct):
    """A workflow's answer. A deadline of null means that there was none."""

    id: str
    output: Any
    latency_ms: float
    deadline_ms: float | None
    in_time: bool


class ErrorBody(msgspec.Struct):
    """What went wrong: a word for programs, a sentence for people, and the reason where policy or function gave one.

    `id` is that of a request that was refused or failed, for `fairlead explain`. `traceback` is that of the function
    that failed.
    """

    code: str
    message: str
    reason: str | None
    id: str | msgspec.UnsetType = msgspec.UNSET
    traceback: str | msgspec.UnsetType = msgspec.UNSET


class Error(msgspec.Struct):
    """Every error has this body."""

    error: ErrorBody


class PlainError(msgspec.Struct):
    """An error of the Open Inference Protocol."""

    error: str
