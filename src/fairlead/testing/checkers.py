"""Independent accounts of a run: everything is worked out again from its records alone.

Each function raises AssertionError with the instant and the things involved. They know the meaning of the tables and
nothing of the engine: capacity freed at an instant may be used at that instant, and a run holds what its row says
from its start (its cold start included) to its end.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf, isclose
from typing import NamedTuple

from fairlead.model import CACHED, MIG_SIZES, Cluster, Node, Recording, Stage, Workflow
from fairlead.testing.slices import Span, Started, check_cuts, check_slices
from fairlead.workload import Scenario

_EPS = 1e-9  # relative; for sums of floats

_REQUEST_OUTCOMES = {"completed", "rejected", "dropped", "failed", "cancelled", "unfinished"}
_RUN_OUTCOMES = {"done", "failed", "lost", "discarded", "preempted", CACHED}


class Run(NamedTuple):
    """One row of the invocation table."""

    request: int
    workflow: str
    stage: str
    function: str
    item: int
    attempt: int
    batch: int
    batch_size: int
    instance: int
    node: str
    device: int
    vcpus: float
    vgpus: float
    ready: float
    start: float
    cold_s: float
    transfer_s: float
    end: float
    is_cold: bool
    cost_usd: float
    outcome: str


class Life(NamedTuple):
    """One row of the instance table."""

    instance: int
    function: str
    node: str
    device: int
    vcpus: float
    vgpus: float
    memory_gb: float
    started: float
    ready: float | None
    stopped: float | None
    busy_s: float
    cause: str | None
    on_demand: bool


class Ask(NamedTuple):
    """One row of the request table."""

    request: int
    workflow: str
    arrival: float
    deadline: float
    budget_usd: float
    end: float | None
    outcome: str
    reason: str | None
    retry_after_s: float | None
    promised: float | None
    plan: str | None
    cost_usd: float


def runs(recording: Recording) -> list[Run]:
    """The invocation table as rows."""
    return [Run(*row) for row in recording.invocations.select(Run._fields).iter_rows()]


def lives(recording: Recording) -> list[Life]:
    """The instance table as rows."""
    return [Life(*row) for row in recording.instances.select(Life._fields).iter_rows()]


def asks(recording: Recording) -> list[Ask]:
    """The request table as rows."""
    return [Ask(*row) for row in recording.requests.select(Ask._fields).iter_rows()]


# --- capacity ------------------------------------------------------------------------------------------------------


def check_capacity(recording: Recording, scenario: Scenario | None = None) -> None:
    """At no instant was more in use than there is, on any node or device, by any resource.

    Args:
        recording: The run.
        scenario: If given, device memory, what idle instances keep and what cutting slices costs are counted too.
    """
    batches = _batches(recording)
    living = lives(recording)
    for batch in batches:
        _check_batch_place(batch, recording.cluster)
    _check_sums("vCPUs", [((b.node,), b.start, b.end, b.vcpus) for b in batches], recording.cluster)
    on_device = [b for b in batches if b.device >= 0]
    _check_sums("vGPUs", [((b.node, b.device), b.start, b.end, b.vgpus) for b in on_device], recording.cluster)
    _check_mig(batches, living, recording, scenario)
    memory = [((i.node,), i.started, _stop(i), i.memory_gb) for i in living]
    _check_sums("GB of memory", memory, recording.cluster)
    if scenario is not None:
        _check_kept(batches, living, recording, scenario)
    by_instance: dict[int, list[Run]] = defaultdict(list)
    for batch in batches:
        by_instance[batch.instance].append(batch)
    for instance, served in by_instance.items():
        served.sort(key=lambda b: (b.start, b.end))
        for one, other in pairwise(served):
            assert other.start >= one.end, (
                f"instance {instance} ran batches {one.batch} and {other.batch} at once, at {other.start}."
            )


def _check_kept(batches: Sequence[Run], living: Sequence[Life], recording: Recording, scenario: Scenario) -> None:
    """Device memory of whatever lives, and vCPUs and vGPUs including those that idle or starting instances keep."""
    gpu = [i for i in living if i.device >= 0]
    memory = [((i.node, i.device), i.started, _stop(i), scenario.functions[i.function].device_memory_gb) for i in gpu]
    _check_sums("GB of device memory", memory, recording.cluster)
    if recording.scaler is not None:  # replicas are resized in place, of which the records keep the last size only
        return
    served: dict[int, list[Run]] = defaultdict(list)
    for batch in sorted(batches, key=lambda b: b.start):
        served[batch.instance].append(batch)
    vcpus: list[tuple[tuple[str | int, ...], float, float, float]] = []
    vgpus: list[tuple[tuple[str | int, ...], float, float, float]] = []
    for i in living:
        for start, end, size in _held(i, served[i.instance], scenario.functions[i.function].idle_holds == "slice"):
            vcpus.append(((i.node,), start, end, size))
            if i.device >= 0:
                vgpus.append(((i.node, i.device), start, end, i.vgpus))
    _check_sums("vCPUs, idle instances included,", vcpus, recording.cluster)
    _check_sums("vGPUs, idle instances included,", vgpus, recording.cluster)


def _held(life: Life, served: Sequence[Run], keeps_slice: bool) -> Iterator[tuple[float, float, float]]:
    """When an instance held how many vCPUs: starting, running and, if it keeps its slice, idle."""
    last, size = life.started, life.vcpus
    for batch in served:
        until = batch.start if keeps_slice else min(batch.start, inf if life.ready is None else life.ready)
        if until > last and (keeps_slice or last == life.started):
            yield last, until, size
        yield batch.start, batch.end, batch.vcpus
        last, size = batch.end, batch.vcpus
    if keeps_slice:
        yield last, _stop(life), size


def _check_batch_place(batch: Run, cluster: Cluster) -> None:
    node = _node(cluster, batch.node)
    if batch.vgpus:
        assert 0 <= batch.device < len(node.devices), (
            f"batch {batch.batch} ran on device {batch.device} of {batch.node}."
        )
        device = node.devices[batch.device]
        if device.sharing == "mig":
            assert batch.vgpus in MIG_SIZES, f"batch {batch.batch} had a MIG slice of {batch.vgpus:g}."
    else:
        assert batch.device == -1, f"batch {batch.batch} without vGPUs ran on device {batch.device}."


def _check_sums(what: str, uses: Iterable[tuple[tuple[str | int, ...], float, float, float]], cluster: Cluster) -> None:
    """No sum of (place, from, until, amount) exceeds what the place has."""
    changes: dict[tuple[str | int, ...], list[tuple[float, int, float]]] = defaultdict(list)
    for place, start, end, amount in uses:
        if end > start and amount:
            changes[place] += [(start, 1, amount), (end, 0, -amount)]  # what ends at an instant makes room first
    for place, steps in changes.items():
        limit = _limit(what, place, cluster)
        total = 0.0
        for instant, _, amount in sorted(steps):
            total += amount
            assert total <= limit * (1 + _EPS) + _EPS, (
                f"{total:g} {what} in use on {'/'.join(map(str, place))} at {instant}: it has {limit:g}."
            )


def _limit(what: str, place: tuple[str | int, ...], cluster: Cluster) -> float:
    node = _node(cluster, str(place[0]))
    if len(place) == 1:
        return node.memory_gb if "memory" in what else node.capacity_vcpus
    device = node.devices[int(place[1])]
    return device.memory_gb if "memory" in what else device.vgpus


def _check_mig(batches: Sequence[Run], living: Sequence[Life], recording: Recording, scenario: Scenario | None) -> None:
    """The slices of every MIG device; with a scenario, also those that idle instances keep, and what cuts cost."""
    served: dict[int, list[Run]] = defaultdict(list)
    for batch in batches:
        served[batch.instance].append(batch)
    on: dict[tuple[str, int], list[Life]] = defaultdict(list)
    for life in living:
        if life.device >= 0 and _node(recording.cluster, life.node).devices[life.device].sharing == "mig":
            on[life.node, life.device].append(life)
    for (name, index), there in on.items():
        node, spans = _node(recording.cluster, name), []
        for life in there:
            size = int(life.vgpus)
            ready = min(_stop(life), inf if life.ready is None else life.ready)
            spans += [Span(life.started, ready, size)]
            spans += [Span(max(batch.start, ready), batch.end, size) for batch in served[life.instance]]
            if scenario is not None and scenario.functions[life.function].idle_holds == "slice":
                spans += _idle(life, served[life.instance], ready)
        check_slices(f"{name}/{index}", spans)
        device = node.devices[index]
        if scenario is not None and device.repartition_s > 0:
            starts = [Started(life.started, int(life.vgpus), _extra_s(life, node, scenario)) for life in there]
            check_cuts(f"{name}/{index}", device.partition, device.repartition_s, spans, starts)


def _idle(life: Life, served: Sequence[Run], ready: float) -> Iterator[Span]:
    """When an instance that keeps its slice was idle."""
    last = ready
    for batch in sorted(served, key=lambda b: b.start):
        yield Span(last, batch.start, int(life.vgpus), is_used=False)
        last = max(last, batch.end)
    yield Span(last, _stop(life), int(life.vgpus), is_used=False)


def _extra_s(life: Life, node: Node, scenario: Scenario) -> float | None:
    """How much longer than declared a start took; None of a kernel, which loads more or less, or if it never ended."""
    if life.ready is None or scenario.functions[life.function].buffers:
        return None
    return life.ready - life.started - scenario.profiles[life.function].cold_s(node.kind)


# --- order ---------------------------------------------------------------------------------------------------------


def check_order(recording: Recording, scenario: Scenario) -> None:
    """Every request went through its workflow as that says: nothing early, nothing twice, nothing left out."""
    by_request: dict[int, list[Run]] = defaultdict(list)
    for run in runs(recording):
        by_request[run.request].append(run)
    for ask in asks(recording):
        _Passage(ask, by_request[ask.request], scenario).check()


class _Passage:
    """One request on its way through its workflow."""

    def __init__(self, ask: Ask, rows: Sequence[Run], scenario: Scenario) -> None:
        self.ask = ask
        self.rows = rows
        self.scenario = scenario
        self.workflow: Workflow = scenario.workflows[ask.workflow]
        self.stages: Mapping[str, Stage] = {stage.name: stage for stage in self.workflow.stages}
        self.done: dict[str, dict[int, Run]] = defaultdict(dict)
        for row in rows:
            if row.outcome in ("done", CACHED):
                assert row.item not in self.done[row.stage], f"{self._name(row)} was done twice."
                self.done[row.stage][row.item] = row

    def check(self) -> None:
        for row in self.rows:
            self._check_times(row)
            self._check_predecessors(row)
        self._check_attempts()
        self._check_items()
        self._check_arms()
        if self.ask.outcome == "completed":
            self._check_complete()

    def _name(self, row: Run) -> str:
        return f"request {row.request}, stage {row.stage}[{row.item}], attempt {row.attempt}"

    def _check_times(self, row: Run) -> None:
        name, ask = self._name(row), self.ask
        assert row.stage in self.stages, f"{name}: {ask.workflow} has no such stage."
        assert row.function == self.stages[row.stage].function, f"{name} ran {row.function}."
        assert row.workflow == ask.workflow, f"{name} is of workflow {row.workflow}, its request of {ask.workflow}."
        assert row.ready >= ask.arrival, f"{name} was ready at {row.ready}, before its request came at {ask.arrival}."
        assert row.start >= row.ready, f"{name} started at {row.start}, before it was ready at {row.ready}."
        least = row.start + row.cold_s + row.transfer_s
        assert row.end >= least - _EPS * max(1.0, least), (
            f"{name} ended at {row.end}, before it could begin at {least}."
        )
        if ask.end is not None and not self._thinks():
            assert row.start <= ask.end, f"{name} started at {row.start}, after its request ended at {ask.end}."
        if row.outcome == "done":
            assert ask.end is None or row.end <= ask.end, f"{name} counts as done after its request ended at {ask.end}."
        if row.outcome == "discarded" and not self._was_beaten(row):
            assert ask.end is not None, f"{name} was discarded, but its request is open."
            assert ask.end <= row.end, f"{name} was discarded before its request ended at {ask.end}."

    def _thinks(self) -> bool:
        """Whether decisions take time."""
        return bool(self.scenario.decision.fixed_s or self.scenario.decision.per_step_s)

    def _was_beaten(self, row: Run) -> bool:
        """Whether another copy of a competing stage was done by the time this one ended."""
        winner = self.done.get(row.stage, {}).get(row.item)
        return self.stages[row.stage].compete > 1 and winner is not None and winner.end <= row.end

    def _check_predecessors(self, row: Run) -> None:
        """What ran before it has ended; without branches, all of it ran."""
        stage = self.stages[row.stage]
        for name in stage.after:
            before = self.done.get(name, {})
            same_region = self.workflow.regions[name] == self.workflow.regions[row.stage]
            needed = (
                before.values() if stage.join or not same_region else [r for i, r in before.items() if i == row.item]
            )
            for one in needed:
                assert one.end <= row.ready, (
                    f"{self._name(row)} was ready at {row.ready}, before {name}[{one.item}] ended at {one.end}."
                )
            if not self._may_skip():
                assert needed, f"{self._name(row)} ran though {name} before it was never done."
        if stage.after:
            assert any(self.done.get(name) for name in stage.after), f"{self._name(row)} ran, but nothing before it."

    def _may_skip(self) -> bool:
        return any(stage.when is not None for stage in self.workflow.stages)

    def _check_attempts(self) -> None:
        tries: dict[tuple[str, int], list[Run]] = defaultdict(list)
        for row in self.rows:
            tries[row.stage, row.item].append(row)
        for (name, item), rows in tries.items():
            rows.sort(key=lambda r: (r.start, r.end))
            assert rows[0].attempt == 1, f"{self._name(rows[0])} is the first there is."
            if self.stages[name].compete > 1:
                self._check_race(self.stages[name], item, rows)
                continue
            for one, other in pairwise(rows):
                assert other.start >= one.end, f"{self._name(other)} began before attempt {one.attempt} ended."
                assert one.outcome in ("failed", "lost", "preempted"), (
                    f"{self._name(one)} ended as {one.outcome} and was tried again."
                )
                step = 0 if one.outcome == "preempted" else 1
                assert other.attempt == one.attempt + step, f"{self._name(other)} follows attempt {one.attempt}."
            assert rows[-1].attempt <= self._attempts(self.stages[name]), f"{self._name(rows[-1])} is one too many."

    def _attempts(self, stage: Stage) -> int:
        """How often one invocation of a stage may be tried."""
        losses = self.scenario.max_attempts if self.scenario.on_loss == "retry" else 1
        return max(self.scenario.functions[stage.function].retries + 1, losses)

    def _check_race(self, stage: Stage, item: int, rows: Sequence[Run]) -> None:
        """No more copies at once than compete, none tried too often, and none begun after one had won."""
        name = f"request {self.ask.request}, stage {stage.name}[{item}]"
        winner = self.done.get(stage.name, {}).get(item)
        if self._thinks():
            winner = None  # what was decided before begins after
        for row in rows:
            assert row.attempt <= self._attempts(stage), f"{self._name(row)} is one too many."
            at_once = sum(other.start <= row.start < other.end for other in rows)
            assert at_once <= stage.compete, f"{name} ran {at_once} copies at once, at {row.start}."
            if winner is not None and row is not winner:
                assert row.start <= winner.end, f"{name} started at {row.start}, after a copy had won at {winner.end}."
        for attempt, count in Counter(row.attempt for row in rows if row.outcome in ("failed", "lost")).items():
            assert count <= stage.compete, f"{name} lost attempt {attempt} {count} times, with {stage.compete} copies."

    def _check_items(self) -> None:
        for name, items in self.done.items():
            region = self.workflow.regions[name]
            if region is None:
                assert set(items) == {0}, (
                    f"request {self.ask.request}: stage {name} is in no map; it ran as {set(items)}."
                )
                continue
            opener = self.stages[region]
            assert opener.map is not None
            assert all(0 <= item < opener.map[1] for item in items), (
                f"request {self.ask.request}: stage {name} ran items {sorted(items)} of at most {opener.map[1]}."
            )

    def _check_arms(self) -> None:
        """Of a branch at most one arm is taken, per item."""
        for stage in self.workflow.stages:
            arms = [s.name for s in self.workflow.stages if s.when is not None and s.after == (stage.name,)]
            taken = Counter(row.item for row in {(r.stage, r.item): r for r in self.rows}.values() if row.stage in arms)
            for item, count in taken.items():
                assert count <= 1, f"request {self.ask.request}: {count} arms after {stage.name}[{item}] ran."

    def _check_complete(self) -> None:
        ask = self.ask
        ends = [row.end for items in self.done.values() for row in items.values()]
        assert ends, f"request {ask.request} was answered without having run."
        assert ask.end == max(ends), (
            f"request {ask.request} was answered at {ask.end}; its last stage ended at {max(ends)}."
        )
        for row in self.rows:
            assert row.item in self.done[row.stage], f"{self._name(row)}: its request was answered without it."
        for stage in self.workflow.stages:
            if stage.map is not None and stage.name in self.done:
                items = set(self.done[stage.name])
                low, high = stage.map
                assert items == set(range(len(items))), f"request {ask.request}: map {stage.name} ran {sorted(items)}."
                assert low <= len(items) <= high, f"request {ask.request}: map {stage.name} ran {len(items)} items."
            if self._may_skip():
                continue
            expected = self._expected_items(stage)
            assert set(self.done.get(stage.name, {})) == expected, (
                f"request {ask.request} was answered with stage {stage.name} done for {set(self.done[stage.name])}."
            )

    def _expected_items(self, stage: Stage) -> set[int]:
        region = self.workflow.regions[stage.name]
        return {0} if region is None else set(self.done[region])


# --- accounts ------------------------------------------------------------------------------------------------------


def check_accounts(recording: Recording) -> None:
    """The three tables agree: every request once, every batch inside its instance's life, every cold start and cent."""
    _check_requests(recording)
    living = {i.instance: i for i in lives(recording)}
    assert len(living) == recording.instances.height, "an instance is recorded twice."
    known = {ask.request: ask for ask in asks(recording)}
    batches = _batches(recording)
    cold = 0
    busy: dict[int, float] = defaultdict(float)
    for batch in batches:
        life = living.get(batch.instance)
        assert life is not None, f"batch {batch.batch} ran on instance {batch.instance}, of which nothing is recorded."
        _check_life(batch, life)
        cold += batch.is_cold
        busy[batch.instance] += max(0.0, batch.end - batch.start - batch.cold_s)
    on_demand = sum(life.on_demand for life in living.values())
    is_whole = all(ask.outcome != "unfinished" for ask in known.values())
    assert cold == on_demand or (cold < on_demand and not is_whole), (
        f"{on_demand} instances were started on demand, and {cold} batches started one."
    )
    for life in living.values():
        _check_instance(life, busy[life.instance])
    _check_costs(recording, known)


