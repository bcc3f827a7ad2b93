"""Replicas in the compiled core: its scalers decide as their Python twins, and what they ask for is done as there."""

from dataclasses import dataclass, field
from math import inf

import polars as pl
import pytest
from agreement import assert_same, first_difference
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import types

from fairlead.engine import simulate
from fairlead.engine.sim.compiled import coverage
from fairlead.engine.sim.compiled import layout as at
from fairlead.engine.sim.compiled.events import schedule
from fairlead.engine.sim.compiled.loop import advance
from fairlead.engine.sim.compiled.run import CompiledRun
from fairlead.engine.sim.compiled.scalers import KNOWN, Asked, choice_of
from fairlead.engine.sim.compiled.scaling import resize, scale
from fairlead.engine.sim.compiled.views import kept
from fairlead.model import Configuration
from fairlead.policy import Action, Policy, Resize, Scale, make_policy
from fairlead.policy.fifo import Fifo
from fairlead.policy.hpa import Hpa
from fairlead.policy.knative import Knative
from fairlead.profile import Row, Table, space
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Poisson

QUICK = {"stable_window_s": 4.0, "panic_window_s": 1.0, "grace_s": 1.0}


def both(where, scaler, policy="fifo", seed=0):
    """One run by both engines, found to be the same; gives its records."""
    make = scaler if callable(scaler) else lambda: scaler
    make_dispatcher = policy if callable(policy) else lambda: policy
    python = simulate(where, make_dispatcher(), scaler=make(), seed=seed, engine="python")
    compiled = simulate(where, make_dispatcher(), scaler=make(), seed=seed, engine="compiled")
    assert compiled.engine == "compiled"
    assert_same(python, compiled)
    return compiled


def replicas(recording):
    return recording.instances.filter(~pl.col("on_demand"))


# --- the scalers -----------------------------------------------------------------------------------------------------


def test_a_scaler_by_name_has_its_twin():
    assert KNOWN == ("knative", "hpa")
    assert [choice_of(make_policy(name, {})).number for name in KNOWN] == [1, 2]


def test_other_scalers_have_no_twin():
    class Mine(Knative):
        """It may decide otherwise."""

    assert choice_of(Mine()) is None
    assert choice_of(Knative(target=1.5)) is None
    assert "it has no rule for the scaler Mine (it has: knative, hpa)" in coverage(scenario(), Fifo(), Mine())


def test_a_jump_in_load_lets_knative_scale_up_and_then_to_zero():
    where = scenario(
        declared(0.5, cold_start_s=0.3),
        arrivals=[*(2.1 + i / 20 for i in range(100)), 40.0],
        on=cluster(4, vcpus=8),
        control_period_s=0.5,
        duration_s=60,
    )
    found = replicas(both(where, lambda: Knative(**QUICK)))
    assert found.height > 10
    before = found.filter(pl.col("started") < 40)
    assert before["stopped"].max() < 40, "all are gone when the last request comes"
    assert set(before["cause"]) == {"drained"}
    assert before.height < found.height


def test_hpa_follows_a_wave_up_and_down():
    where = scenario(
        declared(0.7, cold_start_s=1.0),  # not 0.5: runs would end, and replicas be idle, whenever they are counted
        arrivals=[*(5 + i / 10 for i in range(300)), *(60 + i for i in range(60))],
        on=cluster(4, vcpus=8),
        control_period_s=1.0,
        duration_s=120,
    )
    found = replicas(both(where, lambda: Hpa(period_s=3.0, stabilisation_s=10.0)))
    assert found.height >= 6
    assert found["cause"].drop_nulls().to_list() == ["drained"] * (found.height - 1)


def test_hpa_takes_replicas_that_have_not_started_for_idle():
    # One is ready at 7 s and always busy from 10 s on; at 13 s a second is wanted, which is ready at 19 s. Till then it
    # counts as idle: one busy of two is no reason for a third.
    where = scenario(
        declared(0.7, cold_start_s=6.0),
        arrivals=[10 + 0.65 * i for i in range(20)],
        on=cluster(1, vcpus=8),
        control_period_s=1.0,
    )
    first, second, *others = replicas(both(where, lambda: Hpa(period_s=2.0)))["started"].sort()
    assert (first, second) == (1.0, 13.0)
    assert all(started > 19 for started in others)


