"""What is on its way: requests, the batches that carry them, and the values that both hold.

A value lives as long as somebody may read it. A request that ends while an instance still works for it, because it was
dropped or cancelled, keeps its values until that instance is done.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from math import inf

import msgspec

from fairlead.app.current import About
from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.core.progress import RequestState
from fairlead.engine.live.contracts import Values
from fairlead.engine.live.routes import Outputs, Route
from fairlead.engine.live.store import INLINE_BYTES, names
from fairlead.engine.live.tracing.request import RequestTrace
from fairlead.engine.live.values import MOST_ITEMS, Ending, Result, Value, check_items, reference, split
from fairlead.model import Invocation, Request

Done = Callable[[Ending], None]

_WELL = ev.Outcome()
_MOST_TRACEBACK = 8000  # characters


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where a request is from: the id by which its caller knows it, the caller's `traceparent`, and its other name.

    `run` names it in the records of the run, where that is not `id`.
    """

    id: str = ""
    trace: str | None = None
    run: str | None = None


class OpenRequest:
    """A request, what it has been given so far, and whom to tell of its end."""

    __slots__ = (
        "cold_s",
        "core",
        "done",
        "given",
        "items",
        "lost",
        "origin",
        "outputs",
        "request",
        "route",
        "run_s",
        "running",
        "trace",
        "traceback",
        "wait_s",
    )

    def __init__(
        self, request: Request, route: Route, given: Value, items: int, done: Done, origin: Origin = Origin()
    ) -> None:
        self.request = request
        self.origin = origin
        self.route = route
        self.given = given
        self.done = done
        self.outputs: Outputs = {}
        self.items = dict.fromkeys(route.first_maps, items)  # by map stage
        self.lost: frozenset[tuple[str, int]] = frozenset()  # outputs that cannot be read, and may be made again
        self.running = 0  # invocations that an instance has in hand
        self.core: RequestState | None = None  # the controller's own account, once it has one
        self.trace: RequestTrace | None = None
        self.traceback: str | None = None  # of the last stage that failed
        self.wait_s = self.cold_s = self.run_s = 0.0

    def about(self, invocation: Invocation, effect: fx.RunBatch, start: float, cold_s: float, now: float) -> About:
        """What an instance is told of one of its invocations, which begins now."""
        origin, left_s, trace = self.origin, self.request.deadline - now, self.origin.trace
        if self.trace is not None:
            trace = self.trace.begins(invocation, effect, start, cold_s, now)
        return About(origin.id, left_s if left_s < inf else None, invocation.attempt, trace, origin.run)

    def answer(self) -> Value:
        """What it is answered with, once every stage is done."""
        return self.route.answer(self.given, self.outputs, self.items)


class Batch:
    """A batch that was handed to the back end.

    `members` are the places of those invocations that an instance has in hand: requests that ended while their instance
    started are not among them.
    """

    __slots__ = ("cold_s", "effect", "members", "predicted_s", "started")

    def __init__(
        self, effect: fx.RunBatch, members: Sequence[int], started: float, cold_s: float, predicted_s: float
    ) -> None:
        self.effect = effect
        self.members = members
        self.started = started
        self.cold_s = cold_s
        self.predicted_s = predicted_s


