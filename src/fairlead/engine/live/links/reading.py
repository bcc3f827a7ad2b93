"""The end that reads values of other nodes, piece by piece. `serving.py` has the other end."""

import socket
import ssl
from collections.abc import Callable
from struct import Struct
from threading import Lock
from typing import TypeVar

from fairlead.engine.live.links.address import Address
from fairlead.engine.live.links.dial import HANDSHAKE_LIMIT_S, dial
from fairlead.engine.live.links.greeting import Credential, GreetingError
from fairlead.engine.live.links.messages import MOST_CONTROL_BYTES, PIECE_BYTES, Missing, Read, pack, to_reader
from fairlead.engine.live.values import LostValueError

T = TypeVar("T")

SILENCE_LIMIT_S = 5.0
"""How long a node may be silent in the middle of a read."""

_AHEAD = 4  # pieces that a reader asks for before the first has come
_IDLE_KEPT = 4  # connections to one node that wait for the next read
_LENGTH = Struct("<I")


class UnreachableError(LostValueError):
    """A node that may hold a value cannot be reached, or does not answer."""


class Reader:
    """Reads values from other nodes. Blocks; may be used by several threads at once.

    Args:
        credential: Whom it speaks for.
        tls: Of the dialling end, for nodes that speak TLS.
        limit_s: How long a node may take to be reached, and may be silent in the middle of a read.
    """

    def __init__(self, credential: Credential, tls: ssl.SSLContext | None, limit_s: float = SILENCE_LIMIT_S) -> None:
        self._credential = credential
        self._tls = tls
        self._limit_s = limit_s
        self._idle: dict[Address, list[socket.socket]] = {}
        self._lock = Lock()

    def fetch(self, address: Address, name: str, size: int, node: str, home: str = "") -> bytearray:
        """All bytes of a value. LostValueError says why there are none, UnreachableError that the node says nothing.

        With `home`, a gateway at the address passes them on.
        """

        def read(connection: socket.socket) -> bytearray:
            return _read(connection, name, size, home)

        return self._ask(address, read, _what(size, node), node)

    def part(self, address: Address, read: Read, node: str) -> bytes:
        """A part of a value, to be passed on. Raises LostValueError."""

        def ask(connection: socket.socket) -> bytes:
            connection.sendall(pack(Read(read.name, read.offset, read.length)))
            answer = to_reader.decode(_body(connection))
            if isinstance(answer, Missing):
                raise LostValueError(answer.reason)
            return answer.data

        return self._ask(address, ask, f"a value on node {node}", node)

    def _ask(self, address: Address, read: Callable[[socket.socket], T], what: str, node: str) -> T:
        """What `read` gets over a connection, an idle one where there is one."""
        fault: Exception | None = None
        for connection in (self._taken(address), None):  # an idle connection may have died meanwhile
            try:
                connection = connection or self._dial(address)
            except (OSError, GreetingError) as error:
                fault = error
                break
            try:
                data = read(connection)
            except (OSError, ValueError, MemoryError, OverflowError) as error:  # a size that cannot be, too
                fault = error
                connection.close()
                if isinstance(error, TimeoutError):
                    break  # a new connection to a node that stands still would take as long again
                continue
            except LostValueError as error:
                self._keep(address, connection)
                raise LostValueError(f"{what} is lost: {error}", node) from None
            self._keep(address, connection)
            return data
        raise UnreachableError(f"{what} is lost: it cannot be reached at {address} ({fault})", node)

    def close(self) -> None:
        """End the connections that wait."""
        with self._lock:
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()

    def _dial(self, address: Address) -> socket.socket:
        if address.is_tls and self._tls is None:
            raise ConnectionRefusedError("it speaks TLS, and no certificate to verify it with was given")
        tls = self._tls if address.is_tls else None
        connection = dial(address, self._credential, tls, min(self._limit_s, HANDSHAKE_LIMIT_S))
        connection.settimeout(self._limit_s)
        return connection

    def _taken(self, address: Address) -> socket.socket | None:
        with self._lock:
            waiting = self._idle.get(address)
            return waiting.pop() if waiting else None

    def _keep(self, address: Address, connection: socket.socket) -> None:
        with self._lock:
            waiting = self._idle.setdefault(address, [])
            if len(waiting) < _IDLE_KEPT:
                waiting.append(connection)
                return
        connection.close()


def _what(size: int, node: str) -> str:
    return f"a value of {size / 2**20:.2f} MiB on {f'node {node}' if node else 'the gateway'}"


def _read(connection: socket.socket, name: str, size: int, home: str) -> bytearray:
    """Read a value piece by piece, a few asked for ahead."""
    data = bytearray(size)
    rest = memoryview(data)
    asked = 0
    while rest:
        while asked < size and asked - (size - len(rest)) < _AHEAD * PIECE_BYTES:
            length = min(PIECE_BYTES, size - asked)
            connection.sendall(pack(Read(name, asked, length, home)))
            asked += length
        body = _body(connection)
        answer = to_reader.decode(body)
        if isinstance(answer, Missing):
            for _ in range(-(-(asked - (size - len(rest))) // PIECE_BYTES) - 1):  # the other pieces are missing too
                _body(connection)
            raise LostValueError(answer.reason)
        expected = min(PIECE_BYTES, len(rest))
        if len(answer.data) != expected:
            raise ValueError(f"{expected} bytes were asked for, and {len(answer.data)} came")
        rest[:expected] = answer.data
        rest = rest[expected:]
    return data


def _body(connection: socket.socket) -> bytearray:
    (length,) = _LENGTH.unpack(_exactly(connection, 4))
    if length > MOST_CONTROL_BYTES:
        raise ValueError(f"a frame of {length} bytes is too large")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionResetError("the connection was closed")
        view = view[count:]
    return data
