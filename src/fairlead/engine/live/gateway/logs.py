"""`GET /v1/logs`: what functions wrote, and what they write from now on."""

import asyncio
from math import isfinite
from time import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from fairlead.engine.live.gateway.endpoints import Answer, Endpoint
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.replies import Outlet, Reply
from fairlead.engine.live.logs.folder import LogFolder, Place, Tail
from fairlead.engine.live.logs.lines import Line, Wanted, pack

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

_NDJSON = b"application/x-ndjson"
_MOST_LINES = 10_000
_LINES = 1000
_PERIOD_S = 0.25
_READ_BYTES = 64 << 10  # per period and follower
_MOST_BEHIND = 8 << 20  # bytes; a follower that is further behind goes on at the end
_ALIVE_S = 15.0  # an empty line says that the connection is alive
_MOST_NAME = 300
_SEARCHES = 2  # of the whole folder, at once: one holds the interpreter for a second or more
_MOST_WAITING = 16  # that wait for these
_TEXT = {"type": "string"}
_QUERY = (
    ("app", "Lines of this app.", _TEXT),
    ("function", "Lines of this function.", _TEXT),
    ("request", "Lines of this request, by its id.", _TEXT),
    ("since", "Lines from this instant on, in seconds since 1970.", {"type": "number"}),
    (
        "limit",
        f"The last of them, {_LINES} by default.",
        {"type": "integer", "minimum": 1, "maximum": _MOST_LINES, "default": _LINES},
    ),
    ("follow", "1 to go on with new lines until the client leaves.", {"enum": [0, 1], "default": 0}),
)


class Followers:
    """Clients that follow lines.

    Args:
        folder: Where lines are.
        most: How many clients may follow at once.
    """

    def __init__(self, folder: LogFolder, most: int) -> None:
        self.folder = folder
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()
        self._searches = asyncio.Semaphore(_SEARCHES)
        self._searching = 0

    def check(self) -> None:
        """429 where one more would be too many."""
        if len(self._tasks) >= self._most:
            message = f"{self._most} clients follow the logs already, the most that may (max_log_followers)."
            raise Problem(429, "too_many_followers", message, retry_after_s=5.0)

    async def last(self, wanted: Wanted, most: int, end: Place | None = None) -> bytes:
        """The last lines before a place; 429 where too many clients ask for some."""
        if self._searching >= _SEARCHES + _MOST_WAITING:
            message = f"{self._searching} clients wait for lines of the logs already."
            raise Problem(429, "too_many_followers", message, retry_after_s=1.0)
        self._searching += 1
        try:
            async with self._searches:
                return _joined(await asyncio.to_thread(self.folder.last, wanted, most, end))
        finally:
            self._searching -= 1

    def start(self, outlet: Outlet, wanted: Wanted, most: int, end: Place) -> None:
        """Send the last lines before a place, then what comes after it."""
        task = asyncio.get_running_loop().create_task(self._follow(outlet, wanted, most, end))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def leave() -> None:
            task.cancel()

        outlet.on_lost = leave

    def close(self) -> None:
        """End every answer: the gateway ends."""
        for task in self._tasks:
            task.cancel()

    async def _follow(self, outlet: Outlet, wanted: Wanted, most: int, end: Place) -> None:
        try:
            tail = Tail(self.folder, end)
            outlet.send(await self.last(wanted, most, end))
            quiet_s = 0.0
            while True:
                data = await asyncio.to_thread(_next, tail, wanted)
                quiet_s = 0.0 if data else quiet_s + _PERIOD_S
                if quiet_s >= _ALIVE_S:
                    data, quiet_s = b"\n", 0.0
                outlet.send(data)
                await asyncio.sleep(_PERIOD_S)
        finally:
            outlet.end()


def _next(tail: Tail, wanted: Wanted) -> bytes:
    if tail.behind_bytes > _MOST_BEHIND:
        tail.skip()
        names = {"app": wanted.app or "", "function": wanted.function or "", "instance": "", "node": ""}
        text = "some lines were left out here: they come faster than they are followed"
        return pack(Line(t=time(), request=wanted.request, stream="log", level="WARNING", text=text, **names))
    return _joined(list(wanted.among(tail.read(_READ_BYTES))))


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


async def logs(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Lines of functions."""
    wanted, most, follows = _asked(exchange.query)
    followers = gateway.logs
    if follows:
        followers.check()
        end = await asyncio.to_thread(followers.folder.end)  # what comes once the client has the head, it gets
        return Reply(200, b"", _HEADERS, _NDJSON, lambda outlet: followers.start(outlet, wanted, most, end))
    return Reply(200, await followers.last(wanted, most), _HEADERS, _NDJSON)


_HEADERS = [(b"cache-control", b"no-store")]


def _asked(query: bytes) -> tuple[Wanted, int, bool]:
    """What a query asks for; 400 where it is wrong."""
    try:
        given = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query), max_num_fields=20)
    except (ValueError, UnicodeDecodeError) as error:
        raise Problem(400, "invalid_query", f"The query cannot be read: {error}.") from None
    fields = dict(given)
    known = [name for name, _, _ in _QUERY]
    unknown = [name for name, _ in given if name not in known]
    if unknown or len(fields) < len(given):
        what = f"there is no parameter {unknown[0][:80]!r}" if unknown else "a parameter is given twice"
        raise Problem(400, "invalid_query", f"Invalid query: {what}. Parameters: {', '.join(known)}.")
    most = _number(fields, "limit", float(_LINES))
    if not 1 <= most <= _MOST_LINES or most != int(most):
        raise Problem(400, "invalid_query", f"limit must be a whole number from 1 to {_MOST_LINES}; got {most:g}.")
    if fields.get("follow", "0") not in ("0", "1"):
        raise Problem(400, "invalid_query", f"follow must be 0 or 1; got {fields['follow'][:80]!r}.")
    names = {name: fields[name][:_MOST_NAME] for name in ("app", "function", "request") if fields.get(name)}
    since = _number(fields, "since", 0.0) if "since" in fields else None
    return Wanted(since=since, **names), int(most), fields.get("follow") == "1"


def _number(fields: dict[str, str], name: str, default: float) -> float:
    text = fields.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise Problem(400, "invalid_query", f"{name} must be a number; got {text[:80]!r}.")
    return value


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/logs",
        logs,
        "What functions wrote",
        "Operation",
        {200: Answer("One JSON object per line.", "application/x-ndjson")},
        errors=(400, 429),
        query=_QUERY,
        description="The last lines that were asked for, the oldest first; with `follow=1` the answer goes on. Each "
        "has `t`, `app`, `function`, `instance`, `node`, `request`, `stream`, `level` and `text`.",
    ),
)
