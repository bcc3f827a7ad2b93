"""The manifest of an app: all that can be said of it without its code.

It is what an app file gives when it is described, and all that the gateway ever sees: user code runs in instances only.
Plain values, so it goes through JSON and back unchanged.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec


class KernelBuffer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Device memory that a kernel needs; `kind` is constant, input, output or temporary."""

    name: str
    kind: str
    type: str
    shape: tuple[int, ...]
    bytes: int


class KernelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kernel graph that a function is: the names of its files in the app's bundle, and its buffers.

    `constants` is None where the graph has none.
    """

    graph: str
    constants: str | None = None
    buffers: tuple[KernelBuffer, ...] = ()


class FunctionSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function as declared: its configuration space, what an instance may use, and how failures are treated.

    `is_batched` says that it takes and returns lists. `warm` instances are kept ready from the start. A limit of None
    is no limit. `parts` are the functions that a fused one runs, in order; empty for one that was declared.
    `cache_entries` and `cache_bytes` bound its prediction cache; it has none if they are 0. With a `kernel` it runs on
    a device, and no process is started for it.
    """

    name: str
    batch: tuple[int, ...] = (1,)
    vcpus: tuple[float, ...] = (1.0,)
    vgpus: tuple[float, ...] = (0.0,)
    memory_gb: float = 0.0
    is_batched: bool = False
    has_setup: bool = False
    retries: int = 0
    run_limit_s: float | None = 60.0
    start_limit_s: float | None = 60.0
    keep_alive_s: float = 600.0
    warm: int = 1
    parts: tuple[str, ...] = ()
    cache_entries: int = 0
    cache_bytes: int = 0
    kernel: KernelSpec | None = None


class Input(msgspec.Struct, frozen=True, tag="input"):
    """What the request brought."""


class Output(msgspec.Struct, frozen=True, tag="output"):
    """What a stage gave, for the same item."""

    stage: str


class Item(msgspec.Struct, frozen=True, tag="item"):
    """One item of a list that another source gives: what a map stage takes."""

    of: "Input | Output"


class Collected(msgspec.Struct, frozen=True, tag="collected"):
    """The list of what a source inside a map gave, item by item: what a join takes. Empty if there were no items.

    It is there if the map's own source was.
    """

    of: "Source"


class Listed(msgspec.Struct, frozen=True, tag="listed"):
    """The list of what several sources gave: what comes after a fork."""

    parts: tuple["Source", ...]


class FirstOf(msgspec.Struct, frozen=True, tag="first_of"):
    """What the first source whose stages ran gave: what comes after a switch."""

    parts: tuple["Source", ...]


Source = Input | Output | Item | Collected | Listed | FirstOf


class StageSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stage: its place in the graph (as in `model.Stage`), and where its argument comes from.

    `splits` says that some stage maps over its output, `chooses` that an arm is chosen by its output: both happen in
    the instance, which alone has the code. `arms` names the first stage of each arm by its label; None for an arm that
    does nothing. `compete` copies run at once, and the first answer wins. `parts` are the stages that a fused one
    stands for. `using` says where further parameters come from: the request's input, or a stage that has always run by
    then. The value that goes to the instance is then the list of the argument and of these, in order.
    """

    name: str
    function: str
    source: Source
    after: tuple[str, ...] = ()
    when: float | None = None
    map: tuple[int, int] | None = None
    join: bool = False
    splits: bool = False
    chooses: bool = False
    arms: Mapping[str, str | None] = {}
    compete: int = 1
    parts: tuple[str, ...] = ()
    using: Mapping[str, Input | Output] = {}


class Unfused(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workflow before some of its stages were fused."""

    stages: tuple[StageSpec, ...]
    answer: Source


class WorkflowSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stages in topological order, where the answer comes from, and the objective (null: none).

    `splits_input` says that the first stage maps over the request's own value. `example` is a value to try it with, in
    MessagePack (so in JSON, as base64). `unfused` is there where stages are fused.
    """

    name: str
    stages: tuple[StageSpec, ...]
    answer: Source
    slo_s: float | None = None
    cost_usd: float | None = None
    splits_input: bool = False
    example: bytes | None = None
    description: str = ""
    unfused: Unfused | None = None


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of this machine that is treated as a node: it never gets more than vcpus x speed of real cores.

    Without `memory_gb` its memory is not limited. `devices` run its kernels, such as `opencl:0`, each with at most
    `device_memory_bytes` (0: all that its driver reports).
    """

    name: str
    vcpus: float
    memory_gb: float | None = None
    speed: float = 1.0
    devices: tuple[str, ...] = ()
    device_memory_bytes: int = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An app: functions, workflows, and the nodes it asks for (none: this whole machine, as one).

    `warm_up` says whether the examples of its workflows may be run before it is served. `parts` are functions that run
    inside fused ones only: they have no instances when it is served, and are measured nevertheless. `on_loss` says what
    becomes of work whose instance or node is lost.
    """

    name: str
    functions: tuple[FunctionSpec, ...]
    workflows: tuple[WorkflowSpec, ...]
    nodes: tuple[NodeSpec, ...] = ()
    policy: str = "fairlead"
    parameters: Mapping[str, object] = {}
    warm_up: bool = True
    parts: tuple[FunctionSpec, ...] = ()
    on_loss: Literal["retry", "fail"] = "retry"

    @property
    def has_kernels(self) -> bool:
        """Whether some function of it runs on a device."""
        return any(function.kernel is not None for function in self.functions)

    @property
    def measurable(self) -> tuple[FunctionSpec, ...]:
        """All functions: those that are served, and those inside fused ones."""
        return (*self.functions, *self.parts)
