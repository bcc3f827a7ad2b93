"""Scripts for connections, and what the fuzzer puts them together from."""

import random  # noqa: TID251 - always seeded
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fuzz_bodies import Maker, Request, accepted, looks, odd_bodies, odd_heads, plain, refused, streams


class Do(Enum):
    """What a client does besides sending and pausing."""

    HALF_CLOSE = "half-close"
    RESET = "reset"
    CLOSE = "close"


Step = bytes | float | Do


@dataclass(slots=True)
class Case:
    """One script for one connection.

    Args:
        name: The mutation.
        steps: Bytes to send, seconds to pause, or what else is done.
        ids: Of the requests, in order; `heads` has those of HEAD requests.
        due: How many of the first requests must be answered.
        is_poisoned: Whether the last request may also be refused without its id, or never.
        must_refuse: Ids whose answer must be a 4xx.
        must_close: Whether the server must close after the last answer.
        is_lost: Whether the client leaves, or sends no whole request, so that no answer is due.
        is_deaf: Whether it reads no answer while it sends.
        parts: If the last answer is a stream: how many parts of it are due before the client leaves.
    """

    name: str
    steps: list[Step]
    ids: list[int]
    due: int
    heads: set[int] = field(default_factory=set)
    is_poisoned: bool = False
    must_refuse: set[int] = field(default_factory=set)
    must_close: bool = False
    is_lost: bool = False
    is_deaf: bool = False
    parts: int | None = None


class Parts:
    """What cases are put together from."""

    def __init__(self, seed: int, token: str | None, document: Mapping[str, Any], *, size: int = 1) -> None:
        self.maker = Maker(token)
        self._seed = seed
        self._size = size  # of floods, in megabytes at most
        self._rng = random.Random()
        self._next_id = 1
        maker = self.maker
        self._pools = {
            "calls": plain(maker),
            "looks": looks(maker, document),
            "refusals": refused(maker, document),
            "odd bodies": odd_bodies(maker),
            "accepted": accepted(maker),
        }
        self._cheap = [maker.get("/healthz"), maker.get("/readyz"), maker.get("/healthz", "HEAD"), maker.get("/v2")]
        self._cheap += [maker.get("/nothing"), maker.get("/v1/requests/" + "0" * 32), maker.get("/v2/health/live")]
        self._odd_heads = odd_heads(maker)
        self._streams = streams(maker, document)

    def _pick(self) -> Request:
        rng = self._rng
        draw = rng.random()
        if draw < 0.45:
            return rng.choice(self._cheap)
        if draw < 0.70:
            return rng.choice(self._pools["calls"])
        if draw < 0.80:
            return rng.choice(self._pools["refusals"])
        if draw < 0.90:
            return rng.choice(self._pools["odd bodies"])
        if draw < 0.98:
            return rng.choice(self._pools["looks"])
        return rng.choice(self._pools["accepted"])

    def _clean(self, count: int) -> Case:
        """`count` requests in one piece, each of which must be answered."""
        parts, case = [], Case("", [], [], count)
        for _ in range(count):
            parts.append(self._add(case, self._pick()))
        case.steps = [b"".join(parts)]
        return case

    def _add(self, case: Case, request: Request) -> bytes:
        id = self._id(case)
        if request.is_refused:
            case.must_refuse.add(id)
        if request.is_head:
            case.heads.add(id)
        return request.render(id)

    def _id(self, case: Case) -> int:
        id, self._next_id = self._next_id, self._next_id + 1
        case.ids.append(id)
        return id

    def _poisoned(self, *poison: bytes | float, refused: bool = False, head: bool = False) -> Case:
        """A few valid requests, then these bytes as the last one: `%d` in them is its id."""
        case = self._clean(self._rng.choice((0, 0, 1, 3)))
        id = self._id(case)
        case.is_poisoned = True
        if refused:
            case.must_refuse.add(id)
        if head:
            case.heads.add(id)
        case.steps += [part.replace(b"%d", b"%d" % id) if isinstance(part, bytes) else part for part in poison]
        return case

    def _split(self, case: Case, pause_s: float) -> Case:
        """The same bytes in pieces."""
        rng, steps = self._rng, []
        for step in case.steps:
            if not isinstance(step, bytes) or len(step) < 2:
                steps.append(step)
                continue
            cuts = sorted({rng.randrange(1, len(step)) for _ in range(rng.choice((1, 2, 5, 20)))})
            for start, end in zip([0, *cuts], [*cuts, len(step)], strict=True):
                steps += [step[start:end], pause_s * rng.random()]
        case.steps = steps
        return case

    def _head(self, line: str = "POST /v1/workflows/same HTTP/1.1", host: str = "host: 127.0.0.1\r\n") -> bytes:
        return f"{line}\r\n{host}".encode("latin-1") + self.maker.token + b"x-request-id: %d\r\n"

    def _leave(self, case: Case) -> Case:
        case.is_lost = True
        case.steps += [self._rng.choice((0.0, 0.002, 0.02)), self._rng.choice((Do.RESET, Do.CLOSE, Do.HALF_CLOSE))]
        return case