def _check_requests(recording: Recording) -> None:
    rows = asks(recording)
    count = Counter(ask.request for ask in rows)
    for request, times in count.items():
        assert times == 1, f"request {request} ended {times} times."
    assert set(count) == set(range(len(rows))), "a request is missing: ids are not consecutive."
    for ask in rows:
        assert ask.outcome in _REQUEST_OUTCOMES, f"request {ask.request} ended as {ask.outcome!r}."
        if ask.outcome == "unfinished":
            assert ask.end is None, f"request {ask.request} is unfinished, and ended at {ask.end}."
        else:
            assert ask.end is not None, f"request {ask.request} is {ask.outcome} and has no end."
            assert ask.arrival <= ask.end <= recording.end_s, f"request {ask.request} ended at {ask.end}."
            assert (ask.reason is None) == (ask.outcome == "completed"), (
                f"request {ask.request}: reason {ask.reason!r}."
            )


def _check_life(batch: Run, life: Life) -> None:
    name = f"batch {batch.batch} on instance {life.instance}"
    assert (batch.function, batch.node, batch.device) == (life.function, life.node, life.device), (
        f"{name} is of {batch.function} on {batch.node}/{batch.device}, "
        f"the instance of {life.function} on {life.node}/{life.device}."
    )
    assert batch.vgpus == life.vgpus, f"{name} had {batch.vgpus:g} vGPUs, the instance {life.vgpus:g}."
    assert life.started <= batch.start, f"{name} started at {batch.start}, before the instance did at {life.started}."
    assert batch.end <= _stop(life), f"{name} ended at {batch.end}, after the instance stopped at {life.stopped}."
    if batch.is_cold:
        assert life.on_demand, f"{name} started it, but it is not on demand."
        assert batch.start == life.started, f"{name} started it at {batch.start}, not at {life.started}."
    if life.ready is not None and life.ready <= batch.end:
        expected = max(0.0, life.ready - batch.start)
        assert isclose(batch.cold_s, expected, rel_tol=_EPS, abs_tol=_EPS), (
            f"{name} waited {batch.cold_s} s for it, which was ready at {life.ready}."
        )


