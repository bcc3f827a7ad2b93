"""Where requests go: a URL taken apart, and the bytes of a request to it."""

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Self
from urllib.parse import quote, urlsplit

import msgspec

_PORTS = {"http": 80, "https": 443}
_SAFE = "/%:@!$&'()*+,;=~"  # in a path as it is
_HOST = re.compile(r"[A-Za-z0-9._:%-]+")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The place that a URL names; `is_tls` for `https`."""

    host: str
    port: int
    path: str
    is_tls: bool = False

    @classmethod
    def of(cls, url: str) -> Self:
        """Take a URL apart; raises `ValueError` for a URL that requests cannot be sent to."""
        try:
            parts = urlsplit(url.encode().decode())  # raises for bytes of the command line that are not UTF-8
            host = (parts.hostname or "").encode("idna").decode("ascii")
        except ValueError:  # such as http://[::1, or a label of more than 63 characters
            host = ""
        if not _HOST.fullmatch(host) or parts.scheme not in _PORTS:
            raise ValueError(f"the URL must look like http://127.0.0.1:8000; got {url[:200]!r}.")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the URL must not carry a name or password; use a token.")
        try:
            port = _PORTS[parts.scheme] if parts.port is None else parts.port
        except ValueError:
            port = 0
        if not port:
            raise ValueError(f"the URL's port must be a number from 1 to 65535; got {url[:200]!r}.")
        path = quote(parts.path, safe=_SAFE, errors="replace") or "/"
        if parts.query:
            path += "?" + quote(parts.query, safe=f"{_SAFE}?", errors="replace")
        return cls(host=host, port=port, path=path, is_tls=parts.scheme == "https")

    def at(self, path: str) -> "Target":
        """Another path of the same server."""
        return msgspec.structs.replace(self, path=quote(path, safe=f"{_SAFE}?", errors="replace"))

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine, by its address or as `localhost`."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"

    def head(self, body: bytes, headers: Sequence[tuple[str, str]]) -> bytes:
        """A request up to and including its last header; the blank line and the body follow.

        A header that is given replaces the one that would be sent by default.
        """
        lines = [
            f"{'POST' if body else 'GET'} {self.path} HTTP/1.1",
            f"Host: {self.origin.partition('//')[2]}",
        ]
        given = {name.lower() for name, _ in headers}
        defaults = ("Accept", "Content-Type") if body else ("Accept",)
        lines += [f"{name}: application/json" for name in defaults if name.lower() not in given]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        lines += [f"{name}: {value}" for name, value in headers]
        return "".join(f"{line}\r\n" for line in lines).encode("latin-1")
