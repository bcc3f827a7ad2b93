"""What the controller is told. Events of one instant are applied in the order of `RANK`, then as given."""

from typing import Literal

import msgspec

from fairlead.model import Configuration, Device, Node, Request
from fairlead.policy.base import Move, Resize, Retire, Scale, Warm
from fairlead.profile import Row


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How one invocation of a batch ended: `arm` is the branch taken after it, `items` the length of its output.

    `output_mb` is the size of its output, where that was measured; None stands for the declared one. `lost_at` is the
    node from which an input could not be read.
    """

    ok: bool = True
    arm: str | None = None
    items: int = 1
    error: str | None = None
    output_mb: float | None = None
    lost_at: str | None = None


class NodeLost(msgspec.Struct, frozen=True, gc=False):
    """A node went down, with all that ran there."""

    node: str


class NodeJoined(msgspec.Struct, frozen=True):
    """A node came up, new or again."""

    node: Node


class Pressure(msgspec.Struct, frozen=True, gc=False):
    """Load from outside on a node changed to this share."""

    node: str
    pressure: float


class InstanceLost(msgspec.Struct, frozen=True, gc=False):
    """An instance died, or could not start."""

    instance: int
    error: str = "the instance was lost"


class InstanceGone(msgspec.Struct, frozen=True, gc=False):
    """An instance that was told to stop has ended, and what it held is free."""

    instance: int


class ResizeRefused(msgspec.Struct, frozen=True, gc=False):
    """An instance could not be resized: its CPU limit still is `vcpus`."""

    instance: int
    vcpus: float


class BuffersEvicted(msgspec.Struct, frozen=True, gc=False):
    """Constants of a kernel are not on the device of this instance any more, whatever was believed."""

    instance: int
    buffers: tuple[str, ...]


class NodeChanged(msgspec.Struct, frozen=True):
    """A node that is up has other capacities; its kind and speed stay the same.

    What runs there goes on. Idle instances make way. While more is in use than there is, nothing new starts.

    Args:
        node: Its name.
        vcpus: vCPUs that instances may hold there at once, overcommit included; may be 0.
        memory_gb: Memory of the node; may be 0.
        devices: Its accelerators; None leaves them as they are. One that is in use stays as it is.
        vgpus: How many vGPUs of each of its accelerators can be used; None leaves that as it is.
    """

    node: str
    vcpus: float
    memory_gb: float
    devices: tuple[Device, ...] | None = None
    vgpus: tuple[float, ...] | None = None


class NodeDraining(msgspec.Struct, frozen=True, gc=False):
    """An operator drains a node, or lets it be used again.

    `move`: what is there is started elsewhere too, where it fits; the node still works. `close`: it takes no more work,
    and is empty when what runs there has ended. `open`: neither any more.
    """

    node: str
    stage: Literal["move", "close", "open"]


class InstanceAdopted(msgspec.Struct, frozen=True, gc=False):
    """An instance of a former gateway is ready and idle.

    `instance` is the number that `Controller.adopt` gave for it. It is stopped if there is no room for it.
    """

    instance: int
    function: str
    configuration: Configuration
    node: str
    device: int = -1


class InstanceReady(msgspec.Struct, frozen=True, gc=False):
    """An instance finished its cold start."""

    instance: int


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A batch ended. `outcomes` has one entry per invocation; None says that all went well, with no more to say."""

    batch: int
    work_s: float
    transfer_s: float = 0.0
    outcomes: tuple[Outcome, ...] | None = None


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """A client gave up on its request."""

    request: int


class Expired(msgspec.Struct, frozen=True, gc=False):
    """The deadline of a request is past and its caller is not kept waiting any longer; `reason` is what it is told."""

    request: int
    reason: str


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A request came in; `items` is the length of its input, for a workflow that begins with a map."""

    request: Request
    items: int = 1


class Recalled(msgspec.Struct, frozen=True, gc=False):
    """The answer to a waiting invocation is known without a run: a prediction cache has it. No policy sees it wait."""

    request: int
    stage: str
    item: int = 0
    outcome: Outcome = Outcome()


class Signalled(msgspec.Struct, frozen=True, gc=False):
    """The monitor measured a node: the mean of its last samples of `fairlead.monitor.COUNTERS`, in that order."""

    node: str
    counters: tuple[float, ...]


class Ordered(msgspec.Struct, frozen=True):
    """An operator or the driver orders this action. It is checked like a policy's action.

    With `holds` it is an operator's order: until `Scale(function, None)` gives the function back, the policies may not
    scale, resize or move it.
    """

    action: Warm | Retire | Scale | Resize | Move
    holds: bool = False


class Tried(msgspec.Struct, frozen=True):
    """Functions whose times were assumed have run on examples: how long they take at speed 1, in every configuration.

    From then on they are functions that were measured, and the dispatcher is prepared anew. Comes before any request.
    """

    times: dict[str, tuple[Row, ...]]


Event = (
    NodeLost
    | NodeJoined
    | Pressure
    | Signalled
    | InstanceLost
    | InstanceGone
    | ResizeRefused
    | BuffersEvicted
    | NodeChanged
    | NodeDraining
    | InstanceAdopted
    | InstanceReady
    | Finished
    | Cancelled
    | Expired
    | Arrived
    | Ordered
    | Recalled
    | Tried
)

RANK: dict[type, int] = {
    kind: rank
    for rank, kind in enumerate(
        (
            InstanceAdopted,  # first: what was adopted may be lost at the same instant
            Tried,
            NodeLost,
            NodeJoined,
            NodeDraining,  # before NodeChanged: what opens again may have another size
            Pressure,
            Signalled,
            InstanceLost,
            InstanceGone,
            ResizeRefused,
            BuffersEvicted,
            NodeChanged,
            InstanceReady,
            Finished,
            Ordered,
            Cancelled,
            Expired,
            Arrived,
            Recalled,  # last: what it answers may have become ready by any of the others
        )
    )
}