@pytest.mark.parametrize("scaler", [Knative, Hpa])
@pytest.mark.parametrize("policy", ["fifo", "least-loaded", "earliest-deadline"])
def test_default_parameters_agree_over_several_functions(scaler, policy):
    parts = {
        "f": declared(0.4, cold_start_s=2.0, noise=0.3),
        "g": declared(0.2, cold_start_s=1.0),
        "h": declared(0.1, cold_start_s=0.5, keep_alive_s=5),
    }
    where = scenario(
        parts,
        workflows={"one": ("f", "g"), "two": ("g", "h")},
        arrivals=[Poisson("one", 8), Poisson("two", 5)],
        on=cluster(5, vcpus=8),
        control_period_s=2.0,
        duration_s=150,
        slo_s=5.0,
    )
    found = both(where, scaler, policy, seed=2)
    assert replicas(found).height > 3


# --- replicas --------------------------------------------------------------------------------------------------------


def test_what_was_started_on_demand_retires_when_its_function_is_scaled():
    # At 1 s the first control: instance 0 is idle and retires at once, 1 still runs and retires at its end.
    where = scenario(declared(0.8), arrivals=[0.0, 0.5, 3.0], on=cluster(1, vcpus=4), control_period_s=1.0)
    found = both(where, Knative).instances
    assert found.select("instance", "stopped", "cause", "on_demand").rows() == [
        (0, 1.0, "retired", True),
        (1, 1.3, "retired", True),
        (2, None, None, False),
    ]


def test_a_busy_replica_ends_with_its_batch():
    # One replica of two is to go at 4 s, when both work until 6 s: the younger one drains.
    script = Script([[Scale("f", 2)], [], [], [Scale("f", 1)]])
    where = scenario(declared(4.0), arrivals=[2.0, 2.0, 7.0], on=cluster(1, vcpus=2), control_period_s=1.0)
    found = by_hand(where, script).instances
    assert found.select("instance", "stopped", "cause").rows() == [(1, 6.0, "drained"), (0, None, None)]


def test_what_finds_no_room_comes_as_room_comes_up():
    # Six vCPUs: three replicas of g, two of f, and what runs on demand until 1.5 s. At 4 s g gives two back.
    script = Script([[Scale("g", 3), Scale("f", 5)], [], [], [Scale("g", 1)]])
    where = scenario(
        {"f": declared(1.0, cold_start_s=0.5), "g": declared(1.0)},
        arrivals=[0.0, 2.0, 9.0],
        on=cluster(2, vcpus=3),
        control_period_s=1.0,
    )
    found = by_hand(where, script).instances.filter(~pl.col("on_demand"))
    assert found.filter(pl.col("function") == "f")["started"].to_list() == [1.0, 1.0, 1.5, 4.0, 4.0]


def test_a_drained_replica_that_had_not_started_is_heard_of_too_late():
    script = Script([[Scale("f", 3)], [Scale("f", 1)]])
    where = scenario(declared(1.0, cold_start_s=2.5), arrivals=[0.0, 9.0], control_period_s=1.0)
    found = by_hand(where, script)
    assert found.stale_events == 2
    assert replicas(found).select("ready", "stopped").rows() == [(None, 2.0), (None, 2.0), (3.5, None)]


@pytest.mark.parametrize(("seconds", "stale"), [(0.9, 0), (1.9, 1)], ids=["run-is-over", "run-goes-on"])
def test_what_comes_too_late_for_the_run_itself_is_not_heard_of(seconds, stale):
    # The replica of 1 s is let go at 2 s and would have been ready at 2.3 s; the request ends at 2.2 s or later.
    script = Script([[Scale("f", 1)], [Scale("f", 0)]])
    where = scenario(declared(seconds, cold_start_s=1.3), control_period_s=1.0)
    assert by_hand(where, script).stale_events == stale


