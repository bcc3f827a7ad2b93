"""The contract between a policy and the controller.

A **dispatcher** implements `decide(view)`, a **scaler** `adjust(view)`. Both get a read-only `View` and yield
actions; each action is carried out before the next is asked for, so the view is always current. An action that cannot
be carried out ends the call and is recorded with its reason. Parameters are the dataclass fields of a policy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

import msgspec
import numpy as np

from fairlead.model import (
    Bounds,
    Cluster,
    Configuration,
    Function,
    Instance,
    Invocation,
    Node,
    Record,
    Request,
    Workflow,
)
from fairlead.profile import Estimate

Order = Literal["warm-first", "emptiest", "warm", "fresh"]


class Start(msgspec.Struct, frozen=True, gc=False):
    """Run these waiting invocations of one function together, on this node; `device` None leaves the choice open.

    `is_fresh` starts an instance of its own for them, even where a warm one is idle.
    """

    batch: tuple[Invocation, ...]
    configuration: Configuration
    node: str
    device: int | None = None
    is_fresh: bool = False


class Reject(msgspec.Struct, frozen=True, gc=False):
    """Refuse a fresh request, or drop an admitted one: what waits of it goes, what runs is discarded.

    `offer_latency_s` and `offer_cost_usd` say what could be promised instead, where the policy knows.
    """

    request: int
    reason: str
    retry_after_s: float | None = None
    offer_latency_s: float | None = None
    offer_cost_usd: float | None = None


class Cancel(msgspec.Struct, frozen=True, gc=False):
    """Stop the batch in which this invocation runs. Its instance ends; its invocations wait again."""

    invocation: int


class Warm(msgspec.Struct, frozen=True, gc=False):
    """Start an instance ahead of need."""

    function: str
    configuration: Configuration
    node: str
    device: int | None = None


class Retire(msgspec.Struct, frozen=True, gc=False):
    """Stop an idle instance."""

    instance: int


class Wake(msgspec.Struct, frozen=True, gc=False):
    """Ask to be called again at this instant, whatever happens."""

    at: float


class Plan(msgspec.Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """Record a promise: when this request will be answered, and the steps that lead there.

    `notes` tell `fairlead explain` why. They are turned into text when the request ends, so a policy may pass a list
    and go on adding to it.
    """

    request: int
    steps: tuple[str, ...]
    finish: float
    notes: Sequence[object] = ()


class Searched(msgspec.Struct, frozen=True, gc=False):
    """Say how many search steps this decision took; they cost time where decision time is modelled per step."""

    steps: int


class Scale(msgspec.Struct, frozen=True, gc=False):
    """Give a function so many replicas; from then on it runs only on them. None gives it back to the dispatcher."""

    function: str
    instances: int | None
    configuration: Configuration | None = None


class Resize(msgspec.Struct, frozen=True, gc=False):
    """Give every replica of a function so many vCPUs (in place) and so much memory (by replacement)."""

    function: str
    vcpus: float
    memory_gb: float = 0.0


class Move(msgspec.Struct, frozen=True, gc=False):
    """Bring every replica of a function to this node; the replacement starts first where it fits."""

    function: str
    node: str


class Grow(msgspec.Struct, frozen=True, gc=False):
    """Ask for one more node of a kind."""

    kind: str


class Shrink(msgspec.Struct, frozen=True, gc=False):
    """Give back one node of a kind, the emptiest, once what runs there has finished."""

    kind: str


Action = Start | Reject | Cancel | Warm | Retire | Wake | Plan | Searched | Scale | Resize | Move | Grow | Shrink


class DeviceStatus(msgspec.Struct, frozen=True, gc=False):
    """One accelerator now. The two instants are minus infinity before its first run."""

    node: str
    device: int
    free_vgpus: float
    busy_vgpus: float
    last_start: float
    last_release: float


class Closed(msgspec.Struct, frozen=True, gc=False):
    """A request that ended: `completed`, `failed`, `cancelled`, `rejected` or `dropped`."""

    request: Request
    outcome: str
    end: float


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """An instance as it was when it ended, and why: `expired`, `evicted`, `retired`, `lost`, `limit` or `preempted`."""

    instance: Instance
    cause: str


class NodeChange(msgspec.Struct, frozen=True, gc=False):
    """A node that joined, was lost, or stays up and is not as it was.

    `is_draining`: it takes no more work, and leaves when what runs there has finished.
    """

    node: Node
    what: Literal["joined", "lost", "changed"]
    is_draining: bool = False


class Changes(msgspec.Struct, frozen=True, gc=False):
    """What happened since the dispatcher was last asked, each part in the order in which it happened.

    What the dispatcher's own actions caused (a request that it rejected, an instance that a Start evicted) is shown at
    the next call. An invocation may have left again: ask `view.is_waiting`.

    Args:
        ready: Invocations that began to wait, retries and lost ones included.
        ended: Attempts that ended, with their outcome: `done`, `failed`, `discarded`, `lost` or `preempted`.
        closed: Requests that ended.
        started: Instances that became ready.
        stopped: Instances that ended.
        nodes: Nodes that joined, were lost or changed.
    """

    ready: tuple[Invocation, ...] = ()
    ended: tuple[Record, ...] = ()
    closed: tuple[Closed, ...] = ()
    started: tuple[Instance, ...] = ()
    stopped: tuple[Stopped, ...] = ()
    nodes: tuple[NodeChange, ...] = ()


class Batch(msgspec.Struct, frozen=True, gc=False):
    """A batch that runs, or waits for its instance to start. `end` is when it is predicted to finish."""

    id: int
    function: str
    invocations: tuple[Invocation, ...]
    configuration: Configuration
    node: str
    device: int
    start: float
    end: float


class Counts(msgspec.Struct, frozen=True, gc=False):
    """The instances of a function with one GPU share: `ready` includes those that run and those that are `idle`.

    `ready_at` is when the next of those that start is predicted to be ready; infinity if none starts.
    """

    vgpus: float
    ready: int
    idle: int
    starting: int
    ready_at: float


class View(Protocol):
    """What a policy may know: nothing a live system could not tell it. Read-only, and always current."""

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        ...

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that are up, in order."""
        ...

    @property
    def fresh(self) -> tuple[Request, ...]:
        """Requests shown to the dispatcher for the first time; one that it does not reject in this call is admitted."""
        ...

    @property
    def freed(self) -> tuple[str, ...]:
        """Nodes where something finished since the dispatcher was last asked."""
        ...

    @property
    def lost(self) -> tuple[Invocation, ...]:
        """Invocations that were lost since then and wait again."""
        ...

    @property
    def changes(self) -> Changes:
        """What happened since the dispatcher was last asked; the same during the whole call."""
        ...

    def oldest(self, workflow: str | None = None, function: str | None = None) -> Invocation | None:
        """What has waited longest, in one queue or over all; None if nothing waits."""
        ...

    def by_ready(self, workflow: str | None = None, function: str | None = None) -> Iterator[Invocation]:
        """What waits, oldest first; with both names given, of one queue only. Starting what it yields is safe."""
        ...

    def by_deadline(self, workflow: str | None = None, function: str | None = None) -> Iterator[Invocation]:
        """What waits, most urgent first, then by id: of one queue, of a function in all workflows, or of all.

        Starting what it yields is safe.
        """
        ...

    def most_urgent(self, workflow: str | None = None, function: str | None = None) -> Invocation | None:
        """The first of `by_deadline` with the same names; None if nothing waits there."""
        ...

    def running(self, workflow: str | None = None, function: str | None = None) -> tuple[Batch, ...]:
        """The batches that run or wait for their instance, in the order of their starts.

        With a workflow, those that have an invocation of it.
        """
        ...

    def spent_usd(self, request: int) -> float:
        """What the ended attempts of an open request have cost."""
        ...

    def queues(self, *, can_start: bool = False) -> tuple[tuple[str, str], ...]:
        """The (workflow, function) pairs for which something waits, in a fixed order.

        `can_start` leaves out scaled functions without a free replica, of which nothing can be placed now.
        """
        ...

    def waiting(self, workflow: str | None = None, function: str | None = None) -> int:
        """How many invocations wait, in one queue or in all."""
        ...

    def is_waiting(self, invocation: Invocation) -> bool:
        """Whether this invocation still waits."""
        ...

    def waiting_of(self, request: int) -> tuple[Invocation, ...]:
        """The waiting invocations of a request."""
        ...

    def slack_s(self, invocation: Invocation) -> float:
        """Time left until its deadline."""
        ...

    def request(self, request: int) -> Request:
        """An open request by its id."""
        ...

    def is_open(self, request: int) -> bool:
        """Whether a request is still to be answered."""
        ...

    def profile(self, function: str) -> Estimate:
        """What is believed of a function: declared times, corrected by what was observed."""
        ...

    def fits(
        self,
        function: str,
        configuration: Configuration,
        node: str,
        device: int | None = None,
        *,
        evicts: bool = True,
        is_fresh: bool = False,
    ) -> bool:
        """Whether a Start there would be carried out now.

        Idle instances in the way may be evicted, unless `evicts` is False: then it must fit beside them. `is_fresh`
        asks for room for one more instance, as `Warm` needs: neither an idle one nor one that is starting counts.
        """
        ...

    def place(
        self,
        function: str,
        configuration: Configuration,
        order: Order = "warm-first",
        *,
        evicts: bool = True,
        near: Invocation | None = None,
    ) -> str | None:
        """The emptiest node where it fits; `warm-first` prefers nodes with a warm, idle instance. None if nowhere.

        `warm` takes no others. `fresh` asks for room for one more instance, as `Warm` needs: one that is starting does
        not count. Without `evicts`, no idle instance has to make way for it.

        With `near`, the node that holds the largest part of this invocation's input comes first: where nothing has to
        start for it, or nothing is warm elsewhere, or the transfer takes longer than the start. Where the transfer
        takes no time, or its input travels with the batch, `near` changes nothing.
        """
        ...

    def is_warm(self, function: str, configuration: Configuration, node: str, device: int | None = None) -> bool:
        """Whether an idle instance of this size is there; of a kernel, whether all its constant buffers are."""
        ...

    def load(self, node: str) -> float:
        """Share of the node's vCPUs (of its vGPUs, if it has no vCPUs) in use, in [0, 1]."""
        ...

    def finishes(self, node: str) -> tuple[float, ...]:
        """When what runs on a node is predicted to finish, soonest first."""
        ...

    def devices(self) -> tuple[DeviceStatus, ...]:
        """Every accelerator that is up. A full listing: its cost grows with the cluster."""
        ...

    def instances(self, function: str) -> tuple[Instance, ...]:
        """Every instance of a function, oldest first. A full listing."""
        ...

    def counts(self, function: str) -> tuple[Counts, ...]:
        """How many instances of a function there are of each GPU share, by state; smallest share first."""
        ...

    def scaled(self, function: str) -> Scale | None:
        """How many replicas a scaled function is to have, and in what size; None if the dispatcher starts instances."""
        ...

    def resizes(self, function: str, vcpus: float, memory_gb: float = 0.0) -> bool:
        """Whether such a Resize would be carried out now."""
        ...

    def idle(self, node: str) -> tuple[Instance, ...]:
        """The idle instances on a node that hold anything, in the order in which they would be evicted."""
        ...

    def inputs(self, invocation: Invocation) -> tuple[tuple[str, float], ...]:
        """Where a waiting invocation's input lies: (node, megabytes) per predecessor."""
        ...

    def holder(self, invocation: Invocation) -> tuple[str, float] | None:
        """The node with the largest part of a waiting invocation's input, and the seconds of transfer saved there.

        The time is as believed now. None where nothing is saved, or that node is down.
        """
        ...

    def pressure(self, node: str) -> float:
        """Load from outside on a node, as last reported."""
        ...

    def signals(self, node: str) -> tuple[float, ...]:
        """The counters of a node (`fairlead.monitor.COUNTERS`) as last measured, on average of late.

        Where nothing is measured, as in simulations, what pressure and load would make them.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Site:
    """What a policy is told once, before the run.

    `arrivals` is None unless the policy is clairvoyant: then it lists every (instant, workflow) to come, in order.
    `step_s` is what a search step costs where decision time is modelled, so that a search can be cut off by time.
    `growth` has the kinds of nodes that may be asked for and given back; `provision_s` is how long one takes to come
    where its bounds do not say.
    """

    cluster: Cluster
    functions: Mapping[str, Function]
    workflows: Mapping[str, Workflow]
    profiles: Mapping[str, Estimate]
    arrivals: Sequence[tuple[float, str]] | None = None
    step_s: float = 0.0
    growth: Mapping[str, Bounds] = field(default_factory=dict)
    provision_s: float = 0.0


@dataclass
class Policy:
    """Base of every policy: subclasses are dataclasses whose fields are the parameters."""

    paper: ClassVar[str] = ""  # whose idea it is, in a few words; empty for a baseline

    @property
    def clairvoyant(self) -> bool:
        """Whether it must be told the future. The live runtime refuses such a policy."""
        return False

    @property
    def observes(self) -> bool:
        """Whether it is shown what finishes: by default if it overrides `observe`. Runs are quicker without."""
        return type(self).observe is not Policy.observe

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        """Learn the site once, before the first decision. `rng` is the policy's own randomness."""

    def decide(self, view: View) -> Iterator[Action]:
        """Dispatch: called once per instant at which anything waits, arrived or was lost, or a wake is due."""
        raise TypeError(f"{type(self).__name__} is not a dispatcher: it has no decide().")

    def adjust(self, view: View) -> Iterator[Action]:
        """Scale: called once per control period."""
        raise TypeError(f"{type(self).__name__} is not a scaler: it has no adjust().")

    def observe(self, record: Record) -> None:
        """See one finished invocation."""

    def notes(self) -> Mapping[str, Mapping[str, float]]:
        """What a scaler wants seen besides its actions: numbers by function, then by name, such as `shadow_replicas`.

        The live runtime reads them after every control period, for its records, its status and its metrics. Names are
        few and stay the same; nothing is decided by them.
        """
        return {}

    def close(self) -> None:
        """End what was started for this run, such as processes: the live runtime has no more use for the policy."""
