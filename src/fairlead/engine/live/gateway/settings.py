"""What the operator chooses: the token, limits of size and time, whether code may be uploaded."""

import os
import socket
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path

import msgspec

from fairlead.errors import ConfigError, Fault

TOKEN_VARIABLE = "FAIRLEAD_TOKEN"
_LEAST_TOKEN = 16


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the gateway. Sizes are in bytes, times in seconds.

    `state` is the folder of the served app: uploaded code is kept below it. `max_open` bounds synchronous requests,
    `max_async` the asynchronous ones that run at once (the others wait in the journal).
    """

    state: Path
    token: str | None = None
    allow_deploy: bool = False
    max_body_bytes: int = 8 << 20
    max_head_bytes: int = 32 << 10
    max_connections: int = 2_000
    max_open: int = 10_000
    max_open_bytes: int = 512 << 20  # of their bodies
    max_async: int = 1_000
    receive_limit_s: float = 10.0  # from the first byte of a request to its last
    idle_limit_s: float = 75.0  # between two requests of a connection
    drain_limit_s: float = 30.0
    callback_prefixes: tuple[str, ...] = ()
    callback_secret: bytes | None = None  # signs callbacks

    def check(self, sockets: Iterable[socket.socket] = ()) -> None:
        """Raise ConfigError if these settings, on these listening sockets, are wrong or unsafe."""
        faults = [
            Fault(name, f"must be greater than 0; got {getattr(self, name)}.")
            for name in _POSITIVE
            if not getattr(self, name) > 0
        ]
        if self.token is None and self.allow_deploy:
            faults.append(Fault("allow_deploy", f"needs a token: set {TOKEN_VARIABLE}, or give a token file."))
        if self.token is not None:
            faults += _faults_of_token(self.token)
        faults += [
            Fault("host", f"{place} can be reached by others: set {TOKEN_VARIABLE}, or listen on 127.0.0.1.")
            for place in map(_address, sockets)
            if self.token is None and not _is_loopback(place)
        ]
        if faults:
            raise ConfigError("gateway", faults)


_POSITIVE = tuple(name for name in Settings.__struct_fields__ if name.startswith("max_") or name.endswith("_limit_s"))


def read_token(file: Path | None = None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token from a file, or from the environment; None if neither is given. ConfigError says what is wrong."""
    if file is None:
        token = environment.get(TOKEN_VARIABLE)
        source = TOKEN_VARIABLE
        if token is None:
            return None
    else:
        source = str(file)
        try:
            token = file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(source, [Fault("", f"cannot be read as a token: {error}.")]) from None
    if faults := _faults_of_token(token):
        raise ConfigError(source, faults)
    return token


def _faults_of_token(token: str) -> list[Fault]:
    if len(token) < _LEAST_TOKEN:
        return [Fault("token", f"must have at least {_LEAST_TOKEN} characters; got {len(token)}.")]
    if not all("!" <= character <= "~" for character in token):
        return [Fault("token", "must be of printable ASCII characters, without blanks.")]
    return []


def _address(listening: socket.socket) -> str:
    name = listening.getsockname()
    return str(name[0]) if isinstance(name, tuple) else ""


def _is_loopback(address: str) -> bool:
    if not address:  # a Unix socket: the file system says who may use it
        return True
    return ip_address(address.partition("%")[0]).is_loopback
