"""Which URLs may be called back.

A client names the URL, and the gateway calls it from inside the operator's network: so only what the operator listed
is called, and a URL is compared only where it can be read in one way. Every spelling that some other parser may read
differently (user info, numbers for addresses, dot segments, escapes of separators) is refused.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import NamedTuple

from fairlead.errors import ConfigError, FairleadError, Fault

MAX_URL = 2048
_PORTS = {"http": 80, "https": 443}
_PARTS = re.compile(
    r"(?P<scheme>[a-z]+)://(?P<host>[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]+))?"
    r"(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?",
    re.ASCII | re.IGNORECASE,
)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_SAFE = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*", re.ASCII)
_HIDDEN = re.compile(r"%(?:2e|2f|5c|3b|25|[01][0-9a-f]|7f)", re.ASCII | re.IGNORECASE)


class CallbackRefusedError(FairleadError):
    """The gateway does not call this URL."""


class Target(NamedTuple):
    """A URL that was read: where to connect, and what to ask for there."""

    scheme: str
    host: str  # lower case; without the brackets of an IPv6 address
    port: int
    path: str  # with the query

    @property
    def origin(self) -> tuple[str, str, int]:
        """Whom the call reaches."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse_url(url: str) -> Target:
    """Read a URL strictly; ValueError says what is wrong with it."""
    if len(url) > MAX_URL:
        raise ValueError(f"is longer than {MAX_URL} characters")
    if "#" in url:
        raise ValueError("has a fragment")
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ValueError("has user information")
    parts = _PARTS.fullmatch(url)
    if parts is None:
        raise ValueError("is not of the form http(s)://host[:port]/path")
    scheme = parts["scheme"].lower()
    if scheme not in _PORTS:
        raise ValueError(f"has the scheme {scheme!r}; only http and https are called")
    path = (parts["path"] or "/") + (parts["query"] or "")
    _check_path(path)
    return Target(scheme, _host(parts["host"].lower()), _port(parts["port"], scheme), path)


def _host(host: str) -> str:
    if host.startswith("["):
        try:
            address = ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise ValueError(f"has an address that cannot be read: {host}") from None
        if address.compressed != host[1:-1]:
            raise ValueError(f"spells its address {host}; write [{address.compressed}]")
        return address.compressed
    labels = host.split(".")
    if _NUMERIC.fullmatch(labels[-1]):  # a number at the end: an address, in one of its many spellings
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ValueError(f"has an address that is not four decimal numbers: {host}") from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"has a host name that is not valid: {host}")
    return host


def _port(text: str | None, scheme: str) -> int:
    if text is None:
        return _PORTS[scheme]
    if text.startswith("0") or len(text) > 5 or not 1 <= int(text) <= 65535:
        raise ValueError(f"has the port {text[:8]}; ports are 1 to 65535")
    return int(text)


def _check_path(path: str) -> None:
    if not _SAFE.fullmatch(path):
        raise ValueError("has characters that must be percent-encoded")
    path = path.partition("?")[0]
    if _HIDDEN.search(path):
        raise ValueError("hides a dot, a separator or a control character behind a percent sign")
    if any(segment.partition(";")[0] in (".", "..") for segment in path.split("/")):
        raise ValueError("has a dot segment in its path")


class AllowList:
    """URL prefixes that may be called. Scheme, host and port must be equal; the path must lie below the prefix's."""

    def __init__(self, prefixes: Sequence[str]) -> None:
        faults, self._prefixes = [], []
        for prefix in prefixes:
            try:
                target = parse_url(prefix)
                if "?" in target.path:
                    raise ValueError("has a query; a prefix has none")
                self._prefixes.append(target)
            except ValueError as error:
                faults.append(Fault("", f"{prefix[:200]!r} {error}."))
        if faults:
            raise ConfigError("callback allow-list", faults)

    def __bool__(self) -> bool:
        return bool(self._prefixes)

    def check(self, url: str) -> Target:
        """The target of a URL that may be called; CallbackRefusedError otherwise."""
        if not self._prefixes:
            raise CallbackRefusedError(
                "This gateway calls nobody back: its callback allow-list is empty. Ask for the result by id, or have "
                "the URL's prefix listed with --callback-allow."
            )
        try:
            target = parse_url(url)
        except ValueError as error:
            raise CallbackRefusedError(f"The callback URL {url[:200]!r} {error}.") from None
        path = target.path.partition("?")[0]
        for prefix in self._prefixes:
            below = prefix.path.rstrip("/")
            if target.origin == prefix.origin and (
                path == prefix.path or path == below or path.startswith(f"{below}/")
            ):
                return target
        # The list itself is not told: it would be a map of the operator's network.
        raise CallbackRefusedError(f"The callback URL {url[:200]!r} is not below any prefix of the allow-list.")
