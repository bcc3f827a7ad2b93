"""Why a call has no answer.

CallError
├── RefusedError        not now: the policy or the gateway said no; carries when to come again
├── LateError           the deadline passed
├── FailedError         a function failed; carries its traceback where the gateway gives it
├── CancelledCallError  the request was cancelled, by someone or by a gateway that stopped
├── InvalidCallError    the request cannot be right: unknown workflow, bad input, beyond a limit
├── UnauthorizedError   the token is missing, wrong or not sufficient
└── NoAnswerError       the gateway cannot be reached, or broke off; the request may have run
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time

import msgspec

from fairlead.errors import FairleadError, plain

NEVER_RAN = frozenset(
    (
        "rejected",
        "inbox_full",
        "too_many_pipelined",
        "not_ready",
        "draining",
        "too_many_connections",
        "held_at_zero",
        "journal_full",
        "disk_full",
    )
)
"""Codes of refusals before any function ran: such a call can be sent again, whatever its functions do."""


class CallError(FairleadError):
    """A call has no answer.

    Attributes:
        workflow: What was called; None for a question about a request.
        status: That of the HTTP answer; None if there was none.
        code: The gateway's word for programs, such as `rejected`; None if it did not answer.
        reason: Why, where the policy or the function said so.
        id: The request's id, for `fairlead explain`, where it has one.
        attempts: How often the call was sent.
    """

    def __init__(
        self,
        message: str,
        *,
        workflow: str | None = None,
        status: int | None = None,
        code: str | None = None,
        reason: str | None = None,
        id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.workflow = workflow
        self.status = status
        self.code = code
        self.reason = reason
        self.id = id
        self.attempts = 1


class RefusedError(CallError):
    """Not now. `retry_after_s` says when to come again, None if it is not known."""

    retry_after_s: float | None = None


class LateError(CallError, TimeoutError):
    """The deadline, or the time that was given to wait, passed before there was an answer."""


class FailedError(CallError):
    """A function of the workflow failed. `traceback` is its own, where the gateway gives it."""

    traceback: str | None = None


class CancelledCallError(CallError):
    """The request was cancelled."""

    retry_after_s: float | None = None


class InvalidCallError(CallError):
    """The request cannot be right, so that sending it again is of no use."""


class UnauthorizedError(CallError):
    """The gateway wants another token, or forbids this."""


class NoAnswerError(CallError):
    """The gateway cannot be reached, or broke off. `was_sent` says whether the request may have run."""

    was_sent: bool = False


class _Said(msgspec.Struct):
    """The `error` of an answer."""

    code: str | None = None
    message: str = ""
    reason: str | None = None
    id: str | None = None
    traceback: str | None = None


class _Body(msgspec.Struct):
    error: _Said | str | None = None


_bodies = msgspec.json.Decoder(_Body)

_BY_CODE: Mapping[str, type[CallError]] = {
    "rejected": RefusedError,
    "dropped": RefusedError,
    "failed": FailedError,
    "cancelled": CancelledCallError,
    "value_lost": RefusedError,
    "deadline_passed": LateError,
}
_BY_STATUS: Mapping[int, type[CallError]] = {
    401: UnauthorizedError,
    403: UnauthorizedError,
    429: RefusedError,
    500: FailedError,
    502: FailedError,
    503: RefusedError,
    504: LateError,
    507: RefusedError,
}


def error_of(status: int, headers: Mapping[str, str], body: bytes, workflow: str | None) -> CallError:
    """The error that an answer stands for."""
    try:
        said = _bodies.decode(body).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = None
    if isinstance(said, str):  # the Open Inference Protocol has one text
        said = _Said(message=said)
    if said is None:
        return _strange(status, workflow)
    kind = _BY_CODE.get(said.code or "") or _BY_STATUS.get(status) or InvalidCallError
    message = said.message or f"the gateway answered {status}."
    error = kind(plain(message), workflow=workflow, status=status, code=said.code, reason=said.reason, id=said.id)
    if isinstance(error, RefusedError | CancelledCallError):
        error.retry_after_s = retry_after_s(headers)
    elif isinstance(error, FailedError):
        error.traceback = said.traceback
        if said.traceback:
            error.add_note(plain(said.traceback))
    elif isinstance(error, UnauthorizedError) and status == 401:
        error.add_note("Give the gateway's token: Client(url, token=...), or set FAIRLEAD_TOKEN.")
    return error


def may_come_again(error: CallError, *, is_repeatable: bool) -> bool:
    """Whether the same call may be sent again: it never ran, or running it twice does no harm."""
    if isinstance(error, NoAnswerError):
        return is_repeatable or not error.was_sent
    if error.status not in (429, 503, 507):
        return False
    return is_repeatable or error.code in NEVER_RAN


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """When to come again, in seconds from now; None if the answer does not say."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text) * unit_s
    try:  # proxies may give an instant
        when = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):
        return None
    return None if when.tzinfo is None else max(0.0, when.timestamp() - time())


def _strange(status: int, workflow: str | None) -> CallError:
    """An answer that no gateway gives: of a proxy in between, or of another program."""
    hint = " Redirects are not followed." if 300 <= status < 400 else ""
    error = NoAnswerError(
        f"the answer ({status}) is not that of a Fairlead gateway.{hint}", workflow=workflow, status=status
    )
    error.was_sent = status not in (429, 503)
    return error
