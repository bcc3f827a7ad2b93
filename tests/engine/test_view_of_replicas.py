"""What a view tells a scaler of replicas: how many are wanted, what a resize would do, what each one does."""

from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_policies import Adjusting, Doing, yielding

from fairlead.engine import simulate
from fairlead.model import Configuration
from fairlead.policy import Resize, Scale
from fairlead.policy.fifo import Fifo
from fairlead.policy.least_loaded import LeastLoaded
from fairlead.testing import check_accounts, cluster, declared, scenario
from fairlead.workload import Listed

ONE, TWO = Configuration(vcpus=1), Configuration(vcpus=2)


def seen(where, ask, *deeds) -> list:
    """What a question to the view gives at each control period, before the deed of that period."""
    answers = []

    def asking(deed):
        def deed_(view):
            answers.append(ask(view))
            yield from deed(view)

        return deed_

    simulate(where, Doing(), scaler=Adjusting(tuple(asking(deed) for deed in deeds)))
    return answers


def world(arrivals, seconds=1.0, vcpus=4.0, **more):
    function = declared(seconds, configurations=(ONE, TWO), **more)
    return scenario(function, arrivals=[*arrivals, 20.0], on=cluster(vcpus=vcpus), control_period_s=1.0)


NOTHING = yielding()


def test_scaled_says_how_many_are_wanted_and_in_what_size():
    deeds = (Scale("f", 9, ONE),), (Scale("f", 2),), (Resize("f", 2.0),), (Scale("f", None),), ()
    found = seen(world([0.0]), lambda view: view.scaled("f"), *(yielding(*deed) for deed in deeds))
    # Only four of nine have room. When the last is gone, the dispatcher decides again.
    assert found == [None, Scale("f", 9, ONE), Scale("f", 2, ONE), Scale("f", 2, TWO), None]


@pytest.mark.parametrize(("vcpus", "fits"), [(3.0, False), (4.0, True)])
def test_resizes_says_whether_a_resize_would_be_carried_out(vcpus, fits):
    deeds = (yielding(Scale("f", 2, ONE)), yielding(Resize("f", 2.0)) if fits else NOTHING, NOTHING)
    found = seen(world([0.0], vcpus=vcpus), lambda view: (view.resizes("f", 2.0), view.resizes("f", 3.0)), *deeds)
    assert found[0] == (False, False)  # it is not scaled
    assert found[1] == (fits, False)  # it has no size of 3 vCPUs


def test_an_instance_says_what_it_works_on_and_since_when():
    def states(view):
        return [(i.is_replica, i.is_draining, i.running, i.run_start) for i in view.instances("f")]

    where = world([2.5, 2.7], seconds=3.0, cold_start_s=1.25)
    deeds = (yielding(Scale("f", 2, ONE)), NOTHING, NOTHING, yielding(Scale("f", 1)), NOTHING, NOTHING)
    found = seen(where, states, *deeds)
    assert found[1] == [(True, False, 0, inf)] * 2  # they start
    assert found[2] == [(True, False, 1, 2.5), (True, False, 1, 2.7)]
    assert found[4] == [(True, False, 1, 2.5), (True, True, 1, 2.7)]
    assert found[5] == [(True, False, 0, inf)]


def test_a_batch_that_a_cold_start_holds_up_is_counted_and_does_not_run():
    def states(view):
        return [(i.is_replica, i.running, i.run_start) for i in view.instances("f")]

    found = seen(world([0.5], seconds=3.0, cold_start_s=1.0), states, NOTHING, NOTHING)
    assert found == [[(False, 1, inf)], [(False, 1, 1.5)]]


def test_instances_are_those_of_one_function_oldest_first():
    where = scenario(
        {"a": 5.0, "b": 5.0}, workflows={"a": ("a",), "b": ("b",)}, arrivals=[0.1, 0.2], control_period_s=1.0
    )
    deeds = (yielding(Scale("b", 1), Scale("a", 1)), NOTHING)
    found = seen(where, lambda view: {f: [i.id for i in view.instances(f)] for f in ("a", "b", "c")}, *deeds)
    assert found == [{"a": [0, 1], "b": [], "c": []}, {"a": [0, 1, 3], "b": [2], "c": []}]


