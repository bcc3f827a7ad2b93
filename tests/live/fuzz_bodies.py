"""Requests that are valid HTTP: every endpoint of a gateway, with right and wrong bodies, names, tokens and headers."""

import json
import re
from collections.abc import Iterator, Mapping
from random import Random  # noqa: TID251 - always seeded
from typing import Any, NamedTuple

WORKFLOWS = ("same", "chain", "map")
CALL_PATHS = ("/v1/workflows/same", "/v1/workflows/same/async", "/v2/models/same/infer", "/function/same")
JSON_TYPE = b"content-type: application/json\r\n"


class Request(NamedTuple):
    """One request without its id, which makes every answer recognisable."""

    head: bytes  # request line and headers
    body: bytes = b""
    is_refused: bool = False  # whether any answer but 4xx is a fault

    def render(self, id: int) -> bytes:
        return b"%bx-request-id: %d\r\n\r\n%b" % (self.head, id, self.body)

    @property
    def is_head(self) -> bool:
        return self.head.startswith(b"HEAD ")


class Maker:
    """Makes requests for one gateway."""

    def __init__(self, token: str | None) -> None:
        self.token = b"" if token is None else b"authorization: Bearer %b\r\n" % token.encode()
        self.has_token = token is not None

    def get(self, target: str, method: str = "GET", extra: bytes = b"", *, is_refused: bool = False) -> Request:
        line = f"{method} {target} HTTP/1.1\r\nhost: 127.0.0.1\r\n".encode("latin-1")
        return Request(line + self.token + extra, b"", is_refused)

    def post(
        self,
        target: str,
        body: bytes,
        extra: bytes = JSON_TYPE,
        *,
        method: str = "POST",
        token: bytes | None = None,
        is_refused: bool = False,
    ) -> Request:
        line = f"{method} {target} HTTP/1.1\r\nhost: 127.0.0.1\r\n".encode("latin-1")
        given = self.token if token is None else token
        return Request(b"%b%b%bcontent-length: %d\r\n" % (line, given, extra, len(body)), body, is_refused)

    def call(self, value: object, workflow: str = "same", suffix: str = "") -> Request:
        return self.post(f"/v1/workflows/{workflow}{suffix}", json.dumps({"input": value}).encode())

    @property
    def marker(self) -> bytes:
        """A whole request that must never be executed."""
        return self.post("/v1/workflows/marker", b'{"input":1}').render(0).replace(b"-id: 0", b"-id: marker")


def plain(maker: Maker) -> list[Request]:
    """Calls that are right."""
    values: list[object] = [
        1,
        "text",
        None,
        [1, 2, 3],
        {"a": [1, {"b": 2.5}]},
        "ü\U0001f600",
        2**63,
        -(2**63),
        1e308,
        "",
    ]
    found = [maker.call(value, name) for value in values for name in ("same", "chain")]
    found += [maker.call(value, "map") for value in ([], [1], ["a", None, {}], list(range(20)))]
    found += [maker.post("/v2/models/same/infer", _tensor("FP32", [2, 2], [1.5, 2, 3, 4]))]
    found += [maker.post("/v2/models/chain/infer", _tensor("INT64", [3], [1, 2, 3]))]
    found += [maker.post("/function/same", b"some text", b"content-type: text/plain\r\n")]
    found += [maker.post("/function/same", bytes(range(256)), b"content-type: application/octet-stream\r\n")]
    return found


def accepted(maker: Maker) -> list[Request]:
    """Asynchronous calls, which cost a write to the disk each."""
    found = [maker.call(value, "same", "/async") for value in (1, "x", [1, 2], None)]
    found += [maker.post("/async-function/same", b"text", b"content-type: text/plain\r\n")]
    found += [maker.post("/v1/workflows/same", b'{"input":1}', JSON_TYPE + b"prefer: respond-async\r\n")]
    found += [maker.post("/v1/workflows/same/async", b'{"input":1}', JSON_TYPE + b"idempotency-key: fuzz\r\n")]
    return found


def looks(maker: Maker, document: Mapping[str, Any]) -> list[Request]:
    """GET and HEAD of every path of the OpenAPI document, for names that are there and names that are not.

    Not GET of a stream: what is asked for behind it is not answered.
    """
    paths = [path for path, methods in document["paths"].items() if "get" in methods]
    found = [(target, path) for path in paths for target in _filled(path)]
    heads = [maker.get(target, "HEAD") for target, _ in found]
    return heads + [maker.get(target) for target, path in found if not _is_stream(document["paths"][path]["get"])]


