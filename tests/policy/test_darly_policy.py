"""The scalers of Darly in the simulator: where functions go, how many there are, and what is refused."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from darly_agents import NODES, stubborn, written
from msgspec import structs

from fairlead import simulate
from fairlead.errors import ConfigError, PolicyError
from fairlead.learn.darly.cluster import Setting
from fairlead.learn.darly.cluster import scenario as video
from fairlead.model import Record
from fairlead.policy import Move, Scale, make_policy
from fairlead.policy.darly import policy as module
from fairlead.policy.darly.arranging import by_speed, needs_of
from fairlead.policy.darly.checkpoint import write_checkpoint
from fairlead.policy.darly.groups import groups_of
from fairlead.policy.darly.outcomes import Outcomes
from fairlead.policy.darly.policy import Custom, Fullmap, Kubernetes, Oracle
from fairlead.testing import SCALER_CHECKS, SCENARIOS, site_of
from fairlead.workload import NodeFault, PressureChange

QUIET = Setting(noise=False)
KINDS = {"fullmap": Fullmap, "custom": Custom, "kubernetes": Kubernetes, "oracle": Oracle}


@pytest.fixture
def agent(tmp_path):
    """Makes a scaler whose agent always takes the action with this index."""

    def make(scheduler: str, index: int, **settings):
        path = written(tmp_path / f"{scheduler}-{index}.safetensors", scheduler, index)
        return KINDS[scheduler](checkpoint=path, **settings)

    return make


def watched(scaler):
    """The scaler, with every action and note that it makes in `seen`."""
    scaler.seen, adjust = [], scaler.adjust

    def watch(view):
        for action in adjust(view):
            scaler.seen.append((view.now, action))
            yield action
        scaler.last = scaler.notes()

    scaler.adjust = watch
    return scaler


def run(scaler, *, duration_s=400.0, pressures=(), setting=QUIET, **settings):
    world = video(setting, control_period_s=5.0, duration_s=duration_s, pressures=pressures, **settings)
    return simulate(world, scaler=watched(scaler))


def nodes_of(recording, function: str) -> list[str]:
    """The nodes on which a function ran, in order."""
    rows = recording.invocations.filter(pl.col("function") == function).sort("start")
    found = rows["node"].to_list()
    return found[:1] + [after for before, after in pairwise(found) if after != before]


def test_everything_begins_on_the_quickest_node_with_its_slots(agent):
    scaler = agent("fullmap", 14)  # keep
    recording = run(scaler)
    begun = [action for at, action in scaler.seen if at == 5]
    assert begun[:3] == [Scale("framer", 0, begun[0].configuration), Move("framer", "w01"), Scale("framer", 4)]
    assert {action.node for action in begun if isinstance(action, Move)} == {"w01"}
    assert len(scaler.seen) == len(begun) == 15
    assert not recording.refusals
    replicas = recording.instances.filter(~pl.col("on_demand"))
    assert replicas["node"].unique().to_list() == ["w01"]
    assert replicas.height == 5 * 4


def test_an_agent_that_wants_the_framer_elsewhere_moves_it_and_nothing_else(agent):
    scaler = agent("fullmap", 1)  # framer to w02
    recording = run(scaler)
    assert nodes_of(recording, "framer") == ["w01", "w02"]
    assert nodes_of(recording, "detector") == ["w01"]
    moves = [action for at, action in scaler.seen if at > 5]
    assert moves == [Move("framer", "w02")]  # once: it is there, and the next such action changes nothing
    latencies = (recording.requests["end"] - recording.requests["arrival"]).to_list()
    assert latencies[-1] == pytest.approx(24.5, abs=1.0)  # the thesis's logs have 24.4 s with all on w02


def test_the_models_move_together_and_the_uploader_with_them(agent):
    scaler = agent("fullmap", 11)  # models to w04
    recording = run(scaler)
    assert [action.function for at, action in scaler.seen if at > 5] == ["analyzer", "recogniser", "uploader"]
    for function in ("analyzer", "recogniser", "uploader"):
        assert nodes_of(recording, function) == ["w01", "w04"]


def test_an_agent_waits_until_a_request_has_come_and_gone_since_its_last_change(agent):
    scaler = agent("fullmap", 12, max_replicas=3)  # models out
    recording = run(scaler)
    changes = sorted({at for at, action in scaler.seen if at > 5})
    ends = recording.requests["end"].to_list()
    arrivals = recording.requests["arrival"].to_list()
    for before, after in pairwise([5.0, *changes]):
        assert any(before <= arrival and end <= after for arrival, end in zip(arrivals, ends, strict=True))
        assert after - before >= 18


def test_replicas_stop_at_their_most_and_what_is_beyond_is_refused(agent):
    scaler = agent("fullmap", 12, max_replicas=2)
    recording = run(scaler)
    wanted = [a.instances for at, a in scaler.seen if at > 5 and isinstance(a, Scale) and a.function == "recogniser"]
    assert wanted == [8]
    assert scaler.last["framer"]["is_refused"] == 1
    assert scaler.last["framer"]["reward"] == -2
    assert not recording.refusals


def test_fewer_than_one_replica_is_refused(agent):
    scaler = agent("fullmap", 13)  # models in
    run(scaler)
    assert len(scaler.seen) == 15
    assert scaler.last["analyzer"]["is_refused"] == 1


def test_notes_give_the_reward_of_equation_1(agent):
    scaler = agent("fullmap", 14)
    recording = run(scaler)
    noted = scaler.last["framer"]
    answered = recording.requests.drop_nulls("end")
    quotient = (answered["end"] - answered["arrival"])[-1] / 35.0
    assert noted == {"action": 14.0, "value": 1.0, "reward": pytest.approx(3 + 4 + 3 * quotient), "is_refused": 0.0}
    assert set(scaler.last) == {"framer", "detector", "analyzer", "recogniser", "uploader"}


def test_an_objective_that_is_missed_is_punished(agent):
    scaler = agent("fullmap", 14, first_node="w04")
    run(scaler, slo_s=26.0)
    assert -6 <= scaler.last["framer"]["reward"] <= -5


def test_custom_sends_the_models_to_the_node_with_the_least_pressure(agent):
    pressures = [PressureChange(node=node, at_s=0.0, pressure=0.5) for node in ("w01", "w02", "w04")]
    recording = run(agent("custom", 8), pressures=pressures)
    assert nodes_of(recording, "analyzer") == ["w01", "w03"]


def test_oracle_leaves_the_best_node_only_if_an_objective_was_missed(agent):
    pressures = [PressureChange(node="w01", at_s=100.0, pressure=0.8)]
    recording = run(agent("oracle", 0), pressures=pressures, duration_s=500.0)
    moves = nodes_of(recording, "framer")
    assert moves[:2] == ["w01", "w02"]  # with 0.8 on w01 requests take more than 35 s, and w02 is at rest
    calm = run(agent("oracle", 0))
    assert nodes_of(calm, "framer") == ["w01"]


def test_kubernetes_begins_where_its_rule_says_and_repeats_itself_by_seed(agent):
    def even():
        return agent("kubernetes", 3, daemons=0, allocatable="w03=8")

    starts = set()
    for seed in range(4):
        world = video(QUIET, control_period_s=5.0, duration_s=100.0)
        one, other = (simulate(world, scaler=even(), seed=seed) for _ in range(2))
        assert one.invocations.equals(other.invocations)
        starts.add(nodes_of(one, "framer")[-1])
    assert len(starts) > 1  # equal nodes are drawn from
    assert "w04" not in starts  # the smallest scores less


def test_kubernetes_counts_the_vcpus_that_it_is_told(agent):
    for given in ({"allocatable": "w03=16"}, {}):  # that of Darly's own w03, as in training, needs not be told
        for seed in range(3):  # with its 16 vCPUs w03 has most left, and nothing is drawn
            world = video(QUIET, control_period_s=5.0, duration_s=100.0)
            recording = simulate(world, scaler=agent("kubernetes", 3, **given), seed=seed)
            assert nodes_of(recording, "framer")[-1] == "w03"
    for text in ("w03", "=3", "w03=no", "w03=0"):
        with pytest.raises(ValueError, match="allocatable must be node=vcpus"):
            Kubernetes(allocatable=text)
    with pytest.raises(ValueError, match="daemons must not be negative"):
        Kubernetes(daemons=-1)


def test_first_node_is_where_it_begins(agent):
    recording = run(agent("kubernetes", 3, first_node="w04"), duration_s=100.0)
    assert set(recording.instances.filter(~pl.col("on_demand"))["node"]) == {"w04"}


def test_exploring_draws_actions_and_repeats_itself_by_seed(agent):
    one, other = (run(agent("fullmap", 14, epsilon=1.0)) for _ in range(2))
    assert one.invocations.equals(other.invocations)
    assert len({node for function in ("framer", "detector", "analyzer") for node in nodes_of(one, function)}) > 1


def test_what_does_not_fit_is_refused_and_nothing_is_started(agent):
    world = video(QUIET, control_period_s=5.0, duration_s=300.0)
    nodes = tuple(n if n.name != "w02" else structs.replace(n, memory_gb=0.1) for n in world.cluster.nodes)
    world = replace(world, cluster=structs.replace(world.cluster, nodes=nodes))
    scaler = watched(agent("fullmap", 1))
    recording = simulate(world, scaler=scaler)  # four framers hold 0.18 GB
    assert nodes_of(recording, "framer") == ["w01"]
    assert scaler.last["framer"]["is_refused"] == 1
    assert not recording.refusals


def test_a_group_whose_node_is_lost_goes_to_the_quickest_that_is_up(agent):
    world = video(QUIET, control_period_s=5.0, duration_s=400.0)
    world = replace(world, node_faults=(NodeFault(node="w01", at_s=120.0),))
    recording = simulate(world, scaler=agent("fullmap", 14))
    assert nodes_of(recording, "framer") == ["w01", "w02"]
    assert recording.requests.filter(pl.col("outcome") == "completed").height >= 5


def test_replicas_at_rest_do_not_make_a_node_look_busy():
    seen = []

    class Looking(Fullmap):
        """Keeps what it sees."""

        def adjust(self, view):
            seen.append((view.now, view.signals("w01")[4]))
            yield from super().adjust(view)

    scaler = Looking()
    scaler._read = lambda: None
    run(scaler, duration_s=100.0)
    assert dict(seen)[10.0] == pytest.approx(0.02)  # before the first request, with all replicas there
    assert dict(seen)[30.0] == pytest.approx(0.02 + 1 / 8)  # a framer works


def test_nodes_are_ordered_by_what_was_measured_there():
    site = site_of(video(QUIET))
    assert by_speed(site.cluster.nodes, needs_of(site)) == NODES


# --- which agent ---------------------------------------------------------------------------------------------------


def test_without_an_agent_for_this_cluster_everything_stays_where_it_was_put():
    scaler = Oracle(slots=1)
    recording = simulate(replace(SCENARIOS["chain"](), control_period_s=1.0), "least-loaded", scaler=scaler)
    replicas = recording.instances.filter(~pl.col("on_demand"))
    assert replicas.height == 3
    assert not scaler._outcomes._arrived  # nothing is kept of requests that nobody will ask for


@pytest.mark.parametrize("scheduler", KINDS)
def test_a_version_without_agents_says_how_to_train_one(scheduler, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "__file__", str(tmp_path / "policy.py"))
    with pytest.raises(ConfigError, match=f"train one with: fairlead train darly --scheduler {scheduler}"):
        KINDS[scheduler]().prepare(site_of(video(QUIET)), np.random.default_rng(0))


def test_the_agent_that_comes_with_fairlead_is_taken_where_it_fits(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "__file__", str(tmp_path / "policy.py"))
    write_checkpoint(stubborn("oracle", 1), tmp_path / "oracle.safetensors")
    scaler = Oracle()
    scaler.prepare(site_of(video(QUIET)), np.random.default_rng(0))
    assert scaler._agent.description.scheduler == "oracle"


def test_an_agent_of_another_scheduler_or_cluster_is_refused(agent):
    with pytest.raises(ConfigError, match="trained as darly-fullmap, not oracle"):
        Oracle(checkpoint=agent("fullmap", 0).checkpoint).prepare(site_of(video(QUIET)), np.random.default_rng(0))
    with pytest.raises((ConfigError, PolicyError), match="here are n0"):
        simulate(SCENARIOS["chain"](), "least-loaded", scaler=agent("fullmap", 0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slots": 0}, "slots must be at least 1"),
        ({"max_replicas": 0}, "max_replicas must be at least 1"),
        ({"settle_s": -1.0}, "settle_s must be finite"),
        ({"remove_s": float("inf")}, "remove_s must be finite"),
        ({"input_class": 5}, r"input_class must be in \[1, 4\]"),
        ({"epsilon": 1.5}, r"epsilon must be in \[0, 1\]"),
        ({"groups": "a"}, "groups must be group=function"),
    ],
)
def test_parameters_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        make_policy("darly-fullmap", settings)


def test_a_first_node_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="first_node must be one of w01, w02, w03, w04; got 'w09'"):
        Fullmap(first_node="w09").prepare(site_of(video(QUIET)), np.random.default_rng(0))


@pytest.mark.parametrize("where", ["cpu-only", "node-loss", "crowded"])
@pytest.mark.parametrize("scheduler", KINDS)
def test_an_agent_that_tries_everything_conforms(scheduler, where, tmp_path):
    world = SCENARIOS[where]()
    order = dict.fromkeys(name for flow in world.workflows.values() for name in flow.functions)
    groups = tuple(group.name for group in groups_of(tuple(order), {}))
    nodes = tuple(node.name for node in world.cluster.nodes)
    path = written(tmp_path / "agent.safetensors", scheduler, 0, groups, nodes)
    for check in SCALER_CHECKS:
        check(lambda: KINDS[scheduler](checkpoint=path, slots=2, settle_s=1.0, remove_s=0.5, epsilon=1.0), world)


def test_records_of_failed_invocations_do_not_count():
    outcomes = Outcomes(video(QUIET).workflows)
    record = Record(
        request=0,
        workflow="video",
        stage="uploader",
        function="uploader",
        node="w01",
        device=-1,
        ready=0.0,
        start=0.0,
        cold_s=0.0,
        transfer_s=0.0,
        end=1.0,
        batch_size=1,
        vcpus=1.0,
        vgpus=0.0,
        cost_usd=0.0,
        deadline=2.0,
        outcome="failed",
    )
    outcomes.observe(record)
    assert not outcomes._ended
