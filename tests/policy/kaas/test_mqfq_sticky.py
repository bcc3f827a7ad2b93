"""MqfqSticky: whose turn it is, how long a model is stayed with, and which models keep their place."""

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kaas_runs import kaas, run, starts

from fairlead.policy.kaas.affinity import Affinity
from fairlead.policy.kaas.mqfq_sticky import MqfqSticky
from fairlead.report import summarise


def containers(models, arrivals, *, gpus=1, memory_gb=16, needs_gb=10, holds="slice", vgpus=1, sizes=None, **each):
    """Models (run, cold start) of 10 GB in instances that keep their GPU, unless said otherwise."""
    functions = {
        name: {
            "latency": {"constant_s": run_s},
            "cold_start_s": cold_s,
            "keep_alive_s": float("inf"),
            "idle_holds": holds,
            "device_memory_gb": needs_gb,
            "configurations": [{"vcpus": 0, "vgpus": (sizes or {}).get(name, vgpus)}],
            **each.get(name, {}),
        }
        for name, (run_s, cold_s) in models.items()
    }
    nodes = [{"name": "gpu", "count": gpus, "vgpus": vgpus, "device_memory_gb": memory_gb}]
    return kaas(arrivals, models={}, functions=functions, cluster={"nodes": nodes})


def order(recording):
    """Who ran, in order, as (client, how often in a row)."""
    return [(client, len(list(group))) for client, group in groupby(row[0] for row in starts(recording))]


def is_cold(recording, client):
    rows = recording.invocations.sort("start").filter(recording.invocations.sort("start")["workflow"] == client)
    return rows["is_cold"].to_list()


def test_a_queue_keeps_the_gpu_until_it_is_the_window_ahead():
    # a may start while its tag is at most 10 s ahead of b's: at 0, 1, ..., 10. Then b, from 0 to 10 s beyond a's 11.
    scenario = containers({"a": (1, 5), "b": (1, 5)}, {"a": [0] * 40, "b": [0] * 40})
    recording = run(scenario, MqfqSticky(window_s=10))
    assert order(recording)[:3] == [("a", 11), ("b", 22), ("a", 22)]
    # Then b, with 18 left, and the last of a: five turns, five loads.
    assert summarise(recording).cold_starts == 5


def test_without_a_window_queues_take_turns_and_load_each_time():
    # At equal tags the warm one goes first, so turns are two long.
    scenario = containers({"a": (1, 5), "b": (1, 5)}, {"a": [0] * 8, "b": [0] * 8})
    assert order(run(scenario, MqfqSticky(window_s=0)))[:4] == [("a", 1), ("b", 2), ("a", 2), ("b", 2)]


def test_where_both_models_are_warm_the_least_served_is_next():
    scenario = kaas({"short": [0] * 8, "long": [0] * 2}, models={"short": (5, 0), "long": (20, 0)}, gpus=1)
    rows = [row[0] for row in starts(run(scenario, MqfqSticky()))]
    # While long is cold, short runs until its tag is 15, over the window. Then long has 20, and 15 comes before it; at
    # 20 both are level and the first declared goes; then 20 comes before 25.
    assert rows[:7] == ["short", "short", "short", "long", "short", "short", "long"]


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 30), st.floats(0.5, 8), st.floats(0.5, 8), st.sampled_from(["slice", "memory"]))
def test_no_backlogged_queue_is_further_ahead_than_the_window_and_one_run(window_s, a_s, b_s, holds):
    scenario = containers({"a": (a_s, 3), "b": (b_s, 3)}, {"a": [0] * 30, "b": [0] * 30}, holds=holds)
    rows = starts(run(scenario, MqfqSticky(window_s=window_s)))
    served, left = {"a": 0.0, "b": 0.0}, {"a": 30, "b": 30}
    for client, *_ in rows:
        served[client] += a_s if client == "a" else b_s
        left[client] -= 1
        if not min(left.values()):
            break
        assert abs(served["a"] - served["b"]) <= window_s + max(a_s, b_s) + 1e-6


def test_a_queue_that_was_away_does_not_claim_the_time_it_missed():
    scenario = kaas({"a": [0] * 40, "b": [100] * 10}, models={"a": (5, 0), "b": (5, 0)}, gpus=1)
    rows = [client for client, _, start, _ in starts(run(scenario, MqfqSticky(window_s=0))) if start >= 100]
    assert Counter(rows[:10]) == {"a": 5, "b": 5}


