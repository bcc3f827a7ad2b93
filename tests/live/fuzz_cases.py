"""What the fuzzer does to one connection: valid requests, and mutations of how they are sent.

A case depends on the seed and its number only. Its last request may be *poison*: one that the server may refuse, close
the connection on, or answer; every other request must be answered once, in order. `Maker.marker` is hidden wherever the
framing says that it is data.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fuzz_bodies import JSON_TYPE, amplifiers
from fuzz_parts import Case, Do, Parts

PIPELINED = 16  # requests that a connection may send ahead of their answers, and that must all be answered
_CALL = b'{"input":1}'
_ROUNDS = 3


class Fuzz(Parts):
    """Cases by number."""

    def __init__(self, seed: int, token: str | None, document: Mapping[str, Any], *, size: int = 1) -> None:
        super().__init__(seed, token, document, size=size)
        self._names = list(MUTATIONS)
        self._weights = [weight for weight, _ in MUTATIONS.values()]

    def case(self, number: int) -> Case:
        """The case of this number. The first ones go through all mutations, so that a short run has each of them."""
        rng = self._rng
        rng.seed((self._seed << 40) + number)
        self._next_id = number * 100_000 + 1
        names = self._names
        if number < _ROUNDS * len(names):
            name = names[number % len(names)]
        else:
            (name,) = rng.choices(names, self._weights)
        case = MUTATIONS[name][1](self)
        case.name = name
        return case

    # --- whole and clean -------------------------------------------------------------------------------------------

    def single(self) -> Case:
        return self._clean(1)

    def pipelined(self) -> Case:
        return self._clean(self._rng.randint(2, PIPELINED))

    def over_pipelined(self) -> Case:
        case = self._clean(self._rng.randint(PIPELINED + 1, 40))
        case.due = PIPELINED
        return case

    def split(self) -> Case:
        return self._split(self._clean(self._rng.choice((1, 1, 2, 5))), 0.003)

    def slow(self) -> Case:
        return self._split(self._clean(1), 0.15)

    def hidden(self) -> Case:
        """A call inside the body of another one."""
        case = Case("", [], [], 1)
        marker = self.maker.marker
        body = self._rng.choice((marker, b"\r\n\r\n" + marker, b"0\r\n\r\n" + marker, _CALL + marker))
        path = self._rng.choice(("/v1/workflows/same", "/function/same", "/v2/models/same/infer", "/healthz", "/none"))
        kind = self._rng.choice((JSON_TYPE, b"content-type: text/plain\r\n"))
        case.steps = [self._add(case, self.maker.post(path, body, kind))]
        return self._split(case, 0.002) if self._rng.random() < 0.5 else case

    def chunked(self) -> Case:
        """A valid body in chunks, with extensions and trailers."""
        rng, case = self._rng, Case("", [], [], 1)
        id = self._id(case)
        body, chunks = (
            rng.choice((_CALL, b'{"input":"' + self.maker.marker.replace(b'"', b" ").replace(b"\r\n", b" ") + b'"}')),
            [],
        )
        extension = rng.choice((b"", b";a=b", b';q="x y"', b";" + b"e" * rng.choice((10, 2_000))))
        while body:
            part, body = body[: (size := rng.randint(1, len(body)))], body[size:]
            chunks.append(rng.choice((b"%x", b"%X", b"000%x")) % len(part) + extension + b"\r\n" + part + b"\r\n")
            if len(chunks) > 50:
                extension = b""
        trailers = b"".join(b"x-t%d: v\r\n" % n for n in range(rng.choice((0, 0, 1, 20))))
        head = self._head().replace(b"%d", b"%d" % id) + JSON_TYPE + b"transfer-encoding: chunked\r\n\r\n"
        case.steps = [head + b"".join(chunks) + b"0\r\n" + trailers + b"\r\n"]
        if sum(len(chunk) for chunk in chunks) > 20_000:  # more head than a server has to take
            case.is_poisoned = True
        return self._split(case, 0.002) if rng.random() < 0.5 else case

    def streamed(self) -> Case:
        """A stream as the last request, whose client leaves after a few parts."""
        case = self._clean(self._rng.choice((0, 0, 1, 5)))
        if self._streams:
            request, case.parts = self._rng.choice(self._streams)
            case.steps.append(self._add(case, request))
            case.due += 1
        return self._split(case, 0.002) if self._rng.random() < 0.2 else case

    def closing(self) -> Case:
        """What follows a request that closes is not to be answered."""
        case = self._clean(self._rng.choice((0, 2)))
        id = self._id(case)
        how = self._rng.choice(("GET /healthz HTTP/1.1", "GET /healthz HTTP/1.0"))
        extra = b"connection: close\r\n" if how.endswith("1.1") else b""
        case.due += 1
        case.must_close = True
        case.steps.append(self._head(how).replace(b"%d", b"%d" % id) + extra + b"\r\n" + self.maker.marker)
        return case

    def expect(self) -> Case:
        """The body comes after a pause, whether or not the server has said 100."""
        case = Case("", [], [], 1)
        whole = self._add(case, self.maker.post("/v1/workflows/same", _CALL, JSON_TYPE + b"expect: 100-continue\r\n"))
        case.steps = [whole[: -len(_CALL)], self._rng.choice((0.0, 0.005)), _CALL]
        return case

    # --- poison ----------------------------------------------------------------------------------------------------

    def odd_head(self) -> Case:
        request = self._rng.choice(self._odd_heads)
        return self._poisoned(
            request.head + b"x-request-id: %d\r\n\r\n" + request.body, refused=request.is_refused, head=request.is_head
        )

    def two_framings(self) -> Case:
        """Lengths that contradict each other, or what is no length at all."""
        lengths = (
            b"content-length: 11\r\ncontent-length: 12\r\n",
            b"content-length: 11\r\ntransfer-encoding: chunked\r\n",
            b"transfer-encoding: chunked\r\ncontent-length: 4\r\n",
            b"content-length: -11\r\n",
            b"content-length: +11\r\n",
            b"content-length: 0x0b\r\n",
            b"content-length: 1e1\r\n",
            b"content-length: 11 11\r\n",
            b"content-length: 99999999999999999999999\r\n",
            b"transfer-encoding: gzip, identity\r\n",
            b"transfer-encoding: chunked, chunked\r\ncontent-length: 11\r\n",
        )
        body = self._rng.choice((_CALL, b"0\r\n\r\n")) + self.maker.marker
        return self._poisoned(self._head() + JSON_TYPE + self._rng.choice(lengths) + b"\r\n" + body, refused=True)

    def bad_chunk(self) -> Case:
        sizes = (b"zz", b"-1", b"0x5", b"", b" 5", b"5 5", b"fffffffffffffffff", b"5\n", b"5;\x00", b"\x005")
        chunk = self._rng.choice(sizes) + b"\r\n" + _CALL + b"\r\n0\r\n\r\n" + self.maker.marker
        return self._poisoned(self._head() + JSON_TYPE + b"transfer-encoding: chunked\r\n\r\n" + chunk)

    def trailers(self) -> Case:
        """Trailers beyond what a head may have, with a request in one of them."""
        rng = self._rng
        shown = self.maker.marker.replace(b"\r\n", b" ")[:200]
        lines = rng.choice(
            (
                b"x-a: " + b"a" * rng.choice((1_000, 100_000)) + b"\r\n",
                b"x-a: b\r\n" * rng.choice((100, 20_000)),
                b"x-a: " + shown + b"\r\n",
                b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
                b" folded\r\n",
            )
        )
        head = self._head() + JSON_TYPE + b"transfer-encoding: chunked\r\n\r\nb\r\n" + _CALL + b"\r\n0\r\n"
        return self._poisoned(head, 0.0, lines, b"\r\n")

    def upgrade(self) -> Case:
        """An offer to speak something else, with a body in the next segment that looks like a request."""
        offers = (
            b"connection: upgrade\r\nupgrade: websocket\r\n",
            b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
            b"connection: upgrade\r\nupgrade: foo/2\r\n",
            b"upgrade: h2c\r\n",
        )
        marker = self.maker.marker
        offer = self._rng.choice(offers)
        if self._rng.random() < 0.3:
            return self._poisoned(self._head("GET /healthz HTTP/1.1") + offer + b"\r\n")
        pause = self._rng.choice((0.0, 0.003))
        if self._rng.random() < 0.3:
            framing = b"transfer-encoding: chunked\r\n\r\n"
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(marker), marker)
        else:
            framing, body = b"content-length: %d\r\n\r\n" % len(marker), marker
        return self._poisoned(self._head() + JSON_TYPE + offer + framing, pause, body)

    def broken_head(self) -> Case:
        """Heads that are not as HTTP/1.1 wants them."""
        rng, get = self._rng, self._head("GET /healthz HTTP/1.1")
        folded = self.maker.marker.replace(b"\r\n", b"\r\n ")
        heads: tuple[tuple[bytes, bool], ...] = (
            (self._head("GET /healthz HTTP/1.1", "") + b"\r\n", True),
            (get + b"host: 127.0.0.1\r\n\r\n", True),
            (get + b"host: other.example\r\n\r\n", True),
            (self._head("GET /healthz HTTP/1.1", "host: a b\r\n") + b"\r\n", True),
            (get + b"x: a\r\n folded\r\n\r\n", False),
            (get + b"x: a\r\n " + folded[:300].rstrip() + b"\r\n\r\n", False),
            ((get + b"\r\n").replace(b"\r\n", b"\n"), False),
            (get.replace(b"\r\n", b"\r") + b"\r\r", False),
            (get + b"x\x00y: a\r\n\r\n", False),
            (get + b"x: a\x00b\r\n\r\n", False),
            (get + b"x y: a\r\n\r\n", False),
            (get + b"x : a\r\n\r\n", False),
            (get + b": a\r\n\r\n", False),
            (get + b"no colon\r\n\r\n", False),
            (b"GET  /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", False),
            (b"GET /healthz\r\n\r\n", False),
            (b"GET /healthz HTTP/2.0\r\n\r\n", False),
            (b"GET /healthz HTTP/9.9\r\nhost: 127.0.0.1\r\n\r\n", False),
            (b"GET /healthz http/1.1\r\nhost: 127.0.0.1\r\n\r\n", False),
            (b"BREW /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", True),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", False),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), False),
            (rng.randbytes(200).replace(b"%", b""), False),
            (self._head("GET http://127.0.0.1/healthz HTTP/1.1") + b"\r\n", False),
            (self._head("GET http://other.example/healthz HTTP/1.1") + b"\r\n", False),
            (self._head("GET healthz HTTP/1.1") + b"\r\n", False),
            (self._head("OPTIONS * HTTP/1.1") + b"\r\n", False),
            (self._head("CONNECT 127.0.0.1:80 HTTP/1.1") + b"\r\n", True),
            (b"\r\n\r\n\n\n" + get + b"\r\n", False),
        )
        head, must_refuse = rng.choice(heads)
        return self._poisoned(head, refused=must_refuse)

    def huge_head(self) -> Case:
        rng, get = self._rng, self._head("GET /healthz HTTP/1.1")
        size = rng.choice((33_000, 100_000))
        kinds = (
            get + b"x: " + b"a" * size + b"\r\n\r\n",
            get + b"x: y\r\n" * (size // 6) + b"\r\n",
            self._head("GET /" + "a" * size + " HTTP/1.1") + b"\r\n",
            b"A" * size,
            get + b"".join(b"x%d: y\r\n" % n for n in range(size // 9)) + b"\r\n",
        )
        kind = rng.randrange(len(kinds))
        case = self._poisoned(kinds[kind], refused=kind != 3)
        return case

    def wrong_length(self) -> Case:
        """Less than the body has: the rest is not a request either."""
        body = _CALL + b"}" * self._rng.randint(1, 30)
        head = b"content-length: %b\r\n\r\n" % str(len(_CALL)).encode()
        case = self._poisoned(self._head() + JSON_TYPE + head + body)
        case.due += 1
        self._id(case)
        return case

    def too_large(self) -> Case:
        """More than a body may have, declared or in chunks, full of requests."""
        marker = self.maker.marker
        if self._rng.random() < 0.7:
            body = b"content-length: 900000000\r\n\r\n" + marker
            case = self._poisoned(self._head() + JSON_TYPE + body, refused=True)
            return self._leave(case)
        chunk = b"%x\r\n" % 65_536 + (marker * 400)[:65_536] + b"\r\n"
        head = self._head() + JSON_TYPE + b"transfer-encoding: chunked\r\n\r\n"
        return self._poisoned(head, *[chunk] * 40, b"0\r\n\r\n", refused=True)

    def amplifier(self) -> Case:
        request = amplifiers(self._rng, self.maker)
        head = request.head + b"x-request-id: %d\r\n\r\n"
        case = self._poisoned(head, request.body, refused=request.is_refused)
        case.due += 1
        return case

    # --- clients that leave ----------------------------------------------------------------------------------------

    def aborted(self) -> Case:
        """Whole requests whose answers are not read."""
        case = self._clean(self._rng.choice((1, 2, 10)))
        case.due = 0
        return self._leave(case)

    def truncated(self) -> Case:
        """Requests that end too early; or whose length promises more."""
        case = self._clean(self._rng.choice((1, 1, 3)))
        case.due = 0
        (whole,) = case.steps
        assert isinstance(whole, bytes)
        case.steps = [whole[: self._rng.randrange(1, len(whole))]]
        return self._leave(case)

    def half_closed(self) -> Case:
        case = self._clean(self._rng.choice((1, 4)))
        case.due, case.is_lost = 0, True
        case.steps.append(Do.HALF_CLOSE)
        return case

    def flood(self) -> Case:
        """Very many requests, trailers or extensions, most of them without reading an answer."""
        rng, size = self._rng, self._size << 20
        case = Case("", [], [], 0, is_lost=True, is_deaf=rng.random() < 0.7)
        kind = rng.randrange(4)
        piece = 1 << 16
        if kind < 2:
            request = self._add(case, (self.maker.get("/healthz"), self.maker.call("x" * 100))[kind])
            case.steps = [*[request * (piece // len(request))] * (size // piece), 0.05, Do.RESET]
            return case
        chunked = (
            self._head().replace(b"%d", b"%d" % self._id(case)) + JSON_TYPE + b"transfer-encoding: chunked\r\n\r\n"
        )
        if kind == 2:
            filler, start = b"x-trailer: value\r\n" * (piece // 18), chunked + b"b\r\n" + _CALL + b"\r\n0\r\n"
        else:
            filler, start = b"e" * piece, chunked + b"b;"
        case.steps = [start, *[filler] * (size // piece), 0.05, Do.RESET]
        return case


MUTATIONS: dict[str, tuple[float, Callable[[Fuzz], Case]]] = {
    "single": (8, Fuzz.single),
    "pipelined": (16, Fuzz.pipelined),
    "over-pipelined": (2, Fuzz.over_pipelined),
    "split": (6, Fuzz.split),
    "slow": (0.4, Fuzz.slow),
    "hidden": (2, Fuzz.hidden),
    "chunked": (3, Fuzz.chunked),
    "streamed": (1, Fuzz.streamed),
    "closing": (1, Fuzz.closing),
    "expect": (1, Fuzz.expect),
    "odd head": (3, Fuzz.odd_head),
    "two framings": (1.5, Fuzz.two_framings),
    "bad chunk": (1, Fuzz.bad_chunk),
    "trailers": (0.7, Fuzz.trailers),
    "upgrade": (1.5, Fuzz.upgrade),
    "broken head": (3, Fuzz.broken_head),
    "huge head": (0.5, Fuzz.huge_head),
    "wrong length": (0.7, Fuzz.wrong_length),
    "too large": (0.2, Fuzz.too_large),
    "aborted": (2, Fuzz.aborted),
    "truncated": (2, Fuzz.truncated),
    "half-closed": (1, Fuzz.half_closed),
    "amplifier": (0.03, Fuzz.amplifier),
    "flood": (0.02, Fuzz.flood),
}
"""How often each mutation comes, and what makes it."""
