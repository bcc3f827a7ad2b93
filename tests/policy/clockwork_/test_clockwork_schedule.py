"""Clockwork on one GPU, by hand: who goes first, in which batch, what is dropped, and what is promised."""

import pytest
from clockwork_runs import MS, batches, model, outcomes, run, world

from fairlead.engine import simulate
from fairlead.model import SLO, Stage, Workflow
from fairlead.policy import Reject, make_policy
from fairlead.policy.clockwork.policy import Clockwork
from fairlead.policy.clockwork.reserve import Reserve
from fairlead.policy.kit.remaining import least_after
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Listed


def test_the_model_that_must_start_first_goes_first():
    # At 0 the GPU runs "c" until 9. "a" must start by 95 - 10 = 85, "b" by 45 - 10 = 35.
    models = {"a": model(10), "b": model(10), "c": model(9)}
    where = world(models, {"c": [0], "a": [1], "b": [1]}, slo_ms={"a": 100, "b": 50, "c": 100})
    assert batches(run(where)) == [("c", 0, 9, 1), ("b", 9, 19, 1), ("a", 19, 29, 1)]


def test_a_long_run_makes_urgent():
    # Equal deadlines; "b" takes longer, so it must start earlier.
    models = {"a": model(5), "b": model(20), "c": model(9)}
    where = world(models, {"c": [0], "a": [1], "b": [1]})
    assert [name for name, *_ in batches(run(where))] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("waiting", "sizes"),
    [(4, [4]), (5, [4, 1]), (3, [2, 1]), (1, [1]), (9, [4, 4, 1])],
)
def test_batches_are_the_largest_that_are_full(waiting, sizes):
    where = world({"a": model(3, 4, 6)}, {"a": [0] * waiting})
    assert [size for *_, size in batches(run(where))] == sizes


def test_a_batch_that_takes_too_long_is_not_formed():
    where = world({"a": model(10, 20, 30)}, {"a": [0] * 4})
    assert [size for *_, size in batches(run(where))] == [2, 2]
    assert [size for *_, size in batches(run(where, max_exec_s=0.03))] == [4]
    assert [size for *_, size in batches(run(where, max_batch=1))] == [1] * 4


def test_a_model_that_is_always_too_long_runs_alone():
    where = world({"a": model(30, 40)}, {"a": [0, 0]})
    assert batches(run(where)) == [("a", 0, 30, 1), ("a", 30, 60, 1)]


def test_what_would_be_late_is_dropped_and_costs_nothing():
    # One takes 10. Done by 30 - 5 = 25 are the first two; the others never run.
    recording = run(world({"a": model(10)}, {"a": [0] * 4}, slo_ms=30))
    assert batches(recording) == [("a", 0, 10, 1), ("a", 10, 20, 1)]
    assert sorted(outcomes(recording)) == ["completed", "completed", "dropped", "dropped"]
    # With no margin there is time for a third.
    assert len(batches(run(world({"a": model(10)}, {"a": [0] * 4}, slo_ms=30.1), deadline_margin_s=0.0))) == 3


def test_a_small_batch_does_not_push_out_a_larger_one():
    # At 30, when "c" ends, the first "a" could just be done alone (by 33, its target is 33.5). That would make the
    # other four, due by 39, too late as a batch (30 + 3 + 7 = 40): they go first.
    models = {"a": model(3, 6.6, 7), "c": model(30)}
    arrivals = {"c": [0], "a": [8.5, 14, 14, 14, 14]}
    recording = run(world(models, arrivals, slo_ms={"a": 30, "c": 100}))
    assert batches(recording) == [("c", 0, 30, 1), ("a", 30, 37, 4)]
    # With 3 ms more for all of them there is time for both.
    recording = run(world(models, arrivals, slo_ms={"a": 33, "c": 100}))
    assert batches(recording) == [("c", 0, 30, 1), ("a", 30, 33, 1), ("a", 33, 40, 4)]


def test_hopeless_requests_are_refused_at_once_and_told_when_to_return():
    # "a" is to be done by 11 + 15 = 26. "c" ends at 30, so it would be done at 40: too late by 14.
    models = {"a": model(10), "c": model(30)}
    recording = run(world(models, {"a": [0, 11], "c": [0]}, slo_ms={"a": 20, "c": 100}, gpus=1))
    assert batches(recording) == [("a", 0, 10, 1), ("c", 10, 40, 1)]
    row = recording.requests.filter(recording.requests["outcome"] == "rejected").row(0, named=True)
    assert row["end"] == pytest.approx(11 * MS)
    assert row["retry_after_s"] == pytest.approx((40 + 10 - 26) * MS)


def test_what_can_never_be_in_time_is_not_told_to_return():
    recording = run(world({"a": model(30)}, {"a": [0]}, slo_ms=20))
    row = recording.requests.row(0, named=True)
    assert (row["outcome"], row["retry_after_s"]) == ("rejected", None)


def test_promises_are_kept_to_the_instant():
    models = {"a": model(3, 4, 6, 9, load_ms=8), "b": model(8, 12, 17, load_ms=20)}
    arrivals = {"a": [0, 1, 1, 2, 7, 9, 9, 9, 30, 31, 60], "b": [0, 3, 3, 40, 41]}
    recording = run(world(models, arrivals))
    assert set(outcomes(recording)) == {"completed"}
    assert recording.requests["promised"].to_list() == pytest.approx(recording.requests["end"].to_list())


def test_a_plan_that_starts_too_late_is_void():
    # "c" is declared to take 9 and takes 27. Request 1 is planned for 9 and may start by 19. Request 2 is planned for
    # 24, behind it, and may start by 34. At 27 the first plan is void, and request 1 is planned anew behind the other.
    where = world({"a": model(4), "c": model(9, bias=3.0)}, {"c": [0], "a": [1, 20]})

    def order(recording):
        return recording.invocations.sort("start")["request"].to_list()

    assert order(run(where)) == [0, 2, 1]
    assert order(run(where, latest_start_s=0.02)) == [0, 1, 2]


