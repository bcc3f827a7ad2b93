"""From bytes to values: strict JSON into structs, values of requests into MessagePack and back."""

from math import inf
from typing import Any, TypeVar

import msgspec

from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.schemas import MOST_MS
from fairlead.engine.live.values import encode

T = TypeVar("T")


async def read_json(exchange: Exchange, decoder: "msgspec.json.Decoder[T]") -> T:
    """The body, checked against the decoder's type. Every fault is a 4xx that says what and where."""
    kind = exchange.headers.get(b"content-type", b"")
    if kind != b"application/json":
        require_json(kind)
    return parse_json(exchange.body, decoder)


def require_json(kind: bytes) -> None:
    """Refuse a body that is not declared as JSON (a parameter such as a character set may follow)."""
    name = kind.partition(b";")[0].strip().lower()
    if name != b"application/json" and not name.endswith(b"+json"):
        shown = name.decode("latin-1") or "none"
        raise Problem(415, "not_json", f"The content type must be application/json; got {shown}.")


def parse_json(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """JSON as a value of the decoder's type."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem(400, "invalid_body", f"Invalid request body: {error}.") from None
    except RecursionError:
        raise Problem(400, "invalid_json", "The body is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, "invalid_json", f"The body is not JSON: {error}.") from None


def to_value(value: object) -> bytes:
    """A decoded value as it is handed to the runtime."""
    try:
        return encode(value)
    except OverflowError:
        raise Problem(400, "invalid_body", "Integers must lie between -2**63 and 2**64 - 1.") from None
    except RecursionError:
        raise Problem(400, "invalid_json", "The body is nested too deeply.") from None


def deadline_s(exchange: Exchange, in_body_ms: float | None, otherwise_s: float | None) -> float | None:
    """The deadline of a request, in seconds from now: the smaller of header and body, if any is given."""
    header = exchange.headers.get(b"x-deadline-ms")
    if header is None:
        return otherwise_s if in_body_ms is None else in_body_ms / 1e3
    in_header_ms = _positive(header)
    return min(in_header_ms, inf if in_body_ms is None else in_body_ms) / 1e3


def _positive(header: bytes) -> float:
    try:
        value = float(header) if header.isascii() and b"_" not in header else 0.0
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST_MS:  # false for nan too
        shown = header.decode("latin-1")[:80]
        message = f"X-Deadline-Ms must be a number of milliseconds above 0, {MOST_MS:.0e} at most; got {shown!r}."
        raise Problem(400, "invalid_header", message)
    return value


def raw_value(kind: str, body: bytes) -> object:
    """A body without an envelope: JSON and text by their content type, anything else as bytes."""
    name = kind.partition(";")[0].strip().lower()
    if name == "application/json":
        return parse_json(body, _any_json)
    if name.startswith("text/"):
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Problem(400, "invalid_body", f"The body is not UTF-8 text: {error}.") from None
    return body


_any_json: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