def streams(maker: Maker, document: Mapping[str, Any]) -> list[tuple[Request, int]]:
    """What is answered without an end, and how many parts of it come at once."""
    paths = document["paths"]
    found = [(maker.get(path), 2) for path, methods in paths.items() if _is_stream(methods.get("get", {}))]
    return found + [(maker.get("/v1/logs?follow=1"), 0)] * ("/v1/logs" in paths)


def _is_stream(operation: Mapping[str, Any]) -> bool:
    answer = operation.get("responses", {}).get("200", {})
    return "text/event-stream" in answer.get("content", {})


def refused(maker: Maker, document: Mapping[str, Any]) -> list[Request]:
    """Every endpoint that changes something, asked in a way that must change nothing."""
    found: list[Request] = []
    for path, methods in document["paths"].items():
        for method in set(methods) & {"post", "put", "delete", "patch"}:
            targets = list(_filled(path))
            strangers = [t for t in targets if "{" in path and ("no-such" in t or "0" * 32 in t or "%" in t)]
            for target in strangers:
                found.append(maker.post(target, b'{"source": 1}', method=method.upper(), is_refused=True))
            found += [
                maker.post(target, body, method=method.upper(), is_refused=method != "delete")
                for target in targets
                if not (method == "delete" or "scale" in target or "move" in target)
                for body in (b"{", b"[]", b'{"inptu": 1}')
                if "/function/" not in target and "/async-function/" not in target
            ]
            if maker.has_token:
                for wrong in (b"", b"authorization: Bearer wrong\r\n", b"authorization: Basic \xff\r\n"):
                    found += [
                        maker.post(target, b'{"input": 1}', method=method.upper(), token=wrong, is_refused=True)
                        for target in targets
                    ]
    return found


def odd_heads(maker: Maker) -> list[Request]:
    """Valid framing, strange meaning."""
    call = b'{"input":1}'
    found = [
        maker.post("/v1/workflows/same", call, JSON_TYPE + b"content-encoding: %b\r\n" % coding, is_refused=True)
        for coding in (b"gzip", b"br", b"deflate", b"x-none", b"gzip, gzip")
    ]
    found += [
        maker.post("/v1/workflows/same", call, b"content-type: %b\r\n" % kind, is_refused=True)
        for kind in (b"text/plain", b"application/jsonx", b"multipart/form-data", b"\xff\xfe", b"")
    ]
    targets = (
        "/v1%2Fstatus",
        "/v1%2fapps",
        "/v1/workflows%2Fsame",
        "/%2e%2e/etc/passwd",
        "/v1/requests/%00",
        "/v1/\xff",
    )
    targets += (
        "/v1/requests/..%2f..%2fx",
        "/v1/requests/" + "a" * 4000,
        "/v1/apps/%2e%2e%2f",
        "//v1//status",
        "/v1/%zz",
    )
    found += [maker.get(target, is_refused=True) for target in targets]
    found += [
        maker.get(target) for target in ("/healthz?", "/healthz?a=%00&b[]=1", "/healthz#x", "/./healthz", "/%68ealthz")
    ]
    found += [
        maker.post("/v1/workflows/same", call, JSON_TYPE + b"x-deadline-ms: %b\r\n" % value, is_refused=True)
        for value in (b"soon", b"-5", b"0", b"nan", b"inf", b"1_000", b"", b"1e400")
    ]
    found += [
        maker.post("/v1/workflows/same", call, JSON_TYPE + extra)
        for extra in (
            b"x-deadline-ms: 1e9\r\n",
            b"traceparent: 00-zz\r\n",
            b"prefer: \xff\r\n",
            b"idempotency-key: \x80\r\n",
            b"accept: \xf0\x9f\r\n",
            b"origin: http://127.0.0.1\r\n",
            b"expect: 200-ok\r\n",
            b"te: trailers\r\n",
            b"range: bytes=0-1\r\n",
        )
    ]
    found += [maker.post("/healthz", call, method="GET"), maker.post("/healthz", call)]
    found += [maker.post("/v1/workflows/same", call, method=method) for method in ("PUT", "PATCH", "DELETE", "OPTIONS")]
    return found


