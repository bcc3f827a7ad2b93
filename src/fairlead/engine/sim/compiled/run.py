"""One compiled run, from the first arrival to the last record."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np
import polars as pl

from fairlead.engine.sim.compiled import layout as at
from fairlead.engine.sim.compiled.coverage import rule_of, scaler_of, scenario_gap
from fairlead.engine.sim.compiled.feeding import scenario_chunks
from fairlead.engine.sim.compiled.loop import advance
from fairlead.engine.sim.compiled.lower import Lowered, Rule, grow_instances, grow_requests, lower
from fairlead.engine.sim.compiled.placements import Called, Placement, nobody
from fairlead.engine.sim.compiled.scalers import Choice
from fairlead.engine.sim.compiled.tables import instance_table, invocation_table, request_table
from fairlead.errors import PolicyError, UncoveredError
from fairlead.policy import Policy
from fairlead.workload import Scenario
from fairlead.workload.chunks import Chunk

Record = Literal["all", "requests", "none"]

_FEW_ROWS, _MANY_ROWS = 1 << 12, 1 << 18  # at first, and in the end: large blocks come in large pages
_TABLES = {
    "all": at.KEEP_REQUESTS | at.KEEP_INVOCATIONS | at.KEEP_INSTANCES,
    "requests": at.KEEP_REQUESTS,
    "none": 0,
}


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What a run came to, whether or not its records were kept."""

    requests: int
    completed: int
    rejected: int
    dropped: int
    unfinished: int
    invocations: int
    cold_starts: int
    latency_mean_s: float
    cost_usd: float
    idle_gb_s: float
    end_s: float


