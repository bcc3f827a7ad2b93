"""Meter: what a control period brought, by numbers that are worked out by hand."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.model import SLO, Configuration, Record, Stage, Workflow
from fairlead.policy import Action, Policy, Reject, Resize, Scale, Site, Start, View
from fairlead.policy.fifo import Fifo
from fairlead.policy.kit.measuring import Goal, Measures, Meter, Samples, function_slos, stage_goals
from fairlead.testing import cluster, declared, scenario, site_of

ONE, TWO = Configuration(vcpus=1), Configuration(vcpus=2)
SIZES = (ONE, TWO)


@dataclass
class Measuring(Policy):
    """A scaler that does the actions of its list, one period after the other, and keeps what it measured."""

    deeds: tuple[tuple[Action, ...], ...] = ()
    is_opened: bool = True
    measured: list[Measures] = field(default_factory=list)

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self.meter = Meter(site.functions, stage_goals(site.workflows, site.profiles))
        self.measured = []

    def observe(self, record: Record) -> None:
        self.meter.observe(record)

    def adjust(self, view: View) -> Iterator[Action]:
        self.measured.append(self.meter.close(view))
        yield from self.deeds[len(self.measured) - 1] if len(self.measured) <= len(self.deeds) else ()
        if self.is_opened:
            self.meter.open(view)


def measured(where, *deeds, is_opened=True) -> list[Measures]:
    """What was measured in each period of 10 s; a request at 95 s lets there be at least nine."""
    scaler = Measuring(deeds=deeds, is_opened=is_opened)
    assert not simulate(where, "fifo", scaler=scaler).refusals
    return scaler.measured


def world(function=None, *, at=(), vcpus=4.0, **more):
    function = function or declared(3.0, configurations=SIZES)
    return scenario(
        function, arrivals=[*at, 95.0], on=cluster(vcpus=vcpus), **{"control_period_s": 10.0, "slo_s": 6.0, **more}
    )


def column(found: list[Measures], name: str, place: int = 0) -> list[float]:
    return [round(float(getattr(one, name)[place]), 9) for one in found]


def test_runs_and_arrivals_are_counted_in_the_period_in_which_they_are():
    # From 10 s there is one replica: runs are [11, 14], [14, 17], [17, 20], [20, 23], [31, 34].
    found = measured(world(at=[11, 11, 11, 11, 31]), (Scale("f", 1, ONE),))
    assert column(found[:5], "arrived") == [0, 4, 0, 1, 0]
    assert column(found[:5], "ran") == [0, 3, 1, 1, 0]  # what ends with the period is in it
    assert column(found[:5], "busy_s") == [0, 9, 3, 3, 0]
    assert column(found[:5], "oldest_s") == [0, 9, 0, 0, 0]
    assert column(found[:5], "p99_s") == [0, 9, 12, 3, 0]
    assert column(found[:5], "slowest_s") == [0, 9, 12, 3, 0]
    assert column(found[:5], "replicas") == [0, 1, 1, 1, 1]
    assert column(found[:5], "ready") == [0, 1, 1, 1, 1]
    assert column(found[:5], "held_s") == [0, 10, 10, 10, 10]
    assert column(found[:5], "utilisation") == [0, 0.9, 0.3, 0.3, 0]


def test_a_run_over_several_periods_is_busy_in_each():
    found = measured(world(declared(25.0, configurations=SIZES), at=[12, 13]), (Scale("f", 1, TWO),))
    # [12, 37] and [37, 62], with 2 vCPUs.
    assert column(found[:7], "busy_s") == [0, 16, 20, 20, 20, 20, 4]
    assert column(found[:7], "ran") == [0, 0, 0, 1, 0, 0, 1]
    assert column(found[:7], "arrived") == [0, 2, 0, 0, 0, 0, 0]
    assert column(found[:7], "oldest_s") == [0, 7, 17, 0, 0, 0, 0]
    assert column(found[:7], "held_s") == [0, 20, 20, 20, 20, 20, 20]


def test_a_cold_start_is_no_work_and_what_starts_is_not_ready():
    found = measured(world(declared(3.0, cold_start_s=12.0, configurations=SIZES), at=[11]), (Scale("f", 2, ONE),))
    # The replicas are ready at 22 s, and one runs until 25 s.
    assert column(found[:3], "ready") == [0, 0, 2]
    assert column(found[:3], "vcpus") == [0, 2, 2]
    assert column(found[:3], "held_s") == [0, 20, 20]
    assert column(found[:3], "busy_s") == [0, 0, 3]
    assert column(found[:3], "p99_s") == [0, 0, 14]


def test_before_it_is_scaled_a_function_has_the_instances_of_the_dispatcher():
    found = measured(world(declared(3.0, cold_start_s=1.0, configurations=SIZES), at=[5, 8]))
    # Two instances: [6, 9] and [9, 12] after their cold starts; idle ones stay warm, with the vCPUs of their last run.
    assert column(found[:2], "arrived") == [2, 0]
    assert column(found[:2], "ran") == [1, 1]
    assert column(found[:2], "busy_s") == [4, 2]
    assert column(found[:2], "replicas") == [0, 0]
    assert column(found[:2], "ready") == [2, 2]
    assert column(found[:2], "p99_s") == [4, 4]


def test_an_instance_that_drains_works_and_holds_but_is_not_there_any_more():
    deeds = (Scale("f", 2, ONE),), (Scale("f", 1),)
    found = measured(world(declared(14.0, configurations=SIZES), at=[11, 12]), *deeds)
    # Runs [11, 25] and [12, 26]; at 20 s the younger replica is told to go.
    assert column(found[:4], "busy_s") == [0, 17, 11, 0]
    assert column(found[:4], "held_s") == [0, 20, 20, 10]
    assert column(found[:4], "replicas") == [0, 2, 1, 1]
    assert column(found[:4], "vcpus") == [0, 2, 1, 1]


def test_a_size_that_changes_holds_from_the_start_of_the_period_on():
    deeds = (Scale("f", 1, ONE),), (Resize("f", 2.0),)
    found = measured(world(at=[11]), *deeds)
    assert column(found[:4], "held_s") == [0, 10, 20, 20]
    assert column(found[:4], "vcpus") == [0, 1, 2, 2]


def test_without_opening_it_an_action_is_seen_a_period_later():
    deeds = (Scale("f", 1, ONE),), (Resize("f", 2.0),)
    found = measured(world(at=[11]), *deeds, is_opened=False)
    assert column(found[:4], "held_s") == [0, 0, 10, 20]


def test_memory_is_what_the_replicas_were_given():
    function = declared(3.0, memory_gb=0.5, configurations=SIZES)
    deeds = (Scale("f", 2, ONE),), (Resize("f", 1.0, 0.625),)
    found = measured(world(function, at=[11]), *deeds)
    assert column(found[:4], "memory_gb") == [0, 1, 1.25, 1.25]


def test_a_batch_is_as_much_work_as_one_run():
    both = Configuration(vcpus=2, batch=2)
    where = world(declared(3.0, configurations=(both,)), at=[11, 11, 18, 18])
    scaler = Measuring(deeds=((Scale("f", 1, both),),))
    simulate(where, Fifo(batching="full"), scaler=scaler)
    # Runs [11, 14] and [18, 21] of two each.
    assert column(scaler.measured[:3], "busy_s") == [0, 10, 2]
    assert column(scaler.measured[:3], "ran") == [0, 2, 2]
    assert column(scaler.measured[:3], "arrived") == [0, 4, 0]


def test_functions_keep_to_themselves_and_their_order():
    functions = {"a": declared(2.0, configurations=SIZES), "b": declared(4.0, configurations=SIZES)}
    where = scenario(functions, arrivals=[11.0, 95.0], slo_s=12.0, control_period_s=10.0)
    found = measured(where, (Scale("a", 1, ONE), Scale("b", 1, TWO)))
    # a [11, 13], b [13, 17].
    assert found[1].arrived.tolist() == found[1].ran.tolist() == [1, 1]
    assert found[1].busy_s.tolist() == [2, 8]
    assert found[1].p99_s.tolist() == [2, 4]
    assert found[1].held_s.tolist() == [10, 20]


def test_lateness_is_the_time_since_the_request_came_over_what_is_meant_for_it():
    # Of 12 s, a third is meant for a and all for a and b. Two requests at 11 s: a [11, 13], [13, 15]; b from 13 and 17.
    functions = {"a": declared(2.0, configurations=SIZES), "b": declared(4.0, configurations=SIZES)}
    where = scenario(functions, arrivals=[11.0, 11.0, 95.0], slo_s=12.0, control_period_s=10.0)
    found = measured(where, (Scale("a", 1, ONE), Scale("b", 1, ONE)))
    assert column(found[:3], "lateness", 0) == [0, 1, 0]  # 4 of 4 s
    assert column(found[:3], "lateness", 1) == [0, 0.5, round(10 / 12, 9)]  # 6, then 10 of 12 s


def test_what_waits_is_late_too():
    found = measured(world(declared(30.0, configurations=SIZES), at=[11, 11]), (Scale("f", 1, ONE),))
    assert column(found[:5], "lateness") == [
        0,
        1.5,
        round(19 / 6, 9),
        round(29 / 6, 9),
        5,
    ]  # the first one ends at 41 s


def test_a_function_that_is_not_measured_is_passed_over():
    meter = Meter(["g"])
    scaler = Measuring()
    scaler.prepare = lambda site, rng: setattr(scaler, "meter", meter)
    simulate(world(at=[1, 2, 3]), "fifo", scaler=scaler)
    assert all(one.ran.tolist() == one.arrived.tolist() == [0] for one in scaler.measured)


@dataclass
class GivingUp(Policy):
    """Starts what it can, and gives up what has waited for more than so many seconds whenever it is asked."""

    patience_s: float

    def decide(self, view: View) -> Iterator[Action]:
        for invocation in view.by_ready():
            node = view.place(invocation.function, ONE)
            if node is not None:
                yield Start((invocation,), ONE, node)
            elif view.now - invocation.ready > self.patience_s:
                yield Reject(invocation.request, "it waited for too long")


def test_what_is_given_up_while_it_waits_does_not_count_below_zero():
    # One runs [11, 71]; two wait, and go when another comes at 31 s.
    where = world(declared(60.0, configurations=(ONE,)), at=[11, 12, 13, 31], vcpus=1.0)
    scaler = Measuring(deeds=((Scale("f", 1, ONE),),))
    simulate(where, GivingUp(10.0), scaler=scaler)
    assert column(scaler.measured[:5], "arrived") == [0, 3, 0, 0, 0]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0, 80), min_size=1, max_size=25),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.floats(0.05, 25.0),
)
def test_periods_add_up_to_the_run(instants, replicas, seconds):
    where = world(declared(seconds, configurations=(ONE,)), at=sorted(instants), slo_s=60.0)
    scaler = Measuring(deeds=tuple((Scale("f", many, ONE),) for many in replicas))
    recording = simulate(where, "fifo", scaler=scaler)
    until = 10.0 * len(scaler.measured)
    rows = recording.invocations
    ended = rows.filter(rows["end"] <= until)
    assert sum(one.ran[0] for one in scaler.measured) == ended.height
    assert sum(one.arrived[0] for one in scaler.measured) == rows.filter(rows["ready"] <= until).height
    work_s = sum(max(0.0, min(until, end) - start) for start, end in zip(rows["start"], rows["end"], strict=True))
    assert sum(one.busy_s[0] for one in scaler.measured) == pytest.approx(work_s)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1, 100), max_size=300), st.lists(st.floats(0, 100), max_size=120), st.randoms())
def test_the_percentile_is_the_least_that_is_large_enough(many, some, random):
    come = [(2, value) for value in many] + [(0, value) for value in some]
    random.shuffle(come)
    samples = Samples()
    for place, value in come:
        samples.add(place, value)
    found = samples.percentiles(3)
    assert samples.counts(3).tolist() == [len(some), 0, len(many)]
    for place, values in enumerate((some, [], many)):
        if not values:
            assert found[place] == 0
            continue
        assert found[place] in values
        assert sum(value <= found[place] for value in values) >= 0.99 * len(values)
        assert sum(value < found[place] for value in values) < 0.99 * len(values)


@pytest.mark.parametrize(("count", "expected"), [(1, 0), (99, 98), (100, 98), (101, 99), (200, 197)])
def test_of_so_many_values_that_many_are_below_the_percentile(count, expected):
    samples = Samples()
    for value in reversed(range(count)):
        samples.add(0, float(value))
    assert samples.percentiles(1).tolist() == [expected]


def test_more_functions_than_sixteen_bits_can_number_are_told_apart():
    samples = Samples()
    samples.add(70_000, 2.0)
    samples.add(70_000 - (1 << 16), 1.0)
    found = samples.percentiles(70_001)
    assert (found[70_000], found[70_000 - (1 << 16)], found.sum()) == (2.0, 1.0, 3.0)


def test_only_what_is_named_as_changed_is_looked_at_again():
    # The second function is given a replica too; a meter that is told of the first alone does not see it.
    seen: list[list[float]] = []

    class Opening(Policy):
        def prepare(self, site: Site, rng: np.random.Generator) -> None:
            self._meter = Meter(site.functions)

        def adjust(self, view: View) -> Iterator[Action]:
            seen.append((self._meter.close(view).held_s / self._meter.period_s).tolist())
            if len(seen) == 1:
                yield Scale("a", 1, TWO)
                yield Scale("b", 1, TWO)
            self._meter.open(view, [0])

    both = {"a": declared(1.0, configurations=SIZES), "b": declared(1.0, configurations=SIZES)}
    simulate(scenario(both, arrivals=[25.0], control_period_s=10.0), Fifo(), scaler=Opening())
    assert seen[:2] == [[0.0, 0.0], [2.0, 0.0]]


class TestSlos:
    def test_a_function_has_its_share_of_the_longest_path(self):
        # a - b and a - c, of 2 + 4 and 2 + 1 seconds.
        fork = Workflow(
            name="fork",
            stages=(
                Stage(name="a", function="a"),
                Stage(name="b", function="b", after=("a",)),
                Stage(name="c", function="c", after=("a",)),
            ),
            slo=SLO(latency_s=12.0),
        )
        site = site_of(scenario({"a": 2.0, "b": 4.0, "c": 1.0}, workflows={"fork": fork}))
        assert function_slos(site.workflows, site.profiles) == {"a": 4.0, "b": 8.0, "c": 4.0}
        assert stage_goals(site.workflows, site.profiles) == {
            ("fork", "a"): Goal(12.0, 4.0),
            ("fork", "b"): Goal(12.0, 12.0),
            ("fork", "c"): Goal(12.0, 12.0),
        }

    def test_of_several_workflows_the_least_counts(self):
        flows = {
            "alone": Workflow.chain("alone", "a", slo=SLO(latency_s=3.0)),
            "both": Workflow.chain("both", "a", "b", slo=SLO(latency_s=8.0)),
        }
        site = site_of(scenario({"a": 1.0, "b": 1.0}, workflows=flows))
        assert function_slos(site.workflows, site.profiles) == {"a": 3.0, "b": 4.0}

    def test_without_an_slo_there_is_no_goal(self):
        site = site_of(scenario({"a": 1.0, "b": 0.0}))
        assert function_slos(site.workflows, site.profiles) == {"a": np.inf, "b": np.inf}
        assert stage_goals(site.workflows, site.profiles) == {}