def odd_bodies(maker: Maker) -> list[Request]:
    """Bodies of calls that are wrong, or right and strange; no answer may be a 5xx."""
    inputs = [
        *(
            "",
            "{",
            "nonsense",
            "[1, 2",
            "NaN",
            "Infinity",
            "-Infinity",
            "1e999",
            '"\\ud800"',
            '"\\udc00\\ud800"',
            "123",
        ),
        *("1" * 400, "-" + "9" * 60, "1." + "3" * 2000, '{"a":1,"a":2}', '"\x00"', '"\\u0000"', "tru", "[[[[[[]]]]]]"),
        *("[" * 500 + "]" * 500, "[" * 100_000, '{"a":' * 5_000 + "1" + "}" * 5_000, "[" + "1," * 9_000 + "1]"),
    ]
    bodies = [b'{"input": %b}' % text.encode("utf-8", "surrogatepass") for text in inputs]
    bodies += [b"", b"[]", b"null", b'{"input":1}{"input":2}', b'\xff\xfe{"input":1}', b'{"input":"\xc3\x28"}']
    bodies += [b'{"input":1,"deadline_ms":%b}' % value for value in (b'"soon"', b"-1", b"1e999", b"null", b"[]")]
    bodies += [b'{"input":1,"budget_usd":%b}' % value for value in (b"-1", b"1e999", b'"x"')]
    found = [maker.post(path, body) for body in bodies for path in ("/v1/workflows/same", "/v1/workflows/same/async")]
    found += [
        maker.post(path, text.encode("utf-8", "surrogatepass")) for text in inputs for path in ("/function/same",)
    ]
    strange: list[object] = [1, "text", None, True, 1.5, {"a": 1}, {}, [[1], 2], [None] * 50, [{"x": [1]}], ""]
    found += [maker.call(value, "map", suffix) for value in strange for suffix in ("", "/async")]
    found += [maker.post("/v2/models/same/infer", body) for body in _odd_tensors()]
    found += [maker.post("/v2/models/map/infer", body) for body in _odd_tensors()[:6]]
    return found


def amplifiers(rng: Random, maker: Maker) -> Request:
    """One request of up to a megabyte that asks for far more work or memory than its size.

    What is beyond the default limits (10,000 items of a map, 100,000 containers) must be refused.
    """
    kind = rng.randrange(7)
    count = rng.choice((2_000, 12_000, 100_000, 400_000) if kind in (0, 1, 4) else (12_000, 130_000, 300_000))
    items, containers = (b",".join([one] * count) for one in (b"1", b"[]"))
    if kind == 0:
        return maker.post("/v1/workflows/map", b'{"input":[%b]}' % items, is_refused=count > 10_000)
    if kind == 1:
        return maker.post("/v1/workflows/map/async", b'{"input":[%b]}' % items, is_refused=count > 10_000)
    if kind in (2, 3):
        path = ("/v1/workflows/same", "/v1/workflows/same/async")[kind - 2]
        return maker.post(path, b'{"input":[%b]}' % containers, is_refused=count > 100_000)
    if kind == 4:
        return maker.post("/function/map", b"[%b]" % items, is_refused=count > 10_000)
    model = rng.choice(("same", "map"))
    shape = [count, 1, 1, 1, 1, 1, 1, 1] if kind == 5 else [1, 1, 1, 1, 1, 1, 1, count]
    is_refused = kind == 5 and (count > 100_000 or model == "map")
    return maker.post(f"/v2/models/{model}/infer", _tensor("INT8", shape, [1] * count), is_refused=is_refused)


def _odd_tensors() -> list[bytes]:
    shapes: list[Any] = [[-1], [0], [1, 0, 10**9], [2**62, 2**62], [1.5], ["a"], [1] * 5_000, [10**18], []]
    found = [_tensor("FP32", shape, [1.0]) for shape in shapes]
    found += [
        _tensor(kind, [1], data)
        for kind in ("FP32", "BYTES", "BOOL", "UINT8", "NONE", "")
        for data in ([300], ["é"], [{}])
    ]
    found += [
        b'{"inputs":[]}',
        b'{"inputs":[{}]}',
        b'{"inputs":null}',
        b'{"inputs":[{"name":"a","shape":[1],"datatype":"FP32"}]}',
    ]
    found += [_tensor("FP32", [1], [1.0], parameters={"binary_data_size": -1}), _tensor("FP64", [1], [1e308, 1e308])]
    return found


def _tensor(kind: str, shape: object, data: object, **more: object) -> bytes:
    return json.dumps({"inputs": [{"name": "x", "datatype": kind, "shape": shape, "data": data, **more}]}).encode()


def _filled(path: str) -> Iterator[str]:
    names = {"app": "fuzz", "function": "same", "name": "same", "model": "same", "id": "0" * 32, "version": "1"}
    yield re.sub(r"{(\w+)}", lambda found: names.get(found[1], "same"), path)
    if "{" in path:
        for odd in ("no-such", "a%20b", "%F0%9F%98%80", "x" * 300):
            yield re.sub(r"{\w+}", odd, path)
