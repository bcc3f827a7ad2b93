"""Nodes files: what is taken, what is refused and with which words."""

import os
from pathlib import Path

import pytest
from serving import write_app
from typer.testing import CliRunner

from fairlead.cli import app as command
from fairlead.engine.live.nodes import nodes_of, nodes_text, read_nodes
from fairlead.errors import ConfigError

FIRST_CPU = min(os.sched_getaffinity(0))

FOUR = f"""
nodes:
  - {{name: w01, vcpus: 1, speed: 0.6, overcommit: 8, cpus: {FIRST_CPU}}}
  - {{name: w02, kind: slow, vcpus: 1, speed: 0.3, memory_gb: 1}}
  - {{name: pair, vcpus: 0.5, count: 2, speed: 0.2, cpus: [{FIRST_CPU}]}}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "nodes.yaml"
    path.write_text(text)
    return path


def test_nodes_are_read_with_their_kinds_and_cpus(tmp_path):
    found = read_nodes(written(tmp_path, FOUR))
    assert [node.name for node in found.cluster.nodes] == ["w01", "w02", "pair-1", "pair-2"]
    assert [node.kind for node in found.cluster.nodes] == ["w01", "slow", "pair", "pair"]
    assert found.cluster.nodes[1].memory_gb == 1
    assert found.cluster.nodes[0].capacity_vcpus == 8
    assert found.cpus == {"w01": (FIRST_CPU,), "pair-1": (FIRST_CPU,), "pair-2": (FIRST_CPU,)}
    assert found.cores == pytest.approx(0.6 + 0.3 + 2 * 0.1)


def test_the_cluster_of_a_scenario_file_will_do_as_it_is(tmp_path):
    inside = "\n".join(f"  {line}" for line in FOUR.splitlines())
    whole = f"name: more\nduration_s: 5\ncluster:\n  price: {{bill_idle: true}}\n{inside}\nfunctions: {{}}\n"
    found = read_nodes(written(tmp_path, whole))
    assert len(found.cluster.nodes) == 4
    assert found.cluster.price.bill_idle
    assert "w01" in found.cpus


def test_a_gateway_is_told_the_same_and_needs_no_file(tmp_path):
    path = written(tmp_path, FOUR)
    found, text = read_nodes(path), nodes_text(path)
    path.unlink()
    assert nodes_of(text) == found  # without limits of memory, which JSON proper has no word for


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("nodes: []", ["nodes: a cluster needs at least one node."]),
        ("node: []", ["nodes: is missing.", "node: unknown key. Did you mean 'nodes'?"]),
        ("cluster: 3", ["cluster: must be a mapping; got the number 3."]),
        ("nodes: [3]", ["nodes.0: must be a mapping; got the number 3."]),
        ("cluster: {}\nnodes: []", ["nodes: is given beside cluster; put all nodes in one of both."]),
        ("nodes: [{name: a, vcpus: 1, sped: 1}]", ["nodes.0.sped: unknown key. Did you mean 'speed'?"]),
        ("nodes: [{name: a, vcpus: 1, speed: 1.5}]", ["nodes.0.speed: must be at most 1, which is this machine's"]),
        ("nodes: [{name: a, vcpus: 1, speed: 0}]", ["nodes.0.speed: must be positive"]),
        ("nodes: [{name: a, vcpus: 1, vgpus: 2}]", ["nodes.0.vgpus: the nodes of this machine have no GPUs"]),
        (
            "nodes: [{name: a, vcpus: 1, gpus: 2}, {name: b, vcpus: 1, vgpus: 7, partition: [7]}]",
            [f"nodes.{key}: the nodes of this machine have no GPUs" for key in ("0.gpus", "1.vgpus", "1.partition")],
        ),
        (
            "nodes: [{name: a, vcpus: 1, overcommit: -1, spee: 2}, {name: b, vcpus: x, speed: 3}]",
            [
                "nodes.0.spee: unknown key. Did you mean 'speed'?",
                "nodes.1.speed: must be at most 1",
                "nodes.0.overcommit: must be",
                "nodes.1.vcpus: must be a number",
            ],
        ),
        ("nodes: [{name: a, vcpus: 1, speed: x}]", ["nodes.0.speed: must be a number"]),
        ("nodes: [{name: a, vcpus: 1, cpus: 0-x}]", ["nodes.0.cpus: CPUs are written as 0-3,6; got '0-x'."]),
        ("nodes: [{name: a, vcpus: 1, cpus: 4095}]", ["nodes.0.cpus: must be CPUs of this machine"]),
        ("nodes: [{name: a, vcpus: 1, cpus: []}]", ["nodes.0.cpus: must be CPUs, such as 0-1,3; got a list."]),
        (
            "cluster: {nodes: [{name: a, vcpus: 1, cpus: true}, {name: a, vcpus: x}]}",
            ["cluster.nodes.0.cpus: must be CPUs", "cluster.nodes.1.vcpus: must be a number"],
        ),
        ("nodes: [{name: a, vcpus: 1}, {name: a, vcpus: 1}]", ["nodes.1.name: two nodes are named 'a'"]),
    ],
)
def test_every_fault_is_named_with_its_place_and_once(tmp_path, text, faults):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        read_nodes(path)
    assert raised.value.source == str(path)
    found = [str(fault) for fault in raised.value.faults]
    assert len(found) == len(faults), found
    for got, begins in zip(found, faults, strict=True):
        assert got.startswith(begins)


def test_a_folder_is_told_to_be_one(tmp_path):
    for read in (read_nodes, nodes_text):
        with pytest.raises(ConfigError, match=f"{tmp_path}: is a folder; name a file that lists nodes"):
            read(tmp_path)


def test_more_than_the_machine_has_is_allowed_and_warned_about(tmp_path):
    machine = len(os.sched_getaffinity(0))
    enough = read_nodes(written(tmp_path, f"nodes: [{{name: a, vcpus: {machine}}}]"))
    assert enough.excess() is None
    assert f"may use {2 * machine:g} cores in all (vCPUs x speed, each of 2 apps" in enough.excess(2)
    more = read_nodes(written(tmp_path, f"nodes: [{{name: a, vcpus: {machine}}}, {{name: b, vcpus: 1, speed: 0.5}}]"))
    assert f"may use {machine + 0.5:g} cores in all" in more.excess()


def test_a_slow_node_needs_control_groups_and_others_do_not(tmp_path):
    slow = read_nodes(written(tmp_path, FOUR))
    slow.require_limits("cgroup-v1")
    with pytest.raises(
        ConfigError, match=r"node w01 has speed 0\.6, which only control groups can emulate.*--limits affinity"
    ):
        slow.require_limits("affinity")
    read_nodes(written(tmp_path, "nodes: [{name: a, vcpus: 1}]")).require_limits("affinity")


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "there is no such file"), ("nodes: [{name: a, vcpus: 1, speed: 2}]", "must be at most 1")],
    ids=["missing", "faulty"],
)
def test_serve_refuses_such_a_file_before_anything_starts(tmp_path, text, message):
    app = write_app(tmp_path / "app.py", "")
    path = tmp_path / "missing.yaml" if text is None else written(tmp_path, text)
    result = CliRunner().invoke(command, ["serve", str(app), "--nodes", str(path)])
    assert result.exit_code == 2
    assert message in result.output + str(result.exception)
