"""Where requests go: a URL taken apart, and the bytes of a request to it."""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Self
from urllib.parse import quote, urlsplit

import msgspec


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The place that a URL names. Only `http`: load is for a server nearby, and encryption would measure itself."""

    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Self:
        """Take a URL apart; raises `ValueError` for what cannot be asked."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"the URL must look like http://127.0.0.1:8080/path; got {url!r}.")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the URL must not carry a name or password; use a token.")
        try:
            port = parts.port or 80
        except ValueError as error:
            raise ValueError(f"the URL's port must be a number up to 65535; got {url!r}.") from error
        path = quote(parts.path, safe="/%:@!$&'()*+,;=~") or "/"
        if parts.query:
            path += "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~?")
        return cls(host=parts.hostname, port=port, path=path)

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine, by its address or as `localhost`."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def head(self, body: bytes, headers: Sequence[tuple[str, str]]) -> bytes:
        """A request up to and including its last header; the blank line and the body follow."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [
            f"{'POST' if body else 'GET'} {self.path} HTTP/1.1",
            f"Host: {host}:{self.port}",
            "Accept: application/json",
        ]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        return "".join(f"{line}\r\n" for line in lines).encode("latin-1")
