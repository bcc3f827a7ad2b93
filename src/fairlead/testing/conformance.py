"""What every policy must do, whoever wrote it: checks by name, for dispatchers and for scalers.

```python
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("check", DISPATCHER_CHECKS, ids=lambda check: check.__name__)
def test_my_policy_conforms(check, scenario):
    check(MyPolicy, SCENARIOS[scenario]())
```

A check takes something that makes the policy and a scenario, and raises AssertionError. Checks that are given the same
two objects share a run where they only read its records: pass one scenario object to all of them to save time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, cast

import msgspec
import numpy as np
import polars as pl

from fairlead.engine import simulate
from fairlead.engine.core.events import NodeChanged
from fairlead.engine.core.site import make_site
from fairlead.engine.sim.driver import Simulation
from fairlead.engine.sim.simulate import policy_name
from fairlead.model import CACHED, Record, Recording
from fairlead.policy import (
    Action,
    Cancel,
    Changes,
    Plan,
    Policy,
    Reject,
    Searched,
    Site,
    Start,
    View,
    make_policy,
    parameters,
)
from fairlead.testing.checkers import check_accounts, check_capacity, check_order
from fairlead.testing.frozen import check_frozen, look, same
from fairlead.testing.scenarios import SCENARIOS
from fairlead.workload import DecisionTime, Listed, Scenario

MakePolicy = Callable[[], Policy]

_END_S = 0.13  # how long an instance takes to end: no multiple of what the scenarios' times are made of
_LOOKS = 12  # calls in which a view is looked at from all sides: enough to meet every state, few enough to be quick
_KEPT_RUNS = 1000  # of some 100 kB at most


class Check(Protocol):
    """One thing that must hold of a policy in a scenario."""

    @property
    def __name__(self) -> str:
        """What must hold."""
        ...

    def __call__(self, make: MakePolicy, scenario: Scenario, /) -> None:
        """Raise AssertionError if it does not."""
        ...


def check_dispatcher(policy: str | MakePolicy, scenarios: Mapping[str, Callable[[], Scenario]] = SCENARIOS) -> None:
    """Run every dispatcher check in every scenario."""
    _check_all(policy, DISPATCHER_CHECKS, scenarios)


def check_scaler(policy: str | MakePolicy, scenarios: Mapping[str, Callable[[], Scenario]] = SCENARIOS) -> None:
    """Run every scaler check in every scenario."""
    _check_all(policy, SCALER_CHECKS, scenarios)


def maker(policy: str | MakePolicy) -> MakePolicy:
    """What makes a policy: itself, or the registry's by name with default parameters."""
    if not isinstance(policy, str):
        return policy
    name = policy
    return lambda: make_policy(name)


def _check_all(
    policy: str | MakePolicy, checks: tuple[Check, ...], scenarios: Mapping[str, Callable[[], Scenario]]
) -> None:
    make = maker(policy)
    for name, build in scenarios.items():
        scenario = build()
        for check in checks:
            try:
                check(make, scenario)
            except AssertionError as error:
                raise AssertionError(f"{check.__name__}, scenario {name}: {error}") from error


# --- dispatchers ---------------------------------------------------------------------------------------------------


def same_seed_gives_same_records(make: MakePolicy, scenario: Scenario) -> None:
    """Two runs differ in nothing but measured times."""
    _check_same(_run(make, scenario), simulate(scenario, make()))


def nothing_is_refused(make: MakePolicy, scenario: Scenario) -> None:
    """The controller can carry out every action."""
    _check_no_refusal(_run(make, scenario))


def capacity_is_never_exceeded(make: MakePolicy, scenario: Scenario) -> None:
    """Worked out again from the records."""
    check_capacity(_run(make, scenario), scenario)


def nothing_starts_too_early(make: MakePolicy, scenario: Scenario) -> None:
    """Not before it is ready, nor before what comes before it has ended."""
    check_order(_run(make, scenario), scenario)