def test_more_replicas_than_the_arrays_had_room_for():
    where = scenario(
        declared(1.0, cold_start_s=0.5),
        arrivals=[0.0, 1.0, 2.0, *([3.0] * 1500), 9.0],
        on=cluster(3, vcpus=600),
        control_period_s=1.0,
        duration_s=20,
    )
    assert replicas(both(where, lambda: Knative(initial=1700))).height == 1700
    assert replicas(both(where, lambda: Knative(**QUICK))).height > 1024


@pytest.mark.parametrize("wanted", [900, 10**9])
def test_more_wanted_than_will_ever_fit_takes_no_more_memory_than_what_fits(wanted):
    where = scenario({"f": 1.0, "g": 1.0, "h": 1.0}, arrivals=[0.0, 5.0], on=cluster(2, vcpus=4), control_period_s=1.0)
    run = CompiledRun(where, Fifo(), Knative(initial=wanted))
    before = len(run.memory[at.I_ID])
    run.go()
    assert len(run.memory[at.I_ID]) == before
    alone = scenario(arrivals=[0.0, 3.0], on=cluster(2, vcpus=2), control_period_s=1.0)
    assert replicas(both(alone, lambda: Knative(initial=wanted))).height == 4


def test_batches_run_in_the_size_of_the_replica():
    # On its own a batch of four would take two vCPUs, which is cheapest; a replica has one.
    law = Table((Row(seconds=1.0), Row(batch=4, seconds=3.0), Row(batch=4, vcpus=2, seconds=1.0)))
    where = scenario(declared(law), arrivals=[0.0] * 4 + [2.0] * 6, on=cluster(1, vcpus=4), control_period_s=1.0)
    found = both(where, lambda: Knative(min_replicas=1, max_replicas=1), lambda: Fifo(batching="full")).invocations
    assert found.group_by("start", maintain_order=True).agg(
        pl.col("batch_size").first(), pl.col("vcpus").first(), (pl.col("end") - pl.col("start")).first()
    ).rows() == [(0.0, 4, 2.0, 1.0), (2.0, 4, 1.0, 3.0), (5.0, 2, 1.0, 3.0)]


def test_replicas_on_devices():
    law = Table((Row(vgpus=1, seconds=1.0), Row(vgpus=1, batch=2, seconds=1.5), Row(vgpus=2, seconds=0.5)))
    where = scenario(
        {"f": declared(law, device_memory_gb=2, cold_start_s=0.5), "g": declared(0.2, memory_gb=1)},
        arrivals=[Poisson("main", 3)],
        on=cluster(2, vcpus=4, vgpus=2, devices=2, device_memory_gb=5, memory_gb=4),
        control_period_s=0.5,
        duration_s=20,
    )
    found = both(where, lambda: Knative(**QUICK), lambda: Fifo(batching="full", batch_wait_s=0.25))
    assert set(replicas(found)["device"]) == {-1, 0, 1}


# --- what is covered -------------------------------------------------------------------------------------------------

UNEVEN = declared(Table((Row(seconds=1.0), Row(vcpus=2, batch=2, seconds=1.2), Row(vcpus=2, seconds=0.5))))


@pytest.mark.parametrize(
    ("policy", "is_covered"),
    [("fifo", True), ("least-loaded", True), ("earliest-deadline", False)],
    ids=["takes-the-cheapest", "takes-the-cheapest-too", "may-take-any"],
)
def test_the_batches_that_a_dispatcher_may_start_must_exist_in_the_size_of_the_replicas(policy, is_covered):
    where = scenario(declared(Table((Row(seconds=1.0), Row(vcpus=2, batch=2, seconds=2.0)))))
    reason = coverage(where, make_policy(policy, {}), Knative())
    assert reason is None if is_covered else "has no batches of 2 in the size of its replicas" in reason
    assert coverage(where, make_policy(policy, {})) is None


