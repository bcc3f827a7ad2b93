"""KaaS policies beyond KaaS: workflows, several sizes, CPUs, MIG, losses, failures. Nothing is refused or forgotten."""

from collections.abc import Mapping

import pytest
from kaas_runs import Twice, run

from fairlead.engine import simulate
from fairlead.policy import make_policy
from fairlead.workload import load_scenario, parse_scenario

POLICIES = (
    "kaas-affinity",
    "kaas-balance",
    "kaas-exclusive",
    "kaas-mlfq",
    "kaas-round-robin",
    "kaas-srtf",
)

MIXED: Mapping[str, object] = {
    "duration_s": 20,
    "cluster": {
        "nodes": [
            {"name": "cpu", "count": 2, "vcpus": 4, "memory_gb": 16},
            {"name": "big", "vcpus": 4, "vgpus": 7, "devices": 2, "gpu_sharing": "mig", "device_memory_gb": 40},
            {"name": "small", "count": 2, "vcpus": 2, "vgpus": 1, "device_memory_gb": 8, "speed": 0.5},
        ],
        "bandwidth_gbps": 1,
    },
    "functions": {
        "decode": {"latency": {"constant_s": 0.2}, "cold_start_s": 0.5, "memory_gb": 2, "output_mb": 5},
        "detect": {
            "cold_start_s": 1,
            "device_memory_gb": 4,
            "noise": 0.2,
            "idle_holds": "memory",
            "latency": {
                "table": [
                    {"vcpus": 1, "vgpus": 1, "seconds": 0.4},
                    {"vcpus": 1, "vgpus": 3, "seconds": 0.2},
                    {"vcpus": 2, "seconds": 1.5},
                ]
            },
        },
        "huge": {  # only the MIG devices can hold it, and only whole
            "cold_start_s": 2,
            "device_memory_gb": 30,
            "latency": {"table": [{"batch": 4, "vcpus": 1, "vgpus": 7, "seconds": 1.0}]},
        },
        "flaky": {"latency": {"exponential_s": 0.3}, "failure_rate": 0.3, "retries": 20},
    },
    "workflows": {
        "photos": {
            "stages": {
                "decode": [],
                "detect": {"after": ["decode"], "map": [1, 4]},
                "flaky": {"after": ["detect"], "join": True},
            }
        },
        "films": {"stages": {"huge": [], "decode": ["huge"]}},
        "texts": {"stages": {"flaky": []}},
        "silent": {"stages": {"detect": []}},
    },
    "arrivals": [
        {"workflow": "photos", "process": "poisson", "rate_rps": 2},
        {"workflow": "films", "process": "poisson", "rate_rps": 0.4},
        {"workflow": "texts", "process": "closed-loop", "users": 3, "think_s": 1},
    ],
    "max_attempts": 100,
}


@pytest.mark.parametrize("mode", ["online", "compat"])
@pytest.mark.parametrize("name", POLICIES)
def test_everything_completes_on_mixed_machines(name, mode):
    recording = run(parse_scenario(MIXED, "mixed"), make_policy(name, {"mode": mode}), seed=3)
    assert recording.requests.height > 40


@pytest.mark.parametrize("mode", ["online", "compat"])
@pytest.mark.parametrize("name", POLICIES)
def test_everything_completes_when_nodes_are_lost(name, mode):
    faults = [
        {"node": "cpu-1", "at_s": 2},
        {"node": "big", "at_s": 4, "back_s": 5},
        {"node": "small-2", "at_s": 6, "back_s": 1},
    ]
    scenario = parse_scenario({**MIXED, "faults": faults}, "losses")
    recording = run(scenario, make_policy(name, {"mode": mode}), seed=1)
    assert "lost" in set(recording.invocations["outcome"])


@pytest.mark.parametrize("name", POLICIES)
def test_what_no_device_can_hold_any_more_does_not_block_the_rest(name):
    scenario = parse_scenario({**MIXED, "faults": [{"node": "big", "at_s": 5}]}, "gone")
    recording = simulate(scenario, Twice(make_policy(name)), seed=2)
    assert not recording.refusals
    films = recording.requests["workflow"] == "films"
    assert set(recording.requests.filter(~films)["outcome"]) == {"completed"}
    assert "unfinished" in set(recording.requests.filter(films)["outcome"])


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_seed_gives_the_same_run(name):
    one, other = (run(parse_scenario(MIXED, "mixed"), make_policy(name), seed=5) for _ in range(2))
    assert one.invocations.equals(other.invocations)


@pytest.mark.parametrize("name", POLICIES)
def test_the_quickstart_runs_under_every_policy(name):
    scenario = load_scenario("quickstart", overrides={"duration_s": 10})
    run(scenario, make_policy(name))
