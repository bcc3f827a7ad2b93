"""Questions to a gateway over HTTP: one GET at a time, with the token, over TLS where the URL says so."""

import http.client
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import TypeVar

import msgspec

from fairlead.cli.errors import UsageError
from fairlead.client.tls import client_context, tls_failure
from fairlead.errors import FairleadError
from fairlead.load import Target

TOKEN = "FAIRLEAD_TOKEN"
"""The environment variable that holds the token."""

_SHOWN = ("unknown_node", "not_drained", "invalid_query", "too_many_followers")  # codes whose message helps
_TIMEOUT_S = 5.0  # without a byte
_LIMIT_S = 30.0  # for the whole answer
_MAX_BYTES = 64 << 20
_SILENCE_S = 60.0  # of an answer that goes on; a gateway that lives says so more often
_MAX_LINE = 1 << 20

Decoded = TypeVar("Decoded")


class GatewayError(FairleadError):
    """A gateway does not answer, or not as a gateway should."""


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """A gateway that may be given the token: the user named its URL, or its own file is trusted.

    Redirects are not followed, so the token goes nowhere else. Certificates are always verified.
    """

    url: str
    token: str | None = None
    cacert: Path | None = None
    state: Path | None = None  # the folder whose file named it

    def get(self, path: str) -> bytes:
        """The body of an answer with status 200. GatewayError says what went wrong."""
        return self.send("GET", path)

    def send(self, method: str, path: str) -> bytes:
        """As `get`, with another method; a status of 202 will do too."""
        target = target_of(self.url)
        connection = self._connection(target)
        try:
            connection.request(method, target.path.rstrip("/") + path, headers=self._headers())
            answer = connection.getresponse()
            body = _body(answer, self.url)
        except ssl.SSLError as error:
            raise tls_failure(self.url, error, self.cacert) from error
        except TimeoutError as error:
            raise GatewayError(f"{self.url}: does not answer within {_TIMEOUT_S:g} s.") from error
        except (OSError, http.client.HTTPException) as error:
            is_odd = isinstance(error, http.client.HTTPException | ConnectionResetError) and not target.is_tls
            hint = " If it serves TLS, use https://." if is_odd else ""
            raise GatewayError(f"{self.url}: does not answer: {_said(error)}.{hint}") from error
        finally:
            connection.close()
        if answer.status not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            raise GatewayError(f"{self.url}{path}: {_explained(body) or self._refused(answer.status)}.")
        return body

    def ask(self, path: str, kind: type[Decoded]) -> Decoded:
        """The answer to a GET as a value of this type; GatewayError if it is none."""
        body = self.get(path)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            what = "the answer is not that of a Fairlead gateway of this version"
            raise GatewayError(f"{self.url}{path}: {what}: {_said(error)}.") from error

    def follow(self, path: str) -> Iterator[bytes]:
        """The lines of an answer that goes on until the gateway ends it. GatewayError says what went wrong."""
        target = target_of(self.url)
        connection = self._connection(target)
        try:
            connection.request("GET", target.path.rstrip("/") + path, headers=self._headers())
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                why = _explained(_body(answer, self.url)) or self._refused(answer.status)
                raise GatewayError(f"{self.url}{path}: {why}.")
            if connection.sock is not None:
                connection.sock.settimeout(_SILENCE_S)
            while line := answer.readline(_MAX_LINE):
                yield line
        except ssl.SSLError as error:
            raise tls_failure(self.url, error, self.cacert) from error
        except TimeoutError as error:
            raise GatewayError(f"{self.url}: does not answer any more.") from error
        except (OSError, http.client.HTTPException) as error:
            raise GatewayError(f"{self.url}: does not answer: {_said(error)}.") from error
        finally:
            connection.close()

    def _connection(self, target: Target) -> http.client.HTTPConnection:
        if not target.is_tls:
            return http.client.HTTPConnection(target.host, target.port, timeout=_TIMEOUT_S)
        tls = trusted(self.cacert)
        return http.client.HTTPSConnection(target.host, target.port, timeout=_TIMEOUT_S, context=tls)

    def _headers(self) -> dict[str, str]:
        token = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Accept": "application/json", **token}

    def _refused(self, status: int) -> str:
        if status == HTTPStatus.UNAUTHORIZED:
            return f"the token in {TOKEN} is not its own" if self.token else f"it wants a token; set {TOKEN}"
        if 300 <= status < 400:
            return f"answered {status}, a redirect, which is not followed; name the gateway's own address"
        known = status in HTTPStatus._value2member_map_
        return f"answered {status} {HTTPStatus(status).phrase}" if known else f"answered {status}"


class _Error(msgspec.Struct):
    code: str
    message: str


class _Refusal(msgspec.Struct):
    error: _Error


def _explained(body: bytes) -> str | None:
    """What a gateway says of an order that it cannot carry out; None for any other refusal."""
    try:
        found = msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    message = "".join(c for c in found.message[:500] if c.isprintable())
    return message.rstrip(".") if found.code in _SHOWN else None


def target_of(url: str) -> Target:
    """The place that a URL names; UsageError if it is none."""
    try:
        return Target.of(url)
    except ValueError as error:
        raise UsageError(str(error)) from error


def trusted(cacert: Path | None) -> ssl.SSLContext:
    """The context that verifies servers; UsageError if the file of certificates is none."""
    try:
        return client_context(cacert)
    except ValueError as error:
        raise UsageError(f"--cacert {error}") from error


def checked_cacert(cacert: Path | None, url: str) -> Path | None:
    """The file of certificates, if it can be used for this URL; UsageError otherwise."""
    if cacert is not None:
        if not target_of(url).is_tls:
            raise UsageError(f"--cacert is for an https:// URL; got {url}.")
        trusted(cacert)
    return cacert


def environment_token() -> str | None:
    """The token in the environment; UsageError if it cannot be sent."""
    return checked_token(os.environ.get(TOKEN) or None, TOKEN)


def checked_token(token: str | None, source: str) -> str | None:
    """The token, if it can be sent as a header; UsageError names its source otherwise."""
    if token is not None and not all("!" <= letter <= "~" for letter in token):
        raise UsageError(f"{source}: a token must consist of printable ASCII characters, without blanks.")
    return token


def _body(answer: http.client.HTTPResponse, url: str) -> bytes:
    limit = monotonic() + _LIMIT_S
    body = bytearray()
    while part := answer.read1(1 << 16):
        body += part
        if len(body) > _MAX_BYTES:
            raise GatewayError(f"{url}: answered more than {_MAX_BYTES >> 20} MB; is it a Fairlead gateway?")
        if monotonic() > limit:
            raise GatewayError(f"{url}: has not finished its answer within {_LIMIT_S:g} s.")
    return bytes(body)


def _said(error: Exception) -> str:
    """The error's own words on one line, printable and short."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:200].rstrip(".")
