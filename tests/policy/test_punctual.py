"""Punctual: whom it lets in, whom it refuses and how, who runs together, and that it forgets nobody."""

from math import inf, sqrt

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.engine.core import Controller
from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.errors import ConfigError
from fairlead.model import SLO, Configuration, Request, Stage, Workflow
from fairlead.policy import Plan, Reject, Start, Warm, make_policy
from fairlead.policy.punctual.policy import TOO_BUSY, TOO_SHORT, Punctual
from fairlead.profile import Row, ScalingLaw, Table, space
from fairlead.testing import Waits, cluster, decisions, declared, scenario, site_of
from fairlead.workload import Deterministic, Poisson

ONE = cluster(1, vcpus=1)
SINGLE = scenario(declared(1.0), on=ONE)  # one at a time, a second each
EIGHT = scenario(declared(Table(tuple(Row(batch=n, seconds=0.8 + 0.2 * n) for n in range(1, 9)))), on=ONE)


def of(kind, actions):
    return [action for action in actions if isinstance(action, kind)]


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"percentile": 0.4}, "percentile"),
        ({"percentile": 1.0}, "percentile"),
        ({"margin_s": -0.1}, "margin_s"),
        ({"best_effort_share": 1.0}, "best_effort_share"),
    ],
)
def test_parameters_out_of_range_are_faults(parameters, path):
    with pytest.raises(ConfigError, match=f"policy.{path}: {path} must be"):
        make_policy("punctual", parameters)


class TestAdmission:
    def test_a_request_that_has_time_starts_at_once_with_a_promise(self):
        plan, start = decisions(Punctual(), 2.0, scenario=SINGLE)
        assert isinstance(plan, Plan)
        assert plan.finish == pytest.approx(1.2)  # a second, and a fifth more while nothing has been observed
        assert plan.steps == ("wait 0.0 ms", "f")
        assert isinstance(start, Start)

    def test_the_second_of_two_is_refused_where_there_is_time_for_one(self):
        actions = decisions(Punctual(margin_s=0.0), 1.5, 1.5, scenario=SINGLE)
        (refusal,) = of(Reject, actions)
        assert refusal.request == 1
        assert refusal.reason == TOO_BUSY
        safe = 2 + sqrt(0.2**2 + 0.2**2)  # two seconds; two deviations of a fifth of a second, independent
        assert refusal.offer_latency_s == pytest.approx(safe)
        assert refusal.retry_after_s == pytest.approx(safe - 1.5)  # with so much less ahead it would be in time

    def test_an_earlier_deadline_goes_ahead_of_those_that_wait(self):
        actions = decisions(Punctual(), 9.0, 8.0, 1.5, scenario=SINGLE)
        assert not of(Reject, actions)
        assert of(Start, actions)[0].batch[0].request == 2

    def test_who_shares_a_batch_does_not_wait(self):
        actions = decisions(Punctual(), *[3.0] * 8, scenario=EIGHT)
        (start,) = of(Start, actions)
        assert len(start.batch) == 8
        assert start.configuration.batch == 8
        assert not of(Reject, actions)

    def test_a_second_batch_waits_for_the_first(self):
        actions = decisions(Punctual(), *[3.0] * 9, scenario=EIGHT)  # 2.4 s for eight, then a second for the ninth
        assert [action.request for action in of(Reject, actions)] == [8]

    def test_the_margin_is_kept_free(self):
        assert of(Start, decisions(Punctual(margin_s=0.0), 1.25, scenario=SINGLE))
        busy = scenario(declared(1.0), on=ONE)
        late = decisions(Punctual(margin_s=0.5), 2.6, 2.6, scenario=busy)
        assert len(of(Reject, late)) == 1

    def test_without_a_deadline_nobody_is_refused(self):
        actions = decisions(Punctual(), *[inf] * 20, scenario=SINGLE)
        assert not of(Reject, actions)
        assert len(of(Start, actions)) == 1

    def test_a_cold_start_is_part_of_the_forecast(self):
        cold = scenario(declared(1.0, cold_start_s=5.0), on=ONE)
        plan, _ = decisions(Punctual(), 10.0, scenario=cold)
        assert plan.finish == pytest.approx(6.2)

    def test_later_stages_are_part_of_the_forecast(self):
        chain = scenario({"a": declared(1.0), "b": declared(2.0)}, on=ONE)
        plan, _ = decisions(Punctual(), 10.0, scenario=chain)
        assert plan.finish == pytest.approx(3 + sqrt(0.2**2 + 0.4**2))


