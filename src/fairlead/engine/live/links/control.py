"""What a gateway, its agents and its instances tell each other besides batches: frames of MessagePack.

After the greeting, an agent says `Hello` and gets `Welcome`; an instance says `Attach` and gets `Attached`; a reader of
values says `Read` again and again. The version of these messages is part of the greeting: see `greeting.py`.
"""

import msgspec

from fairlead.engine.live.contracts import Exit, InstanceSpec
from fairlead.engine.live.kernels.status import DeviceStatus
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.links.messages import Attach, Read, Refused
from fairlead.engine.live.objects import Place
from fairlead.model import Node

MOST_CODE_BYTES = 1 << 28
"""Size limit of an app's code."""


class Running(msgspec.Struct, frozen=True, array_like=True):
    """An instance that an agent has: how it was started, and its process."""

    spec: InstanceSpec
    pid: int


# --- first words ---------------------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """An agent dials in. `values` is the address at which the values of its node can be read.

    `epoch` is that of the gateway which it served last, 0 if there was none.
    """

    node: Node
    instances: tuple[Running, ...]
    values: str
    epoch: int = 0
    labels: dict[str, str] = {}


# --- to an agent ---------------------------------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The gateway takes an agent in.

    The agent keeps the instances whose keys are in `keep` and ends the others. `epoch` counts gateways: values that
    were made for another epoch are of no use to this one. An agent that hears nothing for `silence_s` dials again; one
    that finds no gateway for `adoption_s` ends its instances. `store` is where values go on their way to other nodes;
    None where nodes read them from each other.
    """

    epoch: int
    keep: tuple[str, ...]
    beat_s: float
    silence_s: float
    adoption_s: float
    store: Place | None = None


class Start(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Start an instance. `sha256` is the hexadecimal digest of its code, which an agent that lacks it fetches."""

    spec: InstanceSpec
    sha256: str


class Stop(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """End an instance, by force after `grace_s`; `error` says why where it is not told to end by the runtime."""

    key: str
    grace_s: float
    error: str | None = None


class Resize(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Give an instance another CPU limit."""

    key: str
    vcpus: float


class Beat(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The sender is alive."""


class Piece(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A part of an app's code; `size` is that of the whole. An `error` says why there is none."""

    sha256: str
    offset: int
    size: int
    data: bytes
    error: str = ""


class Release(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """These values are not needed any more."""

    names: tuple[str, ...]


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Delete what an instance that has ended wrote, except the values in `keep`."""

    pid: int
    keep: tuple[str, ...]


class Share(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Copy a value of the agent's node into the object store, as the object of this number; `Shared` follows."""

    ticket: int
    number: int
    name: str


class Bring(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Copy an object into the node's own store, where its instances can read it; `Brought` follows."""

    ticket: int
    number: int
    size: int


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The node was drained: the agent ends."""


# --- from an agent -------------------------------------------------------------------------------------------------


class Gone(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """An instance has ended, or could not be started."""

    key: str
    how: Exit


class ResizeRefused(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """An instance keeps its CPU limit."""

    key: str
    vcpus: float
    reason: str


class Beating(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The agent is alive; what its instances have used, and how its devices stand, where that has changed."""

    usage: dict[str, Usage] = {}
    devices: tuple[DeviceStatus, ...] | None = None


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Asks for the code of this digest, from `offset` on."""

    sha256: str
    offset: int


class Said(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A line for the gateway's log."""

    line: str


class Changed(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The agent's node has other capacities now."""

    node: Node


class Shared(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A value is in the object store; an `error` says why it is not."""

    ticket: int
    error: str = ""


class Brought(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A value is in the node's own store, under this reference; an `error` says why it is not."""

    ticket: int
    value: str = ""
    error: str = ""


class Wrote(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Lines that instances of the agent wrote: whole ones, as `logs/lines.py` packs them."""

    lines: bytes


class Evicted(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """These constants of a kernel are not on the device of this instance any more."""

    key: str
    buffers: tuple[str, ...]


First = Hello | Attach | Read
ToAgent = Welcome | Refused | Start | Stop | Resize | Beat | Piece | Release | Forget | Share | Bring | Leave
FromAgent = Gone | ResizeRefused | Beating | Fetch | Said | Changed | Shared | Brought | Wrote | Evicted

first: msgspec.msgpack.Decoder[First] = msgspec.msgpack.Decoder(First)
to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)
from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