class TestBatches:
    """A replica takes the batch sizes that its function has in its size."""

    CONFIGURATIONS = (ONE, Configuration(vcpus=2, batch=4))

    def test_a_batch_that_replicas_cannot_take_is_not_placed(self):
        where = scenario(declared(1.0, configurations=self.CONFIGURATIONS), arrivals=[1.5] * 4, control_period_s=1.0)
        four = self.CONFIGURATIONS[1]
        deeds = (yielding(Scale("f", 2, ONE)), NOTHING)
        found = seen(
            where, lambda view: (view.place("f", ONE), view.place("f", four), view.fits("f", four, "n0")), *deeds
        )
        assert found == [("n0", "n0", True), (None, None, False)]  # both replicas work

    def test_full_batching_runs_in_what_the_replicas_take(self):
        # In the size of its replicas it has no batches of four: all run one by one.
        where = scenario(declared(1.0, configurations=self.CONFIGURATIONS), arrivals=[1.5] * 8, control_period_s=1.0)
        recording = simulate(where, Fifo(batching="full"), scaler=Adjusting((yielding(Scale("f", 2, ONE)),)))
        check_accounts(recording)
        assert not recording.refusals
        assert recording.requests["outcome"].to_list() == ["completed"] * 8
        assert sorted(recording.invocations["start"]) == [1.5, 1.5, 2.5, 2.5, 3.5, 3.5, 4.5, 4.5]
        assert set(recording.invocations["batch_size"]) == {1}

    def test_full_batching_uses_batches_that_the_replicas_take(self):
        where = scenario(
            declared(1.0, configurations=(*self.CONFIGURATIONS, TWO)), arrivals=[1.5] * 8, control_period_s=1.0
        )
        recording = simulate(where, Fifo(batching="full"), scaler=Adjusting((yielding(Scale("f", 2, TWO)),)))
        assert not recording.refusals
        assert recording.invocations["batch_size"].to_list() == [4] * 8


def test_queues_that_cannot_start_are_those_of_scaled_functions_without_a_free_replica():
    where = scenario(
        {"a": 5.0, "b": 5.0},
        workflows={"first": ("a",), "second": ("b",), "third": ("a",)},
        arrivals=[Listed("first", (1.5, 1.6)), Listed("second", (1.5, 1.6)), Listed("third", (1.5, 1.7))],
        on=cluster(vcpus=2),
        control_period_s=1.0,
    )
    found = seen(
        where,
        lambda view: (view.queues(), view.queues(can_start=True)),
        *(yielding(Scale("a", 1)), NOTHING, yielding(Scale("a", None)), *[NOTHING] * 4),
    )
    first, second, third = ("first", "a"), ("second", "b"), ("third", "a")
    assert found[0] == ((), ())
    # From 1.5 s on one of a runs on its only replica, and one of b on the other vCPU.
    assert found[1] == ((first, second, third), (second,))
    # At 6.5 s the replica goes: the dispatcher starts two more of a, one of them of the first queue.
    assert found[6] == ((second, third), (second, third))


@dataclass
class Checking(LeastLoaded):
    """Before it decides, compares what can start with what can be placed."""

    left_out: list[int] = field(default_factory=list)

    def decide(self, view):
        able = view.queues(can_start=True)
        for queue in view.queues():
            is_placed = view.place(queue[1], self._configurations[queue[1]], order="emptiest") is not None
            if view.scaled(queue[1]) is None:
                assert queue in able
            else:
                assert (queue in able) == is_placed
        self.left_out.append(len(view.queues()) - len(able))
        yield from super().decide(view)


_DEEDS = st.one_of(
    st.builds(Scale, st.sampled_from("ab"), st.one_of(st.none(), st.integers(0, 3))),
    st.builds(Resize, st.sampled_from("ab"), st.sampled_from([1.0, 2.0])),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_DEEDS, max_size=12), st.lists(st.floats(0, 14), min_size=1, max_size=12))
def test_whatever_is_scaled_what_can_start_is_what_can_be_placed(deeds, arrivals):
    function = declared(1.7, cold_start_s=0.4, configurations=(ONE, TWO))
    where = scenario(
        {"a": function, "b": function},
        workflows={"one": ("a", "b"), "other": ("b",)},
        arrivals=[Listed("one", tuple(sorted(arrivals))), Listed("other", tuple(sorted(arrivals)))],
        on=cluster(2, vcpus=2),
        control_period_s=1.0,
        duration_s=30.0,
    )
    dispatcher = Checking()
    simulate(where, dispatcher, scaler=Adjusting(tuple(yielding(deed) for deed in deeds)), engine="python")
    assert dispatcher.left_out
