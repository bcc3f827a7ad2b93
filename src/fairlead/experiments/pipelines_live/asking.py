"""The client: one request after the other on one connection, to a graph or stage by stage as to a model server."""

from collections.abc import Sequence
from http.client import HTTPConnection
from time import perf_counter
from types import ModuleType
from typing import Any

import msgspec

from fairlead.errors import FairleadError, MissingExtraError

_LIMIT_S = 60.0

Digit = list[float]


class Client:
    """One connection that stays open."""

    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(address, timeout=_LIMIT_S)

    def call(self, workflow: str, value: object) -> Any:
        """The output of a workflow."""
        body = msgspec.json.encode({"input": value})
        self._connection.request("POST", f"/v1/workflows/{workflow}", body, {"content-type": "application/json"})
        response = self._connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise FairleadError(f"{workflow} answered {response.status}: {content[:300].decode('utf-8', 'replace')}")
        return msgspec.json.decode(content)["output"]

    def close(self) -> None:
        """Close it."""
        self._connection.close()


def in_turn(client: Client, shipped: ModuleType, pipeline: str, digit: Digit) -> Any:
    """What a pipeline answers, with the client as its driver: it calls each function and combines the answers itself.

    As a client of a model server such as Clipper does, which knows models and no graphs.
    """
    item = client.call("call-prepare", digit)
    if pipeline == "ensemble":
        return shipped.average([client.call(f"call-{model}", item) for model in ("small", "large", "linear")])
    found = client.call("call-small", item)
    if not shipped.is_sure(found):
        found = client.call("call-large", found)
    return shipped.answer(found)


def ask_all(
    client: Client, shipped: ModuleType, pipeline: str, variant: str, digits: Sequence[Digit]
) -> tuple[list[float], list[int]]:
    """The latency of every request in seconds, and the digits that were read."""
    took, read = [], []
    for digit in digits:
        began = perf_counter()
        if variant == "in-turn":
            answer = in_turn(client, shipped, pipeline, digit)
        else:
            answer = client.call(f"{pipeline}-{variant}", digit)
        took.append(perf_counter() - began)
        read.append(answer["digit"])
    return took, read


def all_digits() -> list[Digit]:
    """The digits that scikit-learn carries, 64 numbers each."""
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise MissingExtraError("The digits of the pipelines", "scikit-learn", "apps") from None
    found: list[Digit] = load_digits().data.tolist()
    return found
