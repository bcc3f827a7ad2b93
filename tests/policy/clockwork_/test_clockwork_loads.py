"""Loads and unloads of Clockwork, by hand: when, where, beside what, and who makes way."""

import pytest
from clockwork_runs import MS, batches, lives, model, outcomes, run, world

from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario


def test_a_model_is_loaded_when_it_is_first_asked_for():
    recording = run(world({"a": model(3, load_ms=8), "b": model(3, load_ms=8)}, {"a": [5, 40]}))
    assert lives(recording) == [("a", 5, None)]
    assert batches(recording) == [("a", 13, 16, 1), ("a", 40, 43, 1)]


def test_what_arrives_during_the_load_joins_the_batch():
    recording = run(world({"a": model(3, 4, 6, load_ms=8)}, {"a": [0, 2, 4, 6]}))
    assert batches(recording) == [("a", 8, 14, 4)]


def test_a_load_goes_beside_a_run_where_there_is_room():
    models = {"a": model(20), "b": model(5, load_ms=8)}
    beside = run(world(models, {"a": [0], "b": [1]}, vgpus=2))
    assert batches(beside) == [("a", 0, 20, 1), ("b", 20, 25, 1)]
    in_turns = run(world(models, {"a": [0], "b": [1]}, vgpus=1))
    assert batches(in_turns) == [("a", 0, 20, 1), ("b", 28, 33, 1)]


def test_one_batch_at_a_time_runs_on_a_device_whatever_else_fits():
    recording = run(world({"a": model(10), "b": model(10)}, {"a": [0, 0], "b": [0]}, vgpus=4))
    starts = [start for _, start, _, _ in batches(recording)]
    assert starts == [0, 10, 20]


def test_the_least_recently_used_model_is_unloaded():
    # Two of three fit. "b" was used before "a", which was used again.
    models = {name: model(3, load_ms=8, memory_gb=1.0) for name in "abc"}
    recording = run(world(models, {"a": [0, 40], "b": [20], "c": [60]}, memory_gb=2.5))
    assert lives(recording) == [("a", 0, None), ("b", 20, "retired"), ("c", 60, None)]
    assert set(outcomes(recording)) == {"completed"}


def test_a_model_that_runs_or_is_planned_is_not_unloaded():
    # "a" runs when "b" is asked for and there is room for one of them: "b" is loaded when "a" is done.
    models = {"a": model(20), "b": model(5, load_ms=8)}
    recording = run(world(models, {"a": [0], "b": [1]}, vgpus=2, memory_gb=1.5))
    assert batches(recording) == [("a", 0, 20, 1), ("b", 28, 33, 1)]
    assert lives(recording) == [("a", 0, "retired"), ("b", 20, None)]


def test_the_model_with_the_largest_unserved_demand_is_loaded_first():
    # When the load of "c" ends at 20, one request waits for "a" and four for "b".
    models = {name: model(4, 5, 6, load_ms=20) for name in "abc"}
    recording = run(world(models, {"c": [0], "a": [1], "b": [2, 2, 2, 2]}))
    assert [name for name, *_ in lives(recording)] == ["c", "b", "a"]


def test_models_are_spread_over_the_gpus():
    models = {name: model(10, load_ms=8) for name in "abcd"}
    recording = run(world(models, {name: [0] for name in "abcd"}, gpus=4))
    assert [start for _, start, _, _ in batches(recording)] == [8] * 4


def test_a_model_in_demand_is_loaded_again_on_a_free_gpu():
    # One GPU does 100 requests/s, and 180 are asked for.
    arrivals = [1000 / 180 * i for i in range(180)]
    recording = run(world({"a": model(10, load_ms=8)}, {"a": arrivals}, gpus=3))
    assert len(lives(recording)) in (2, 3)
    assert outcomes(recording).count("completed") >= 178
    lone = run(world({"a": model(10, load_ms=8)}, {"a": [25.0 * i for i in range(40)]}, gpus=3))
    assert len(lives(lone)) == 1


