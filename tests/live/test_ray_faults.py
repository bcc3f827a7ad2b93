"""An app on raylets under load, while parts of the cluster die, freeze, come and go: no accepted request is lost."""

import pytest
from agent_processes import Load, Watched, answered_twice
from autoscaled import autoscaled
from ray_cluster import RayServed, raylets, serving_on
from serving import kill, wait_for

pytestmark = pytest.mark.ray_long

APP = """
@app.function
def work(key):
    time.sleep(0.03)
    return [key, os.getpid()]

app.workflow("work", work, slo="10s", example="x")
app.workflow("task", work, slo="5m", example="x")
"""
LARGE = """
@app.function(vcpus=3)
def large(key):
    return [key, os.getpid()]

app.workflow("work", large, slo="10s", example="x")
"""


def check(load: Load, state) -> None:
    """Every accepted request was completed, once. The server has ended in between."""
    assert load.accepted
    assert not answered_twice(state, load.accepted)


def completed(load: Load) -> bool:
    return set(load.ends().values()) == {"completed"}


def test_no_request_is_lost_when_processes_of_a_node_die_or_freeze(tmp_path):
    with raylets(others=({}, {})) as cluster:
        with serving_on(cluster.address, tmp_path, code=APP) as served:
            made = RayServed(cluster, served)
            load = Load(made, 4.0, 8.0, async_workflow="task")
            with load.running():
                wait_for(lambda: load.accepted)
                node = cluster.nodes[1]
                name = made.name_of(node)
                kill(made.cluster.nodes[0].instances[0])
                kill(node.agent)
                wait_for(lambda: f"{name} was lost" in served.err, 60, lambda: served.err)
                wait_for(lambda: len(made.nodes) == 3, 60, lambda: served.err)

                node = cluster.nodes[2]
                node.freeze()
                try:
                    made.wait_for_loss(made.name_of(node), 60)
                finally:
                    node.thaw()
                wait_for(lambda: len(made.nodes) == 3, 120, lambda: served.err)

                cluster.remove(cluster.nodes[1])
                cluster.add()
                wait_for(lambda: len(made.nodes) == 3, 120, lambda: served.err)
            assert completed(load)
        check(load, tmp_path / "state")


def test_no_request_is_lost_when_a_node_is_drained_under_load(tmp_path):
    with raylets(others=({},)) as cluster:
        with serving_on(cluster.address, tmp_path, code=APP) as served:
            made = RayServed(cluster, served)
            load = Load(made, 4.0, 8.0, async_workflow="task")
            with load.running():
                wait_for(lambda: load.accepted)
                name = made.name_of(cluster.nodes[1])
                assert served.ask("POST", f"/v1/nodes/{name}/drain").status == 202
                wait_for(lambda: name not in made.nodes, 60, lambda: served.err)
                before = len(load.accepted)
                wait_for(lambda: len(load.accepted) > before + 5)
            assert completed(load)
        assert all(is_in_time for _, is_in_time in load.sent)
        check(load, tmp_path / "state")


def test_a_function_that_fits_only_the_larger_of_two_unlabelled_nodes_runs_there(tmp_path):
    """The head has two CPUs and the other four; both are of the kind `cpu`, and the function takes three."""
    with (
        raylets(head={"num_cpus": 2}, others=({"num_cpus": 4},)) as cluster,
        serving_on(cluster.address, tmp_path, "--grow", "worker=1..2", code=LARGE) as served,
    ):
        assert "demo: --grow worker has no effect: no node is of this kind; the kinds are cpu" in served.err
        found = served.ask("GET", "/v1/nodes").json["nodes"]
        assert sorted((node["kind"], node["vcpus"]) for node in found) == [("cpu", 2.0), ("cpu", 4.0)]
        assert served.call("work", 1).json["output"][1] in cluster.nodes[1].instances
        assert not cluster.nodes[0].instances


def test_a_policy_grows_the_cluster_under_load_and_shrinks_it_afterwards(tmp_path):
    """One worker with two CPUs does 66 requests per second; the policy asks Ray's autoscaler for a second one."""
    with autoscaled(tmp_path) as address:
        with serving_on(address, tmp_path, "--grow", "cpu=2..3", code=APP.replace("10s", "500ms")) as served:
            made = Watched()
            made.served = served
            wait_for(lambda: len(made.nodes) == 2, 60, lambda: served.err)
            load = Load(made, 120.0, 2.0, async_workflow="task", threads=128)
            with load.running():
                wait_for(lambda: len(made.nodes) == 3, 120, lambda: served.err)
                load.rate = 5.0
                wait_for(lambda: len(made.nodes) == 2, 400, lambda: served.err)
            assert completed(load)
        check(load, tmp_path / "state")
