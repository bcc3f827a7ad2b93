"""Addresses of gateways and agents: `HOST:PORT`, `[IPv6]:PORT` or `unix:PATH`; after `tls:`, one that speaks TLS."""

import errno
import os
import socket
import stat
from ipaddress import ip_address
from pathlib import Path

import msgspec

from fairlead.errors import ConfigError, Fault

_UNIX = "unix:"
_TLS = "tls:"
_BACKLOG = 1024


class Address(msgspec.Struct, frozen=True):
    """Where something listens: a host and a port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""
    is_tls: bool = False

    def __str__(self) -> str:
        if self.path:
            return f"{_UNIX}{self.path}"
        place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return f"{_TLS}{place}" if self.is_tls else place

    @property
    def is_local(self) -> bool:
        """Whether only this machine's programs can reach it. A host name other than `localhost` counts as remote."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """The address that a text names. Raises `ValueError`."""
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX)
        if not path or len(os.fsencode(path)) > 107:
            raise ValueError(f"{text!r} must name a path of 1 to 107 bytes after {_UNIX}")
        return Address(path=path)
    host, colon, port = text.removeprefix(_TLS).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} must be HOST:PORT, such as 127.0.0.1:8001, or unix:PATH")
    return Address(host, int(port), is_tls=text.startswith(_TLS))


def listen_on(address: Address, option: str) -> socket.socket:
    """A listening socket; ConfigError says why there is none. A Unix socket is its owner's only.

    A Unix socket that a dead process left behind is replaced; any other file at its path is not.
    """
    family = socket.AF_UNIX if address.path else socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if address.path:
            _bind_path(listening, Path(address.path))
        else:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((address.host, address.port))
    except (OSError, OverflowError, UnicodeError) as error:
        listening.close()
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        todo = "Another process listens there; choose another address." if is_taken else f"Check {option}."
        raise ConfigError(f"{option} {address}", [Fault("", f"cannot listen: {why}. {todo}")]) from error
    listening.listen(_BACKLOG)
    return listening


def bound_address(listening: socket.socket) -> Address:
    """Where a socket listens, with the port that the kernel chose."""
    name = listening.getsockname()
    return Address(str(name[0]), int(name[1])) if isinstance(name, tuple) else Address(path=str(name))


def facing(other: Address) -> Address:
    """A free port of the address from which this machine reaches another one. Raises `OSError`."""
    if other.is_local:
        return Address("127.0.0.1", 0)
    family = socket.AF_INET6 if ":" in other.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing
        probe.connect((other.host, other.port))
        return Address(str(probe.getsockname()[0]), 0)


def connect_to(address: Address, timeout_s: float) -> socket.socket:
    """A connected socket that blocks for at most `timeout_s`. Raises `OSError`."""
    if address.path:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(address.path)
        except BaseException:
            connection.close()
            raise
        return connection
    connection = socket.create_connection((address.host, address.port), timeout_s)
    tune(connection)
    return connection


def tune(connection: socket.socket) -> None:
    """Send small frames at once, and notice within seconds that the other machine is gone."""
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000)):
        if hasattr(socket, name):  # Linux
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _bind_path(listening: socket.socket, path: Path) -> None:
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        is_socket = False
    if is_socket:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)
