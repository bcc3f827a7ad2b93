"""Exclusive: who owns which device, and when one changes hands."""

import pytest
from kaas_runs import kaas, run, starts

from fairlead.policy.kaas.devices import Spot
from fairlead.policy.kaas.exclusive import Exclusive, even_split

TEN = {"a": (10, 0), "b": (10, 0)}
SPOTS = [Spot(f"n{i}", 0) for i in range(5)]


def owners(count, clients):
    split = list(even_split(SPOTS[:count], list(clients)))
    return ["".join(client for spot, client in split if spot == device) for device in SPOTS[:count]]


@pytest.mark.parametrize(
    ("devices", "clients", "expected"),
    [(4, "ab", ["a", "a", "b", "b"]), (5, "ab", ["a", "a", "a", "b", "b"]), (2, "abcd", ["ab", "cd"]), (0, "ab", [])],
)
def test_devices_are_split_evenly(devices, clients, expected):
    assert owners(devices, clients) == expected


def test_without_stealing_a_client_waits_beside_idle_gpus_of_others():
    scenario = kaas({"a": [0, 0, 0, 0], "b": []}, models=TEN, gpus=4)
    assert [row[2:] for row in starts(run(scenario, Exclusive(stealing=False)))] == [(0, 1), (0, 2), (10, 1), (10, 2)]


def test_a_full_queue_steals_one_idle_gpu_per_instant():
    # At 0 one of b's idle GPUs is stolen, at 1 (something arrives) the other: b has no work, so it may lose both.
    scenario = kaas({"a": [0, 0, 0, 0, 0, 1], "b": []}, models=TEN, gpus=4)
    assert [row[2:] for row in starts(run(scenario, Exclusive()))] == [
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 4),
        (10, 1),
        (10, 2),
    ]


def test_one_waiting_request_does_not_steal():
    # One job waits, and 1.5 jobs are asked for.
    scenario = kaas({"a": [0, 0, 1], "b": []}, models=TEN, gpus=4)
    assert [row[2:] for row in starts(run(scenario, Exclusive()))] == [(0, 1), (0, 2), (10, 1)]


def test_the_fuller_queue_is_measured_in_work():
    # Two of b's jobs (40 s) wait against three of a's (15 s) when GPU2 of a ends at 5: b takes it.
    models = {"a": (5, 0), "b": (20, 0)}
    scenario = kaas({"a": [0, 0, 1, 1, 1], "b": [0, 1, 1]}, models=models, gpus=3)
    assert [row for row in starts(run(scenario, Exclusive())) if row[0] == "b"][1] == ("b", 1, 5, 1)


def test_queues_that_are_nearly_as_full_keep_their_gpus():
    # 40 s against 30 s: less than 1.5 times as much.
    scenario = kaas({"a": [0, 0, 1, 1, 1], "b": [0, 0, 1, 1, 1, 1]}, models=TEN, gpus=4)
    assert all(
        gpu <= 2 if client == "a" else gpu > 2
        for client, _, start, gpu in starts(run(scenario, Exclusive()))
        if start <= 10
    )


def test_a_higher_factor_keeps_the_gpus():
    scenario = kaas({"a": [0, 0, 0, 0], "b": []}, models=TEN, gpus=4)
    assert max(gpu for *_, gpu in starts(run(scenario, Exclusive(steal_factor=10)))) == 2


def test_a_busy_gpu_is_not_taken():
    scenario = kaas({"a": [0, 1, 1, 1, 1], "b": [0]}, models={"a": (1, 0), "b": (100, 0)}, gpus=2)
    recording = run(scenario, Exclusive())
    assert [gpu for client, *_, gpu in starts(recording) if client == "a"] == [1] * 5
    assert set(recording.invocations["outcome"]) == {"done"}


def test_the_last_gpu_of_a_client_with_work_is_not_taken():
    # At 10 both GPUs are free. Ten of a's jobs wait against one of b's, which keeps its only GPU.
    scenario = kaas({"a": [0] + [1] * 10, "b": [0, 1]}, models=TEN, gpus=2)
    assert [row for row in starts(run(scenario, Exclusive())) if row[0] == "b"] == [("b", 0, 0, 2), ("b", 1, 10, 2)]


def test_a_client_that_lost_its_last_gpu_takes_one_back_when_it_has_work():
    # a steals GPU2 at 0. b comes at 5; at 10 both GPUs are free, and a can spare one although it has work for both.
    scenario = kaas({"a": [0] * 8, "b": [5]}, models=TEN, gpus=2)
    (b,) = [row for row in starts(run(scenario, Exclusive())) if row[0] == "b"]
    assert b[2] == 10


def test_clients_share_a_device_when_there_are_too_few():
    scenario = kaas({"a": [0, 2], "b": [1], "c": [0]}, models={**TEN, "c": (10, 0)}, gpus=2)
    assert starts(run(scenario, Exclusive(stealing=False))) == [
        ("a", 0, 0, 1),
        ("c", 0, 0, 2),
        ("b", 1, 10, 1),
        ("a", 2, 20, 1),
    ]


def test_a_client_whose_nodes_are_lost_is_given_another():
    scenario = kaas({"a": [0, 5], "b": [20]}, models=TEN, gpus=2, faults=[{"node": "gpu-1", "at_s": 4}], max_attempts=3)
    rows = starts(run(scenario, Exclusive(stealing=False)))
    assert {gpu for client, _, start, gpu in rows if start >= 4} == {2}


@pytest.mark.parametrize("factor", [0.9, float("inf")])
def test_a_factor_below_one_is_refused(factor):
    with pytest.raises(ValueError, match="steal_factor must be at least 1"):
        Exclusive(steal_factor=factor)
