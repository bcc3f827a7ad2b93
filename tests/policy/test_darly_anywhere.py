"""darly-any in the simulator: where functions go on any cluster, what it never does, and what it believes."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from darly_agents import written
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from fairlead import simulate
from fairlead.errors import ConfigError
from fairlead.learn.darly.cluster import Setting
from fairlead.learn.darly.cluster import scenario as video
from fairlead.learn.darly.family import drawn_deployment, problem_of
from fairlead.model import Cluster, Node, Record, Workflow
from fairlead.planning.deployment import improved, latency_s, quickest
from fairlead.policy import Move, Scale, make_policy
from fairlead.policy.darly.anywhere import Anywhere
from fairlead.policy.darly.arranging import needs_of
from fairlead.policy.darly.beliefs import Beliefs
from fairlead.policy.darly.checkpoint import Checkpoint, Description, read_any, read_checkpoint, write_checkpoint
from fairlead.policy.darly.features import NAMES
from fairlead.policy.darly.network import arrays_of
from fairlead.policy.darly.policy import Fullmap
from fairlead.profile import Estimate
from fairlead.testing import SCALER_CHECKS, SCENARIOS, declared, scenario, site_of
from fairlead.workload import NodeFault, PressureChange

GREEDY = {"gain": 1.0, "is_move": -0.001}
RESTLESS = {"is_move": 1.0}
STILL = {"is_move": -1.0}


def agent(path, weights, **settings):
    """A scaler whose network is a weighted sum of features."""
    column = np.array([[weights.get(name, 0.0)] for name in NAMES], np.float32)
    description = Description(scheduler="any", features=NAMES, observation=len(NAMES), hidden=())
    arrays = arrays_of([(column, np.zeros(1, np.float32))])
    write_checkpoint(Checkpoint(description=description, arrays=arrays), path)
    return Anywhere(checkpoint=str(path), **settings)


@pytest.fixture
def make(tmp_path):
    return lambda weights, **settings: agent(tmp_path / "any.safetensors", weights, **settings)


def pair(slo_s, *, pressures=((0.0, 0.75), (100.0, 0.0)), duration_s=200.0, small_gb=8.0, **more):
    """a (4 s) then b (2 s) on n1, twice as long on n2; pressure on n1 as (instant, share).

    At 75 % a run on n1 takes 1 + 2 x 0.75 = 2.5 times as long: both take 6 s at rest, 15 s under it, and 12 s on n2.
    """
    nodes = (
        Node(name="n1", kind="n1", vcpus=4.0, memory_gb=8.0),
        Node(name="n2", kind="n2", vcpus=4.0, memory_gb=small_gb, speed=0.5),
    )
    return scenario(
        {"a": declared(4.0, sensitivity=2.0, memory_gb=1.0), "b": declared(2.0, sensitivity=2.0, memory_gb=1.0)},
        arrivals=tuple(range(20, int(duration_s), 20)),
        on=Cluster(nodes=nodes),
        slo_s=slo_s,
        duration_s=duration_s,
        control_period_s=1.0,
        pressures=tuple(PressureChange(node="n1", at_s=at, pressure=p) for at, p in pressures),
        **more,
    )


def run(scaler, world):
    """The recording, with every action of the scaler in `seen` and its notes in `noted`."""
    scaler.seen, scaler.noted, adjust = [], [], scaler.adjust

    def watch(view):
        for action in adjust(view):
            scaler.seen.append((view.now, action))
            yield action
        scaler.noted.append((view.now, scaler.notes()))

    scaler.adjust = watch
    recording = simulate(world, scaler=scaler)
    assert not recording.refusals
    return recording


def moves(scaler):
    """Moves after the first turn, by instant."""
    begun = scaler.seen[0][0]
    found = {}
    for at, action in scaler.seen:
        if at > begun and isinstance(action, Move):
            found.setdefault(at, {})[action.function] = action.node
    return found


def test_functions_leave_a_node_under_pressure_before_the_first_request_and_come_back(make):
    scaler = make(GREEDY)
    recording = run(scaler, pair(14.0))
    assert moves(scaler) == {6.0: {"a": "n2", "b": "n2"}, 100.0: {"a": "n1", "b": "n1"}}
    nodes = recording.invocations.sort("start").filter(pl.col("function") == "a")["node"].to_list()
    assert [one for one, after in pairwise([*nodes, None]) if one != after] == ["n2", "n1"]
    assert scaler.noted[6][1]["a"] == {
        "is_doable": 1.0,
        "moved": 2.0,
        "value": pytest.approx(2 / 14 - 0.001),  # a gains 10 - 8 s
        "now_s": pytest.approx(15.0),
        "best_s": pytest.approx(12.0),
    }


def test_nothing_is_decided_until_a_change_has_settled_nor_without_news(make):
    scaler = make(GREEDY, settle_s=40.0)
    run(scaler, pair(14.0, pressures=((0.0, 0.75), (50.0, 0.0))))
    assert list(moves(scaler)) == [41.0, 81.0]
    noted = [notes["a"] for at, notes in scaler.noted if 41 <= at < 81]
    assert all(one == noted[0] for one in noted)


def test_an_objective_that_cannot_be_met_sends_everything_where_it_is_quickest_and_no_further(make):
    scaler = make(RESTLESS)
    run(scaler, pair(11.0, pressures=((0.0, 0.75),)))
    assert moves(scaler) == {6.0: {"a": "n2", "b": "n2"}}
    assert {notes["a"]["is_doable"] for at, notes in scaler.noted if at > 6} == {0.0}


def test_without_that_test_the_agent_decides(make):
    scaler = make(STILL, doable=False)
    run(scaler, pair(11.0, pressures=((0.0, 0.75),)))
    assert not moves(scaler)
    assert scaler.noted[-1][1]["b"]["is_doable"] == 0.0


def test_moves_that_bring_nothing_are_not_made(make):
    scaler = make(RESTLESS)  # wants both on n2, where a request takes 12 s and not 6 s
    run(scaler, pair(14.0, pressures=()))
    assert not moves(scaler)


def test_no_move_is_made_that_would_miss_the_objective(make):
    scaler = make(RESTLESS)
    run(scaler, pair(14.0, pressures=((0.0, 0.75), (60.0, 0.0))))
    assert moves(scaler) == {6.0: {"a": "n2", "b": "n2"}, 60.0: {"a": "n1", "b": "n1"}}
    scaler = make({"then": 1.0})  # wants everything as slow as can be: a on n2 is 10 s, and both 12 s
    run(scaler, pair(8.0, pressures=()))
    assert not moves(scaler)


def test_a_group_goes_only_where_there_is_room(make):
    scaler = make(GREEDY)
    run(scaler, pair(14.0, small_gb=1.5))
    assert moves(scaler) == {6.0: {"a": "n2"}, 100.0: {"a": "n1"}}


def test_groups_move_whole(make):
    scaler = make(GREEDY, groups="both=a,b")
    run(scaler, pair(14.0))
    assert moves(scaler)[6.0] == {"a": "n2", "b": "n2"}
    assert scaler.noted[6][1]["a"]["moved"] == 1
    scaler = make(GREEDY, groups="both=a,b")
    run(scaler, pair(14.0, small_gb=1.5))
    assert not moves(scaler)


def test_everything_begins_on_the_quickest_node_or_where_it_is_told(make):
    for wish, node in (({}, "n1"), ({"first_node": "n2"}, "n2")):
        scaler = make(STILL, slots=2, **wish)
        recording = run(scaler, pair(14.0, pressures=()))
        assert [action for _, action in scaler.seen[1:3]] == [Move("a", node), Scale("a", 2)]
        assert set(recording.instances.filter(~pl.col("on_demand"))["node"]) == {node}


def test_a_lost_node_is_left(make):
    scaler = make(STILL)
    run(scaler, pair(14.0, pressures=(), node_faults=(NodeFault(node="n1", at_s=50.0),)))
    assert {function: node for found in moves(scaler).values() for function, node in found.items()} == {
        "a": "n2",
        "b": "n2",
    }


def test_the_workflow_that_is_furthest_from_its_objective_is_looked_at(make):
    world = pair(100.0, pressures=((0.0, 0.75),))
    hurry = Workflow.chain("hurry", "b", slo=structs.replace(world.workflows["main"].slo, latency_s=4.5))
    scaler = make(GREEDY)
    run(scaler, replace(world, workflows={**world.workflows, "hurry": hurry}))
    assert moves(scaler) == {6.0: {"b": "n2"}}  # 5 s on n1, 4 s on n2; main has time


def test_replicas_are_scaled_only_where_a_group_is_named(make):
    outward = {"is_out": 1.0, "is_in": -1.0, "is_move": -1.0}
    scaler = make(outward)
    run(scaler, pair(14.0, pressures=()))
    assert {action.instances for _, action in scaler.seen if isinstance(action, Scale)} == {0, 1}
    scaler = make(outward, scaled="a", max_replicas=3)
    run(scaler, pair(14.0, pressures=()))
    wanted = [(action.function, action.instances) for at, action in scaler.seen if isinstance(action, Scale) and at > 1]
    assert wanted == [("a", 2), ("a", 3)]


def test_the_video_workflow_meets_more_than_where_nothing_moves(make):
    changes = (PressureChange(node="w01", at_s=100.0, pressure=0.5),)
    world = video(Setting(curves="logs"), slo_s=26.0, control_period_s=5.0, duration_s=1200.0, pressures=changes)
    met = []
    for weights in (GREEDY, STILL):
        requests = run(make(weights, slots=4), world).requests.drop_nulls("end")
        met.append(((requests["end"] - requests["arrival"]) <= 26.0).mean())
    assert met[0] >= 0.9
    assert met[1] <= 0.2


@pytest.mark.parametrize("where", ["cpu-only", "node-loss", "crowded", "gpu-mps"])
@pytest.mark.parametrize(
    "weights", [RESTLESS, GREEDY, {"is_out": 1.0, "is_move": 0.5}], ids=["moves", "gain", "scales"]
)
def test_whatever_the_agent_wants_it_conforms(weights, where, tmp_path):
    world = SCENARIOS[where]()
    first = next(iter(next(iter(world.workflows.values())).functions))
    for check in SCALER_CHECKS:
        check(lambda: agent(tmp_path / "any.safetensors", weights, settle_s=1.0, scaled=first), world)


def test_the_agent_that_comes_along_is_one_for_any_workflow():
    scaler = make_policy("darly-any", {})
    run(scaler, pair(14.0))
    assert scaler.notes()["a"]["is_doable"] == 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slots": 0}, "slots must be at least 1"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"max_replicas": 0}, "max_replicas must be at least 1"),
        ({"settle_s": -1.0}, "settle_s must be finite and not negative"),
        ({"groups": "a=b;a=c"}, "name each group once"),
    ],
)
def test_parameters_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        make_policy("darly-any", settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"first_node": "n9"}, "first_node must be one of n1, n2; got 'n9'"),
        ({"scaled": "c"}, "scaled must be one of a, b; got 'c'"),
        ({"groups": "one=c"}, "names the function 'c'"),
    ],
)
def test_names_that_are_not_there_are_refused(make, settings, message):
    with pytest.raises(ValueError, match=message):
        make(STILL, **settings).prepare(site_of(pair(14.0)), np.random.default_rng(0))


def test_agents_of_another_kind_are_refused(make, tmp_path):
    other = tmp_path / "fullmap.safetensors"
    written(other, "fullmap", 0)
    with pytest.raises(ConfigError, match="trained as darly-fullmap, not any"):
        Anywhere(checkpoint=str(other)).prepare(site_of(pair(14.0)), np.random.default_rng(0))
    make(STILL)
    assert read_any(tmp_path / "any.safetensors").description.actions == 1
    world = video(Setting(noise=False))
    with pytest.raises(ConfigError, match="trained as darly-any, not fullmap"):
        Fullmap(checkpoint=str(tmp_path / "any.safetensors")).prepare(site_of(world), np.random.default_rng(0))


def test_a_file_with_other_features_is_refused(tmp_path):
    path = tmp_path / "old.safetensors"
    description = Description(scheduler="any", features=("speed",), observation=1, hidden=())
    arrays = arrays_of([(np.zeros((1, 1), np.float32), np.zeros(1, np.float32))])
    with pytest.raises(ConfigError, match="described by other numbers"):
        write_checkpoint(Checkpoint(description=description, arrays=arrays), path)
    assert not path.exists()
    with pytest.raises(ConfigError, match="cannot be read"):
        read_checkpoint(path)


def _record(start, seconds, *, node="n1", function="a", outcome="done", transfer_s=0.0):
    return Record(
        request=0,
        workflow="main",
        stage=function,
        function=function,
        node=node,
        device=-1,
        ready=start,
        start=start,
        cold_s=0.0,
        transfer_s=transfer_s,
        end=start + seconds,
        batch_size=1,
        vcpus=1.0,
        vgpus=0.0,
        cost_usd=0.0,
        deadline=100.0,
        outcome=outcome,
    )


def test_times_are_corrected_by_runs_on_nodes_at_rest_alone():
    site = site_of(pair(14.0))
    beliefs = Beliefs(site, needs_of(site))
    believed = beliefs.times["a"]

    def a_s(kind="n1"):
        return believed.latency_s(believed.configuration, kind)

    beliefs.look(SimpleNamespace(now=10.0), {"n1": 0.0, "n2": 0.0})
    beliefs.observe(_record(9.0, 8.0))  # began before the first look
    beliefs.observe(_record(11.0, 8.0, outcome="failed"))
    beliefs.look(SimpleNamespace(now=20.0), {"n1": 0.0, "n2": 0.0})
    assert a_s() == 4.0
    beliefs.observe(_record(11.0, 8.0))  # twice what was declared
    beliefs.look(SimpleNamespace(now=30.0), {"n1": 0.0, "n2": 0.0})
    assert a_s() == pytest.approx(4.0 * (0.8 + 0.2 * 2))
    beliefs.observe(_record(25.0, 10.0))
    beliefs.look(SimpleNamespace(now=40.0), {"n1": 0.5, "n2": 0.0})  # somebody else has come
    beliefs.look(SimpleNamespace(now=50.0), {"n1": 0.0, "n2": 0.0})
    beliefs.observe(_record(45.0, 10.0))  # began while they were there
    beliefs.look(SimpleNamespace(now=60.0), {"n1": 0.0, "n2": 0.0})
    assert a_s() == pytest.approx(4.8)
    assert a_s("n2") == 8.0


def test_what_a_call_takes_besides_its_work_is_no_part_of_its_time():
    world = pair(14.0)
    profiles = {name: structs.replace(profile, overhead_s=1.0) for name, profile in world.profiles.items()}
    site = site_of(replace(world, profiles=profiles))
    beliefs = Beliefs(site, needs_of(site))
    for now in (10.0, 20.0):
        beliefs.look(SimpleNamespace(now=now), {"n1": 0.0, "n2": 0.0})
        beliefs.observe(_record(11.0, 5.0, transfer_s=1.0))  # 4 s of work, as declared, and the overhead
    assert beliefs.times["a"].latency_s(beliefs.times["a"].configuration, "n1") == 4.0


def test_what_an_estimate_says_of_pressure_cannot_be_changed():
    world = video(Setting(noise=False))
    estimate = Estimate(world.profiles["detector"], world.cluster)
    assert estimate.overhead_s == pytest.approx(0.8 - 14.2 / 65)
    with pytest.raises(TypeError):
        estimate.pressure_curves["w01"] = ()


@given(st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_one_group_after_the_other_finds_the_quickest_placement_where_groups_are_functions(seed):
    rng = np.random.default_rng(seed)
    problem = problem_of(drawn_deployment(rng))
    names = list(problem.profiles)[:4]
    cluster = structs.replace(problem.cluster, nodes=problem.cluster.nodes[:4])
    stages = tuple(stage for stage in problem.workflow.stages if stage.function in names)
    workflow = structs.replace(problem.workflow, stages=stages)
    problem = replace(problem, workflow=workflow, groups={name: (name,) for name in names}, cluster=cluster)
    pressures = {name: float(rng.choice([0.0, 0.25, 0.5, 0.75])) for name in problem.nodes}
    first = {name: str(rng.choice(list(problem.nodes))) for name in names}
    found_s, places = improved(problem, first, pressures)
    assert found_s == pytest.approx(quickest(problem, pressures)[0])
    assert found_s == latency_s(problem, places, pressures)