class Transit:
    """Every open request and every batch under way.

    `max_items` is how many items a list may give to a map stage. `large` has the functions whose outputs are declared
    too large to travel with a batch.
    """

    def __init__(self, values: Values, max_items: int = MOST_ITEMS, large: Collection[str] = ()) -> None:
        self._large = large
        self._values = values
        self._max_items = max_items
        self.open: dict[int, OpenRequest] = {}
        self._leaving: dict[int, OpenRequest] = {}  # ended, but an instance may still read what they hold
        self._batches: dict[int, Batch] = {}

    def by_workflow(self) -> Counter[str]:
        """How many requests are open, by workflow."""
        return Counter(state.request.workflow for state in self.open.values())

    def take_in(self, value: Value, route: Route) -> tuple[Value, int]:
        """A request's input as instances take it, and the number of its items.

        Raises InputError if the workflow maps over its input, and that is no list or too long.
        """
        if not isinstance(value, bytes):
            return value, 1
        if not route.spec.splits_input:
            return self._values.put(value), 1
        check_items(value, self._max_items)
        items = split(value)
        return [item if len(item) <= INLINE_BYTES else self._values.put(item) for item in items], len(items)

    def begin(
        self, effect: fx.RunBatch, start: float, cold_s: float, now: float, predicted_s: float
    ) -> tuple[list[str], list[Value], list[About]]:
        """A batch begins: its stages, its inputs and what instances are told of them; of requests that are open."""
        keys: list[str] = []
        inputs: list[Value] = []
        about: list[About] = []
        members = []
        for place, invocation in enumerate(effect.invocations):
            state = self.open.get(invocation.request)
            if state is None:
                continue
            members.append(place)
            state.running += 1
            state.wait_s += max(0.0, start - invocation.ready)
            state.cold_s += cold_s
            route = state.route
            keys.append(route.keys[invocation.stage])
            inputs.append(route.argument(invocation.stage, invocation.item, state.given, state.outputs, state.items))
            about.append(state.about(invocation, effect, start, cold_s, now))
        self._batches[effect.batch] = Batch(effect, members, now, cold_s, predicted_s)
        return keys, inputs, about

    def finish(
        self, batch: int, results: Sequence[Result], now: float, transfer_s: float = 0.0
    ) -> tuple[Batch, ev.Finished] | None:
        """A batch has ended: keep what it gave for the stages after it. None if nobody waits for it any more."""
        running = self._batches.pop(batch, None)
        if running is None:
            for result in results:
                self._values.release(result.value)
            return None
        # Of a batch in which nobody was left, nothing is learned: its time is what was believed of it.
        elapsed_s = now - running.started if running.members else running.predicted_s
        if len(results) != len(running.members):  # the worker sees to it; a broken one must not do harm
            wrong = f"it gave {len(results)} results for {len(running.members)} invocations"
            results = [Result(False, error=wrong)] * len(running.members)
        invocations = running.effect.invocations
        outcomes = [_WELL] * len(invocations)
        transfer_s = min(transfer_s, elapsed_s)
        for place, result in zip(running.members, results, strict=True):
            outcomes[place] = self._keep(invocations[place], result, elapsed_s, transfer_s, now)
        return running, ev.Finished(batch, elapsed_s - transfer_s, transfer_s, tuple(outcomes))

    def argument(self, invocation: Invocation) -> Value:
        """What an invocation of an open request is called with."""
        state = self.open[invocation.request]
        return state.route.argument(invocation.stage, invocation.item, state.given, state.outputs, state.items)

    def recall(self, invocation: Invocation, result: Result, now: float) -> ev.Outcome:
        """An invocation need not run: its result is known. Keep it as one that ran."""
        state = self.open[invocation.request]
        state.wait_s += max(0.0, now - invocation.ready)
        return self._take(state, invocation, result)

    def forget(self, batch: int) -> Batch | None:
        """A batch will not end: nothing reads its inputs any more."""
        running = self._batches.pop(batch, None)
        if running is not None:
            for place in running.members:
                self._let_go(running.effect.invocations[place])
        return running

    def leave(self, state: OpenRequest, answer: Value | None) -> None:
        """A request has ended: free all that it held, except its answer, which its reader frees."""
        if state.running:
            self._leaving[state.request.id] = state
        else:
            self._release(state, answer)

    def _keep(
        self, invocation: Invocation, result: Result, elapsed_s: float, transfer_s: float, now: float
    ) -> ev.Outcome:
        """Keep one result, and say of it what the controller needs to know."""
        state = self.open.get(invocation.request)
        if state is None:
            self._let_go(invocation)
            self._values.release(result.value)
            return _WELL if result.ok else ev.Outcome(False, error=result.error)
        state.running -= 1
        if state.trace is not None:
            state.trace.finished(invocation, now, transfer_s, result.error)
        key = (invocation.stage, invocation.item)
        if key in state.outputs and key not in state.lost:  # another copy was faster
            self._values.release(result.value)
            return _WELL
        state.run_s += elapsed_s
        return self._take(state, invocation, result)

    def _take(self, state: OpenRequest, invocation: Invocation, result: Result) -> ev.Outcome:
        """Let a result be the output of its stage."""
        if not result.ok:
            state.traceback = result.traceback and result.traceback[:_MOST_TRACEBACK]
            return self._failed(state, result)
        stage = state.route.stages[invocation.stage]
        if stage.splits:  # the worker sees to both; a broken one must not do harm
            length = len(result.value) if isinstance(result.value, list | tuple) else -1
            if length != result.items or length > self._max_items:
                self._values.release(result.value)
                return ev.Outcome(False, error=f"it gave no list of at most {self._max_items} items to a map")
            maps = [s.name for s in state.route.spec.stages if s.map is not None and s.after == (stage.name,)]
            before = next((state.items[name] for name in maps if name in state.items), length)
            if length != before:
                self._values.release(result.value)
                return ev.Outcome(False, error=f"it was run again, and gave {length} items instead of {before}")
            state.items.update(dict.fromkeys(maps, length))
        key = (stage.name, invocation.item)
        if key in state.lost:
            state.lost -= {key}
            self._values.release(state.outputs[key])
        state.outputs[key] = result.value
        output_mb = None
        if type(result.value) is not bytes or self._large:
            output_mb = self._measured_mb(invocation.function, result)
        if output_mb is None and result.arm is None and result.items == 1:
            return _WELL
        arm = stage.arms.get(result.arm) if result.arm else None
        return ev.Outcome(True, arm, result.items, output_mb=output_mb)

    def _measured_mb(self, function: str, result: Result) -> float | None:
        """The size of an output, per item where it was split; None for what travels with a batch, as was declared."""
        if type(result.value) is bytes or not any(True for _ in names(result.value)):
            return 0.0 if function in self._large else None
        return self._values.size_bytes(result.value) / max(1, result.items) / 2**20

    def _failed(self, state: OpenRequest, result: Result) -> ev.Outcome:
        """One result is a failure; where an input was lost, all that the request has on that node counts as lost."""
        if not result.lost_at:
            return ev.Outcome(False, error=result.error)
        for key, value in state.outputs.items():
            if type(value) is not bytes and any(reference(text).node == result.lost_at for text in names(value)):
                state.lost |= {key}
        return ev.Outcome(False, error=result.error, lost_at=result.lost_at)

    def _let_go(self, invocation: Invocation) -> None:
        """An instance is done with an invocation."""
        state = self.open.get(invocation.request)
        if state is not None:
            state.running -= 1
            return
        state = self._leaving.get(invocation.request)
        if state is not None:
            state.running -= 1
            if state.running == 0:
                del self._leaving[invocation.request]
                self._release(state, None)

    def _release(self, state: OpenRequest, answer: Value | None) -> None:
        stored = [value for value in (state.given, *state.outputs.values()) if type(value) is not bytes]
        if stored:
            kept = set() if answer is None else set(names(answer))
            for value in stored:
                if kept.isdisjoint(names(value)):
                    self._values.release(value)
