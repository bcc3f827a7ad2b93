"""Endpoints as data: the router finds them, the OpenAPI document lists them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.replies import Reply

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

Handler = Callable[["Gateway", Exchange], Awaitable[Reply]]


@dataclass(frozen=True)
class Answer:
    """One answer that an endpoint may give.

    `body` is a type, a content type such as "text/plain", a tuple of these where there is a choice, or None.
    """

    description: str
    body: Any = None
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Endpoint:
    """One method of one path.

    Args:
        path: Its template; names stand in braces and match one segment each.
        body: The type of the request's body; a content type for one that is taken as it is; a tuple for a choice.
        answers: By status, besides the errors below.
        errors: Statuses that give an error body. What every endpoint may give is added by the document.
        headers: Names of the request headers it reads.
        query: Names of the parameters it takes in the query, each with what it means and its schema.
        is_open: Whether it needs no token.
        direct: Tried before the handler, which runs in a task: answers by `exchange.respond`, now or later, or gives
            False and leaves the request to the handler.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    answers: dict[int, Answer]
    errors: tuple[int, ...] = ()
    body: Any = None
    headers: tuple[str, ...] = ()
    query: tuple[tuple[str, str, Mapping[str, Any]], ...] = ()
    is_open: bool = False
    direct: Callable[["Gateway", Exchange], bool] | None = None
    description: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether its errors have the Open Inference Protocol's form."""
        return is_plain_path(self.path)


def is_plain_path(path: str) -> bool:
    """Whether errors at this path have the Open Inference Protocol's form: all do below /v2, also where nothing is."""
    return path == "/v2" or path.startswith("/v2/")


@dataclass
class _Node:
    fixed: "dict[str, _Node]" = field(default_factory=dict)
    named: "_Node | None" = None
    methods: dict[str, Endpoint] = field(default_factory=dict)


class Router:
    """Finds the endpoint of a path, segment by segment; a fixed segment goes before a name."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._root = _Node()
        for endpoint in endpoints:
            node = self._root
            for segment in endpoint.path.split("/")[1:]:
                if segment.startswith("{"):
                    node.named = node.named or _Node()
                    node = node.named
                else:
                    node = node.fixed.setdefault(segment, _Node())
            assert endpoint.method not in node.methods, f"{endpoint.method} {endpoint.path} is there twice"
            node.methods[endpoint.method] = endpoint

    def find(self, method: str, path: str) -> tuple[Endpoint, tuple[str, ...]]:
        """The endpoint of a percent-encoded path and what stands for its names; 404, or 405 with what is allowed."""
        node = self._root
        names: tuple[str, ...] = ()
        # Clients of the Open Inference Protocol may end a path with a slash.
        walked = path[:-1] if path.endswith("/") and is_plain_path(path) else path
        for segment in walked.split("/")[1:]:
            following = node.fixed.get(segment)
            if following is None:
                following = node.named if segment else None
                if following is None:
                    raise Problem(404, "unknown_path", f"There is nothing at {path[:200]!r}. See /openapi.json.")
                names = (*names, _decoded(segment) if "%" in segment else segment)
            node = following
        endpoint = node.methods.get(method) or (node.methods.get("GET") if method == "HEAD" else None)
        if endpoint is not None:
            return endpoint, names
        if not node.methods:
            raise Problem(404, "unknown_path", f"There is nothing at {path[:200]!r}. See /openapi.json.")
        allowed = ", ".join(sorted(node.methods))
        raise Problem(
            405,
            "method_not_allowed",
            f"{path[:200]} takes {allowed}; got {method}.",
            headers=[(b"allow", allowed.encode())],
        )


def _decoded(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise Problem(400, "invalid_target", f"{segment[:80]!r} in the path is not UTF-8.") from None
