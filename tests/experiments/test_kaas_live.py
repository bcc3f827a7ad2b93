"""Served kernels beside their prediction, in small: on NumPy devices, for a second."""

import pytest

from fairlead.engine import simulate
from fairlead.experiments.kaas_alone import Alone, Times, for_all, users_of, with_decisions, with_delays
from fairlead.experiments.kaas_clients import clients_of
from fairlead.experiments.kaas_live.predicting import Session, actors, figures_of, kernels, predict
from fairlead.experiments.kaas_policies_live.run import drawn
from fairlead.experiments.kaas_policies_live.run import figures_of as figures_of_policies
from fairlead.experiments.kaas_policies_live.run import predict as predict_policy
from fairlead.experiments.kaas_served import Span, live_records, memory_figures, served_clients
from fairlead.profile import Host

MODEL = {"n": 16, "iterations": 2, "constants_mb": 1}
DEVICES = {"names": ["numpy"], "memory_mb": 4.5, "environment": {}}
TWO = {**DEVICES, "names": ["a", "b"], "memory_mb": 100}
TIMES = Times(run_s=0.01, spread=0.0, load_s=0.03, share=1.0)
POLICY = {"dispatch": "kaas-affinity"}


def scenario(count, host, *, devices=TWO, seconds=6.0, arrivals=None):
    clients = clients_of([MODEL], count)
    users = arrivals or [users_of(client, 2, 0.0, seconds) for client in clients]
    return kernels(clients, dict.fromkeys(clients, TIMES), host, devices, POLICY, users, duration_s=seconds)


def simulated(count, host, memory_mb=100):
    recording = predict(scenario(count, host, devices={**TWO, "memory_mb": memory_mb}), 0)
    return figures_of(recording, 1.0, 6.0)


def test_served_clients_are_recorded_and_what_one_measures_alone_makes_a_machine(tmp_path):
    with served_clients(tmp_path, [MODEL], 4, DEVICES, {"dispatch": "kaas-balance"}) as asker:
        seen = asker.one_by_one(asker.clients)
        loads = asker.one_by_one(asker.clients)
        one, two, many = ({"client-1": [asker.closed(["client-1"], users, 0.3)]} for users in (1, 2, 4))
        begun = asker.open([(0.01 * i, client) for i, client in enumerate(asker.clients)])
    recording = live_records(tmp_path)
    memory = memory_figures(recording, loads.begin, loads.end)
    assert memory["runs"] == 4
    assert memory["hit_share"] < 0.5  # four clients in turn where two fit: hardly one is still there
    assert memory["evictions_per_run"] > 0.25
    first, last = one["client-1"][0], many["client-1"][0]
    assert figures_of(recording, first.begin, last.end)["hit_share"] > 0.5
    assert sum(map(len, begun.latency_s.values())) == 4
    assert figures_of_policies(recording, begun.begin, begun.end)["jain"] <= 1

    alone = Alone(one, two, many, (1, 2, 4), (seen.end, last.end))
    host = alone.host(recording)
    assert min(host.request_s, host.turn_s, host.client_s) > 0
    times = alone.times(recording, host)["client-1"]
    assert times.load_s > 0
    assert times.run_s > 0
    assert 0 < times.share <= 1


def test_prediction_keeps_both_devices_busy_and_falls_where_memory_runs_out():
    idle = Host(cores=9)
    assert simulated(1, idle)["rps"] == pytest.approx(200, rel=0.02)
    assert simulated(4, idle)["rps"] == pytest.approx(200, rel=0.02)
    # Both users ask at once: 10 ms until both are read, and 10 ms of run.
    assert simulated(1, Host(cores=9, request_s=0.005))["rps"] == pytest.approx(100, rel=0.02)
    short = simulated(8, idle, memory_mb=3)
    assert short["rps"] < 0.9 * simulated(8, idle)["rps"]
    assert short["evictions_per_run"] > 0.01
    assert simulated(8, idle)["evictions_per_run"] == 0