def test_requests_without_a_deadline_are_served_in_order():
    where = world({"a": model(10), "b": model(10)}, {"a": [0, 2], "b": [1, 3]}, slo_ms=float("inf"))
    assert [name for name, *_ in batches(run(where))] == ["a", "b", "a", "b"]


def test_later_stages_are_left_their_time():
    functions = {"first": declared(0.010), "second": declared(0.030)}
    flows = {"main": ("first", "second")}
    where = scenario(functions, workflows=flows, arrivals=(0.0,) * 3, on=cluster(1, vcpus=1), slo_s=0.060)
    # One slot. The first request has it from 0 to 40; a second one could not be done before 80.
    recording = run(where)
    assert outcomes(recording).count("completed") == 1
    assert (recording.requests["end"] <= recording.requests["deadline"]).all()


def watched(where):
    """A run, and the latencies that its refusals offered."""
    offers_s = []

    class Watched(Clockwork):
        def decide(self, view):
            for action in super().decide(view):
                if isinstance(action, Reject) and action.offer_latency_s is not None:
                    offers_s.append(action.offer_latency_s)
                yield action

    return simulate(where, Watched()), offers_s


def test_an_idle_chain_of_more_functions_than_vcpus_is_admitted():
    functions = {"a": declared(0.010), "b": declared(0.020), "c": declared(0.010)}
    flows = {"main": ("a", "b", "c")}
    recording, offers_s = watched(
        scenario(functions, workflows=flows, arrivals=range(20), on=cluster(1, vcpus=2), slo_s=0.15)
    )
    assert set(outcomes(recording)) == {"completed"}
    assert not offers_s


@pytest.mark.parametrize(("long_s", "outcome"), [(0.060, "completed"), (0.120, "rejected")])
def test_what_can_be_done_behind_a_long_run_is_admitted_and_else_the_offer_is_late(long_s, outcome):
    # "long" has the one vCPU from 1 s on. The chain of 10, 20 and 10 ms that comes 1 ms later takes 40 ms and may take
    # 150: behind 60 ms it can be done, behind 120 not. All are loaded by the first requests.
    times_s = {"long": long_s, "a": 0.010, "b": 0.020, "c": 0.010}
    functions = {name: declared(seconds, idle_holds="memory") for name, seconds in times_s.items()}
    flows = {"other": ("long",), "main": ("a", "b", "c")}
    arrivals = [Listed("other", (0.0, 1.0)), Listed("main", (0.5, 1.001))]
    recording, offers_s = watched(
        scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(1, vcpus=1), slo_s=0.15)
    )
    assert outcomes(recording) == ["completed"] * 3 + [outcome]
    assert offers_s == pytest.approx([] if outcome == "completed" else [0.120 - 0.001 + 0.040 + 0.005])  # the margin


def test_of_a_branch_only_the_shortest_arm_must_follow():
    stages = (
        Stage(name="look", function="quick"),
        Stage(name="easy", function="quick", after=("look",), when=0.5),
        Stage(name="hard", function="slow", after=("look",), when=0.5),
        Stage(name="tell", function="quick", after=("easy", "hard")),
    )
    rest_s = least_after(Workflow(name="main", stages=stages), {"quick": 1.0, "slow": 5.0})
    assert rest_s == {"look": 2.0, "easy": 1.0, "hard": 1.0, "tell": 0.0}


@pytest.mark.parametrize(
    ("slo_s", "margin_s", "each_s"),
    [(10.0, 0.1, 1.0), (4.6, 0.1, 0.5), (3.2, 0.05, 0.05), (2.0, 0.0, 0.0)],
    ids=["ample", "scarce", "tight", "none"],
)
def test_later_stages_are_left_time_to_wait_once_they_had_to_wait(slo_s, margin_s, each_s):
    # Three stages of 1 s, 0.1 s of margin: of 4.6 s, 1.5 s are to spare for three waits of at most 1 s. Of 3.2 s, 0.2 s
    # are to spare in all: a quarter is the margin.
    chain = Workflow.chain("main", "a", "b", "c", slo=SLO(latency_s=slo_s))
    reserve = Reserve(chain, dict.fromkeys("abc", 1.0), margin_s=0.1, most_s=1.0, remember=10)
    before = [2 + margin_s, 1 + margin_s, margin_s]
    assert [reserve.seconds(stage) for stage in "abc"] == pytest.approx(before)
    reserve.waited("a", 5.0, now=0.0)  # the first stage's own wait says nothing of later ones
    assert [reserve.seconds(stage) for stage in "abc"] == pytest.approx(before)
    reserve.waited("b", 5.0, now=0.0)
    after = [2 + margin_s + 2 * each_s, 1 + margin_s + each_s, margin_s]
    assert [reserve.seconds(stage) for stage in "abc"] == pytest.approx(after)


def test_what_no_worker_can_run_is_refused():
    where = scenario({"a": declared(0.1), "b": model(10)}, on=cluster(1, vcpus=1), workflows={"main": ("b",)})
    recording = run(where)
    assert recording.requests["reason"].to_list() == ["no worker can run b"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("horizon_s", -1.0),
        ("latest_start_s", float("inf")),
        ("max_exec_s", 0.0),
        ("max_batch", 0),
        ("measurements", 0),
        ("memory_s", 0.0),
    ],
)
def test_parameters_out_of_range_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        Clockwork(**{name: value})


def test_it_is_registered():
    assert isinstance(make_policy("clockwork"), Clockwork)