def _check_instance(life: Life, busy_s: float) -> None:
    name = f"instance {life.instance}"
    if life.ready is not None:
        assert life.started <= life.ready <= _stop(life), f"{name} was ready at {life.ready}, outside its life."
    assert life.started <= _stop(life), f"{name} stopped at {life.stopped}, before it started at {life.started}."
    assert (life.stopped is None) == (life.cause is None), f"{name} stopped at {life.stopped} because of {life.cause}."
    assert isclose(life.busy_s, busy_s, rel_tol=_EPS, abs_tol=_EPS), (
        f"{name} was busy for {busy_s} s, not {life.busy_s}."
    )


def _check_costs(recording: Recording, known: Mapping[int, Ask]) -> None:
    price = recording.cluster.price
    spent: dict[int, float] = defaultdict(float)
    with_it: dict[int, float] = defaultdict(float)  # ended with the answer: the order within the instant decides
    for run in runs(recording):
        name = f"request {run.request}, stage {run.stage}[{run.item}]"
        assert run.request in known, f"{name} ran for a request of which nothing is recorded."
        assert run.outcome in _RUN_OUTCOMES, f"{name} ended as {run.outcome!r}."
        seconds = run.end - run.start - (0.0 if price.bill_cold_start else run.cold_s)
        expected = max(0.0, seconds) * price.usd_per_s(run.vcpus, run.vgpus) / max(1, run.batch_size)
        assert isclose(run.cost_usd, expected, rel_tol=1e-6, abs_tol=1e-15), (
            f"{name} cost {run.cost_usd}, not {expected}."
        )
        end = known[run.request].end
        if run.outcome != "discarded" or (end is not None and run.end < end):  # a copy that lost, before the answer
            spent[run.request] += run.cost_usd
        elif run.end == end:
            with_it[run.request] += run.cost_usd
    for request, ask in known.items():
        if ask.outcome in ("completed", "rejected"):
            least, most = spent[request], spent[request] + with_it[request]
            is_right = least <= ask.cost_usd <= most or any(
                isclose(ask.cost_usd, cost, rel_tol=1e-6, abs_tol=1e-15) for cost in (least, most)
            )
            assert is_right, f"request {request} cost {ask.cost_usd}, its runs {least}."