def test_a_batch_that_only_another_size_can_run_is_not_covered():
    reason = coverage(scenario(UNEVEN), Fifo(batching="full"), Hpa())
    assert reason == "function f is scaled and has no batches of 2 in the size of its replicas (1x 1 vCPU)"
    # The Python engine runs what the replicas can take: smaller batches.
    found = simulate(scenario(UNEVEN, arrivals=[0.0, 12.0, 12.0]), Fifo(batching="full"), scaler=Hpa())
    assert not found.refusals
    assert found.invocations["batch_size"].to_list() == [1, 1, 1]


def test_replicas_must_be_able_to_run_every_batch_where_they_are():
    law = Table((Row(seconds=1.0), Row(batch=2, seconds=1.0, kind="odd")))
    on = cluster(1, kind="odd", beside=cluster(1))
    where = scenario(declared(law), on=on)
    assert coverage(where, Fifo(), Knative()) is None
    reason = coverage(where, Fifo(batching="full"), Knative())
    assert reason == "function f is scaled and cannot run batches of 2 wherever its replicas may be"


def test_memory_that_the_first_configuration_adds_goes_for_every_batch():
    configurations = (Configuration(memory_gb=3), Configuration(), Configuration(batch=2))
    where = scenario(
        declared(1.0, memory_gb=1, configurations=configurations),
        arrivals=[0.0, 1.5, 1.5, 4.0],
        on=cluster(2, memory_gb=8),
        control_period_s=1.0,
    )
    found = both(where, lambda: Knative(min_replicas=1), lambda: Fifo(batching="full"))
    assert replicas(found)["memory_gb"].to_list() == [3.0]
    assert found.invocations["batch_size"].to_list() == [1, 2, 2, 1]


# --- scaled and resized from outside ---------------------------------------------------------------------------------


@dataclass
class Script(Policy):
    """Does what is written, one list of actions per control period."""

    actions: list[list[Action]] = field(default_factory=list)

    def prepare(self, site, rng):
        self._lines = iter(self.actions)

    def adjust(self, view):
        yield from next(self._lines, ())


@kept(types.void(types.int64, types.int64, types.int64, types.int64))
def compiled_scale(h, function, instances, size):
    scale(h, function, instances, size)


@kept(types.boolean(types.int64, types.int64, types.int64))
def compiled_resize(h, function, size):
    return resize(h, function, size)


@kept(types.void(types.int64, types.float64))
def wake(h, instant):
    schedule(h, instant, at.WAKE, 0, 0)


class Outside:
    """A compiled run whose replicas somebody outside decides on."""

    def __init__(self, where, policy, sizes, seed):
        self.run = CompiledRun(where, policy, Asked(sizes), seed=seed)
        self.memory = self.run.memory
        self.functions, self.shapes = self.run.lowered.functions, self.run.lowered.shapes

    def until(self, *wanted):
        """Go on until the loop stops for one of these reasons."""
        run = self.run
        while (status := advance(self.memory.h, run._pick, run._call)) not in wanted:
            if status == at.NEEDS_ARRIVALS:
                run._feed()
            else:
                assert status == at.NEEDS_ROOM
                run._make_room()
        return status

    def carry_out(self, action):
        """Whether an action was possible."""
        function, h = self.functions.index(action.function), self.memory.h
        now = None
        if self.memory[at.SCALED][function]:
            now = self.shapes[int(self.memory[at.SET_SIZE][function])][1]
        if isinstance(action, Resize):
            if now is None:
                return False
            memory_gb = action.memory_gb or now.memory_gb
            size = Configuration(batch=now.batch, vcpus=action.vcpus, vgpus=now.vgpus, memory_gb=memory_gb)
            return compiled_resize(h, function, self.shapes.index((action.function, size)))
        first = next(size for name, size in self.shapes if name == action.function)
        size = action.configuration or now or first
        compiled_scale(h, function, action.instances, self.shapes.index((action.function, size)))
        return True

    def tables(self):
        self.run._finish()
        return dict(zip(("requests", "invocations", "instances"), self.run.tables(), strict=True))


