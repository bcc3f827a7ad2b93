"""What dashboards are told: once per second one picture of everything, encoded once and sent to all of them.

The history of every workflow is kept whether anybody looks or not. The picture is made only while somebody does.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import time

import msgspec

from fairlead.engine.live.gateway.history import RECENT_S, History, rounded
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.quantiles import SHARES
from fairlead.engine.live.gateway.recent import Ended
from fairlead.engine.live.gateway.replies import Outlet
from fairlead.engine.live.gateway.served import Served
from fairlead.engine.live.gateway.tallies import Tallies
from fairlead.engine.live.glance import AppGlance, InstanceGlance, NodeGlance, StageGlance
from fairlead.engine.live.status import FunctionStatus

PERIOD_S = 1.0
_MOST_NEW = 8  # requests of each kind of end that are told of per second and workflow
_MANY_INSTANCES = 200  # more than these are listed in every fifth picture only
_SPARSE = 5

_encode = msgspec.json.Encoder().encode


class WorkflowNow(msgspec.Struct, frozen=True):
    """One workflow: its last point (see `history.COLUMNS`), percentiles of the last ten seconds, and what ended."""

    open: int
    point: list[float | None]
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    ended: list[Ended]


class StageNow(msgspec.Struct, frozen=True):
    """One stage over the last ten seconds; the times are means in seconds, None where nothing ran."""

    workflow: str
    stage: str
    function: str
    waiting: int
    rps: float
    wait_s: float | None
    cold_s: float | None
    transfer_s: float | None
    run_s: float | None
    batch_size: float | None


class AppNow(msgspec.Struct, frozen=True):
    """One app. `instances` is None where they were listed a moment ago."""

    name: str
    generation: int
    policy: str
    scaler: str | None
    uptime_s: float
    draining: int
    functions: tuple[FunctionStatus, ...]
    stages: tuple[StageNow, ...]
    nodes: tuple[NodeGlance, ...]
    counts: dict[str, list[int]]  # by node: instances that start, are idle, busy, leaving
    instances: tuple[InstanceGlance, ...] | None


class Picture(msgspec.Struct, frozen=True):
    """Everything, at an instant of the wall clock."""

    at: float
    is_ready: bool
    is_draining: bool
    obstacles: tuple[str, ...]
    dashboards: int
    workflows: dict[str, WorkflowNow]
    apps: tuple[AppNow, ...]


class Hub:
    """Keeps the history, and tells those who listen.

    Args:
        host: What is served.
        tallies: What the gateway counts.
        max_listeners: How many may listen at a time.
        now: Seconds of a clock that never goes back.
    """

    def __init__(self, host: Served, tallies: Tallies, max_listeners: int, now: Callable[[], float]) -> None:
        self._host = host
        self._tallies = tallies
        self._max_listeners = max_listeners
        self._now = now
        self._listeners: set[Outlet] = set()
        self._histories: dict[str, History] = {}
        self._told: dict[str, int] = {}  # by workflow: the number of the last request that was told of
        self._stages: deque[dict[tuple[str, str, str], tuple[float, ...]]] = deque(maxlen=RECENT_S + 1)
        self._ticked = now()
        self._pictures = 0

    def __len__(self) -> int:
        return len(self._listeners)

    async def run(self) -> None:
        """Tick once per second, until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            self.tick()

    def history(self, workflow: str) -> History:
        """That of a workflow that exists, by its full name."""
        return self._histories.get(workflow) or History()

    def recent(self, workflow: str) -> list[Ended]:
        """The requests of a workflow that ended last."""
        tally = self._tallies.by_workflow.get(workflow)
        app = workflow.partition(".")[0]
        return [] if tally is None else tally.recent.after(0, 1 << 30, app)

    def require_room(self) -> None:
        """503 if there are as many listeners as may be."""
        if len(self._listeners) >= self._max_listeners:
            message = f"{len(self._listeners)} dashboards are open already. Close one, or allow more: max_dashboards."
            raise Problem(503, "too_many_dashboards", message, retry_after_s=5.0)

    def listen(self, outlet: Outlet) -> None:
        """Tell a listener from now on, beginning with a picture of now."""

        def gone() -> None:
            self._listeners.discard(outlet)

        outlet.on_lost = gone
        if not self._listeners:  # nothing is sampled while there is no listener
            self._stages.clear()
            self._told = {name: tally.recent.number for name, tally in self._tallies.by_workflow.items()}
            self._stages.append(self._stage_totals(self._host.glance()))
        self._listeners.add(outlet)
        # One event: some clients take a `retry` that stands alone for an event without data.
        outlet.send(b"retry: 2000\n" + _event(self._picture(self._host.glance(), lists_instances=True)))

    def close(self) -> None:
        """End every listener's stream."""
        for outlet in list(self._listeners):
            outlet.end()
        self._listeners.clear()

    def tick(self) -> None:
        """Make a point of every history, and tell those who listen."""
        now, at = self._now(), time()
        elapsed_s, self._ticked = max(now - self._ticked, 0.05), now
        served = {f"{app.name}.{spec.name}" for app in self._host.manifests() for spec in app.workflows}
        for name in self._histories.keys() - served:
            del self._histories[name]
        for name in served:
            history = self._histories.get(name)
            if history is None:
                history = self._histories[name] = History()
            history.tick(self._tallies.of(name), at, elapsed_s)
        if not self._listeners:
            return
        glances = self._host.glance()
        self._stages.append(self._stage_totals(glances))
        self._pictures += 1
        is_short = sum(len(app.instances) for app in glances) <= _MANY_INSTANCES
        picture = self._picture(glances, lists_instances=is_short or self._pictures % _SPARSE == 0)
        for name, workflow in picture.workflows.items():
            if workflow.ended:
                self._told[name] = workflow.ended[-1].number
        event = _event(picture)
        for outlet in list(self._listeners):
            outlet.send(event)

    def _picture(self, glances: tuple[AppGlance, ...], *, lists_instances: bool) -> Picture:
        obstacles = self._host.obstacles()
        return Picture(
            at=round(time(), 2),
            is_ready=self._host.is_ready and not obstacles,
            is_draining=self._host.is_draining,
            obstacles=obstacles,
            dashboards=len(self._listeners),
            workflows={
                f"{app.name}.{workflow}": self._workflow(app.name, f"{app.name}.{workflow}", app.open.get(workflow, 0))
                for app in glances
                for workflow in dict.fromkeys(stage.workflow for stage in app.stages)
            },
            apps=tuple(self._app(app, lists_instances=lists_instances) for app in glances),
        )

    def _workflow(self, app: str, name: str, is_open: int) -> WorkflowNow:
        history = self.history(name)
        found = [rounded(value) for value in history.recent_percentiles()]
        assert len(found) == len(SHARES)
        return WorkflowNow(
            open=is_open,
            point=[rounded(value) for value in history.last],
            p50_s=found[0],
            p95_s=found[1],
            p99_s=found[2],
            ended=self._tallies.of(name).recent.after(self._told.get(name, 0), _MOST_NEW, app),
        )

    def _app(self, app: AppGlance, *, lists_instances: bool) -> AppNow:
        counts: dict[str, list[int]] = {node.name: [0, 0, 0, 0] for node in app.nodes}
        names = [node.name for node in app.nodes]
        for instance in app.instances:
            if instance.node >= 0:
                counts[names[instance.node]][instance.state] += 1
        return AppNow(
            name=app.name,
            generation=app.generation,
            policy=app.policy,
            scaler=app.scaler,
            uptime_s=round(app.uptime_s, 1),
            draining=app.draining,
            functions=app.functions,
            stages=self._stages_now(app),
            nodes=app.nodes,
            counts=counts,
            instances=app.instances if lists_instances else None,
        )

    def _stages_now(self, app: AppGlance) -> tuple[StageNow, ...]:
        first = self._stages[0] if self._stages else {}
        span_s = max(1.0, (len(self._stages) - 1) * PERIOD_S)
        found = []
        for stage in app.stages:
            totals = _totals(stage)
            before = first.get((app.name, stage.workflow, stage.stage), totals)
            if before[0] > totals[0]:  # a new deployment counts from 0
                before = (0.0,) * len(totals)
            runs, wait_s, cold_s, transfer_s, run_s, batched = (
                new - old for new, old in zip(totals, before, strict=True)
            )
            found.append(
                StageNow(
                    workflow=stage.workflow,
                    stage=stage.stage,
                    function=stage.function,
                    waiting=stage.waiting,
                    rps=rounded(runs / span_s) or 0.0,
                    wait_s=rounded(wait_s / runs) if runs else None,
                    cold_s=rounded(cold_s / runs) if runs else None,
                    transfer_s=rounded(transfer_s / runs) if runs else None,
                    run_s=rounded(run_s / runs) if runs else None,
                    batch_size=rounded(batched / runs) if runs else None,
                )
            )
        return tuple(found)

    def _stage_totals(self, glances: tuple[AppGlance, ...]) -> dict[tuple[str, str, str], tuple[float, ...]]:
        return {(app.name, stage.workflow, stage.stage): _totals(stage) for app in glances for stage in app.stages}


def _totals(stage: StageGlance) -> tuple[float, ...]:
    return (stage.runs, stage.wait_s, stage.cold_s, stage.transfer_s, stage.run_s, stage.batched)


def _event(picture: Picture) -> bytes:
    return b"data: %b\n\n" % _encode(picture)
