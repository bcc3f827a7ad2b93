"""What a gateway and its Ray driver tell each other: lines over the driver's standard input and output.

A line is MessagePack in base64: JSON has no infinite numbers, which stand for what is not limited.
"""

from base64 import b64decode, b64encode
from typing import Generic, TypeVar

import msgspec

from fairlead.engine.live.ray.kinds import Share
from fairlead.model import Device, Node

M = TypeVar("M")


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agent of a Ray node is to do: the first line of its standard input.

    `certificate` and `key` are PEM texts, by which agents and gateway know each other; None on one machine. An agent
    that has found no gateway for `leave_after_s` ends, and gives its share of the node back.
    """

    join: str
    token: str
    node: Node
    folder: str
    certificate: str | None = None
    key: str | None = None
    limits: str | None = None
    leave_after_s: float = 120.0


# --- to the driver -------------------------------------------------------------------------------------------------


class Open(msgspec.Struct, frozen=True, kw_only=True, tag="open", forbid_unknown_fields=True):
    """Join a Ray cluster and run an agent on each of its nodes; the first word.

    `owner` names the actors and placement groups of this gateway. `share` is what to reserve of every node. Nodes in
    `left` are alive and were given back. `pip` are requirements that agents and instances run with. `devices` run
    kernels on every node.
    """

    address: str
    owner: str
    join: str
    token: str
    certificate: str | None = None
    key: str | None = None
    limits: str | None = None
    share: Share = Share()
    left: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()


class Grow(msgspec.Struct, frozen=True, tag="grow", forbid_unknown_fields=True):
    """One more node of a kind is wanted."""

    kind: str


class Shrink(msgspec.Struct, frozen=True, tag="shrink", forbid_unknown_fields=True):
    """A node is given back to Ray; its agent is told by the gateway to end."""

    node: str


class Hold(msgspec.Struct, frozen=True, tag="hold", forbid_unknown_fields=True):
    """Reserve what one instance uses on a node; `Held` or `Denied` follows."""

    key: str
    node: str
    vcpus: float
    vgpus: float


class Free(msgspec.Struct, frozen=True, tag="free", forbid_unknown_fields=True):
    """An instance has ended: what was held for it is free."""

    key: str


class Close(msgspec.Struct, frozen=True, tag="close", forbid_unknown_fields=True):
    """End every agent, free everything, and end."""


# --- to the gateway ------------------------------------------------------------------------------------------------


class Found(msgspec.Struct, frozen=True, tag="found", forbid_unknown_fields=True):
    """The nodes on which an agent runs or is being started; again whenever they have changed."""

    nodes: tuple[Node, ...]


class Dead(msgspec.Struct, frozen=True, tag="dead", forbid_unknown_fields=True):
    """Ray says that a node is dead."""

    node: str


class Held(msgspec.Struct, frozen=True, tag="held", forbid_unknown_fields=True):
    """What an instance needs is reserved."""

    key: str


class Denied(msgspec.Struct, frozen=True, tag="denied", forbid_unknown_fields=True):
    """What an instance needs is not to be had, or was taken away."""

    key: str
    reason: str


class Said(msgspec.Struct, frozen=True, tag="said", forbid_unknown_fields=True):
    """A line for the gateway's log."""

    line: str


class Closed(msgspec.Struct, frozen=True, tag="closed", forbid_unknown_fields=True):
    """Everything has ended: the last word."""


ToDriver = Open | Grow | Shrink | Hold | Free | Close
FromDriver = Found | Dead | Held | Denied | Said | Closed


class _Lines(Generic[M]):
    """Reads lines of one kind. Raises ValueError."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[M]) -> None:
        self._decoder = decoder

    def decode(self, line: bytes) -> M:
        """The message of a line."""
        return self._decoder.decode(b64decode(line.strip(), validate=True))


to_driver: _Lines[ToDriver] = _Lines(msgspec.msgpack.Decoder(ToDriver))
from_driver: _Lines[FromDriver] = _Lines(msgspec.msgpack.Decoder(FromDriver))
to_agent: _Lines[NodeOrder] = _Lines(msgspec.msgpack.Decoder(NodeOrder))


def line_of(message: ToDriver | FromDriver | NodeOrder) -> bytes:
    """A message as one line."""
    return b64encode(msgspec.msgpack.encode(message)) + b"\n"
