"""Static: which fraction of which device a client has, and that nobody else's requests come into it."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kaas_runs import kaas, run, starts

from fairlead.model import Configuration
from fairlead.policy.kaas.devices import Spot
from fairlead.policy.kaas.static import Static
from fairlead.testing import prepared
from fairlead.workload import parse_scenario


def world(models, arrivals=None, *, clients=None, nodes=1, vgpus=8, holds="memory", cold_s=0.0, **node):
    """Clients on `nodes` GPUs; a model is [(vGPUs, seconds), ...], one pair per configuration."""
    at = arrivals or {next(iter(clients or models)): [0]}
    return kaas(
        {client: at.get(client, []) for client in clients or models},
        models={},
        functions={
            name: {
                "latency": {"table": [{"vcpus": 0, "vgpus": size, "seconds": seconds} for size, seconds in rows]},
                "cold_start_s": cold_s,
                "keep_alive_s": float("inf"),
                "idle_holds": holds,
                "device_memory_gb": node.get("needs_gb", 0),
            }
            for name, rows in models.items()
        },
        cluster={
            "nodes": [
                {"name": "gpu", "count": nodes, "vgpus": vgpus}
                | {key: value for key, value in node.items() if key != "needs_gb"}
            ]
        },
        **({"workflows": {c: {"stages": {f: [] for f in fs}} for c, fs in clients.items()}} if clients else {}),
    )


def placed(scenario, policy):
    """(client, number of the GPU, eighths) of each worker, in order of placement."""
    static = prepared(policy, scenario)
    names = [node.name for node in scenario.cluster.nodes]
    return [(w.client, names.index(w.spot.node) + 1, w.eighths) for ws in static._workers.values() for w in ws]


def test_a_fraction_is_rounded_up_to_eighths():
    # The SM use that was measured for KaaS: ResNet 16 %, BERT 68 %, complex GEMM 89 %, Jacobi 87 %.
    models = {"resnet": [(0.16, 1)], "bert": [(0.68, 1)], "gemm": [(0.89, 1)], "jacobi": [(0.87, 1)]}
    found = placed(world(models, nodes=4, vgpus=1), Static(workers=1))
    assert {client: eighths for client, _, eighths in found} == {"resnet": 2, "bert": 6, "gemm": 8, "jacobi": 7}


def test_the_largest_is_placed_first_and_each_on_the_first_gpu_with_room():
    # 6, 5, 3, 2 eighths: 6 + 2 on GPU1, 5 + 3 on GPU2.
    models = {"a": [(2, 1)], "b": [(3, 1)], "c": [(5, 1)], "d": [(6, 1)]}
    assert placed(world(models, nodes=2), Static(workers=1)) == [("a", 1, 2), ("b", 2, 3), ("c", 2, 5), ("d", 1, 6)]


def test_what_fits_nowhere_goes_where_least_is():
    models = {"a": [(8, 1)], "b": [(5, 1)], "c": [(4, 1)]}
    assert placed(world(models, nodes=2), Static(workers=1)) == [("a", 1, 8), ("b", 2, 5), ("c", 2, 4)]


def test_memory_limits_how_many_share_a_gpu():
    models = {name: [(1, 1)] for name in "abc"}
    found = placed(world(models, nodes=2, needs_gb=6, device_memory_gb=12), Static())
    assert [gpu for _, gpu, _ in found] == [1, 2, 1, 2]  # a, a, b, c: 4 x 6 GB is all that two GPUs hold
    assert [client for client, *_ in found] == ["a", "a", "b", "c"]


def test_what_is_left_is_dealt_out_in_rounds():
    models = {"a": [(3, 1)], "b": [(1, 1)]}
    found = placed(world(models), Static())
    assert [client for client, *_ in found] == ["a", "a", "b", "b"]  # 3 + 1 and again 3 + 1


def test_slices_of_a_mig_device_take_its_eight_memory_slices():
    models = {"a": [(4, 1)], "b": [(3, 1)], "c": [(1, 1)]}
    found = placed(world(models, nodes=2, vgpus=7, gpu_sharing="mig"), Static(workers=1))
    assert found == [("a", 1, 4), ("b", 1, 4), ("c", 2, 1)]


@pytest.mark.parametrize(("share", "seconds"), [(0, 8), (0.25, 4), (0.3, 4), (0.5, 2), (1, 1)])
def test_a_function_runs_in_the_largest_configuration_that_fits_its_fraction(share, seconds):
    scenario = world({"a": [(1, 8), (2, 4), (4, 2), (8, 1)]}, {"a": [0]})
    assert run(scenario, Static(share=share)).invocations["end"].to_list() == [seconds]


def test_a_worker_runs_one_request_at_a_time_and_another_client_does_not_feel_it():
    scenario = world({"a": [(2, 10)], "b": [(2, 10)]}, {"a": [0, 0, 0], "b": [5]})
    rows = starts(run(scenario, Static(workers=1)))
    assert [(client, start) for client, _, start, _ in rows] == [("a", 0), ("b", 5), ("a", 10), ("a", 20)]


def test_more_workers_run_at_once():
    scenario = world({"a": [(2, 10)]}, {"a": [0, 0, 0]})
    assert [start for *_, start, _ in starts(run(scenario, Static(workers=2)))] == [0, 0, 10]
    assert [start for *_, start, _ in starts(run(scenario, Static()))] == [0, 0, 0]


def test_clients_that_share_a_full_gpu_take_turns_and_small_ones_do_not_keep_a_large_one_out():
    # a and b have half a GPU each and always work; c, with a whole one, is third in line. At 10 a ends and lets it by.
    scenario = world({"a": [(4, 10)], "b": [(4, 10)], "c": [(8, 10)]}, {"a": [0, 2, 2], "b": [0.5, 4, 4], "c": [1]})
    rows = starts(run(scenario, Static(workers=1)))
    assert [(client, start) for client, _, start, _ in rows][:4] == [("a", 0), ("b", 0.5), ("c", 10.5), ("a", 20.5)]


def test_a_worker_with_two_functions_gives_up_its_own_slice_and_not_another_clients():
    # b's idle instance was used before a's, so it would be the first to be evicted when a switches to its second model.
    models = {"one": [(4, 1)], "two": [(4, 1)], "other": [(4, 1)]}
    clients = {"a": ["one", "two"], "b": ["other"]}
    scenario = world(models, {"a": [2], "b": [0, 10]}, clients=clients, holds="slice", cold_s=1)
    recording = run(scenario, Static(workers=1))
    cold = dict(recording.invocations.filter(recording.invocations["start"] >= 10).select("function", "is_cold").rows())
    assert cold == {"other": False}
    assert set(recording.instances["cause"].drop_nulls()) == {"retired"}


def test_a_client_whose_node_is_lost_gets_another_fraction():
    scenario = parse_scenario(
        {
            "duration_s": 100,
            "cluster": {"nodes": [{"name": "gpu", "count": 2, "vgpus": 8}]},
            "functions": {
                "f": {"latency": {"constant_s": 5}, "configurations": [{"vcpus": 0, "vgpus": 2}], "cold_start_s": 0}
            },
            "workflows": {"a": {"stages": {"f": []}}},
            "arrivals": [{"workflow": "a", "process": "list", "at": [0, 10, 30]}],
            "faults": [{"node": "gpu-1", "at_s": 7}],
        },
        "lost",
    )
    assert [gpu for *_, gpu in starts(run(scenario, Static(workers=1)))] == [1, 2, 2]


def test_functions_without_a_gpu_get_a_fraction_of_the_vcpus():
    scenario = parse_scenario(
        {
            "duration_s": 100,
            "cluster": {"nodes": [{"name": "cpu", "vcpus": 16}]},
            "functions": {"f": {"latency": {"constant_s": 5}}},
            "workflows": {"a": {"stages": {"f": []}}},
            "arrivals": [{"workflow": "a", "process": "list", "at": [0]}],
        },
        "cpus",
    )
    static = prepared(Static(), scenario)
    assert len(static._workers["a"]) == 16
    assert static._configuration(static._workers["a"][0], "f") == Configuration()
    assert static._workers["a"][0].spot == Spot("cpu", None)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 8), min_size=1),
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 40)), max_size=25),
)
def test_no_client_ever_runs_more_than_its_workers_or_outside_them(sizes, nodes, wanted):
    arrivals = {client: [0, *sorted(at for c, at in wanted if c == client)] for client in sizes}
    scenario = world({client: [(size, 4)] for client, size in sizes.items()}, arrivals, nodes=nodes)
    policy = Static()
    recording = run(scenario, policy)
    workers = Counter((w.client, w.spot.node) for own in policy._workers.values() for w in own)
    rows = recording.invocations.select("workflow", "node", "start", "end").rows()
    for client, node, start, _ in rows:
        running = sum((c, n) == (client, node) and s <= start < e for c, n, s, e in rows)
        assert running <= workers[client, node]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"share": 1.1}, r"share must be in \[0, 1\]"), ({"workers": -1}, "workers must not be negative")],
)
def test_wrong_parameters_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Static(**wrong)