def test_a_load_that_cannot_begin_soon_is_not_planned():
    # "a" has the GPU until 60. A load may wait 25, so "b" is loaded at 60, and in vain planned before.
    models = {"a": model(60), "b": model(5, load_ms=8)}
    recording = run(world(models, {"a": [0], "b": [1]}, slo_ms={"a": 100, "b": 200}, vgpus=1))
    assert lives(recording) == [("a", 0, None), ("b", 60, None)]
    assert batches(recording)[1] == ("b", 68, 73, 1)


def test_what_waits_for_a_place_is_dropped_at_its_target():
    models = {"a": model(200), "b": model(5, load_ms=8)}
    recording = run(world(models, {"a": [0], "b": [1]}, slo_ms={"a": 300, "b": 50}, vgpus=1))
    row = recording.requests.filter(recording.requests["outcome"] == "dropped").row(0, named=True)
    assert row["end"] == pytest.approx(46 * MS)
    assert outcomes(recording) == ["completed", "dropped"]


def test_a_model_that_loads_too_slowly_for_its_first_requests_is_loaded_for_those_to_come():
    recording = run(world({"a": model(10, load_ms=500)}, {"a": [0, 100, 600]}))
    assert outcomes(recording) == ["rejected", "rejected", "completed"]
    assert lives(recording) == [("a", 0, None)]


def test_as_many_workers_load_a_model_as_its_demand_needs():
    # Each request needs 80 of its 95 ms: two workers for three of them at once would be late, one for each is not.
    recording = run(world({"a": model(80, load_ms=10)}, {"a": [0, 0, 0]}, gpus=4))
    assert [start for _, start, _, _ in batches(recording)] == [10, 10, 10]


def test_a_function_that_does_not_stay_is_loaded_by_its_runs():
    where = scenario(declared(0.1, cold_start_s=0.05, keep_alive_s=0), arrivals=(0.0, 1.0), on=cluster(1, vcpus=1))
    recording = run(where)
    assert recording.invocations["is_cold"].to_list() == [True, True]
    assert recording.invocations["end"].to_list() == pytest.approx([0.15, 1.15])


def test_an_expired_model_is_loaded_again():
    where = scenario(declared(0.1, cold_start_s=0.05, keep_alive_s=0.5), arrivals=(0.0, 2.0), on=cluster(1, vcpus=1))
    recording = run(where)
    assert [name for name, *_ in lives(recording)] == ["f", "f"]
    assert recording.invocations["end"].to_list() == pytest.approx([0.15, 2.15])


def test_vcpu_slots_are_workers_without_a_gpu():
    where = scenario(declared(0.1), arrivals=(0.0,) * 4, on=cluster(1, vcpus=4), slo_s=0.25)
    recording = run(where, deadline_margin_s=0.0)
    assert set(outcomes(recording)) == {"completed"}


def test_a_model_is_loaded_where_it_is_fast_before_where_it_is_slow():
    # The slots come first by their number, and are as idle as the second GPU; there a run takes seven times as long.
    rows = (Row(kind="gpu", vcpus=0, vgpus=1, seconds=0.08), Row(kind="cpu", vcpus=1, seconds=0.56))
    functions = {"a": declared(Table(rows), cold_start_s=0.1, idle_holds="memory")}
    on = cluster(2, vcpus=0, vgpus=1, kind="gpu", beside=cluster(2, vcpus=2, kind="cpu"))  # the latter come first
    recording = run(scenario(functions, arrivals=[0.05 * i for i in range(60)], on=on, slo_s=0.8))
    assert recording.instances.sort("instance")["device"].to_list()[:2] == [0, 0]
    assert recording.invocations.filter(recording.invocations["device"] == 0).height >= 40


def test_a_model_that_is_used_is_not_unloaded_within_the_time_of_loading_it_again():
    # A slice is held while its model is idle, and there is one. "a" is used every 100 ms and takes 500 to load, so "b"
    # gets no place; when "a" has not been used for 500 ms, it makes way.
    models = {name: declared(Table((Row(vcpus=0, vgpus=1, seconds=0.01),)), cold_start_s=0.5) for name in "ab"}
    arrivals = {"a": list(range(0, 2000, 100)), "b": [1000, 1500, 2300, 2500, 3400]}
    recording = run(world(models, arrivals, vgpus=1))
    assert lives(recording) == [("a", 0, "retired"), ("b", 2500, None)]
    assert outcomes(recording)[-1] == "completed"
