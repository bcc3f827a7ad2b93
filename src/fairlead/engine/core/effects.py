"""What the controller wants done. A driver acts effects out in order, each not before its `at`."""

import msgspec

from fairlead.model import Configuration, Invocation


class StartInstance(msgspec.Struct, frozen=True, gc=False):
    """Start an instance of a function; answer with `InstanceReady` or `InstanceLost`.

    `load_mb` is what a kernel must load into its device first, after its executor if that must start; None for a
    process. `is_cut` says that its slice of a MIG device must be cut before.
    """

    at: float
    instance: int
    function: str
    configuration: Configuration
    node: str
    device: int
    load_mb: float | None = None
    starts_executor: bool = False
    is_cut: bool = False


class RunBatch(msgspec.Struct, frozen=True, gc=False):
    """Run a batch on a ready instance; answer with `Finished`.

    `transfer_mb` lies on other nodes; `copy_mb` goes to the device before the run and back after it.
    """

    at: float
    batch: int
    instance: int
    function: str
    invocations: tuple[Invocation, ...]
    configuration: Configuration
    node: str
    device: int
    transfer_mb: float
    copy_mb: float = 0.0


class StopInstance(msgspec.Struct, frozen=True, gc=False):
    """Stop an instance, and the batch that still runs on it (-1 for none)."""

    at: float
    instance: int
    batch: int = -1


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A request ended by running: completed, or failed with a reason."""

    at: float
    request: int
    outcome: str
    reason: str | None = None


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """A request ended without an answer: rejected, dropped or cancelled."""

    at: float
    request: int
    outcome: str
    reason: str
    retry_after_s: float | None = None


class AddNode(msgspec.Struct, frozen=True, gc=False):
    """Get one more node of a kind; answer with `NodeJoined`."""

    at: float
    kind: str


class RemoveNode(msgspec.Struct, frozen=True, gc=False):
    """Give a node back; nothing runs there any more."""

    at: float
    node: str


Effect = StartInstance | RunBatch | StopInstance | Answer | Refuse | AddNode | RemoveNode
