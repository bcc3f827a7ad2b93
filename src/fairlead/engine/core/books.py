"""The books: one row per request, invocation attempt and instance, in the order of the columns of `model.tables`."""

from collections.abc import Sequence
from typing import Protocol

from fairlead.engine.core.capacity import InstanceState
from fairlead.engine.core.changes import Row, record_of
from fairlead.engine.core.progress import RequestState
from fairlead.engine.core.queues import Task
from fairlead.errors import PolicyError
from fairlead.model import CACHED, Invocation, Record
from fairlead.policy.base import Policy


class Recorder(Protocol):
    """Where the rows go: a driver's own. `trim` is called after every request, to bound the memory that they take."""

    @property
    def requests(self) -> list[Row]:
        """Rows to be appended to, as are the others; always the same list."""
        ...

    @property
    def invocations(self) -> list[Row]:
        """One per attempt."""
        ...

    @property
    def instances(self) -> list[Row]:
        """One per instance, when it ends."""
        ...

    def trim(self) -> None:
        """Do away with the rows so far, if there are many."""
        ...


class Rows:
    """The plainest recorder: keeps every row."""

    __slots__ = ("instances", "invocations", "requests")

    def __init__(self) -> None:
        self.requests: list[Row] = []
        self.invocations: list[Row] = []
        self.instances: list[Row] = []

    def trim(self) -> None:
        """Nothing is given up."""


class NoRows:
    """The recorder of a run that is not recorded: it keeps no row."""

    __slots__ = ("instances", "invocations", "requests")

    def __init__(self) -> None:
        self.requests: list[Row] = _Discarding()
        self.invocations: list[Row] = _Discarding()
        self.instances: list[Row] = _Discarding()

    def trim(self) -> None:
        """There is nothing to give up."""


class _Discarding(list[Row]):
    """A list that stays empty."""

    def append(self, row: Row) -> None:
        """Discard the row."""


class Books:
    """Writes the rows, and shows finished invocations to the policies that want to see them."""

    __slots__ = ("_ended", "_invocations", "_observers", "failure", "recorder")

    def __init__(
        self, policies: Sequence[tuple[str, Policy]], recorder: Recorder, ended: list[tuple[Row, Invocation]]
    ) -> None:
        self.recorder = recorder
        self._invocations = recorder.invocations
        self._ended = ended  # where attempts that ended are noted for the dispatcher
        self._observers: list[tuple[str, Policy]] = []
        self.failure: PolicyError | None = None  # of an observer; raised when all of the instant has been applied
        self.watch(policies)

    def watch(self, policies: Sequence[tuple[str, Policy]], beside: Policy | None = None) -> None:
        """Show what finishes to those of these policies that want to see it, and of the former ones to this one."""
        kept = [(name, policy) for name, policy in self._observers if policy is beside]
        self._observers = [(name, policy) for name, policy in policies if policy.observes] + kept

    def invocation(
        self,
        instance: InstanceState,
        batch: int,
        task: Task,
        cost_usd: float,
        transfer_s: float,
        now: float,
        outcome: str,
    ) -> None:
        """One attempt ended, well or not."""
        invocation = task[0]
        configuration = instance.shape.configuration
        row = (
            invocation.request,
            invocation.workflow,
            invocation.stage,
            invocation.function,
            invocation.item,
            invocation.attempt,
            batch,
            len(instance.tasks),
            instance.id,
            instance.node.name,
            -1 if instance.device is None else instance.device.index,
            configuration.vcpus,
            configuration.vgpus,
            invocation.ready,
            instance.start,
            instance.cold_s,
            transfer_s,
            now,
            instance.is_cold,
            cost_usd,
            outcome,
        )
        self._invocations.append(row)
        self._ended.append((row, invocation))
        if self._observers:
            self._show(record_of(row, invocation), now)

    def recalled(self, invocation: Invocation, now: float) -> None:
        """An invocation was answered without a run. Policies follow runs, so they are not shown this."""
        known = (invocation.request, invocation.workflow, invocation.stage, invocation.function)
        nowhere = (-1, 0, -1, "", -1, 0.0, 0.0)  # batch, its size, instance, node, device, vCPUs, vGPUs
        times = (invocation.ready, now, 0.0, 0.0, now)
        self._invocations.append((*known, invocation.item, invocation.attempt, *nowhere, *times, False, 0.0, CACHED))

    def _show(self, record: Record, now: float) -> None:
        for name, policy in self._observers:
            try:
                policy.observe(record)
            except Exception as error:
                if self.failure is None:
                    self.failure = PolicyError(name, now, error)
                    self.failure.__cause__ = error

    def request(
        self,
        state: RequestState,
        end: float | None,
        outcome: str,
        reason: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """One request ended, or was open when the run did."""
        request = state.request
        self.recorder.requests.append(
            (
                request.id,
                request.workflow,
                request.arrival,
                request.deadline,
                request.budget_usd,
                end,
                outcome,
                reason,
                retry_after_s,
                state.promised,
                "\n".join([state.plan_steps or "", *map(str, state.notes)]) if state.notes else state.plan_steps,
                *state.offer,
                state.cost_usd,
            )
        )
        self.recorder.trim()

    def instance(self, instance: InstanceState, stopped: float | None, cause: str | None) -> None:
        """One instance ended, or lived to the end of the run."""
        configuration, function = instance.configuration, instance.flavour.function
        self.recorder.instances.append(
            (
                instance.id,
                function.name,
                instance.node.name,
                -1 if instance.device is None else instance.device.index,
                configuration.vcpus,
                configuration.vgpus,
                configuration.memory_gb or function.memory_gb,
                instance.started,
                instance.ready,
                stopped,
                0.0,  # how long it was busy is summed up at the end, from its invocations
                cause,
                instance.on_demand,
            )
        )
