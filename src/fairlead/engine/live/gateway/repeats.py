"""Requests that repeat a head: clients that keep a connection mostly send the same bytes before each body.

The same bytes from the same state of a parser mean the same, and whether a head is admitted depends on nothing else. So
a request that came whole, with a head that was admitted before on its connection, is taken without being parsed again.
"""

from fairlead.engine.live.gateway.exchange import Exchange

_MOST_BYTES = 2048  # of a head that is remembered
_CHANGES_PARSING = (b"transfer-encoding", b"upgrade", b"expect")


class KnownHead:
    """The head of an admitted request, and what it meant."""

    __slots__ = ("_exchange", "_head", "_size")

    def __init__(self, head: bytes, body_bytes: int, exchange: Exchange) -> None:
        self._head = head
        self._size = len(head) + body_bytes
        self._exchange = exchange.again()  # without a body

    def fits(self, data: bytes) -> bool:
        """Whether these bytes are one whole request with this head."""
        return len(data) == self._size and data.startswith(self._head)

    def repeat(self, data: bytes) -> tuple[Exchange, bytes]:
        """The request that fitting bytes are, and its body."""
        return self._exchange.again(), data[len(self._head) :]


def known_head(data: bytes, body_bytes: int, exchange: Exchange) -> KnownHead | None:
    """What to remember of a request that came whole in these bytes; None where its head does not mean all there is."""
    head = data[: len(data) - body_bytes]
    declared = exchange.headers.get(b"content-length", b"0")
    if (
        exchange.reply is not None
        or exchange.endpoint is None
        or not exchange.keep_alive
        or len(head) > _MOST_BYTES
        or not head.endswith(b"\r\n\r\n")
        or not declared.isdigit()
        or int(declared) != body_bytes
        or any(name in exchange.headers for name in _CHANGES_PARSING)
    ):
        return None
    return KnownHead(head, body_bytes, exchange)