class TestProbes:
    def test_what_seems_hopeless_is_tried_now_and_then(self):
        """Ten seconds declared, a tenth of a second in truth, half a second allowed."""
        where = scenario(
            declared(10.0, bias=0.01), arrivals=(Deterministic("main", 0.1),), on=ONE, slo_s=0.5, duration_s=10
        )
        requests = simulate(where, Punctual()).requests
        assert (requests.filter(pl.col("arrival") > 1)["outcome"] == "completed").all()

    def test_what_is_hopeless_is_tried_less_and_less(self):
        where = scenario(declared(1.0), arrivals=(Deterministic("main", 0.05),), on=ONE, slo_s=0.2, duration_s=20)
        requests = simulate(where, Punctual()).requests
        refused = requests.filter(pl.col("outcome") == "rejected")
        assert 2 <= requests.height - refused.height <= 10
        assert set(refused["reason"]) == {TOO_SHORT}
        assert refused["retry_after_s"].is_between(0, 60, closed="right").all()


class TestInstances:
    def test_an_instance_starts_ahead_of_need_where_nobody_can_wait_for_it(self):
        """After the first, which is tried in vain, everybody is refused until a second instance is up, or the first."""
        where = scenario(
            declared(0.01, cold_start_s=1.0), arrivals=(Deterministic("main", 0.05),), on=ONE, slo_s=0.1, duration_s=4
        )
        recording = simulate(where, Punctual())
        late = recording.requests.filter(pl.col("arrival") > 1.5)
        assert (late["outcome"] == "completed").all()
        assert recording.instances.height == 1

    def test_more_instances_start_when_one_is_not_enough(self):
        where = scenario(
            declared(0.1, cold_start_s=1.0, idle_holds="memory"),
            arrivals=(Deterministic("main", 0.04),),
            on=cluster(1, vcpus=4),
            slo_s=0.5,
            duration_s=10,
        )
        recording = simulate(where, Punctual())
        late = recording.requests.filter(pl.col("arrival") > 5)
        assert recording.instances.height >= 3
        assert ((late["outcome"] == "completed") & (late["end"] <= late["deadline"])).mean() >= 0.98

    def test_a_warm_instance_that_is_free_sooner_is_waited_for(self):
        where = scenario(declared(0.2, cold_start_s=5.0), arrivals=(0.0, 6.0, 6.1), on=cluster(1, vcpus=2), slo_s=20.0)
        recording = simulate(where, Punctual())
        assert recording.instances.height == 1
        assert recording.requests["end"].to_list() == pytest.approx([5.2, 6.2, 6.4])


class TestConfigurations:
    SIZES = scenario(declared(ScalingLaw(t1_s=1.0, gamma=0.5), configurations=space(vcpus=(1, 4))))

    @pytest.mark.parametrize(("deadline", "vcpus"), [(10.0, 1), (0.8, 4)], ids=["loose", "tight"])
    def test_the_cheapest_that_is_in_time_is_taken(self, deadline, vcpus):
        start = of(Start, decisions(Punctual(), deadline, scenario=self.SIZES))[0]
        assert start.configuration == Configuration(vcpus=vcpus)

    def test_a_batch_that_does_less_per_second_is_not_formed(self):
        rows = (Row(batch=1, seconds=0.1), Row(batch=2, seconds=0.15), Row(batch=4, seconds=1.0))
        (start,) = of(Start, decisions(Punctual(), *[inf] * 4, scenario=scenario(declared(Table(rows)), on=ONE)))
        assert start.configuration.batch == 2


def test_a_function_that_needs_a_whole_node_is_not_starved_by_small_ones():
    functions = {"small": declared(0.3), "large": declared(0.3, configurations=space(vcpus=(4,)))}
    where = scenario(
        functions,
        workflows={"small": ("small",), "large": ("large",)},
        arrivals=(Poisson("small", 20.0), Deterministic("large", 2.0)),
        duration_s=20,
    )
    recording = simulate(where, Punctual())
    large = recording.requests.filter(pl.col("workflow") == "large")
    assert (large["outcome"] == "completed").all()
    assert (large["end"] - large["arrival"]).max() < 10