class CompiledRun:
    """A run in the making: feed it arrivals, let it go, read what came of it."""

    def __init__(
        self,
        scenario: Scenario,
        policy: Policy | Placement,
        scaler: Policy | None = None,
        *,
        seed: int = 0,
        record: Record = "all",
        arrivals: Iterable[Chunk] | None = None,
    ) -> None:
        self.scenario = scenario
        self.policy = policy
        rule, choice = _resolve(scenario, policy, scaler)
        self._rule = rule
        self.lowered: Lowered = lower(scenario, rule, scaler=choice.number, sizes=choice.sizes)
        self.memory = memory = self.lowered.memory
        self._c, self._x = memory[at.COUNT], memory[at.CLOCK]
        choice.prepare(memory)
        self._chunks: Iterator[Chunk] = iter(
            scenario_chunks(scenario, seed, self.lowered.draws) if arrivals is None else arrivals
        )
        self._c[at.RECORDS] = _TABLES[record]
        self._rows = _FEW_ROWS
        rows = max(self._rows, 2 * int(self._c[at.MOST_TASKS])) if _TABLES[record] else 0
        self._make_rows(rows, rows, rows)
        self.requests: list[tuple[np.ndarray, np.ndarray]] = []
        self.invocations: list[tuple[np.ndarray, np.ndarray]] = []
        self.instances: list[tuple[np.ndarray, np.ndarray]] = []
        self._pick, self._call = self._pointers()
        self._c[at.MORE_ARRIVALS] = 1
        self._feed()
        self._c[at.FAULTS] = len(scenario.pressures)
        self._schedule(
            [(change.at_s, at.PRESS | (i << at.KIND_BITS)) for i, change in enumerate(scenario.pressures)]
            + ([(scenario.control_period_s, at.CONTROL)] if choice.number else [])
        )

    def go(self) -> None:
        """Run to the end.

        Raises:
            PolicyError: A placement raised, answered with nonsense, or lets what fits wait for ever.
        """
        h = self.memory.h
        while True:
            status = advance(h, self._pick, self._call)
            if status == at.NEEDS_ARRIVALS:
                self._feed()
            elif status == at.NEEDS_ROOM:
                self._make_room()
            elif status == at.BAD_DECISION:
                raise self._failure()
            else:
                assert status == at.DONE, status
                break
        self._finish()

    def _schedule(self, events: list[tuple[float, int]]) -> None:
        """What is known to happen from the start. In the order of time, it is a heap."""
        memory = self.memory
        numbered = sorted((instant, i, what) for i, (instant, what) in enumerate(events))
        for position, (instant, i, what) in enumerate(numbered):
            memory[at.EVENT_AT][position], memory[at.EVENT_WHAT][position] = instant, what
            memory[at.EVENT_ORDER][position] = i + 1
        self._c[at.EVENTS] = self._c[at.SEQUENCE] = len(events)

    def totals(self) -> Totals:
        """What it came to."""
        c, x = self._c, self._x
        completed = int(c[at.COMPLETED])
        return Totals(
            requests=int(c[at.NEXT_REQUEST]),
            completed=completed,
            rejected=int(c[at.REJECTED]),
            dropped=int(c[at.DROPPED]),
            unfinished=int(c[at.OPEN]),
            invocations=int(c[at.INVOCATIONS]),
            cold_starts=int(c[at.COLD_STARTS]),
            latency_mean_s=float(x[at.LATENCY_SUM]) / completed if completed else inf,
            cost_usd=float(x[at.COST_SUM]),
            idle_gb_s=float(x[at.IDLE_MB_S]) / 1024,
            end_s=float(x[at.NOW]),
        )

    def tables(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Requests, invocations and instances."""
        requests = request_table(self.requests, self.scenario, self.lowered, self._rule.queue_limit)
        invocations = invocation_table(self.invocations, self.scenario, self.lowered)
        return requests, invocations, instance_table(self.instances, self.scenario, self.lowered, invocations)

    @property
    def stale_events(self) -> int:
        """Events that came too late to matter."""
        return int(self._c[at.STALE])

    @property
    def now(self) -> float:
        """How far it has come."""
        return float(self._x[at.NOW])

    # --- what the loop asks for ------------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Give the loop its next arrivals."""
        memory, c = self.memory, self._c
        chunk = next(self._chunks, None)
        if chunk is None:
            c[at.MORE_ARRIVALS] = 0
            return
        memory[at.ARRIVAL_AT] = chunk.times
        memory[at.ARRIVAL_WORKFLOW] = chunk.workflows
        memory[at.ARRIVAL_DRAWS] = chunk.draws
        c[at.ARRIVAL], c[at.ARRIVALS], c[at.ARRIVAL_DRAW] = 0, len(chunk), 0

    def _make_room(self) -> None:
        """Empty the records, and let grow what is short of room."""
        memory, c = self.memory, self._c
        needed = int(c[at.NEEDED])
        if c[at.FREE_REQUEST] < 0:
            grow_requests(memory, 2 * int(c[at.REQUEST_SLOTS]))
        if c[at.FREE_INSTANCES] < needed:
            grow_instances(memory, 2 * int(c[at.INSTANCE_SLOTS]) + needed)
        room = len(memory[at.EVENT_AT])
        if c[at.EVENTS] + 2 * needed + 8 > room:
            memory.grow(at.EVENT_AT, 2 * room + 2 * needed)
            c[at.EVENT_ROOM] = 2 * room + 2 * needed
        if c[at.RECORDS]:
            self._flush()
            living = int(c[at.INSTANCE_SLOTS])
            most = int(c[at.MOST_TASKS])
            self._rows = rows = min(2 * self._rows, _MANY_ROWS)
            self._make_rows(max(rows, 2 * most), max(rows, 2 * most), max(_FEW_ROWS, 2 * living))

    def _make_rows(self, invocations: int, requests: int, instances: int) -> None:
        memory = self.memory
        for whole, whole_columns, real, real_columns, rows in (
            (
                at.INVOCATION_INTS,
                at.INVOCATION_INT_COLUMNS,
                at.INVOCATION_REALS,
                at.INVOCATION_REAL_COLUMNS,
                invocations,
            ),
            (at.REQUEST_INTS, at.REQUEST_INT_COLUMNS, at.REQUEST_REALS, at.REQUEST_REAL_COLUMNS, requests),
            (at.INSTANCE_INTS, at.INSTANCE_INT_COLUMNS, at.INSTANCE_REALS, at.INSTANCE_REAL_COLUMNS, instances),
        ):
            memory[whole] = np.empty(rows * whole_columns, np.int64)
            memory[real] = np.empty(rows * real_columns)
        c = memory[at.COUNT]
        c[at.INVOCATION_ROOM], c[at.REQUEST_ROOM], c[at.INSTANCE_ROOM] = invocations, requests, instances

    def _flush(self) -> None:
        """Take over the rows that were written; new arrays follow."""
        memory, c = self.memory, self._c
        for rows, count, whole, whole_columns, real, real_columns in (
            (
                self.invocations,
                at.INVOCATION_ROWS,
                at.INVOCATION_INTS,
                at.INVOCATION_INT_COLUMNS,
                at.INVOCATION_REALS,
                at.INVOCATION_REAL_COLUMNS,
            ),
            (
                self.requests,
                at.REQUEST_ROWS,
                at.REQUEST_INTS,
                at.REQUEST_INT_COLUMNS,
                at.REQUEST_REALS,
                at.REQUEST_REAL_COLUMNS,
            ),
            (
                self.instances,
                at.INSTANCE_ROWS,
                at.INSTANCE_INTS,
                at.INSTANCE_INT_COLUMNS,
                at.INSTANCE_REALS,
                at.INSTANCE_REAL_COLUMNS,
            ),
        ):
            written = int(c[count])
            if written:
                rows.append((memory[whole][: written * whole_columns], memory[real][: written * real_columns]))
            c[count] = 0

    # --- the end ---------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Close the books: requests that are still open end as unfinished, instances live to the end."""
        memory, c = self.memory, self._c
        if not c[at.RECORDS]:
            return
        self._flush()
        slots = np.flatnonzero((memory[at.R_ID] >= 0) & (memory[at.R_OPEN] == 1))
        slots = slots[np.argsort(memory[at.R_ID][slots])]
        nothing = np.full(len(slots), np.nan)
        whole = [memory[at.R_ID][slots], memory[at.R_WORKFLOW][slots], np.full(len(slots), at.UNFINISHED_)]
        real = [memory[at.R_ARRIVAL][slots], nothing, memory[at.R_COST][slots]]
        self.requests.append((np.stack(whole, 1).reshape(-1), np.stack(real, 1).reshape(-1)))
        if not c[at.RECORDS] & at.KEEP_INSTANCES:
            return
        slots = np.flatnonzero(memory[at.I_ID] >= 0)
        slots = slots[np.argsort(memory[at.I_ID][slots])]
        device, node = memory[at.I_DEVICE][slots], memory[at.I_NODE][slots]
        whole = [
            memory[at.I_ID][slots],
            memory[at.I_SIZE][slots],
            node,
            np.where(device < 0, -1, device - memory[at.NODE_DEVICE][node]),
            (memory[at.I_STATE][slots] & at.ON_DEMAND) != 0,
        ]
        real = [memory[at.I_STARTED][slots], memory[at.I_READY][slots], np.full(len(slots), np.nan)]
        self.instances.append((np.stack(whole, 1).reshape(-1), np.stack(real, 1).reshape(-1)))

    def _pointers(self) -> tuple[object, Called]:
        memory, policy = self.memory, self.policy
        nodes = len(memory[at.NODE_FREE])
        memory.whole(at.SEEN_FREE, nodes)
        memory.whole(at.SEEN_WARM, nodes)
        is_called = isinstance(policy, Placement) and policy.rule == at.CALLED
        function = policy.function if is_called else None  # type: ignore[union-attr]
        called = Called(function, memory[at.SEEN_FREE], memory[at.SEEN_WARM])
        is_compiled = isinstance(policy, Placement) and policy.rule == at.USER
        return (policy.compiled if is_compiled else nobody), called  # type: ignore[union-attr]

    def _function_of(self, task: int) -> int:
        return int(self.memory[at.STAGE_FUNCTION][int(self.memory[at.T_STAGE][task])])

    def _failure(self) -> PolicyError:
        """What is wrong with a placement's answer, with the instant and the request."""
        assert isinstance(self.policy, Placement)
        memory, c, now = self.memory, self._c, self.now
        task, answer = int(c[at.BAD_TASK]), int(c[at.BAD_VALUE])
        function = self._function_of(task)
        request = int(memory[at.R_ID][task >> int(c[at.STAGE_BITS])])
        about = f"request {request}, function {self.lowered.functions[function]}"
        cause: BaseException
        if self._call.error is not None:
            cause = self._call.error
            if not isinstance(cause, Exception):  # somebody wants the whole program to stop
                raise cause
        elif answer == at.RAISED:
            cause = self._raised(task, function)
        elif answer == at.WAIT:
            cause = RuntimeError("it lets the request wait for ever, though there is room and nothing else will happen")
        elif 0 <= answer < len(self.lowered.nodes):
            cause = ValueError(f"it answered with node {answer} ({self.lowered.nodes[answer]}), where it does not fit")
        else:
            cause = ValueError(
                f"it must answer with a node in 0..{len(self.lowered.nodes) - 1}, -1 to wait or -2 to refuse; "
                f"got {answer}"
            )
        failure = PolicyError(self.policy.name, now, cause, about=about)
        failure.__cause__ = cause
        return failure

    def _raised(self, task: int, function: int) -> BaseException:
        """The exception of a compiled placement, by calling it again as Python on the same state."""
        assert isinstance(self.policy, Placement)
        memory, nodes = self.memory, len(self.lowered.nodes)
        slot = task >> int(self._c[at.STAGE_BITS])
        slo = memory[at.WORKFLOW_SLO][int(memory[at.R_WORKFLOW][slot])]
        flavour = int(memory[at.SHAPE_FLAVOUR][int(memory[at.FUNCTION_SHAPE][function])])
        warm = memory[at.IDLE_COUNT][flavour * nodes : (flavour + 1) * nodes].copy()
        deadline = float(memory[at.R_ARRIVAL][slot] + slo)
        try:
            self.policy.function(self.now, function, deadline, memory[at.NODE_FREE].copy(), warm)
        except Exception as error:
            return error
        return RuntimeError("it raised")


def _resolve(scenario: Scenario, policy: Policy | Placement, scaler: Policy | None) -> tuple[Rule, Choice]:
    rule = Rule(number=policy.rule) if isinstance(policy, Placement) else rule_of(policy)
    choice = scaler_of(scaler)
    of_rule = rule if isinstance(rule, Rule) else None
    for reason in (rule, choice, scenario_gap(scenario, scaler is not None, of_rule)):
        if isinstance(reason, str):
            raise UncoveredError(scenario.name, reason)
    assert isinstance(rule, Rule)
    assert isinstance(choice, Choice)
    return rule, choice


def coverage(scenario: Scenario, policy: Policy | Placement, scaler: Policy | None = None) -> str | None:
    """Why the compiled engine cannot do a run; None if it can."""
    rule = Rule(number=policy.rule) if isinstance(policy, Placement) else rule_of(policy)
    of_rule = rule if isinstance(rule, Rule) else None
    reasons = (rule, scaler_of(scaler), scenario_gap(scenario, scaler is not None, of_rule))
    return next((reason for reason in reasons if isinstance(reason, str)), None)