def test_devices_that_are_cores_share_them_with_the_gateway():
    """A request takes 10 ms of a device and 2 ms of the gateway: 24 core-milliseconds for two."""
    assert simulated(4, Host(cores=2, turn_s=0.001))["rps"] < simulated(4, Host(cores=3, turn_s=0.001))["rps"] - 5


def test_a_session_has_a_window_for_each_point():
    session = Session(("client-1", "client-2"), rounds=1, counts=(1, 2), outstanding=2, settle_s=0.5, seconds=2.0)
    made = scenario(2, Host(cores=9), seconds=session.end_s, arrivals=session.arrivals())
    one, two = session.figures(predict(made, 0))
    assert one["rps"] == pytest.approx(200, rel=0.05)
    assert two["rps"] == pytest.approx(200, rel=0.05)
    assert two["p50_ms"] == pytest.approx(2 * one["p50_ms"], rel=0.05)


def test_time_that_runs_lose_is_found_again():
    """A measured run is stood in for by a simulation that loses 1 ms where nothing waits, and 3 ms where others do."""
    true = Host(cores=9, run_delay_s={"client-1": (0.001,)}, run_delay_busy_s={"client-1": (0.003,)}, wake_s=(0.0002,))
    spans = {2: (0.3, 2.3), 4: (3.3, 5.3)}
    users = [users_of("client-1", count, begin - 0.3, end) for count, (begin, end) in spans.items()]

    def scenario_of(host, arrivals, end_s):
        return scenario(1, host, seconds=end_s, arrivals=arrivals)

    recording = simulate(scenario_of(true, users, 6.0))
    two, many = ({"client-1": [span_of(recording, *spans[count])]} for count in (2, 4))
    alone = Alone(two, two, many, (1, 2, 4), (0.0, 6.0))
    found = with_delays(Host(cores=9), alone, recording, scenario_of)
    assert found.run_delay_s["client-1"] == pytest.approx([0.001] * 50, rel=0.1)
    assert found.run_delay_busy_s["client-1"] == pytest.approx([0.003] * 50, rel=0.1)
    assert for_all(found, "client-1", ["a", "b"]).run_delay_s["b"] == found.run_delay_s["client-1"]


def span_of(recording, begin, end):
    asked = recording.requests.filter(recording.requests["arrival"].is_between(begin, end))
    return Span(begin, end, {"client-1": (asked["end"] - asked["arrival"]).to_list()})


def test_decisions_are_timed_in_the_simulator():
    made = scenario(4, Host(cores=9), seconds=1.0)
    host = with_decisions(Host(cores=9, turn_s=1.0), made)
    assert 0 < host.decision_s["kaas-affinity"] < 0.1
    assert host.turn_s < 1.0


def test_predicted_actors_fall_with_one_client_more_than_devices():
    two, three = (actors([f"client-{i}" for i in range(count)], 0.01, 0.5, TWO, 2, 20.0) for count in (2, 3))
    two, three = (figures_of(predict(one, 0), one.warmup_s, one.duration_s)["rps"] for one in (two, three))
    assert two == pytest.approx(200, rel=0.05)
    assert three < 10


def test_policies_are_predicted_with_the_very_arrivals_of_a_run():
    clients = clients_of([MODEL], 3)
    arrivals = drawn(tuple(clients), 50.0, 1.0, seed=1)
    assert arrivals == drawn(tuple(clients), 50.0, 1.0, seed=1)
    settings = {"devices": {**DEVICES, "memory_mb": 10}, "seconds": 1.0, "settle_s": 0.2}
    times, policy = dict.fromkeys(clients, TIMES), {"dispatch": "kaas-balance"}
    first, second = predict_policy(settings, clients, times, Host(cores=9), policy, [arrivals, arrivals])
    assert first["cold"] == second["cold"] == 0  # all fit, and have run before
    assert first["wait_ms"] > 0
