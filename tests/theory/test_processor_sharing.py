"""Overcommitted nodes: runs share vCPUs in proportion to what they hold, by hand and against closed forms.

With n runs of one vCPU each on a node of k, the total pace is that of min(n, k) servers. With exponential work the
number in the system is then that of M/M/k, and by Little's law so is the mean latency, although nobody waits. With one
vCPU it is M/G/1 processor sharing, whose mean latency does not depend on the distribution of work at all: service_s /
(1 - load).

A 99 % interval misses once in a hundred. All are with seed 0.
"""

from math import inf

import numpy as np
import pytest
from closed_forms import batch_means, mmc_wait_s, relaxation_s

from fairlead.engine import simulate
from fairlead.errors import ConfigError
from fairlead.model import Configuration, Node
from fairlead.policy import Policy, Start
from fairlead.profile import Exponential, LogNormal
from fairlead.profile.interference import contention
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Listed, Poisson, PressureChange, parse_scenario

ENGINES = ("python", "compiled")
BATCHES = 20


def ends(recording):
    return recording.invocations.sort("request")["end"].to_list()


def sized(seconds, vcpus, **others):
    return declared(seconds, configurations=(Configuration(vcpus=vcpus),), **others)


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_contention_is_nothing_while_there_is_enough_and_proportional_beyond():
    assert contention(0.5, 0.5) == 1.0
    assert contention(0.25, 0.0) == 1.0
    assert contention(2.0, 0.5) == 2.5


@pytest.mark.parametrize("engine", ENGINES)
def test_three_on_one_vcpu_take_three_times_as_long(engine):
    where = scenario(1.0, arrivals=[0, 0, 0], on=cluster(vcpus=1, overcommit=4))
    assert ends(simulate(where, engine=engine)) == [pytest.approx(3)] * 3


@pytest.mark.parametrize("engine", ENGINES)
def test_a_newcomer_slows_down_and_one_that_goes_speeds_up(engine):
    # Alone until 1; then both at 1/2. The first has 1 s left, until 3; the second has then done 1 of 2, and ends at 4.
    where = scenario(2.0, arrivals=[0, 1], on=cluster(vcpus=1, overcommit=2))
    assert ends(simulate(where, engine=engine)) == [pytest.approx(3), pytest.approx(4)]


@pytest.mark.parametrize("engine", ENGINES)
def test_vcpus_are_divided_in_proportion_to_what_each_holds(engine):
    # Three vCPUs and one, on two: 1.5 and 0.5, half of what each would like. The wide one has 1 s of work, until 2;
    # the thin one has 3 s, of which 1 is done, and two are left at its full pace.
    functions = {"wide": sized(1.0, 3), "thin": sized(3.0, 1)}
    where = scenario(
        functions,
        workflows={"main": ("wide",), "other": ("thin",)},
        arrivals=[0, Listed("other", (0.0,))],
        on=cluster(vcpus=2, overcommit=2),
    )
    found = dict(simulate(where, engine=engine).invocations.select("function", "end").rows())
    assert found == {"wide": pytest.approx(2), "thin": pytest.approx(4)}


@pytest.mark.parametrize("engine", ENGINES)
def test_pressure_from_outside_takes_its_part(engine):
    # A load of two vCPUs beside one of work, on two: 3 / 2 from 1 to 4, in which two seconds of work are done.
    changes = (PressureChange(node="n0", at_s=1, pressure=1.0), PressureChange(node="n0", at_s=4, pressure=0))
    where = scenario(4.0, on=cluster(vcpus=2, overcommit=2), pressures=changes)
    assert ends(simulate(where, engine=engine)) == [pytest.approx(5)]


@pytest.mark.parametrize("engine", ENGINES)
def test_sensitivity_comes_on_top(engine):
    # Two on one vCPU: a half by sharing, and another half since each feels a load of 1 around it.
    where = scenario(declared(1.0, sensitivity=1.0), arrivals=[0, 0], on=cluster(vcpus=1, overcommit=2))
    assert ends(simulate(where, engine=engine)) == [pytest.approx(4)] * 2


