"""One connection of the fuzzer: plays a case, reads the answers strictly, and says what is wrong with them."""

import socket
import struct
from collections import Counter
from time import monotonic

from fuzz_answers import Head, NotAnAnswerError, count_parts, read_head
from fuzz_parts import Case, Do

NEVER = (500, 502, 504)
REFUSALS = (*range(400, 500), 501, 505)
ANSWER_LIMIT_S = 60.0
POISON_LIMIT_S = 2.0  # how long an answer to what may be no request is waited for
DEAF_LIMIT_S = 3.0  # how long a client that does not read tries to send
KEPT_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)


class ViolationError(Exception):
    """The server did what it must not do."""


class Link:
    """One connection, one case at a time.

    `play` and `read` return True while the case goes on. Answers are matched with requests by their ids.
    """

    __slots__ = ("_at", "_buffer", "_is_streamed", "_is_written", "_out", "_sentinel", "answered", "case", "is_closing")
    __slots__ += (
        "answer_limit_s",
        "is_gone",
        "pause_until",
        "received",
        "skip",
        "socket",
        "statuses",
        "until",
        "wants_to_write",
    )

    def __init__(
        self, address: tuple[str, int], statuses: Counter[int], answer_limit_s: float = ANSWER_LIMIT_S
    ) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect_ex(address)
        self.statuses = statuses
        self.answer_limit_s = answer_limit_s
        self.is_closing = False  # the server has said that it closes
        self.is_gone = False  # the socket is closed
        self._buffer = bytearray()
        self.skip = 0  # bytes of a body that are still to come
        self.wants_to_write = False

    def begin(self, case: Case) -> None:
        self.case = case
        self.answered = 0
        self.received = bytearray()
        self.pause_until = 0.0
        self._at = 0
        self._out: memoryview | None = None
        self._sentinel = 0
        self._is_written = False
        self._is_streamed = False  # what comes now are parts of the last answer
        self.until = monotonic() + (DEAF_LIMIT_S if case.is_deaf else self.answer_limit_s)

    # --- sending ---------------------------------------------------------------------------------------------------

    def play(self) -> bool:
        """Do the next steps, as far as they go now."""
        steps = self.case.steps
        self.wants_to_write = False
        while True:
            if self._out is not None:
                try:
                    count = self.socket.send(self._out)
                except BlockingIOError:
                    self.wants_to_write = True
                    return True
                except OSError:
                    return self._lost()
                self._out = self._out[count:] if count < len(self._out) else None
                continue
            if self._at == len(steps):
                return self._written()
            step = steps[self._at]
            self._at += 1
            if isinstance(step, bytes):
                self._out = memoryview(step) if step else None
            elif isinstance(step, float):
                self.pause_until = monotonic() + step
                return True
            elif step is Do.HALF_CLOSE:
                try:
                    self.socket.shutdown(socket.SHUT_WR)
                except OSError:
                    return self._lost()
            else:
                if step is Do.RESET:
                    self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self.close()
                return False

    def _written(self) -> bool:
        self._is_written = True
        limit_s = self.answer_limit_s
        if (self.case.is_poisoned and self.case.due < len(self.case.ids)) or self.case.is_lost:
            limit_s = POISON_LIMIT_S if self.answered >= self.case.due else self.answer_limit_s
        self.until = monotonic() + limit_s
        return not self._is_over()

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self) -> bool:
        """Take what has come."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            return self._lost()
        if not data:
            return self._lost(is_orderly=True)
        if len(self.received) < KEPT_BYTES:
            self.received += data
        if self.skip:
            taken = min(self.skip, len(data))
            self.skip -= taken
            data = data[taken:]
        self._buffer += data
        self._parse()
        return not self._is_over()

    def _parse(self) -> None:
        buffer, start = self._buffer, 0
        while start < len(buffer) and not self._is_streamed:
            try:
                head = read_head(buffer, start)
            except NotAnAnswerError as error:
                raise ViolationError(f"no valid answer: {error}") from None
            if head is None:
                break
            start += head.size
            if head.status == 100:
                continue
            self.statuses[head.status] += 1
            self._is_streamed = self._begins_stream(head)
            length = self._match(head.status, head.id, head.closes, head.has_retry, head.length)
            self.skip = max(0, start + length - len(buffer))
            start = min(start + length, len(buffer))
        del buffer[:start]

    def _begins_stream(self, head: Head) -> bool:
        """Whether parts follow, as they may only where a stream was asked for."""
        case = self.case
        number = int(head.id) if head.id is not None and head.id.isdigit() else 0
        if not head.is_streamed or number in case.heads:
            return False
        if case.parts is None or number != case.ids[-1]:
            raise ViolationError("no valid answer: a transfer coding, where a length is due")
        return True

    def _has_parts(self) -> bool:
        """Whether the stream has as many parts as are due."""
        try:
            return count_parts(self._buffer) >= (self.case.parts or 0)
        except NotAnAnswerError as error:
            raise ViolationError(f"no valid answer: {error}") from None

    def _match(self, status: int, id: bytes | None, closes: bool, has_retry: bool, length: int) -> int:
        """Check one answer; gives the bytes of its body."""
        case = self.case
        if status in NEVER:
            raise ViolationError(f"status {status}")
        if status == 503 and not has_retry:
            raise ViolationError("a 503 without Retry-After")
        if self.is_closing:
            raise ViolationError("an answer after the one that closes")
        if id == b"marker":
            raise ViolationError("a request that was data has been executed")
        self.is_closing = closes
        number = int(id) if id is not None and id.isdigit() else 0
        if number and number == self._sentinel:
            self._sentinel = -1
            return length
        ids, at = case.ids, self.answered
        if self._sentinel == -1 or at >= len(ids):
            if case.is_lost and case.name == "flood":
                return length
            raise ViolationError("more answers than requests")
        if number != ids[at]:
            if number in ids[:at]:
                if case.is_lost and case.name == "flood":
                    return length
                raise ViolationError("a second answer to one request")
            if number in ids[at:]:
                raise ViolationError("an answer out of order")
            if number and not case.is_lost:
                raise ViolationError(f"an answer with the id of another connection ({number})")
            if not closes and not (case.is_poisoned and at == len(ids) - 1) and not case.is_lost:
                raise ViolationError(f"an answer {status} without the id of its request")
        self.answered = at + 1
        if ids[at] in case.must_refuse and status not in REFUSALS and status != 429:
            raise ViolationError(f"answered with {status} where it must be refused")
        if closes and status < 400 and self.answered < case.due:
            raise ViolationError("closed by a good answer while others are due")
        return 0 if number in case.heads else length

    # --- the end ---------------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Whether the case has ended; a poisoned connection that is still open gets one more request first."""
        case = self.case
        if self._is_streamed:
            if self._has_parts():
                self.close()
            return self.is_gone
        if not self._is_written or self.is_closing or self.skip or case.is_lost or self.answered < len(case.ids):
            return False
        if case.must_close:
            return False
        if not case.is_poisoned:
            return True
        if self._sentinel == 0:
            self._sentinel = case.ids[-1] + 50_000
            line = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx-request-id: %d\r\n\r\n" % self._sentinel
            case.steps.append(line)
            self._is_written = False
            return not self.play()
        return self._sentinel == -1

    def expire(self) -> None:
        """The time for an answer is over."""
        if not self.case.is_lost and self.answered < self.case.due:
            raise ViolationError(f"no answer within {self.answer_limit_s:g} s")
        if self._is_streamed:
            raise ViolationError(f"fewer than {self.case.parts} parts of a stream within {self.answer_limit_s:g} s")
        if self.is_closing or self.case.must_close:
            raise ViolationError("the connection was not closed")
        if self._sentinel > 0:
            raise ViolationError("a connection that is open and answers nothing more")
        self.close()

    def _lost(self, is_orderly: bool = False) -> bool:
        """The server has closed the connection."""
        case = self.case
        self.close()
        if self._is_streamed:
            raise ViolationError("a stream that ends while its client stays")
        if case.is_lost or self.is_closing or self.answered >= case.due or (case.is_poisoned and not is_orderly):
            return False
        raise ViolationError("closed without an answer that is due")

    def close(self) -> None:
        self.is_gone = True
        self.socket.close()
