"""ExclusivePool: who gets a worker, from whom it is taken, and what that costs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kaas_runs import kaas, run, starts

from fairlead.engine import simulate
from fairlead.policy.kaas.balance import Balance
from fairlead.policy.kaas.exclusive_pool import ExclusivePool
from fairlead.report import summarise
from fairlead.workload import parse_scenario


def models(clients="abc", run_s=10.0, cold_s=0.0):
    return dict.fromkeys(clients, (run_s, cold_s))


def of(client, recording):
    return [row[1:] for row in starts(recording) if row[0] == client]


def test_a_client_spawns_workers_while_a_gpu_has_none():
    scenario = kaas({"a": [0, 0, 0, 0], "b": []}, models=models(), gpus=3)
    assert [row[2:] for row in starts(run(scenario, ExclusivePool()))] == [(0, 1), (0, 2), (0, 3), (10, 1)]


def test_a_client_without_a_worker_takes_one_when_its_job_has_ended():
    # Both GPUs are a's when b comes at 1. GPU1 is b's from 10 on, although an older request of a waits.
    scenario = kaas({"a": [0, 0, 0.5, 0.5], "b": [1]}, models=models(), gpus=2)
    recording = run(scenario, ExclusivePool())
    assert of("b", recording) == [(1, 10, 1)]
    assert of("a", recording) == [(0, 0, 1), (0, 0, 2), (0.5, 10, 2), (0.5, 20, 2)]


def test_a_killed_worker_is_a_cold_start_for_both_sides():
    # a runs 0-15, b 15-30, a again 30-45: each loads its model, though the GPU could keep both.
    scenario = kaas({"a": [0, 20], "b": [5]}, models=models(cold_s=5), gpus=1)
    recording = run(scenario, ExclusivePool())
    assert [row[2] for row in starts(recording)] == [0, 15, 30]
    assert recording.invocations["is_cold"].all()
    assert set(recording.instances["cause"].drop_nulls()) == {"retired"}
    assert summarise(run(scenario, Balance())).cold_starts == 2


@pytest.mark.parametrize(
    ("busy", "start", "gpu"),
    [(3, 10, 1), (2, 10, 3)],
    ids=["three-against-one-loses-one", "two-against-one-loses-none"],
)
def test_a_client_with_a_worker_takes_only_from_one_that_keeps_more(busy, start, gpu):
    # b has one worker and wants a second: 1 + 1 < 3, but not 1 + 1 < 2.
    scenario = kaas({"a": [0] * busy + [1] * busy, "b": [0, 2]}, models=models(), gpus=busy + 1)
    assert of("b", run(scenario, ExclusivePool()))[1] == (2, start, gpu)


def test_a_client_waits_beside_the_idle_worker_of_one_that_has_as_many():
    scenario = kaas({"a": [0, 1, 1], "b": [0]}, models=models(), gpus=2)
    assert of("a", run(scenario, ExclusivePool())) == [(0, 0, 1), (1, 10, 1), (1, 20, 1)]


def test_an_idle_worker_is_taken_at_once_and_before_a_busy_one():
    # GPU1 of a is busy until 20, GPU2 idle since 10.
    scenario = kaas({"a": [0, 0, 10], "b": [12]}, models=models(), gpus=2)
    assert of("b", run(scenario, ExclusivePool())) == [(12, 12, 2)]


def test_of_clients_with_as_many_workers_the_one_robbed_longest_ago_loses():
    # At 1 c robs a of GPU1 and a, left without, robs b of GPU2; both get them at 10. Then b may rob a or c: it robs c,
    # since a was robbed before.
    scenario = kaas({"a": [0, 0.5, 0.5], "b": [0, 0.5, 0.5], "c": [1, 1, 1]}, models=models(), gpus=2)
    recording = run(scenario, ExclusivePool())
    assert of("c", recording)[0] == (1, 10, 1)
    assert of("a", recording)[1] == (0.5, 10, 2)
    assert of("b", recording)[1] == (0.5, 20, 1)


def test_more_clients_than_gpus_pay_a_cold_start_for_nearly_every_request():
    # 30 requests of 1 s that load for 10 s on two GPUs: 11 times 30 / 2 s, less what the last client saves.
    scenario = kaas({client: [0] * 10 for client in "abc"}, models=models(run_s=1, cold_s=10), gpus=2)
    summary = summarise(run(scenario, ExclusivePool()))
    assert summary.cold_starts >= 27
    assert summary.makespan_s >= 27 * 10 / 2
    assert summarise(run(scenario, Balance())).makespan_s <= 60


def test_the_workers_of_a_lost_node_are_gone():
    scenario = kaas(
        {"a": [0, 12], "b": [0]}, models=models(), gpus=2, faults=[{"node": "gpu-1", "at_s": 11}], max_attempts=3
    )
    # a has no worker from 11 on, and b's is idle.
    assert of("a", run(scenario, ExclusivePool())) == [(0, 0, 1), (12, 12, 2)]


def test_clients_that_need_no_gpu_share_the_cores_and_kill_nothing():
    # One core, two clients, cold starts of 5 s: a 0-6, b 6-12, then a 20-21 and b 21-22 on the instances of before.
    scenario = parse_scenario(
        {
            "duration_s": 100,
            "cluster": {"nodes": [{"name": "n", "vcpus": 1}]},
            "functions": {
                name: {"latency": {"constant_s": 1}, "cold_start_s": 5, "idle_holds": "memory"} for name in "ab"
            },
            "workflows": {name: {"stages": {name: []}} for name in "ab"},
            "arrivals": [{"workflow": name, "process": "list", "at": [0, 20]} for name in "ab"],
        },
        "cores",
    )
    recording = simulate(scenario, ExclusivePool())
    assert recording.invocations.sort("start")["start"].to_list() == [0, 6, 20, 21]
    assert summarise(recording).cold_starts == 2


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(0, 60), min_size=1, max_size=8), min_size=1),
    st.integers(1, 4),
)
def test_a_gpu_that_changes_hands_starts_cold_and_no_client_overtakes_itself(arrivals, gpus):
    scenario = kaas({c: sorted(at) for c, at in arrivals.items()}, models=models("abcd", 4, 3), gpus=gpus)
    recording = run(scenario, ExclusivePool())
    assert recording.requests.height == sum(map(len, arrivals.values()))
    last: dict[str, str] = {}
    for client, node, is_cold in (
        recording.invocations.sort("start", "batch").select("workflow", "node", "is_cold").iter_rows()
    ):
        assert is_cold == (last.get(node) != client)
        last[node] = client
    for client in arrivals:
        ready = [row[0] for row in of(client, recording)]
        assert ready == sorted(ready)
