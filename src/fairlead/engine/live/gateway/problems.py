"""Answers that are not what was asked for: one exception, one body."""

from collections.abc import Sequence
from math import ceil

from fairlead.engine.live.gateway.replies import Headers, Reply, json_reply


class Problem(Exception):  # noqa: N818 - it is an answer, not a failure of ours
    """Ends an exchange with this status and `{"error": {"code", "message", "reason"}}`; a request's own end has its id.

    Args:
        code: A word for programs; one of those in the reference of the HTTP interface.
        message: What was asked, what was found, what to do.
        reason: Why the policy or the function refused, where it said so.
        retry_after_s: When to come again.
        traceback: Of the function that failed: callers have the token, or are on this machine.
        close: Whether the connection ends with it, because what follows on it cannot be trusted.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        reason: str | None = None,
        retry_after_s: float | None = None,
        traceback: str | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.traceback = traceback
        self.headers = headers
        self.close = close
        self.id: str | None = None  # of the request, for `fairlead explain`

    def reply(self, plain: bool = False) -> Reply:
        """The answer; `plain` for the Open Inference Protocol, whose error is a string."""
        headers: Headers = [*self.headers]
        if self.retry_after_s is not None:
            headers += retry_headers(self.retry_after_s)
        if self.close:
            headers.append((b"connection", b"close"))
        if plain:
            return json_reply({"error": self.message}, self.status, headers)
        error = {"code": self.code, "message": self.message, "reason": self.reason}
        if self.id is not None:
            error["id"] = self.id
        if self.traceback is not None:
            error["traceback"] = self.traceback
        return json_reply({"error": error}, self.status, headers)


def retry_headers(after_s: float) -> Headers:
    """`Retry-After` in whole seconds, never less than asked for, and `Retry-After-Ms`, which clients of ours read."""
    after_ms = max(1, ceil(after_s * 1e3))
    return [(b"retry-after", b"%d" % -(-after_ms // 1000)), (b"retry-after-ms", b"%d" % after_ms)]
