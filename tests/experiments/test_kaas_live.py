"""Served kernels beside their prediction, in small: on NumPy devices, for a second."""

import pytest

from fairlead.experiments.kaas_clients import clients_of
from fairlead.experiments.kaas_live.predicting import actors, closed, figures_of, kernels, predict
from fairlead.experiments.kaas_policies_live.run import (
    drawn,
)
from fairlead.experiments.kaas_policies_live.run import (
    figures_of as figures_of_policies,
)
from fairlead.experiments.kaas_policies_live.run import (
    predict as predict_policy,
)
from fairlead.experiments.kaas_served import live_records, memory_figures, profile_of, served_clients

MODEL = {"n": 16, "iterations": 2, "constants_mb": 1}
DEVICES = {"names": ["numpy"], "memory_mb": 4.5, "environment": {}}
PROFILE = {"run_s": 0.01, "spread": 0.0, "load_s": 0.03, "way_s": 0.002}


def simulated(count, memory_mb=100, outstanding=2):
    clients = clients_of([MODEL], count)
    devices = {**DEVICES, "names": ["a", "b"], "memory_mb": memory_mb}
    users = closed(list(clients), outstanding, PROFILE["way_s"])
    policy = {"dispatch": "kaas-affinity"}
    profiles = dict.fromkeys(clients, PROFILE)
    return predict(kernels(clients, profiles, devices, policy, users, duration_s=6, warmup_s=1), 0)


def test_served_clients_are_recorded_with_their_loads_and_evictions(tmp_path):
    with served_clients(tmp_path, [MODEL], 4, DEVICES, {"dispatch": "kaas-balance"}) as asker:
        loads = asker.one_by_one(asker.clients * 2)
        alone = asker.closed(asker.clients[:1], 2, 0.3)
        begun = asker.open([(0.01 * i, client) for i, client in enumerate(asker.clients)])
    recording = live_records(tmp_path)
    memory = memory_figures(recording, loads.begin, loads.end)
    assert memory["runs"] == 8
    assert memory["hit_share"] < 0.5  # four clients in turn where two fit: hardly one is still there
    assert memory["evictions_per_run"] > 0.25
    assert figures_of(recording, alone.begin, alone.end)["hit_share"] > 0.5
    assert sum(map(len, begun.latency_s.values())) == 4
    profile = profile_of(recording, loads, alone)
    assert profile["load_s"] > 0
    assert profile["run_s"] > 0
    assert figures_of_policies(recording, begun.begin, begun.end)["jain"] <= 1


def test_prediction_keeps_both_devices_busy_and_falls_where_memory_runs_out():
    assert simulated(1)["rps"] == pytest.approx(2 / 0.012, rel=0.02)  # two users, each away for 2 ms
    assert simulated(4)["rps"] == pytest.approx(2 / 0.01, rel=0.02)
    short = simulated(8, memory_mb=3)
    assert short["rps"] < 0.9 * simulated(8)["rps"]
    assert short["evictions_per_run"] > 0.01
    assert simulated(8)["evictions_per_run"] == 0


def test_predicted_actors_fall_with_one_client_more_than_devices():
    two, three = (
        predict(actors([f"client-{i}" for i in range(count)], 0.01, 0.5, {"names": ["a", "b"]}, 2, 20.0), 0)["rps"]
        for count in (2, 3)
    )
    assert two == pytest.approx(200, rel=0.05)
    assert three < 10


def test_policies_are_predicted_with_the_very_arrivals_of_a_run():
    clients = clients_of([MODEL], 3)
    arrivals = drawn(tuple(clients), 50.0, 1.0, seed=1)
    assert arrivals == drawn(tuple(clients), 50.0, 1.0, seed=1)
    settings = {"devices": {**DEVICES, "memory_mb": 10}, "seconds": 1.0}
    found = predict_policy(settings, clients, dict.fromkeys(clients, PROFILE), {"dispatch": "kaas-balance"}, arrivals)
    assert found["cold"] == 0  # all fit, and have run before
    assert found["wait_ms"] > 0
