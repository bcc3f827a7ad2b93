"""From bytes to values: strict JSON into structs, values of requests into MessagePack and back."""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any, TypeVar

import msgspec
import numpy as np

from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.schemas import MOST_MS
from fairlead.engine.live.gateway.served import Served
from fairlead.engine.live.json_steps import json_in_steps
from fairlead.engine.live.store import is_elsewhere
from fairlead.engine.live.values import Value, decode, encode, to_json

T = TypeVar("T")
R = TypeVar("R")

MOST_CONTAINERS = 100_000
"""Lists and objects in one body, where no other limit is set."""

_SMALL_BYTES = 1 << 20  # values up to this size are read and written on the event loop itself


def read_json(exchange: Exchange, decoder: "msgspec.json.Decoder[T]", max_containers: int = MOST_CONTAINERS) -> T:
    """The body, checked against the decoder's type. Every fault is a 4xx that says what and where."""
    kind = exchange.headers.get(b"content-type", b"")
    if kind != b"application/json":
        require_json(kind)
    return parse_json(exchange.body, decoder, max_containers)


def require_json(kind: bytes) -> None:
    """Refuse a body that is not declared as JSON (a parameter such as a character set may follow)."""
    name = kind.partition(b";")[0].strip().lower()
    if name != b"application/json" and not name.endswith(b"+json"):
        shown = name.decode("latin-1") or "none"
        raise Problem(415, "not_json", f"The content type must be application/json; got {shown}.")


def parse_json(body: bytes, decoder: "msgspec.json.Decoder[T]", max_containers: int = MOST_CONTAINERS) -> T:
    """JSON as a value of the decoder's type, with at most `max_containers` lists and objects."""
    found = containers(body) if body.count(b"[") + body.count(b"{") > max_containers else 0
    if found > max_containers:
        message = f"The body has {found} lists and objects; at most {max_containers} are taken."
        raise Problem(422, "too_many_containers", message)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem(400, "invalid_body", f"Invalid request body: {error}.") from None
    except RecursionError:
        raise Problem(400, "invalid_json", "The body is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, "invalid_json", f"The body is not JSON: {error}.") from None


def containers(body: bytes) -> int:
    """How many lists and objects a JSON text opens, without decoding it: brackets outside strings."""
    marks = np.frombuffer(body.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    is_in_string = np.logical_xor.accumulate(marks == ord('"'))
    return int(np.count_nonzero(((marks == ord("[")) | (marks == ord("{"))) & ~is_in_string))


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


def raw_value(kind: str, body: bytes, max_containers: int = MOST_CONTAINERS) -> object:
    """A body without an envelope: JSON and text by their content type, anything else as bytes."""
    name = kind.partition(";")[0].strip().lower()
    if name == "application/json":
        return parse_json(body, _any_json, max_containers)
    if name.startswith("text/"):
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Problem(400, "invalid_body", f"The body is not UTF-8 text: {error}.") from None
    return body


def reading_bytes(host: Served, value: Value) -> int:
    """The size of a value, for `off_loop`: one that lies on another node counts as large."""
    size = host.size_bytes(value)
    return max(size, _SMALL_BYTES + 1) if is_elsewhere(value) else size


def is_small(host: Served, value: Value) -> bool:
    """Whether a value is read on the event loop itself."""
    return reading_bytes(host, value) <= _SMALL_BYTES if type(value) is not bytes else len(value) <= _SMALL_BYTES


async def off_loop(size_bytes: int, work: Callable[..., R], *arguments: object) -> R:
    """What this work gives; in a thread if it has much to do, so that others are answered meanwhile."""
    if size_bytes <= _SMALL_BYTES:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


async def encoded_json(data: bytes) -> bytes:
    """MessagePack as JSON."""
    form = json_form(len(data))
    return await off_loop(len(data), lambda: form(decode(data)))


def json_form(size_bytes: int) -> Callable[[object], bytes]:
    """How a value of this size is brought into JSON, given to `off_loop`."""
    return to_json if size_bytes <= _SMALL_BYTES else json_in_steps


_any_json: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