def every_request_ends_once(make: MakePolicy, scenario: Scenario) -> None:
    """None is forgotten: each of these scenarios can be worked off."""
    recording = _run(make, scenario)
    check_accounts(recording)
    _check_all_end(recording, scenario)


def a_second_call_yields_nothing(make: MakePolicy, scenario: Scenario) -> None:
    """A policy that is asked again, with nothing changed, has nothing to add."""
    simulate(scenario, _AskedTwice(make()))


def the_view_stays_as_it_is(make: MakePolicy, scenario: Scenario) -> None:
    """Only actions change what a policy sees; nothing it is shown can be written to."""
    simulate(scenario, _Watched(make(), scenario))


def the_future_is_unknown(make: MakePolicy, scenario: Scenario) -> None:
    """Without later arrivals, everything before them stays the same; or the policy says that it is clairvoyant."""
    if make().clairvoyant or not all(isinstance(process, Listed) for process in scenario.arrivals):
        return
    instants = sorted(at for process in scenario.arrivals if isinstance(process, Listed) for at in process.at)
    until = instants[len(instants) // 2]
    kept = (
        Listed(process.workflow, tuple(at for at in process.at if at < until))
        for process in scenario.arrivals
        if isinstance(process, Listed) and min(process.at) < until
    )
    cut = dataclasses.replace(scenario, arrivals=tuple(kept))
    whole, part = _run(make, scenario).invocations, simulate(cut, make()).invocations
    # Requests are numbered as they come and batches as they start, so both agree until then.
    before = [table.filter(table["end"] < until).drop("cost_usd") for table in (whole, part)]
    assert before[0].equals(before[1]), f"what it did before {until} depends on what came later; is it clairvoyant?"


def a_node_may_change_its_size(make: MakePolicy, scenario: Scenario) -> None:
    """Nodes shrink to half of their vCPUs, then to nothing, and grow back: all is carried out, and every request ends.

    What starts in between fits into what is left.
    """
    changes = _node_changes(scenario)
    recording = simulate(scenario, make(), given=changes)
    _check_no_refusal(recording)
    _check_all_end(recording, scenario)
    check_accounts(recording)
    if scenario.decision == DecisionTime() and not scenario.node_faults:  # else decisions take effect at other sizes
        _check_sizes(recording, changes)


def an_end_may_take_time(make: MakePolicy, scenario: Scenario) -> None:
    """What a stopped instance used is free a while later, as on a real machine: every request ends all the same."""
    policy = make()
    run = Simulation(scenario, (policy_name(policy), policy), (None, None), 0, None, (), end_s=_END_S)
    recording = run.run(None, {})
    _check_all_end(recording, scenario)
    check_accounts(recording)


def preparing_again_starts_afresh(make: MakePolicy, scenario: Scenario) -> None:
    """A policy that is prepared a second time, before its first decision, decides as one that was prepared once."""
    policy = make()
    if not policy.clairvoyant:
        policy.prepare(make_site(scenario), np.random.default_rng(0))
        _check_same(_run(make, scenario), simulate(scenario, policy))


def parameters_have_defaults(make: MakePolicy, scenario: Scenario) -> None:
    """Parameters are dataclass fields that can be left out and written to a file."""
    found = type(make())
    own = {name for name in vars(found).get("__annotations__", {}) if not name.startswith("_")}
    own = {name for name in own if "ClassVar" not in str(found.__annotations__[name])}
    assert not own or "__dataclass_fields__" in vars(found), f"{found.__name__} has fields and is no dataclass."
    for name, (_, default) in parameters(found).items():
        assert default is not dataclasses.MISSING, f"parameter {name} of {found.__name__} has no default."
        msgspec.to_builtins(default)
    assert found.__doc__, f"{found.__name__} has no docstring, which is its line in the list of policies."
    assert isinstance(found().clairvoyant, bool), f"{found.__name__}.clairvoyant is neither true nor false."


DISPATCHER_CHECKS: tuple[Check, ...] = (
    same_seed_gives_same_records,
    nothing_is_refused,
    capacity_is_never_exceeded,
    nothing_starts_too_early,
    every_request_ends_once,
    a_second_call_yields_nothing,
    the_view_stays_as_it_is,
    the_future_is_unknown,
    a_node_may_change_its_size,
    an_end_may_take_time,
    preparing_again_starts_afresh,
    parameters_have_defaults,
)


# --- scalers, each with a dispatcher that takes what it is given -----------------------------------------------------


def scaling_repeats_itself(make: MakePolicy, scenario: Scenario) -> None:
    """Two runs differ in nothing but measured times."""
    _check_same(_run_scaled(make, scenario), _scaled(make(), scenario))


def scaling_is_never_refused(make: MakePolicy, scenario: Scenario) -> None:
    """The controller can carry out every action."""
    _check_no_refusal(_run_scaled(make, scenario))


def scaling_keeps_capacity(make: MakePolicy, scenario: Scenario) -> None:
    """Worked out again from the records, as are order and accounts."""
    recording = _run_scaled(make, scenario)
    check_capacity(recording, scenario)
    check_order(recording, scenario)
    check_accounts(recording)


def scaling_starves_nobody(make: MakePolicy, scenario: Scenario) -> None:
    """Every request ends."""
    _check_all_end(_run_scaled(make, scenario), scenario)


def scaling_leaves_dispatch_alone(make: MakePolicy, scenario: Scenario) -> None:
    """A scaler starts, rejects and cancels nothing; and its view stays as it is."""
    _scaled(_Watched(make(), scenario), scenario)


SCALER_CHECKS: tuple[Check, ...] = (
    scaling_repeats_itself,
    scaling_is_never_refused,
    scaling_keeps_capacity,
    scaling_starves_nobody,
    scaling_leaves_dispatch_alone,
    parameters_have_defaults,
)


def _scaled(scaler: Policy, scenario: Scenario) -> Recording:
    often = dataclasses.replace(scenario, control_period_s=1.0, provision_s=2.0)
    return simulate(often, "least-loaded", scaler=scaler)


# --- what the checks share -----------------------------------------------------------------------------------------


def _node_changes(scenario: Scenario) -> list[tuple[float, NodeChanged]]:
    """Changes of every node: in the second quarter of the arrivals it has half of its vCPUs, in the third none."""
    instants = [at for process in scenario.arrivals if isinstance(process, Listed) for at in process.at]
    span_s = max(instants, default=8.0) or 8.0
    return [
        (span_s * quarter / 4 + 0.003, NodeChanged(node.name, share * node.capacity_vcpus, node.memory_gb))
        for quarter, share in ((1, 0.5), (2, 0.0), (3, 1.0))
        for node in scenario.cluster.nodes
    ]


def _check_sizes(recording: Recording, changes: Sequence[tuple[float, NodeChanged]]) -> None:
    """Whatever started on a node after a change of its size fitted beside what ran there."""
    lives = {row["instance"]: (row["started"], row["ready"]) for row in recording.instances.iter_rows(named=True)}
    batches: dict[str, set[tuple[int, float, float, float]]] = {}
    for row in recording.invocations.filter(pl.col("outcome") != CACHED).iter_rows(named=True):
        started, ready = lives[row["instance"]]
        is_first = ready is None or ready > row["start"]  # its instance took the vCPUs when it began to start
        begin = min(started, row["start"]) if is_first else row["start"]
        batches.setdefault(row["node"], set()).add((row["batch"], begin, row["end"], row["vcpus"]))
    for node, there in batches.items():
        own = [(at, event.vcpus) for at, event in changes if event.node == node]
        for _, at, _, _ in there:
            sizes = [size for since, size in own if since <= at]
            used = sum(vcpus for _, start, end, vcpus in there if start <= at < end)
            assert not sizes or used <= sizes[-1] + 1e-9, (
                f"{used:g} vCPUs were in use on {node} after a start at {at}; it had {sizes[-1]:g}."
            )


class _Runs:
    """Recordings of policies in scenarios, one per pair of objects; the oldest goes when there are too many."""

    def __init__(self, run: Callable[[Policy, Scenario], Recording]) -> None:
        self._run = run
        self._kept: dict[tuple[int, int], tuple[MakePolicy, Scenario, Recording]] = {}

    def __call__(self, make: MakePolicy, scenario: Scenario) -> Recording:
        key = (id(make), id(scenario))
        if key not in self._kept:
            if len(self._kept) == _KEPT_RUNS:
                del self._kept[next(iter(self._kept))]
            # Both objects are kept too: another object could get the id of one that is gone.
            self._kept[key] = make, scenario, self._run(make(), scenario)
        return self._kept[key][2]


_run = _Runs(lambda policy, scenario: simulate(scenario, policy))
_run_scaled = _Runs(_scaled)


def _check_same(one: Recording, other: Recording) -> None:
    for table in ("requests", "invocations", "instances"):
        first, second = getattr(one, table), getattr(other, table)
        assert first.equals(second), f"two runs with one seed differ in their {table}."
    assert one.refusals == other.refusals, "two runs with one seed differ in what was refused."


def _check_no_refusal(recording: Recording) -> None:
    for refusal in recording.refusals:
        raise AssertionError(f"{refusal.action} was refused at {refusal.now}: {refusal.reason}.")


def _check_all_end(recording: Recording, scenario: Scenario) -> None:
    rows = recording.requests
    unfinished = rows.filter(rows["outcome"] == "unfinished")["request"].to_list()
    assert not unfinished, f"requests {unfinished} never ended."
    if all(isinstance(process, Listed) for process in scenario.arrivals):
        offered = sum(len(process.at) for process in scenario.arrivals if isinstance(process, Listed))
        assert rows.height == offered, f"{offered} requests were offered, {rows.height} are recorded."


@dataclasses.dataclass
class _Wrapper(Policy):
    """A policy that stands around another."""

    inner: Policy

    @property
    def clairvoyant(self) -> bool:
        return self.inner.clairvoyant

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self.inner.prepare(site, rng)

    def observe(self, record: Record) -> None:
        self.inner.observe(record)


class _Unchanged:
    """A view as the next call would see it if nothing happened in between."""

    changes = Changes()
    fresh = freed = lost = ()

    def __init__(self, view: View) -> None:
        self._view = view

    def __getattr__(self, name: str) -> object:
        return getattr(self._view, name)


@dataclasses.dataclass
class _AskedTwice(_Wrapper):
    """Asks again when the other has nothing more to say."""

    def decide(self, view: View) -> Iterator[Action]:
        yield from self.inner.decide(view)
        for action in self.inner.decide(cast(View, _Unchanged(view))):
            raise AssertionError(f"asked again at {view.now}, with nothing changed, it adds {action}.")


@dataclasses.dataclass
class _Watched(_Wrapper):
    """Compares what there is to see before and after each step of the other."""

    scenario: Scenario
    calls: int = 0
    seen: dict[int, object] = dataclasses.field(default_factory=dict)

    def decide(self, view: View) -> Iterator[Action]:
        return self._watch(view, self.inner.decide(view))

    def adjust(self, view: View) -> Iterator[Action]:
        for action in self._watch(view, self.inner.adjust(view)):
            assert not isinstance(action, Start | Reject | Cancel | Plan | Searched), (
                f"a scaler must not yield {action}."
            )
            yield action

    def _watch(self, view: View, actions: Iterator[Action]) -> Iterator[Action]:
        self.calls += 1
        if self.calls > _LOOKS:
            yield from actions
            return
        before = check_frozen(view, self.scenario, self.seen)
        for action in actions:
            changed = same(before, look(view, self.scenario))
            assert changed is None, f"at {view.now}, before its action was carried out, view.{changed} has changed."
            yield action
            before = look(view, self.scenario)
        changed = same(before, look(view, self.scenario))
        assert changed is None, f"at {view.now}, without an action, view.{changed} has changed."
