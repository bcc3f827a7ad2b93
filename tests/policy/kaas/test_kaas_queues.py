"""Round Robin, Balance, SRTF and MLFQ: who is next, and where."""

from collections import Counter
from dataclasses import dataclass

import pytest
from kaas_runs import kaas, run, starts

from fairlead.engine import simulate
from fairlead.policy.kaas.affinity import Affinity
from fairlead.policy.kaas.balance import Balance
from fairlead.policy.kaas.exclusive import Exclusive
from fairlead.policy.kaas.mlfq import MultiLevelFeedback
from fairlead.policy.kaas.round_robin import RoundRobin
from fairlead.policy.kaas.srtf import ShortestFirst

ONE = {"short": (1, 0), "long": (10, 0)}  # execution times, without cold starts


def test_round_robin_blocks_until_the_next_gpu_is_free():
    # GPU1 is busy until 10; the third request waits for it beside the idle GPU2.
    scenario = kaas({"long": [0], "short": [1, 2, 3]}, models=ONE)
    assert starts(run(scenario, RoundRobin())) == [
        ("long", 0, 0, 1),
        ("short", 1, 1, 2),
        ("short", 2, 10, 1),
        ("short", 3, 10, 2),
    ]


def test_balance_takes_any_free_gpu():
    scenario = kaas({"long": [0], "short": [1, 2, 3]}, models=ONE)
    assert [row[2:] for row in starts(run(scenario, Balance()))] == [(0, 1), (1, 2), (2, 2), (3, 2)]


def test_round_robin_passes_over_devices_that_can_never_hold_the_function():
    scenario = kaas(
        {"large": [0, 1, 2], "tiny": [3, 4, 5]},
        models={},
        cluster={"nodes": [{"name": "a", "vgpus": 1}, {"name": "b", "vgpus": 2}, {"name": "c", "vgpus": 2}]},
        functions={
            name: {
                "latency": {"constant_s": 0.1},
                "idle_holds": "memory",
                "configurations": [{"vcpus": 0, "vgpus": size}],
            }
            for name, size in (("large", 2), ("tiny", 1))
        },
    )
    assert [gpu for *_, gpu in starts(run(scenario, RoundRobin()))] == [2, 3, 2, 1, 2, 3]


def test_round_robin_passes_over_a_lost_node():
    scenario = kaas({"short": [0, 1, 2, 3]}, models=ONE, gpus=3, faults=[{"node": "gpu-2", "at_s": 0.5}])
    assert [gpu for *_, gpu in starts(run(scenario, RoundRobin()))] == [1, 3, 1, 3]


def test_srtf_starts_the_shortest_that_waits():
    scenario = kaas({"long": [0, 1], "short": [2, 3]}, models=ONE, gpus=1)
    order = [(client, start) for client, _, start, _ in starts(run(scenario, ShortestFirst()))]
    assert order == [("long", 0), ("short", 10), ("short", 11), ("long", 12)]


def test_srtf_sees_a_completion_and_a_shorter_arrival_of_the_same_instant_together():
    scenario = kaas({"long": [0, 1], "short": [10]}, models=ONE, gpus=1)
    assert [row[0] for row in starts(run(scenario, ShortestFirst()))] == ["long", "short", "long"]


def test_clairvoyant_srtf_keeps_gpus_idle_for_shorter_requests_to_come():
    scenario = kaas({"long": [0], "short": [5, 20]}, models=ONE, gpus=2)
    assert [row[:3] for row in starts(run(scenario, ShortestFirst(mode="compat")))] == [
        ("short", 5, 5),
        ("short", 20, 20),
        ("long", 0, 20),
    ]


def test_srtf_does_not_start_on_what_cold_starts_take():
    # "quick" runs for less but loads for longer: the expected time is that of a warm run.
    scenario = kaas({"slow": [0, 1], "quick": [2]}, models={"slow": (5, 0), "quick": (4, 50)}, gpus=1)
    assert [row[0] for row in starts(run(scenario, ShortestFirst()))] == ["slow", "quick", "slow"]


def test_mlfq_serves_buckets_equally_whatever_their_length():
    # Nine in ten that wait are short, and yet about half of the first 100 starts are long.
    scenario = kaas({"short": [0] * 900, "long": [0] * 100}, models={"short": (1, 0), "long": (2, 0)}, gpus=1)
    first = Counter(row[0] for row in starts(run(scenario, MultiLevelFeedback()))[:100])
    assert 35 <= first["long"] <= 65


def test_mlfq_is_first_in_first_out_inside_a_bucket():
    scenario = kaas({"a": [0, 2], "b": [0, 1]}, models={"a": (4, 0), "b": (7.9, 0)}, gpus=1)
    assert [row[:2] for row in starts(run(scenario, MultiLevelFeedback()))] == [("a", 0), ("b", 0), ("b", 1), ("a", 2)]


def test_mlfq_never_idles_a_gpu_online():
    scenario = kaas({"short": [0] * 10, "long": [0] * 10}, models=ONE, gpus=2)
    recording = run(scenario, MultiLevelFeedback())
    assert recording.invocations["end"].max() <= 60  # 110 s of work on two GPUs, and at most one job's overhang


def test_mlfq_in_compat_mode_decides_in_steps():
    scenario = kaas({"short": [0.3, 0.5], "long": [2.2]}, models=ONE, gpus=3)
    recording = run(scenario, MultiLevelFeedback(mode="compat", step_s=0.5), seed=1)
    assert all(start % 0.5 == 0 for _, _, start, _ in starts(recording))


def test_seeds_draw_differently():
    scenario = kaas({"short": [0] * 20, "long": [0] * 20}, models=ONE, gpus=1)
    orders = {tuple(row[0] for row in starts(run(scenario, MultiLevelFeedback(), seed))) for seed in range(4)}
    assert len(orders) == 4


@pytest.mark.parametrize("parameters", [{"base_s": 0}, {"step_s": -1}, {"base_s": float("inf")}])
def test_mlfq_refuses_impossible_parameters(parameters):
    with pytest.raises(ValueError, match=f"{next(iter(parameters))} must be positive"):
        MultiLevelFeedback(**parameters)


@pytest.mark.parametrize("policy", [RoundRobin, Balance, ShortestFirst, MultiLevelFeedback, Exclusive, Affinity])
def test_a_decision_ends_even_if_nothing_is_carried_out(policy):
    @dataclass
    class Ignored(policy):
        def decide(self, view):
            counts.append(len(list(super().decide(view))))
            return iter(())

    counts = []
    scenario = kaas({"short": [0, 0, 0], "long": [0, 0]}, models=ONE)
    simulate(scenario, Ignored())
    assert counts
    assert max(counts) <= 5
