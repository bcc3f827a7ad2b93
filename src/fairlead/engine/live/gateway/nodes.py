"""Nodes at run time: list them, drain one, and undo that."""

from typing import TYPE_CHECKING

import msgspec

from fairlead.engine.live.draining import DrainError
from fairlead.engine.live.gateway.endpoints import Answer, Endpoint
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.replies import Reply, json_reply
from fairlead.engine.live.status import NodeList, NodeSummary, accelerator_status
from fairlead.errors import UnknownNameError

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway


class Drained(msgspec.Struct):
    """A node, and how far its drain is: moving, draining, leaving; up where it is not drained."""

    node: str
    state: str


async def listing(gateway: "Gateway", exchange: Exchange) -> Reply:
    """All nodes."""
    return json_reply(
        NodeList(
            [
                NodeSummary(
                    name=node.name,
                    kind=node.kind,
                    vcpus=node.vcpus,
                    memory_gb=node.memory_gb if node.memory_gb < float("inf") else None,
                    speed=node.speed,
                    state=state,
                    accelerators=[accelerator_status(device) for device in node.devices],
                )
                for node, state in gateway.host.nodes()
            ]
        )
    )


async def drain(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Drain a node."""
    return _changed(gateway, exchange, is_drained=True)


async def undo(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Let a node be used again."""
    return _changed(gateway, exchange, is_drained=False)


def _changed(gateway: "Gateway", exchange: Exchange, *, is_drained: bool) -> Reply:
    (name,) = exchange.names
    try:
        (gateway.host.drain_node if is_drained else gateway.host.undrain_node)(name)
    except UnknownNameError as error:
        raise Problem(404, "unknown_node", str(error)) from None
    except DrainError as error:
        raise Problem(409, "not_drained", str(error)) from None
    state = next(state for node, state in gateway.host.nodes() if node.name == name)
    return json_reply(Drained(name, state), 202 if is_drained else 200)


ENDPOINTS = (
    Endpoint("GET", "/v1/nodes", listing, "The nodes there are", "Nodes", {200: Answer("All nodes.", NodeList)}),
    Endpoint(
        "POST",
        "/v1/nodes/{node}/drain",
        drain,
        "Drain a node: it takes no more work, and leaves",
        "Nodes",
        {202: Answer("Its instances are started elsewhere, then it takes no more work and leaves.", Drained)},
        errors=(404, 409),
    ),
    Endpoint(
        "DELETE",
        "/v1/nodes/{node}/drain",
        undo,
        "Undo a drain",
        "Nodes",
        {200: Answer("The node is used again.", Drained)},
        errors=(404, 409),
    ),
)