def test_a_start_that_was_refused_is_tried_again():
    class Astray(Punctual):
        """Sends its first batch to a node that does not exist."""

        def decide(self, view):
            for action in super().decide(view):
                is_first = isinstance(action, Start) and view.now == 0
                yield msgspec.structs.replace(action, node="nowhere") if is_first else action

    recording = simulate(scenario(declared(1.0), arrivals=(0.0, 0.5), on=ONE, slo_s=9.0), Astray())
    assert [refusal.reason for refusal in recording.refusals] == ["there is no node 'nowhere'"]
    assert recording.requests["end"].to_list() == [1.5, 2.5]


def test_a_policy_that_takes_over_finds_what_waits():
    actions = decisions(Punctual(), Waits(deadline=9.0, at=0.0), scenario=SINGLE, now=1.0)
    assert len(of(Start, actions)) == 1


# --- nobody is forgotten, and nothing is remembered for ever ------------------------------------------------------

JOIN = Workflow(
    name="join",
    stages=(
        Stage(name="a", function="f"),
        Stage(name="b", function="g", after=("a",), compete=2),
        Stage(name="c", function="g", after=("a",), map=(1, 3)),
        Stage(name="d", function="f", after=("b", "c"), join=True),
    ),
    slo=SLO(latency_s=3.0),
)
WORLD = scenario(
    {
        "f": declared(Table((Row(batch=1, seconds=0.2), Row(batch=4, seconds=0.3)))),
        "g": declared(0.1, cold_start_s=0.3),
    },
    workflows={"one": ("f",), "join": JOIN},
    on=cluster(1, vcpus=2),
)

steps = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "arrive", "arrive", "cancel", "finish", "lose"]),
        st.integers(0, 9),
        st.sampled_from(["one", "join"]),
        st.sampled_from([0.15, 0.5, 3.0, inf]),
    ),
    max_size=60,
)


class Driver:
    """Plays the world by hand: what was asked for runs until it is told to end."""

    def __init__(self):
        self.policy = Punctual()
        self.policy.prepare(site_of(WORLD), np.random.default_rng(0))
        self.controller = Controller(WORLD, self.policy)
        self.now, self.arrived = 0.0, 0
        self.todo, self.ended = [], set()  # events to come; requests that ended

    def tell(self, *events):
        for effect in self.controller.handle(self.now, events):
            match effect:
                case fx.StartInstance():
                    self.todo.append(ev.InstanceReady(effect.instance))
                case fx.RunBatch():
                    outcomes = tuple(ev.Outcome(items=2) for _ in effect.invocations)
                    self.todo.append(ev.Finished(effect.batch, 0.1, outcomes=outcomes))
                case fx.Answer() | fx.Refuse():
                    assert effect.request not in self.ended
                    self.ended.add(effect.request)

    def step(self, what, which, workflow, slo_s):
        self.now += 0.05
        if what == "arrive":
            self.tell(ev.Arrived(Request(self.arrived, workflow, self.now, self.now + slo_s)))
            self.arrived += 1
        elif what == "cancel" and self.arrived:
            self.tell(ev.Cancelled(which % self.arrived))
        elif what == "finish" and self.todo:
            self.tell(self.todo.pop(which % len(self.todo)))
        elif what == "lose" and self.controller.pool.instances:
            self.tell(ev.InstanceLost(min(self.controller.pool.instances)))

    def run_out(self):
        for _ in range(2000):
            if self.todo:
                self.now += 0.05
                self.tell(self.todo.pop(0))
            elif self.controller.next_wake < inf:
                self.now = max(self.now, self.controller.next_wake)
                self.tell()
            else:
                return


@settings(max_examples=60, deadline=None)
@given(steps)
def test_every_request_ends_and_nothing_is_left(script):
    driver = Driver()
    for step in script:
        driver.step(*step)
    driver.run_out()
    assert driver.ended == set(range(driver.arrived))
    assert driver.controller.refusals == []
    driver.controller.decisions.ask_dispatcher(driver.now)  # so that it sees the last ends
    starts = driver.policy._starts
    assert (starts.open, starts.runs, starts.works()) == ({}, {}, [])
    for work in driver.policy._works.values():
        assert (work.running, work.room.pending, work.room.runs) == (0, {}, [])


def test_an_instance_is_warmed_once_however_many_are_refused():
    where = scenario(declared(0.01, cold_start_s=1.0), on=cluster(1, vcpus=4), slo_s=0.1)
    actions = decisions(Punctual(), *[0.1] * 30, scenario=where)
    assert len(of(Warm, actions)) <= 1
    assert len(of(Start, actions)) == 1  # the probe