# --- rows ----------------------------------------------------------------------------------------------------------


def _batches(recording: Recording) -> list[Run]:
    """One row per batch; its rows must agree on everything a batch has in common."""
    rows: dict[int, list[Run]] = defaultdict(list)
    for run in runs(recording):
        if run.outcome == CACHED:
            assert run.batch == run.instance == -1, f"{run.stage} of request {run.request} was cached, and ran."
        else:
            rows[run.batch].append(run)
    for batch, members in rows.items():
        shared = {r._replace(request=0, workflow="", stage="", item=0, attempt=0, ready=0, outcome="") for r in members}
        assert len(shared) == 1, f"the rows of batch {batch} differ in what they share."
        assert len(members) == members[0].batch_size, (
            f"batch {batch} of {members[0].batch_size} has {len(members)} rows."
        )
        assert members[0].end >= members[0].start, (
            f"batch {batch} ended at {members[0].end}, before {members[0].start}."
        )
    return [members[0] for members in rows.values()]


def _node(cluster: Cluster, name: str) -> Node:
    """A node by name; one that a scaler asked for is called like its pattern, with `+` and a number behind."""
    pattern = name.partition("+")[0]
    found = {node.name: node for node in cluster.nodes}
    return found[name] if name in found else found[pattern]


def _stop(life: Life) -> float:
    return inf if life.stopped is None else life.stopped
