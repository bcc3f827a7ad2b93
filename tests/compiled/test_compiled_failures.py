"""What the compiled core cannot do it says, and a placement that goes wrong is an error that tells where.

A placement is asked for the oldest waiting invocation. `compiled` is tier 2, a function that is compiled; `called` is
tier 3, a function that stays Python.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fairlead.engine import simulate
from fairlead.engine.sim.compiled import coverage, placement, python_placement
from fairlead.errors import FairleadError, PolicyError, UncoveredError
from fairlead.model import Buffer, Stage, Workflow
from fairlead.policy import make_policy
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import ClosedLoop, DecisionTime, NodeFault, Poisson

TIERS = [pytest.param(placement, id="compiled"), pytest.param(python_placement, id="called")]
WAITS_FOR_EVER = Path(__file__).with_name("run_waiting.py")


def world(*arrivals, nodes=2, vcpus=1.0):
    """Requests of one second each, on nodes of one vCPU."""
    return scenario(declared(1.0), arrivals=arrivals, on=cluster(nodes, vcpus=vcpus), slo_s=5, duration_s=10)


def failure(tier, pick, where):
    """The error of a run, or of the attempt to compile its placement."""
    with pytest.raises(PolicyError) as caught:
        simulate(where, tier(pick), engine="compiled")
    return caught.value


def check(error, *, name, now, request):
    """Whose fault it was, when, and over which request."""
    text = str(error)
    assert error.policy == name
    assert error.now == now
    assert f"{name!r} failed at {now:g} s" in text
    assert f"request {request}" in text


# --- placements that do as they should -------------------------------------------------------------------------------


def first_free(now, function, deadline, free, warm):
    for node in range(len(free)):
        if free[node] >= 1000:
            return node
    return -1


def second_of_two(now, function, deadline, free, warm):
    return 1 if free[1] >= 1000 else -1


def impatient(now, function, deadline, free, warm):
    return 0 if deadline - now > 4.5 and free[0] >= 1000 else -2


@pytest.mark.parametrize("tier", TIERS)
def test_a_placement_says_where_each_runs(tier):
    runs = simulate(world(0, 0, 0), tier(first_free), engine="compiled").invocations
    assert runs["node"].to_list() == ["n0", "n1", "n0"]
    assert runs["start"].to_list() == [0, 0, 1]
    runs = simulate(world(0, 0), tier(second_of_two), engine="compiled").invocations
    assert runs["node"].to_list() == ["n1", "n1"]
    assert runs["start"].to_list() == [0, 1]


@pytest.mark.parametrize("tier", TIERS)
def test_a_placement_may_refuse(tier):
    recording = simulate(world(0, 0.25, 2), tier(impatient), engine="compiled")
    requests = recording.requests.sort("request")
    assert requests["outcome"].to_list() == ["completed", "rejected", "completed"]
    assert requests["end"].to_list() == [1, 0.25, 3]


@pytest.mark.parametrize("tier", TIERS)
def test_a_placement_is_told_what_is_free_and_warm(tier):
    def told(now, function, deadline, free, warm):
        if now == 0:
            return 1 if free[0] == 2000 and free[1] == 2000 and warm[1] == 0 else -2
        return 1 if free[1] == 2000 and warm[1] == 1 and warm[0] == 0 and deadline == 7.0 and function == 0 else -2

    runs = simulate(world(0, 2, vcpus=2), tier(told), engine="compiled").invocations
    assert runs["node"].to_list() == ["n1", "n1"]
    assert runs["is_cold"].to_list() == [True, False]


# --- placements that go wrong ----------------------------------------------------------------------------------------


def raises_from_two_on(now, function, deadline, free, warm):
    if now >= 2.0:
        raise ValueError("no idea")
    return 0


@pytest.mark.parametrize("tier", TIERS)
def test_a_placement_that_raises_is_named_with_time_and_request(tier):
    error = failure(tier, raises_from_two_on, world(0, 1, 2, 3))
    check(error, name="raises_from_two_on", now=2.0, request=2)
    assert "no idea" in str(error)
    assert isinstance(error.__cause__, ValueError)


def divides_by_zero(now, function, deadline, free, warm):
    return int(1 / (now - now))


@pytest.mark.parametrize("tier", TIERS)
def test_a_placement_that_fails_by_itself_is_named_too(tier):
    check(failure(tier, divides_by_zero, world(0.5)), name="divides_by_zero", now=0.5, request=0)


def test_a_called_placement_may_raise_anything():
    class OwnError(Exception):
        pass

    def raises_own(now, function, deadline, free, warm):
        raise OwnError("mine")

    error = failure(python_placement, raises_own, world(0.25))
    check(error, name="raises_own", now=0.25, request=0)
    assert isinstance(error.__cause__, OwnError)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_who_interrupts_a_called_placement_interrupts_the_run(stop):
    def interrupted(now, function, deadline, free, warm):
        raise stop

    with pytest.raises(stop):
        simulate(world(0), python_placement(interrupted), engine="compiled")


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("answer", [2, -3, 7, 10**9, 2**31, -(2**31), 2**62])
def test_a_node_that_does_not_exist_is_an_error(tier, answer):
    def out_of_range(now, function, deadline, free, warm):
        return answer if now > 0 else 0

    error = failure(tier, out_of_range, world(0, 1.5))
    check(error, name="out_of_range", now=1.5, request=1)
    assert str(answer) in str(error)


@pytest.mark.parametrize("tier", TIERS)
def test_a_node_that_is_full_is_an_error(tier):
    def always_first(now, function, deadline, free, warm):
        return 0

    error = failure(tier, always_first, world(0, 0.25))
    check(error, name="always_first", now=0.25, request=1)
    assert "n0" in str(error) or "node 0" in str(error)


def test_a_function_that_needs_more_than_vcpus_must_fit_as_well():
    def always_first(now, function, deadline, free, warm):
        return 0

    function = declared(1.0, memory_gb=3)
    where = scenario(function, arrivals=(0, 0), on=cluster(2, vcpus=8, memory_gb=4), duration_s=5)
    for tier in (placement, python_placement):
        check(failure(tier, always_first, where), name="always_first", now=0.0, request=1)


NONSENSE = [None, "n0", 2.5, 0.5, float("nan"), float("inf"), 10**30, (0,), b"0"]


@pytest.mark.parametrize(
    "answer",
    [*NONSENSE, [0], np.zeros(2), np.float64(1.0), object()],
    ids=lambda value: "object()" if type(value) is object else repr(value),
)
def test_nonsense_from_a_called_placement_is_an_error(answer):
    def babbles(now, function, deadline, free, warm):
        return answer if now > 0 else 0

    check(failure(python_placement, babbles, world(0, 1.5)), name="babbles", now=1.5, request=1)


@pytest.mark.parametrize("answer", NONSENSE, ids=lambda value: "object()" if type(value) is object else repr(value))
def test_nonsense_from_a_compiled_placement_is_an_error_before_the_run(answer):
    def babbles(now, function, deadline, free, warm):
        return answer

    with pytest.raises((FairleadError, TypeError), match="babbles"):
        simulate(world(0), placement(babbles), engine="compiled")


def test_a_compiled_placement_that_answers_with_fractions_at_times_is_an_error():
    def wavers(now, function, deadline, free, warm):
        return 0 if now < 1 else 0.5

    with pytest.raises((FairleadError, TypeError), match="wavers"):
        simulate(world(0, 1.5), placement(wavers), engine="compiled")


@pytest.mark.parametrize("tier", TIERS)
def test_a_placement_of_other_arguments_is_an_error(tier):
    def short(now):
        return 0

    with pytest.raises((FairleadError, TypeError), match="short"):
        simulate(world(0), tier(short), engine="compiled")


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("which", ["free", "warm"])
def test_what_a_placement_is_shown_cannot_be_changed(tier, which):
    def writes_free(now, function, deadline, free, warm):
        free[0] = 99_000
        return 0

    def writes_warm(now, function, deadline, free, warm):
        warm[0] = 99
        return 0

    pick = writes_free if which == "free" else writes_warm
    if tier is placement:  # arrays that cannot be written to do not compile
        with pytest.raises((FairleadError, TypeError), match=pick.__name__):
            simulate(world(0, 0), tier(pick), engine="compiled")
    else:  # a copy, which nobody reads again
        written = simulate(world(0, 60), tier(pick), engine="compiled")
        untouched = simulate(world(0, 60), tier(lambda now, function, deadline, free, warm: 0), engine="compiled")
        assert written.invocations.equals(untouched.invocations)


@pytest.mark.parametrize("tier", ["placement", "python_placement"])
@pytest.mark.parametrize(
    ("pick", "now", "request_"), [("never", 3.0, 0), ("after_the_first", 3.0, 1)], ids=["never", "after-the-first"]
)
def test_a_placement_that_waits_for_ever_is_an_error_and_not_a_hang(tier, pick, now, request_):
    # In a process of its own, which can be given up if it hangs.
    command = [sys.executable, str(WAITS_FOR_EVER), tier, pick]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "PolicyError" in done.stdout
    assert f"{pick!r} failed at {now:g} s" in done.stdout
    assert f"request {request_}" in done.stdout


@pytest.mark.parametrize("tier", TIERS)
def test_a_placement_that_fails_once_can_be_used_again(tier):
    pick = tier(raises_from_two_on)
    with pytest.raises(PolicyError):
        simulate(world(0, 2), pick, engine="compiled")
    assert simulate(world(0, 1), pick, engine="compiled").requests["outcome"].to_list() == ["completed"] * 2


# --- runs that are not covered ---------------------------------------------------------------------------------------


def flow(*stages):
    return {"main": Workflow(name="main", stages=stages)}


A, B = Stage(name="a", function="f"), Stage(name="b", function="f", after=("a",))

UNCOVERED = {
    "map": scenario(workflows=flow(A, Stage(name="m", function="f", after=("a",), map=(1, 3)))),
    "branch": scenario(workflows=flow(A, Stage(name="x", function="f", after=("a",), when=0.5))),
    "compete": scenario(workflows=flow(A, Stage(name="x", function="f", after=("a",), compete=2))),
    "failures": scenario(declared(1.0, failure_rate=0.1)),
    "pressure curves": scenario(declared(1.0, pressure_curves={"plain": ((0.5, 1.6),)})),
    "overhead": scenario(declared(1.0, overhead_s=0.1)),
    "run limit": scenario(declared(1.0, run_limit_s=2)),
    "start limit": scenario(declared(1.0, start_limit_s=2)),
    "node fault": scenario(node_faults=(NodeFault(node="n0", at_s=1),)),
    "mig": scenario(on=cluster(vgpus=7, sharing="mig")),
    "time": scenario(on=cluster(vgpus=7, sharing="time")),
    "kernel": scenario(declared(1.0, idle_holds="memory", buffers=(Buffer(name="w", size_mb=1),))),
    "closed loop": scenario(arrivals=[ClosedLoop("main", users=1, think_s=1)], duration_s=5),
    "decision time": scenario(decision=DecisionTime(fixed_s=0.1)),
}


@pytest.mark.parametrize("what", UNCOVERED)
def test_what_is_not_covered_is_refused_with_the_reason(what):
    where = UNCOVERED[what]
    reason = coverage(where, make_policy("fifo"), None)
    assert reason
    with pytest.raises(UncoveredError) as caught:
        simulate(where, "fifo", engine="compiled")
    assert reason in str(caught.value)
    assert isinstance(caught.value, FairleadError)


@pytest.mark.parametrize("what", UNCOVERED)
def test_auto_leaves_what_is_not_covered_to_the_python_engine(what):
    where = UNCOVERED[what]
    automatic, python = (simulate(where, "fifo", engine=engine) for engine in ("auto", "python"))
    assert automatic.engine == python.engine == "python"
    assert automatic.requests.equals(python.requests)


def test_auto_takes_the_compiled_core_for_a_long_run_that_is_covered():
    where = scenario(0.001, arrivals=[Poisson("main", 1000.0)], duration_s=300)
    recording = simulate(where, "fifo", engine="auto")
    assert recording.engine == "compiled"
    assert recording.decision_s == ()


def test_auto_gives_the_same_records_for_a_short_run_whoever_does_it():
    where = scenario(workflows=flow(A, B), arrivals=(0, 1))
    automatic, compiled = (simulate(where, "fifo", engine=engine) for engine in ("auto", "compiled"))
    assert compiled.engine == "compiled"
    assert automatic.invocations.equals(compiled.invocations)


@pytest.mark.parametrize("policy", ["esg", "clockwork", "fifo-types"])
def test_a_policy_without_a_compiled_rule_is_refused_by_name(policy):
    with pytest.raises(UncoveredError, match=f"{policy}|{type(make_policy(policy)).__name__}"):
        simulate(scenario(), policy, engine="compiled")


@pytest.mark.parametrize("policy", ["fifo", "least-loaded", "earliest-deadline"])
@pytest.mark.parametrize("batching", ["aimd", "deadline"])
def test_batching_without_a_compiled_rule_is_refused_by_name(policy, batching):
    with pytest.raises(UncoveredError, match=batching):
        simulate(scenario(), make_policy(policy, {"batching": batching}), engine="compiled")


def test_an_engine_of_another_name_is_an_error():
    with pytest.raises(ValueError, match="engine"):
        simulate(scenario(), "fifo", engine="fast")


def test_a_longer_run_after_a_shorter_one_begins_anew():
    # Nothing of a run may be left in arrays that the next one uses.
    where = world(0, 0.25, 1, nodes=1)
    alone = simulate(where, "fifo", engine="compiled")
    simulate(replace(where, cluster=cluster(5, vcpus=3)), "least-loaded", engine="compiled")
    assert simulate(where, "fifo", engine="compiled").invocations.equals(alone.invocations)