def by_hand(where, script, *, policy=Fifo, sizes=None, seed=0):
    """A script by the Python engine, found to be the same as its actions in a compiled run that asks for them."""
    python = simulate(where, policy(), scaler=Script(script.actions), seed=seed)
    outside = Outside(where, policy(), sizes or {}, seed)
    lines = iter(script.actions)
    refused = 0
    while outside.until(at.DONE, at.NEEDS_SCALING) == at.NEEDS_SCALING:
        for action in next(lines, ()):
            if not outside.carry_out(action):
                refused += 1
                break  # as a policy is not asked for more after a refusal
    for name, table in outside.tables().items():
        assert first_difference(name, getattr(python, name), table) is None
    assert (outside.run.now, outside.run.stale_events) == (python.end_s, python.stale_events)
    assert refused == len(python.refusals)
    return python


SIZES = space(batch=(1, 2), vcpus=(1, 2, 3))
BATCHING = {"none": Fifo, "full": lambda: Fifo(batching="full")}


def sized(latency_s=1.0, **more):
    return declared(latency_s, configurations=SIZES, memory_gb=1, **more)


FURTHER = [Configuration(batch=1, vcpus=vcpus, memory_gb=gb) for vcpus in (1, 2, 3) for gb in (2, 4)]


def test_vcpus_are_resized_in_place_and_those_at_work_follow():
    # Replica 0 works from 2 to 3 s; both grow to two vCPUs at 2 s, the one at work when its batch ends.
    script = Script([[Scale("f", 2)], [Resize("f", 2)]])
    where = scenario(sized(), arrivals=[0.0, 1.5, 4.0, 4.0], on=cluster(1, vcpus=4), control_period_s=1.0)
    found = by_hand(where, script)
    assert replicas(found).select("vcpus", "started", "stopped").rows() == [(2.0, 1.0, None)] * 2
    assert found.invocations["vcpus"].to_list() == [1.0, 1.0, 2.0, 2.0]


def test_a_resize_that_does_not_fit_changes_nothing():
    script = Script([[Scale("f", 2)], [Resize("f", 3), Scale("f", 1)]])
    where = scenario(sized(), arrivals=[0.0, 4.0, 4.0], on=cluster(1, vcpus=4), control_period_s=1.0)
    found = by_hand(where, script)
    assert len(found.refusals) == 1
    assert found.invocations.select("start", "vcpus").rows() == [(0.0, 1.0), (4.0, 1.0), (4.0, 1.0)]


def test_a_function_that_is_not_scaled_cannot_be_resized():
    found = by_hand(scenario(sized(), arrivals=[0.0, 1.5], control_period_s=1.0), Script([[Resize("f", 2)]]))
    assert [refusal.reason for refusal in found.refusals] == ["f is not scaled"]


def test_memory_is_resized_by_replacement_where_there_is_room_beside():
    # One node has room for a second one beside the first; the old one goes when the new one is ready.
    script = Script([[Scale("f", 1)], [Resize("f", 1, 4)]])
    where = scenario(
        sized(cold_start_s=0.5), arrivals=[0.0, 4.0], on=cluster(1, vcpus=4, memory_gb=8), control_period_s=1.0
    )
    found = replicas(by_hand(where, script, sizes={"f": FURTHER}))
    assert found.select("memory_gb", "started", "stopped").rows() == [(1.0, 1.0, 2.5), (4.0, 2.0, None)]
    tight = scenario(
        sized(cold_start_s=0.5), arrivals=[0.0, 4.0], on=cluster(1, vcpus=4, memory_gb=4.5), control_period_s=1.0
    )
    found = replicas(by_hand(tight, script, sizes={"f": FURTHER}))
    assert found.select("memory_gb", "started", "stopped").rows() == [(1.0, 1.0, 2.0), (4.0, 2.0, None)]