@pytest.mark.parametrize(("window_s", "start"), [(0, 20), (10, 25), (1000, 40)])
def test_the_window_lets_a_queue_in_that_needs_the_whole_gpu(window_s, start):
    # a fills half a GPU each time and overlaps with itself, so all of it is free only if a is held back. c comes at 6,
    # level with a's third (tag 20), which starts at 10; the fourth (30) may start at 15 if the window is 10.
    arrivals = {"a": [0, 5, 5, 5, 5, 5, 5], "c": [6]}
    scenario = containers({"a": (10, 0), "c": (10, 0)}, arrivals, vgpus=8, sizes={"a": 4}, needs_gb=0, holds="memory")
    assert [row[2] for row in starts(run(scenario, MqfqSticky(window_s=window_s))) if row[0] == "c"] == [start]


def test_a_lone_request_goes_where_its_model_is_warm():
    scenario = kaas({"short": [0, 20, 40], "long": []}, models={"short": (5, 5), "long": (20, 10)}, gpus=3)
    recording = run(scenario, MqfqSticky())
    assert [gpu for *_, gpu in starts(recording)] == [1, 1, 1]
    assert is_cold(recording, "short") == [True, False, False]


@pytest.mark.parametrize(("grace", "cold", "retired"), [(2, [True, False, False], "g"), (0, [True, False, True], "f")])
def test_models_of_queues_that_are_not_expected_back_make_way_first(grace, cold, retired):
    # Room for two of three. f comes every 100 s, g came every second until 103: at 120 only f is expected back,
    # although it was used before g. Without grace the least recently used goes.
    models = {"f": (1, 2), "g": (1, 2), "h": (1, 2)}
    arrivals = {"f": [0, 100, 200], "g": [101, 102, 103], "h": [120]}
    scenario = containers(models, arrivals, needs_gb=4, memory_gb=10, holds="memory")
    recording = run(scenario, MqfqSticky(grace=grace))
    assert is_cold(recording, "f") == cold
    gone = recording.instances.filter(recording.instances["cause"] == "retired")
    assert gone["function"].to_list()[0] == retired


def test_the_engine_evicts_the_least_recently_used_where_all_are_expected_back():
    models = {"f": (1, 2), "g": (1, 2), "h": (1, 2)}
    arrivals = {"f": [0, 100, 200], "g": [1, 101, 201], "h": [120]}
    recording = run(containers(models, arrivals, needs_gb=4, memory_gb=10, holds="memory"), MqfqSticky())
    # h, which was seen only once, makes way for f at 200.
    gone = recording.instances.drop_nulls("stopped").sort("stopped")
    assert gone.select("function", "cause").rows() == [("f", "evicted"), ("h", "retired")]
    assert is_cold(recording, "f") == [True, False, True]


def test_a_model_is_loaded_where_it_displaces_no_active_one():
    # GPU1 (f, expected back) was released before GPU2 (g, not): a blind choice would be GPU1.
    models = {"f": (2, 0), "g": (2, 0), "h": (2, 0)}
    arrivals = {"f": [0, 100], "g": [100.5, 103], "h": [130]}
    recording = run(containers(models, arrivals, gpus=2, holds="memory"), MqfqSticky())
    places = [(client, gpu) for client, *_, gpu in starts(recording)]
    assert places == [("f", 1), ("f", 1), ("g", 2), ("g", 2), ("h", 2)]


@pytest.mark.parametrize(("prefetch", "cold"), [(True, [True, True, False]), (False, [True, True, True])])
def test_a_model_that_has_expired_is_loaded_ahead_while_its_queue_is_active(prefetch, cold):
    # f comes every 10 s and is kept for 5. At 18, when g starts on the other GPU, f is expected back and loaded.
    models = {"f": (1, 1), "g": (1, 1)}
    scenario = containers(models, {"f": [0, 10, 22], "g": [18]}, gpus=2, f={"keep_alive_s": 5})
    recording = run(scenario, MqfqSticky(prefetch=prefetch))
    assert is_cold(recording, "f") == cold
    assert recording.instances["on_demand"].all() != prefetch


def test_nothing_is_loaded_ahead_where_that_would_evict_something():
    # As above, but with one GPU, where g has taken the room.
    scenario = containers({"f": (1, 1), "g": (1, 1)}, {"f": [0, 10, 22], "g": [18]}, f={"keep_alive_s": 5})
    assert run(scenario, MqfqSticky()).instances["on_demand"].all()


def test_locality_saves_loads_that_affinity_pays_where_models_do_not_fit_together():
    # Four backlogged models on two GPUs with room for one each.
    models = dict.fromkeys("abcd", (1, 4))
    scenario = containers(models, {name: [0] * 30 for name in models}, gpus=2)
    sticky, affine = (summarise(run(scenario, policy)) for policy in (MqfqSticky(window_s=10), Affinity(penalty=1)))
    assert sticky.cold_starts < affine.cold_starts
    assert sticky.makespan_s < affine.makespan_s


@pytest.mark.parametrize("wrong", [{"window_s": -1}, {"window_s": float("inf")}, {"grace": -0.1}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be finite and not negative"):
        MqfqSticky(**wrong)
