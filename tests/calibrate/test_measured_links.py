"""The links of a cluster: what they cost beyond the way to a child process, and who shares whose cores."""

from math import inf

import pytest

from fairlead.app.describe import describe
from fairlead.app.serving import served_scenario
from fairlead.calibrate import links
from fairlead.calibrate.fit import Sample
from fairlead.calibrate.links import extra_s, measure_links
from fairlead.engine import simulate
from fairlead.model import Node
from fairlead.profile import Host, Link, LinkedNode
from fairlead.profile.measured import Machine, MeasuredFunction, MeasuredProfiles, Point, parse_measured, write_measured

HOST = Host(cores=2, request_s=6e-5, answer_s=4e-5, turn_s=3e-5, send_s=1e-5, end_s=1e-5, hop_s=4e-5)
BATCH_S = 8e-5  # of a turn and a batch on the cluster: 3e-5 more than on the host


def sample(name, requests, batches, run_s=1e-4, mb=0.0):
    used_s = 1e-4 * requests + BATCH_S * batches
    return Sample(
        load=name,
        duration_s=1.0,
        requests=requests,
        turns=batches,
        batches=batches,
        gateway_cpu_s=used_s,
        client_cpu_s=1e-4 * requests,
        runs_s=(run_s,) * 9,
        mb=mb,
    )


SAMPLES = {
    "hop": sample("hop", 1000, 1000),
    "single": sample("single", 4000, 4000),
    "chain": sample("chain", 1000, 4000),
    "brisk": sample("brisk", 250, 250),
    "slow": sample("slow", 50, 50),
    "large": sample("large", 400, 400, run_s=1.1e-3, mb=0.5),
}
NOTHING = MeasuredFunction(
    points=(Point(mean_s=9e-5, p50_s=8e-5), Point(mean_s=9e-5, p50_s=8e-5, kind="near"), Point(mean_s=4e-4, kind="far"))
)


def node(name, kind, vcpus=1.0):
    return Node(name=name, kind=kind, vcpus=vcpus, memory_gb=inf)


def test_a_batch_costs_the_difference_and_a_megabyte_what_large_values_take_longer():
    cpu_s, mb_s = extra_s(HOST, SAMPLES)
    assert cpu_s == pytest.approx(BATCH_S - 5e-5)
    assert mb_s == pytest.approx((1.1e-3 - 1e-4) / 0.5)


def test_nodes_of_this_machine_share_its_cores_and_those_of_another_one_have_theirs(monkeypatch, tmp_path):
    monkeypatch.setattr(links, "served_loads", lambda app, folder, options: SAMPLES)
    nodes = [node("a", "near"), node("b", "far", 2.0), node("c", "far", 2.0)]
    hosts = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.2"}
    found = measure_links(tmp_path, tmp_path, (), HOST, nodes, hosts, "10.0.0.1", NOTHING)
    assert [one.node() for one in found] == nodes
    assert [(one.link.machine, one.link.cores) for one in found] == [("", 0), ("10.0.0.2", 4), ("10.0.0.2", 4)]
    assert [one.link.way_s for one in found] == pytest.approx([2e-5, 1.8e-4, 1.8e-4])  # half of 8e-5 or 4e-4 less 4e-5


APP = """
from fairlead.app import App
app = App("a")
@app.function()
def f(value):
    return value
app.workflow("main", f, slo="1s", example=1)
"""


def test_an_app_that_was_measured_on_a_cluster_is_predicted_there(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    manifest = describe(tmp_path / "app.py")
    nodes = tuple(LinkedNode(name=name, kind="cpu", vcpus=1, link=Link(way_s=0.2)) for name in ("x", "y"))
    machine = Machine(cpu="any", cores=2, limits="affinity")
    function = MeasuredFunction(points=(Point(mean_s=0.5),))
    measured = MeasuredProfiles(app="a", machine=machine, functions={"f": function}, nodes=nodes)
    write_measured(measured, tmp_path / "app.profile.json")
    assert parse_measured((tmp_path / "app.profile.json").read_bytes(), "x") == measured
    scenario = served_scenario(manifest, measured, Host(cores=2))
    assert [one.name for one in scenario.cluster.nodes] == ["x", "y"]
    assert scenario.host.links == {"x": Link(way_s=0.2), "y": Link(way_s=0.2)}
    ended = simulate(scenario, seed=1).requests.filter(outcome="completed")
    assert (ended["end"] - ended["arrival"]).min() == pytest.approx(0.2 + 0.1 + 0.2)