def test_a_scale_in_another_size_replaces_what_is_there():
    script = Script([[Scale("f", 2)], [], [Scale("f", 3, Configuration(vcpus=2))], [], [], [Scale("f", 1)]])
    where = scenario(
        sized(cold_start_s=0.25), arrivals=[0.0, 1.5, 2.5, 6.5, 9.0], on=cluster(2, vcpus=4), control_period_s=1.0
    )
    found = replicas(by_hand(where, script))
    assert found.filter(pl.col("vcpus") == 2).height == 3
    assert found["stopped"].null_count() == 1


INSTANTS = st.sampled_from([i / 4 for i in range(33)])
FUNCTIONS = st.sampled_from(["f", "g"])
ACTIONS = st.one_of(
    st.builds(Scale, FUNCTIONS, st.integers(0, 5)),
    st.builds(Scale, FUNCTIONS, st.integers(0, 5), st.sampled_from([*SIZES[:2], *FURTHER])),
    st.builds(Resize, FUNCTIONS, st.sampled_from([1, 2, 3])),
    st.builds(Resize, FUNCTIONS, st.sampled_from([1, 2, 3]), st.sampled_from([2, 4])),
)


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.lists(ACTIONS, max_size=3), min_size=1, max_size=12),
    arrivals=st.lists(INSTANTS, min_size=1, max_size=20),
    cold_s=st.sampled_from([0.0, 0.25, 0.5, 2.0]),
    seconds=st.sampled_from([0.0, 0.25, 0.5, 3.0]),
    vcpus=st.sampled_from([3, 4, 6]),
    memory_gb=st.sampled_from([4, 10, inf]),
    batching=st.sampled_from(list(BATCHING)),
    is_disturbed=st.booleans(),
)
def test_whatever_is_scaled_and_resized_is_as_in_the_python_engine(
    lines, arrivals, cold_s, seconds, vcpus, memory_gb, batching, is_disturbed
):
    last = [Scale("f", 1, SIZES[0]), Scale("g", 1, SIZES[0])]  # so that nobody waits for ever
    where = scenario(
        {
            "f": sized(seconds, cold_start_s=cold_s, sensitivity=1.0 if is_disturbed else 0.0),
            "g": sized(0.5, cold_start_s=0.25, keep_alive_s=1, idle_holds="memory"),
        },
        arrivals=arrivals,
        on=cluster(2, vcpus=vcpus, memory_gb=memory_gb),
        control_period_s=0.5,
        duration_s=30,
    )
    script = Script([*lines, last])
    by_hand(where, script, policy=BATCHING[batching], sizes={"f": FURTHER, "g": FURTHER})


def test_between_two_stretches_of_a_run_replicas_can_be_scaled_and_resized_too():
    """Somebody who steps through a run stops it at an instant of his own, at which nothing else happens."""
    every_s, actions = 0.9876, [[Scale("f", 2)], [], [Resize("f", 2)], [Scale("f", 3)], [Resize("f", 1, 4)]]
    where = scenario(
        sized(0.5, cold_start_s=0.25),
        arrivals=[Poisson("main", 3)],
        on=cluster(2, vcpus=4),
        control_period_s=every_s,
        duration_s=12,
    )
    python = simulate(where, Fifo(), scaler=Script(actions), seed=1)
    outside = Outside(where, Fifo(), {"f": FURTHER}, seed=1)
    outside.memory[at.COUNT][at.EVENTS] = 0  # nothing is asked for
    clock, instant = outside.memory[at.CLOCK], 0.0
    for line in actions:
        instant += every_s
        clock[at.STOP_AT] = instant
        assert outside.until(at.STOPPED, at.DONE) == at.STOPPED
        clock[at.NOW] = instant
        for action in line:
            assert outside.carry_out(action)
        wake(outside.memory.h, instant)
    clock[at.STOP_AT] = inf
    outside.until(at.DONE)
    for name, table in outside.tables().items():
        assert first_difference(name, getattr(python, name), table) is None
    assert python.instances.height > 4