@pytest.mark.parametrize("engine", ENGINES)
def test_no_more_is_placed_than_the_overcommitted_vcpus(engine):
    # Two at a time, each at half its pace: the third begins at 2.
    where = scenario(1.0, arrivals=[0, 0, 0], on=cluster(vcpus=1, overcommit=2))
    recording = simulate(where, engine=engine)
    assert recording.invocations.sort("request")["start"].to_list() == [0, 0, pytest.approx(2)]
    assert ends(recording)[2] == pytest.approx(3)


def test_the_load_that_policies_see_is_of_the_overcommitted_vcpus():
    seen = []

    class Watching(Policy):
        def decide(self, view):
            for invocation in view.by_ready():
                yield Start((invocation,), Configuration(), "n0")
                seen.append(view.load("n0"))

    simulate(scenario(1.0, arrivals=[0, 0, 0, 0], on=cluster(vcpus=1, overcommit=4)), Watching())
    assert seen == [0.25, 0.5, 0.75, 1.0]


def test_a_scenario_file_says_how_far_a_node_is_overcommitted():
    data = {
        "duration_s": 10,
        "cluster": {"nodes": [{"name": "n", "vcpus": 2, "overcommit": 4}]},
        "functions": {"detect": {"latency": {"constant_s": 0.5}, "configurations": [{"vcpus": 3}]}},
        "workflows": {"main": {"stages": {"detect": []}}},
        "arrivals": [{"workflow": "main", "process": "poisson", "rate_rps": 4}],
    }
    (node,) = parse_scenario(data, "small.yaml").cluster.nodes
    assert node == Node(name="n", kind="n", vcpus=2, overcommit=4)
    assert node.capacity_vcpus == 8
    data["cluster"]["nodes"][0]["overcommit"] = 0.5
    with pytest.raises(ConfigError, match=r"nodes\.0\.overcommit: must be at least 1 and finite; got 0\.5"):
        parse_scenario(data, "small.yaml")


# --- against closed forms --------------------------------------------------------------------------------------------


def shared(law, vcpus, load, arrivals):
    """Poisson arrivals for work of one second on average, that all goes on at once on a node of so many vCPUs."""
    return scenario(
        declared(law, keep_alive_s=inf, idle_holds="memory"),
        arrivals=[Poisson("main", vcpus * load)],
        on=cluster(vcpus=vcpus, overcommit=1000 / vcpus),
        duration_s=arrivals / (vcpus * load),
    )


def latencies(where, engine):
    table = simulate(where, "fifo", seed=0, engine=engine).invocations.sort("request")
    assert (table["start"] == table["ready"]).all(), "somebody waited"
    return (table["end"] - table["ready"]).to_numpy()


def check(values, expected, most, *, length_s, memory_s):
    """The interval around the mean of values must hold what is expected, and be no wider than so much of it."""
    interval = batch_means(values[len(values) // (BATCHES + 1) :], BATCHES)
    found = f"{expected:.5g} by theory, {interval.mean:.5g} +- {interval.half_width:.2g} measured"
    assert length_s / (BATCHES + 1) >= 25 * memory_s, "batches are too short for the memory of the queue"
    assert interval.half_width <= most * expected, f"too wide to say anything: {found}"
    assert interval.contains(expected), found


@pytest.mark.parametrize(
    ("engine", "vcpus", "load", "arrivals"),
    [("python", 1, 0.5, 20_000), ("compiled", 1, 0.8, 200_000), ("compiled", 4, 0.8, 200_000)],
)
def test_mean_latency_of_exponential_work_is_that_of_as_many_servers(engine, vcpus, load, arrivals):
    where = shared(Exponential(1.0), vcpus, load, arrivals)
    expected = 1 + mmc_wait_s(vcpus, load)
    memory_s = relaxation_s(vcpus, load)
    check(latencies(where, engine), expected, 0.1, length_s=where.duration_s, memory_s=memory_s)


@pytest.mark.parametrize("law", [1.0, LogNormal(1.0, 0.8)], ids=["constant", "lognormal"])
def test_mean_latency_on_one_vcpu_does_not_depend_on_the_law(law):
    mean_s = 1.0 if law == 1.0 else float(np.exp(0.8**2 / 2))
    where = shared(law, 1, 0.7 / mean_s, 200_000)
    expected = mean_s / (1 - 0.7)
    found = latencies(where, "compiled")
    check(found, expected, 0.1, length_s=where.duration_s, memory_s=mean_s * relaxation_s(1, 0.7))
