"""Where requests enter the runtime: checks readiness, input and places, hands over, counts, and bounds answers."""

import asyncio
from collections.abc import Callable

import msgspec

from fairlead.engine.live.clock import REAL, Clock
from fairlead.engine.live.gateway.exchange import Connection
from fairlead.engine.live.gateway.inbox import Inbox
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.served import Accepted, Served
from fairlead.engine.live.gateway.settings import Settings
from fairlead.engine.live.gateway.tallies import Tallies
from fairlead.engine.live.transit import Origin
from fairlead.engine.live.values import Ending, InputError, check_items
from fairlead.errors import HeldAtZeroError, UnknownNameError


class Intake:
    """Hands requests to the host and waits for their end."""

    def __init__(self, host: Served, inbox: Inbox, tallies: Tallies, settings: Settings, clock: Clock = REAL) -> None:
        self.host = host
        self.clock = clock
        self.inbox = inbox
        self.tallies = tallies
        self._late_limit_s = settings.late_limit_s
        self.is_stopping = False
        self._max_items = settings.max_items
        self._max_result_bytes = settings.max_result_bytes
        self._full_names: dict[str, str] = {}
        self._maps: set[str] = set()  # full names of workflows that map over their input
        self._callers: set[Caller] = set()
        self.refresh()

    def refresh(self) -> None:
        """Forget what was known of names: apps have come or gone."""
        self._full_names.clear()
        self._maps.clear()
        self.inbox.set_workflows(sum(len(manifest.workflows) for manifest in self.host.manifests()))
        self.tallies.serve(
            {
                f"{manifest.name}.{spec.name}": spec.slo_s
                for manifest in self.host.manifests()
                for spec in manifest.workflows
            }
        )

    def full_name(self, workflow: str) -> str:
        """ "app.workflow" of a name that a client gave; 404 with the near misses if there is none."""
        full = self._full_names.get(workflow)
        if full is None:
            try:
                manifest, spec = self.host.workflow(workflow)
            except UnknownNameError as error:
                raise Problem(404, "unknown_workflow", str(error)) from None
            full = self._full_names[workflow] = f"{manifest.name}.{spec.name}"
            if spec.splits_input:
                self._maps.add(full)
        return full

    def check_input(self, full: str, value: bytes) -> None:
        """422 if a workflow, whose `full_name` this is, maps over its input and that is no list or too long."""
        if full in self._maps:
            try:
                check_items(value, self._max_items)
            except InputError as error:
                raise unfit(error) from None

    def require_running(self) -> None:
        """503 once the gateway stops."""
        if self.is_stopping or self.host.is_draining:
            raise Problem(503, "draining", "The gateway is stopping and takes no new requests.", retry_after_s=1.0)

    def require_ready(self) -> None:
        """503 while the gateway stops or the runtime is not ready."""
        self.require_running()
        if not self.host.is_ready:
            raise Problem(503, "not_ready", "The app is still starting.", retry_after_s=0.5)

    def begin(
        self,
        workflow: str,
        value: bytes,
        *,
        deadline_s: float | None,
        budget_usd: float | None,
        connection: Connection | None,
        done: Callable[[Accepted, Ending], None],
        trace: bytes | None = None,
    ) -> "Caller":
        """Take a request whose caller waits; `done` is called once, later. Problem if it cannot be taken.

        If the client leaves meanwhile, the request is cancelled.
        """
        full = self.full_name(workflow)
        self.require_ready()
        if full in self._maps:
            self.check_input(full, value)
        if not self.inbox.enter(full):
            self.tallies.turned_away(full)
            raise Problem(
                429,
                "inbox_full",
                f"Too many requests of {full} are open; {self.inbox.places} may be in all.",
                reason="inbox-full",
                retry_after_s=self.inbox.retry_after_s(),
            )
        caller = Caller(self, full, connection, done)
        try:
            caller.ticket = self.host.submit(
                full,
                value,
                deadline_s=deadline_s,
                budget_usd=budget_usd,
                done=caller.ended,
                late_limit_s=self._late_limit_s,
                origin=None if trace is None else Origin(trace=trace.decode()),
            )
        except BaseException as error:
            self.inbox.leave(full)
            if isinstance(error, UnknownNameError):  # it went between the two calls
                raise Problem(404, "unknown_workflow", str(error)) from None
            if isinstance(error, InputError):  # it was replaced in between
                raise unfit(error) from None
            if isinstance(error, HeldAtZeroError):
                raise Problem(503, "held_at_zero", str(error), reason="held-at-zero", retry_after_s=5.0) from None
            raise
        self._callers.add(caller)
        if connection is not None:
            connection.on_lost = caller.cancel
            if connection.is_gone:
                caller.cancel()
        return caller

    async def run(
        self,
        workflow: str,
        value: bytes,
        *,
        deadline_s: float | None,
        budget_usd: float | None,
        connection: Connection | None,
        trace: bytes | None = None,
    ) -> tuple[Accepted, Ending]:
        """Run one request to its end, as `begin` does. Cancelling the wait cancels the request."""
        waiting: asyncio.Future[tuple[Accepted, Ending]] = asyncio.get_running_loop().create_future()

        def done(ticket: Accepted, ending: Ending) -> None:
            if not waiting.done():
                waiting.set_result((ticket, ending))
            elif ending.value is not None:
                self.host.release(ending.value)

        caller = self.begin(
            workflow,
            value,
            deadline_s=deadline_s,
            budget_usd=budget_usd,
            connection=connection,
            done=done,
            trace=trace,
        )
        try:
            return await waiting
        except asyncio.CancelledError:
            caller.cancel()
            raise

    def ended(self, caller: "Caller", ending: Ending) -> Ending:
        """Let go of a request whose caller waits, and bound its answer."""
        ending = self._within_limit(ending)
        self._callers.discard(caller)
        self.inbox.leave(caller.workflow)
        return ending

    def cancel_all(self) -> None:
        """Give up every request whose caller waits: each gets an answer that says so."""
        for caller in list(self._callers):
            caller.cancel()

    def start(
        self,
        workflow: str,
        value: bytes,
        *,
        deadline_s: float | None,
        budget_usd: float | None,
        done: Callable[[Ending], None],
        origin: Origin | None = None,
    ) -> Accepted:
        """Hand over an asynchronous request: it was accepted before, so neither the inbox nor readiness is asked.

        InputError if the workflow, which may have been replaced since, cannot take this input.
        """

        def counted(ending: Ending) -> None:
            ending = self._within_limit(ending)
            self.tallies.ended(workflow, ending, ticket.generation)
            done(ending)

        ticket = self.host.submit(
            workflow, value, deadline_s=deadline_s, budget_usd=budget_usd, done=counted, origin=origin
        )
        return ticket

    def _within_limit(self, ending: Ending) -> Ending:
        """The same ending, or a failure if its answer is too large: the answer is then freed without being decoded."""
        value = ending.value
        if value is None or (type(value) is bytes and len(value) <= self._max_result_bytes):
            return ending
        try:
            size = self.host.size_bytes(value)
        except OSError as error:  # something outside removed it from shared memory
            reason = f"the answer is gone from shared memory: {error.strerror}"
            return msgspec.structs.replace(ending, outcome="failed", value=None, reason=reason)
        if size <= self._max_result_bytes:
            return ending
        self.host.release(value)
        reason = f"the answer has {size} bytes, and max_result_bytes is {self._max_result_bytes}"
        return msgspec.structs.replace(ending, outcome="failed", value=None, reason=reason, code="result_too_large")


class Caller:
    """One request whose caller waits for its end.

    Args:
        intake: Took the request.
        workflow: Its full name.
        connection: Where the caller is; None if it cannot leave.
        done: Called once, with the request's ticket and its end.
    """

    __slots__ = ("_connection", "_done", "_intake", "ticket", "workflow")

    ticket: Accepted  # set before the request can end

    def __init__(
        self,
        intake: Intake,
        workflow: str,
        connection: Connection | None,
        done: Callable[[Accepted, Ending], None],
    ) -> None:
        self._intake = intake
        self.workflow = workflow
        self._connection = connection
        self._done = done

    def ended(self, ending: Ending) -> None:
        """The request has ended."""
        ending = self._intake.ended(self, ending)
        if self._connection is not None:
            self._connection.on_lost = None
        self._done(self.ticket, ending)
        self._intake.tallies.ended(self.workflow, ending, self.ticket.generation)

    def cancel(self) -> None:
        """End the request, unless it has ended."""
        self._intake.host.cancel(self.ticket)


def unfit(error: InputError) -> Problem:
    """What the client is told of an input that a workflow cannot take."""
    message = str(error)
    return Problem(422, error.code, message[0].upper() + message[1:])
