"""What the operator chooses: the token, limits of size and time, whether code may be uploaded."""

import os
import socket
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

import msgspec

from fairlead.app.secrets import TOKEN
from fairlead.errors import ConfigError, Fault

_LEAST_TOKEN = 16
_MOST_PIPELINED = 256


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the gateway. Sizes are in bytes, times in seconds.

    `state` is the folder of the served app: uploaded code is kept below it. Every numeric field can be set with
    `fairlead serve --limit NAME=VALUE`; `docs/guide/gateway.md` lists what a client is told when it exceeds one.
    """

    state: Path
    token: str | None = None
    allow_deploy: bool = False
    certfile: Path | None = None  # PEM certificate chain: with it, the gateway speaks TLS only
    keyfile: Path | None = None
    max_body_bytes: int = 8 << 20
    max_head_bytes: int = 32 << 10  # request line, headers, chunk extensions and trailers of one request
    max_pipelined: int = 16  # requests that a connection may send ahead of its answers
    max_connections: int = 2_000
    max_dashboards: int = 16  # pages that are told once per second how everything stands
    max_log_followers: int = 8  # clients that follow the lines of functions
    max_open: int = 10_000  # synchronous requests
    max_open_bytes: int = 512 << 20  # of their bodies
    max_async: int = 1_000  # asynchronous requests that run at once; the others wait in the journal
    max_items: int = 10_000  # items that one list gives to a map stage
    max_containers: int = 100_000  # lists and objects in one request body, tensors expanded to their shape
    max_result_bytes: int = 16 << 20  # of one workflow's answer
    receive_limit_s: float = 10.0  # from the first byte of a request to its last
    idle_limit_s: float = 75.0  # between two requests of a connection
    late_limit_s: float = 30.0  # how long past its deadline a synchronous request may still wait for its answer
    stall_limit_s: float = 5.0  # a gateway whose event loop or journal stands still for this long is replaced
    drain_limit_s: float = 30.0
    access_log: Literal["text", "json"] | None = None
    callback_prefixes: tuple[str, ...] = ()
    callback_secret: bytes | None = None  # signs callbacks

    def check(self, sockets: Iterable[socket.socket] = ()) -> None:
        """Raise ConfigError if these settings, on these listening sockets, are wrong or unsafe."""
        faults = [
            Fault(name, f"must be greater than 0; got {getattr(self, name)}.")
            for name in LIMITS
            if not getattr(self, name) > 0
        ]
        if self.token is None and self.allow_deploy:
            faults.append(Fault("allow_deploy", f"needs a token: set {TOKEN}, or give a token file."))
        if self.max_pipelined > _MOST_PIPELINED:
            faults.append(Fault("max_pipelined", f"must be at most {_MOST_PIPELINED}; got {self.max_pipelined}."))
        if (self.certfile is None) != (self.keyfile is None):
            faults.append(Fault("certfile", "and keyfile belong together: give both, or neither."))
        if self.token is not None:
            faults += _faults_of_token(self.token)
        faults += [
            Fault("host", f"{place} can be reached by others: set {TOKEN}, or listen on 127.0.0.1.")
            for place in map(_address, sockets)
            if self.token is None and not _is_loopback(place)
        ]
        if faults:
            raise ConfigError("gateway", faults)


LIMITS = {
    name: kind
    for name, kind in Settings.__annotations__.items()
    if name.startswith("max_") or name.endswith("_limit_s")
}
"""The numeric settings by name, with their type: int or float."""


def read_token(
    file: Path | None = None, environment: Mapping[str, str] = os.environ, variable: str = TOKEN
) -> str | None:
    """The token from a file, or from the environment; None if neither is given. ConfigError says what is wrong."""
    if file is None:
        token = environment.get(variable)
        source = variable
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
