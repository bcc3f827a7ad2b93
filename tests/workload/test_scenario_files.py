"""Scenario files: what each part becomes, what is left out, and what may be set from outside."""

from contextlib import suppress
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import ConfigError, Fault, UnknownNameError
from fairlead.model import Configuration, Device, Node, Stage, Workflow
from fairlead.profile import Constant, Exponential, LogNormal, ScalingLaw
from fairlead.workload import (
    Burst,
    ClosedLoop,
    DecisionTime,
    Deterministic,
    Listed,
    MinuteCounts,
    NodeFault,
    Pillar,
    Poisson,
    PolicyChoice,
    PressureChange,
    Scenario,
    Share,
    Sweep,
    UniformInterval,
    Window,
    load_scenario,
    parse_scenario,
    scenario_points,
    shipped_scenarios,
)
from fairlead.workload.parse.load import expected_runs


def document(**changes):
    """A small scenario as plain data; a change of None leaves a part out."""
    data = {
        "duration_s": 10,
        "cluster": {"nodes": [{"name": "n", "count": 2, "vcpus": 4}]},
        "functions": {"detect": {"latency": {"constant_s": 0.5}}},
        "workflows": {"main": {"stages": {"detect": []}}},
        "arrivals": [{"workflow": "main", "process": "poisson", "rate_rps": 4}],
    } | changes
    return {key: value for key, value in data.items() if value is not None}


def parse(overrides=None, **changes) -> Scenario:
    return parse_scenario(document(**changes), "small.yaml", overrides=overrides or {})


def faults(overrides=None, **changes) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse(overrides, **changes)
    return {fault.path: fault.message for fault in caught.value.faults}


def arrivals(**entry):
    (found,) = parse(arrivals=[{"workflow": "main"} | entry]).arrivals
    return found


def function(**settings):
    found = parse(functions={"detect": {"latency": {"constant_s": 0.5}} | settings})
    return found.functions["detect"], found.profiles["detect"]


# --- the whole


def test_what_is_left_out_has_a_default():
    scenario = parse(duration_s=None)
    assert scenario.name == "small"
    assert (scenario.duration_s, scenario.warmup_s, scenario.control_period_s) == (60.0, 0.0, 10.0)
    assert scenario.policy == PolicyChoice(name="fairlead")
    assert scenario.scaler is None
    assert scenario.decision == DecisionTime()
    assert (scenario.on_loss, scenario.max_attempts, scenario.sweep) == ("retry", 3, None)


def test_settings_of_the_run():
    scenario = parse(
        name="other",
        description="One line",
        warmup_s=1,
        control_period_s=5,
        on_loss="fail",
        max_attempts=2,
        retry_delay_s=0.5,
        provision_s=30,
        decision={"fixed_s": 0.001, "per_step_s": 1e-6},
        faults=[{"node": "n-1", "at_s": 2}, {"node": "n-2", "at_s": 3, "back_s": 4}],
        pressure=[{"node": "n-1", "at_s": 1, "pressure": 0.5}],
    )
    assert (scenario.name, scenario.description, scenario.warmup_s) == ("other", "One line", 1.0)
    assert (scenario.control_period_s, scenario.on_loss, scenario.max_attempts) == (5.0, "fail", 2)
    assert (scenario.retry_delay_s, scenario.provision_s) == (0.5, 30.0)
    assert scenario.decision == DecisionTime(fixed_s=0.001, per_step_s=1e-6)
    assert scenario.node_faults == (NodeFault(node="n-1", at_s=2.0), NodeFault(node="n-2", at_s=3.0, back_s=4.0))
    assert scenario.pressures == (PressureChange(node="n-1", at_s=1.0, pressure=0.5),)


def test_decision_may_be_none_in_words():
    assert parse(decision="none").decision == DecisionTime()


def test_policies_are_taken_as_they_are_without_a_check():
    scenario = parse(policy={"dispatch": "esg", "k": 5}, scaler={"scale": "simppo"})
    assert scenario.policy == PolicyChoice(name="esg", parameters={"k": 5})
    assert scenario.scaler == PolicyChoice(name="simppo")


def test_check_policy_is_asked_for_both_with_their_paths():
    asked = []

    def check(choice: PolicyChoice, path: str) -> list[Fault]:
        asked.append((choice.name, path))
        return [Fault(f"{path}.k", "wrong.")]

    data = document(policy={"dispatch": "esg"}, scaler={"scale": "simppo"})
    with pytest.raises(ConfigError) as caught:
        parse_scenario(data, "small", check_policy=check)
    assert asked == [("esg", "policy"), ("simppo", "scaler")]
    assert [fault.path for fault in caught.value.faults] == ["policy.k", "scaler.k"]


def test_every_fault_is_found_in_one_go():
    found = faults(
        duration_s=-1,
        max_attempts=0,
        cluster={"nodes": [{"name": "n", "vcpus": "four"}]},
        functions={"detect": {"latency": {"constant_s": -1}, "noise": 0.9, "retries": 1.5}},
        workflows={"main": {"stages": {"detect": ["nobody"]}, "slo": {"latency_s": 0}}},
        arrivals=[{"workflow": "main", "process": "poisson", "rate_rps": 0}],
    )
    assert set(found) == {
        "duration_s",
        "max_attempts",
        "cluster.nodes.0.vcpus",
        "functions.detect.latency.constant_s",
        "functions.detect.noise",
        "functions.detect.retries",
        "workflows.main.slo.latency_s",
        "arrivals.0.rate_rps",
    }


def test_the_data_that_is_given_is_not_changed():
    data = document()
    parse_scenario(data, "small", overrides={"cluster.nodes.0.count": "3"})
    assert data == document()


# --- YAML


def test_yaml_numbers_and_words_read_as_one_expects():
    scenario = parse_scenario(
        """
        duration_s: 1e1
        warmup_s: 1e-3
        cluster: {nodes: [{name: no, count: 010, vcpus: 4, memory_gb: .inf}]}
        functions: {on: {latency: {constant_s: .5}}}
        workflows: {yes: {stages: {on: []}}}
        arrivals: [{workflow: yes, process: poisson, rate_rps: 4}]
        """,
        "words",
    )
    assert (scenario.duration_s, scenario.warmup_s) == (10.0, 0.001)
    assert len(scenario.cluster.nodes) == 10
    assert set(scenario.functions) == {"on"}


def test_anchors_and_merges_are_fine_in_moderation():
    scenario = parse_scenario(
        """
        cluster: {nodes: [{vcpus: 4}]}
        functions:
          a: &base {memory_gb: 1, latency: {constant_s: 0.5}}
          b: {<<: *base, memory_gb: 2}
        workflows: {main: {stages: {a: [], b: [a]}}}
        arrivals: [{workflow: main, process: poisson, rate_rps: 4}]
        """,
        "merged",
    )
    assert (scenario.functions["a"].memory_gb, scenario.functions["b"].memory_gb) == (1.0, 2.0)


def test_a_file_of_five_mebibytes_is_too_large(tmp_path):
    file = tmp_path / "large.yaml"
    file.write_text("#" * (5 * 2**20))
    with pytest.raises(ConfigError, match="larger than 4 MiB"):
        load_scenario(file)


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused_properly(text):
    with pytest.raises(ConfigError):
        parse_scenario(text, "any")


@settings(deadline=None)  # the first ones load modules
@given(
    path=st.sampled_from(
        [
            "duration_s",
            "cluster",
            "cluster.nodes.0",
            "functions.detect",
            "functions.detect.latency",
            "workflows.main",
            "name",
            "policy",
            "workflows.main.stages",
            "arrivals",
            "arrivals.0.workflow",
            "arrivals.0.rate_rps",
            "decision",
            "faults",
            "sweep",
            "rate_scale",
            "functions.detect.space",
            "functions.detect.configurations",
            "functions.detect.cold_start_s",
            "functions.detect.pressure_curves",
            "functions.detect.pressure_curves.n",
            "pressure",
        ]
    ),
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    ),
)
def test_any_value_anywhere_is_accepted_or_refused_properly(path, value):
    with suppress(ConfigError):  # and nothing else
        parse({path: value} if not isinstance(value, str) else {path: [value]})


# --- the cluster


def test_groups_of_nodes_are_numbered_and_single_ones_are_not():
    cluster = parse(
        cluster={
            "nodes": [
                {"name": "c", "kind": "epyc", "count": 2, "vcpus": 8, "speed": 1.5},
                {"kind": "a100", "vcpus": 4, "vgpus": 7, "devices": 2, "device_memory_gb": 40, "gpu_sharing": "mig"},
            ],
            "bandwidth_gbps": 10,
            "price": {"vcpu_usd_per_hour": 1, "bill_idle": True},
        }
    ).cluster
    device = Device(vgpus=7.0, memory_gb=40.0, sharing="mig")
    assert cluster.nodes == (
        Node(name="c-1", kind="epyc", vcpus=8.0, speed=1.5),
        Node(name="c-2", kind="epyc", vcpus=8.0, speed=1.5),
        Node(name="a100", kind="a100", vcpus=4.0, devices=(device, device)),
    )
    assert cluster.bandwidth_gbps == 10.0
    assert (cluster.price.vcpu_usd_per_hour, cluster.price.bill_idle) == (1.0, True)


def test_a_node_without_a_name_is_called_node():
    assert parse(cluster={"nodes": [{"vcpus": 1}]}).cluster.nodes[0] == Node(name="node", kind="node", vcpus=1.0)


def test_a_cluster_needs_nodes():
    assert faults(cluster={"nodes": []}) == {"cluster.nodes": "a cluster needs at least one node."}
    assert faults(cluster={}) == {"cluster.nodes": "is missing."}


# --- functions


def test_fields_of_function_and_profile():
    made, profile = function(
        memory_gb=1,
        output_mb=2,
        keep_alive_s=inf,
        idle_holds="memory",
        retries=2,
        run_limit_s=9,
        cold_start_s=3,
        noise=0.1,
        bias=1.1,
        failure_rate=0.2,
        sensitivity=0.3,
        pressure=0.4,
    )
    assert (made.memory_gb, made.output_mb, made.keep_alive_s, made.idle_holds) == (1.0, 2.0, inf, "memory")
    assert (made.retries, made.run_limit_s, made.start_limit_s) == (2, 9.0, inf)
    assert (profile.cold_start_s, profile.noise, profile.bias) == (3.0, 0.1, 1.1)
    assert (profile.failure_rate, profile.sensitivity, profile.pressure) == (0.2, 0.3, 0.4)


def test_a_constant_runs_on_one_vcpu():
    _, profile = function()
    assert profile.law == Constant(0.5)
    assert profile.configurations == (Configuration(vcpus=1),)


@pytest.mark.parametrize(
    ("latency", "law"),
    [
        ({"exponential_s": 2}, Exponential(2.0)),
        ({"lognormal": {"median_s": 0.2, "sigma": 1}}, LogNormal(0.2, 1.0)),
        ({"law": {"t1_s": 2, "beta": 0.7}}, ScalingLaw(t1_s=2.0, beta=0.7)),
    ],
)
def test_other_laws(latency, law):
    assert function(latency=latency)[1].law == law


def test_a_table_gives_its_configurations():
    _, profile = function(latency={"table": [{"seconds": 1}, {"seconds": 0.6, "vcpus": 2, "kind": "n"}]})
    assert profile.configurations == (Configuration(vcpus=1), Configuration(vcpus=2))
    assert profile.latency_s(Configuration(vcpus=2), "n") == 0.6


def test_a_space_is_every_combination():
    _, profile = function(latency={"law": {"t1_s": 1}}, space={"batch": [1, 2], "vcpus": [1, 4]})
    assert [(c.batch, c.vcpus) for c in profile.configurations] == [(1, 1), (1, 4), (2, 1), (2, 4)]


def test_listed_configurations_may_have_memory():
    _, profile = function(configurations=[{"vcpus": 2, "memory_gb": 3}])
    assert profile.configurations == (Configuration(vcpus=2, memory_gb=3),)


def test_cold_start_by_kind_must_name_every_kind_it_can_run_on():
    assert function(cold_start_s={"n": 2})[1].cold_s("n") == 2.0
    nodes = [{"name": "n", "vcpus": 4}, {"name": "m", "vcpus": 4}, {"name": "tiny", "vcpus": 0.5}]
    functions = {"detect": {"latency": {"constant_s": 1}, "cold_start_s": {"n": 2}}}
    assert faults(cluster={"nodes": nodes}, functions=functions) == {
        "functions.detect.cold_start_s": "no time is given for kind 'm'."
    }


def test_curves_of_pressure_are_read_by_kind_and_overhead_beside_them():
    _, profile = function(overhead_s=0.5, pressure_curves={"n": [[0.25, 1], [0.5, 1.6]]})
    assert profile.overhead_s == 0.5
    assert profile.pressure_curves == {"n": ((0.25, 1.0), (0.5, 1.6))}
    assert (function()[1].overhead_s, function()[1].pressure_curves) == (0.0, {})


@pytest.mark.parametrize(
    ("settings", "path", "message"),
    [
        ({"overhead_s": -1}, "overhead_s", "must be finite and not negative; got -1.0."),
        ({"overhead_s": "1 s"}, "overhead_s", "must be a number; got the text"),
        ({"pressure_curves": [[0.5, 1.6]]}, "pressure_curves", "must be a mapping; got a list."),
        ({"pressure_curves": {"m": [[0.5, 1.6]]}}, "pressure_curves.m", "there is no node kind 'm'."),
        ({"pressure_curves": {"n": 1.6}}, "pressure_curves.n", "must be a list; got the number 1.6."),
        ({"pressure_curves": {"n": [0.5]}}, "pressure_curves.n.0", "must be a list; got the number 0.5."),
        ({"pressure_curves": {"n": [[0.5, 1.6, 2]]}}, "pressure_curves.n.0", "must be [pressure, factor]; got a list."),
        ({"pressure_curves": {"n": [[0.5, inf]]}}, "pressure_curves.n.0", "must be finite; got infinity."),
        (
            {"pressure_curves": {"n": []}},
            "pressure_curves.n",
            "must have points whose pressure rises from 0; got ().",
        ),
        (
            {"pressure_curves": {"n": [[0.5, 2], [0.5, 3]]}},
            "pressure_curves.n",
            "must have points whose pressure rises from 0; got ((0.5, 2.0), (0.5, 3.0)).",
        ),
        (
            {"pressure_curves": {"n": [[0.5, 0.9]]}},
            "pressure_curves.n",
            "must have factors of at least 1; got ((0.5, 0.9),).",
        ),
    ],
)
def test_faults_of_curves_and_overhead_name_their_place(settings, path, message):
    functions = {"detect": {"latency": {"constant_s": 0.5}} | settings}
    found = faults(functions=functions)
    assert list(found) == [f"functions.detect.{path}"]
    assert found[f"functions.detect.{path}"].startswith(message)


@pytest.mark.parametrize(
    ("settings", "phrase"),
    [
        ({"configurations": [{"vcpus": 8}]}, "needs 8 vCPU, and the largest node has 4"),
        ({"memory_gb": 9}, "needs 9 GB of memory, and the largest node has 8"),
        ({"configurations": [{"vgpus": 3}]}, "needs 3 vGPU of one device, and the largest device has 2"),
        ({"configurations": [{"vgpus": 1}], "device_memory_gb": 17}, "needs 17 GB of device memory"),
        ({"configurations": [{"vcpus": 3, "vgpus": 1}]}, "no node has enough of everything"),
    ],
    ids=["vcpus", "memory", "vgpus-per-device", "device-memory", "together"],
)
def test_a_function_that_no_node_can_hold(settings, phrase):
    nodes = [
        {"name": "cpu", "vcpus": 4, "memory_gb": 8},
        {"name": "gpu", "vcpus": 2, "vgpus": 2, "devices": 2, "device_memory_gb": 16, "memory_gb": 8},
    ]
    found = faults(cluster={"nodes": nodes}, functions={"detect": {"latency": {"constant_s": 1}} | settings})
    assert list(found) == ["functions.detect"]
    assert phrase in found["functions.detect"]


def test_a_table_for_a_kind_that_cannot_hold_it_is_no_latency():
    nodes = [{"name": "big", "vcpus": 8}, {"name": "small", "vcpus": 2}]
    table = [{"vcpus": 1, "seconds": 1}, {"vcpus": 4, "seconds": 0.5, "kind": "small"}]
    found = faults(cluster={"nodes": nodes}, functions={"detect": {"latency": {"table": table}}})
    assert found == {"functions.detect.latency": "no latency is given for 1x 4 vCPU on a kind that can hold it (big)."}


# --- workflows


def test_both_ways_to_write_a_stage():
    scenario = parse(
        functions={"a": {"latency": {"constant_s": 1}}, "b": {"latency": {"constant_s": 1}}},
        workflows={
            "main": {
                "stages": {
                    "a": [],
                    "each": {"function": "b", "after": ["a"], "map": [2, 4]},
                    "arm": {"function": "b", "after": ["each"], "when": 0.3},
                    "b": {"after": ["arm"], "join": True},
                },
                "slo": {"latency_s": 2, "cost_usd": 0.1},
            }
        },
    )
    workflow = scenario.workflows["main"]
    assert workflow.stages == (
        Stage(name="a", function="a"),
        Stage(name="each", function="b", after=("a",), map=(2, 4)),
        Stage(name="arm", function="b", after=("each",), when=0.3),
        Stage(name="b", function="b", after=("arm",), join=True),
    )
    assert (workflow.slo.latency_s, workflow.slo.cost_usd) == (2.0, 0.1)


def test_a_stage_that_is_neither_list_nor_mapping():
    found = faults(workflows={"main": {"stages": {"detect": None}}})
    assert found == {"workflows.main.stages.detect": "must be a list of predecessors, or a mapping; got nothing."}


# --- arrivals


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"process": "poisson", "rate_rps": 2}, Poisson("main", 2.0)),
        ({"process": "uniform-interval", "low_s": 1, "high_s": 2}, UniformInterval("main", 1.0, 2.0)),
        ({"process": "deterministic", "interval_s": 2, "offset_s": 1}, Deterministic("main", 2.0, 1.0)),
        ({"process": "deterministic", "rate_rps": 4}, Deterministic("main", 0.25)),
        ({"process": "burst", "count": 9}, Burst("main", 9)),
        ({"process": "burst", "count": 9, "share": 0.2, "within": 0.3}, Burst("main", 9, 0.2, 0.3)),
        ({"process": "pillar", "count": 9, "pillars": 3}, Pillar("main", 9, 3)),
        ({"process": "list", "at": [0, 2.5]}, Listed("main", (0.0, 2.5))),
        ({"process": "minute-counts", "counts": [1, 2], "spread": "even"}, MinuteCounts("main", (1, 2), "even")),
        ({"process": "closed-loop", "users": 3, "think_s": 1}, ClosedLoop("main", 3, 1.0)),
        (
            {"process": "closed-loop", "users": 3, "think_s": 1, "think": "constant"},
            ClosedLoop("main", 3, 1.0, "constant"),
        ),
        (
            {"process": "closed-loop", "users": 1, "think_s": 1, "from_s": 2, "until_s": 5},
            ClosedLoop("main", 1, 1.0, from_s=2.0, until_s=5.0),
        ),
        ({"process": "poisson", "rate_rps": 2, "from_s": 3}, Window("main", Poisson("main", 2.0), 3.0)),
        ({"process": "list", "at": [1], "until_s": 4}, Window("main", Listed("main", (1.0,)), 0.0, 4.0)),
    ],
)
def test_processes(entry, expected):
    assert arrivals(**entry) == expected


@pytest.mark.parametrize(
    ("entry", "path", "phrase"),
    [
        ({}, "process", "is missing"),
        ({"process": "uniform-interval", "low_s": 1}, "high_s", "is missing"),
        ({"process": "uniform-interval", "low_s": 3, "high_s": 2}, "low_s", "must be at most high_s"),
        ({"process": "deterministic"}, "", "exactly one of interval_s, rate_rps, load; got none"),
        ({"process": "deterministic", "interval_s": 0}, "interval_s", "must be positive"),
        ({"process": "burst", "count": 0}, "count", "must be at least 1"),
        ({"process": "pillar", "count": 2, "pillars": 3}, "pillars", "must be at most count"),
        ({"process": "list", "at": [0, -1]}, "at.1", "must not be negative"),
        ({"process": "list", "at": []}, "at", "must list at least one"),
        ({"process": "minute-counts", "counts": [1, -1]}, "counts.1", "must not be negative"),
        ({"process": "minute-counts", "counts": [1], "spread": "odd"}, "spread", "must be one of uniform, even, start"),
        ({"process": "closed-loop", "users": 0, "think_s": 1}, "users", "must be at least 1"),
        ({"process": "poisson", "rate_rps": 1, "count": 3}, "count", "unknown key"),
        ({"process": "poisson", "rate_rps": 1, "from_s": -1}, "from_s", "must be finite and not negative; got -1.0."),
        ({"process": "poisson", "rate_rps": 1, "until_s": "noon"}, "until_s", "must be a number; got the text"),
        (
            {"process": "closed-loop", "users": 1, "think_s": 1, "from_s": 6, "until_s": 5},
            "until_s",
            "must be above from_s",
        ),
    ],
)
def test_faults_of_processes(entry, path, phrase):
    found = faults(arrivals=[{"workflow": "main"} | entry])
    (where,) = found
    assert where == f"arrivals.0.{path}".rstrip(".")
    assert phrase in found[where]


def test_faults_of_a_window_and_of_its_process_are_found_together():
    entry = {"workflow": "main", "process": "burst", "count": 0, "from_s": 5, "until_s": 4}
    assert faults(arrivals=[entry]) == {
        "arrivals.0.count": "must be at least 1; got 0.",
        "arrivals.0.until_s": "must be above from_s; got 4.0 and 5.0.",
    }


def test_workflows_that_share_a_stream_share_its_window():
    entry = {"workflows": {"main": 1, "other": 3}, "process": "poisson", "rate_rps": 2, "from_s": 3, "until_s": 7}
    flows = {name: {"stages": {"detect": []}} for name in ("main", "other")}
    window = Window("main", Poisson("main", 2.0), 3.0, 7.0)
    found = parse(workflows=flows, arrivals=[entry]).arrivals
    assert found == (Share("main", window, 0.0, 0.25, 0), Share("other", window, 0.25, 1.0, 0))


def test_rate_scale_leaves_a_window_where_it_is():
    entry = {"workflow": "main", "process": "poisson", "rate_rps": 2, "from_s": 1, "until_s": 4}
    assert parse(arrivals=[entry], rate_scale=3).arrivals == (Window("main", Poisson("main", 6.0), 1.0, 4.0),)


def test_rate_scale_multiplies_every_rate():
    streams = [
        {"workflow": "main", "process": "poisson", "rate_rps": 2},
        {"workflow": "main", "process": "deterministic", "interval_s": 3},
    ]
    assert parse(arrivals=streams, rate_scale=3).arrivals == (Poisson("main", 6.0), Deterministic("main", 1.0))


@pytest.mark.parametrize(
    "entry",
    [
        {"process": "poisson", "rate_rps": 2},
        {"process": "uniform-interval", "low_s": 1, "high_s": 2},
        {"process": "deterministic", "interval_s": 2},
        {"process": "burst", "count": 9},
        {"process": "minute-counts", "counts": [1, 2]},
    ],
)
@pytest.mark.parametrize("rate_scale", [1e-320, 1e308])
def test_a_rate_scale_out_of_all_bounds_is_refused_or_harmless(entry, rate_scale):
    with suppress(ConfigError):
        parse(arrivals=[{"workflow": "main"} | entry], rate_scale=rate_scale)


def test_an_azure_trace_next_to_the_scenario(tmp_path):
    (tmp_path / "trace.csv").write_text("HashOwner,HashApp,HashFunction,Trigger,7,8,9\no,a,f,http,2,4,6\n")
    entry = {"workflow": "main", "process": "azure", "file": "trace.csv", "function": "f", "minutes": [8, 9]}
    data = document(arrivals=[entry | {"scale": 0.5, "spread": "start"}])
    assert parse_scenario(data, "small", folder=tmp_path).arrivals == (MinuteCounts("main", (2, 3), "start"),)
    with pytest.raises(ConfigError, match=r"arrivals\.0\.function: 'g' is not in the trace"):
        parse_scenario(data, "small", folder=tmp_path, overrides={"arrivals.0.function": "g"})
    with pytest.raises(ConfigError, match=r"arrivals\.0\.minutes: must be in order"):
        parse_scenario(data, "small", folder=tmp_path, overrides={"arrivals.0.minutes": "[9, 8]"})


# --- load


def test_load_of_one_stage_fills_the_slots():
    # 2 nodes x 4 vCPUs hold 8 runs of 0.5 s: 16 per second is a load of 1
    assert arrivals(process="poisson", load=0.5) == Poisson("main", 8.0)
    assert arrivals(process="deterministic", load=0.5) == Deterministic("main", 1 / 8)


def test_load_counts_speed_memory_and_batches():
    nodes = [{"name": "n", "vcpus": 4, "memory_gb": 4}, {"name": "fast", "vcpus": 4, "memory_gb": 100, "speed": 2}]
    functions = {"detect": {"memory_gb": 2, "latency": {"constant_s": 0.5}, "configurations": [{"batch": 3}]}}
    scenario = parse(
        cluster={"nodes": nodes},
        functions=functions,
        arrivals=[{"workflow": "main", "process": "poisson", "load": 1}],
    )
    # 2 runs of 0.5 s by memory, and 4 of 0.25 s, of 3 invocations each
    assert scenario.arrivals[0].rate_rps == pytest.approx(3 * (2 / 0.5 + 4 / 0.25))


def test_load_adds_up_stages():
    functions = {name: {"latency": {"constant_s": s}} for name, s in (("a", 1), ("b", 3))}
    scenario = parse(
        functions=functions,
        workflows={"main": {"stages": {"a": [], "b": ["a"]}}},
        arrivals=[{"workflow": "main", "process": "poisson", "load": 0.5}],
    )
    assert scenario.arrivals[0].rate_rps == pytest.approx(0.5 / (1 / 8 + 3 / 8))


def test_load_needs_work():
    found = faults(
        functions={"detect": {"latency": {"constant_s": 0}}},
        arrivals=[{"workflow": "main", "process": "poisson", "load": 0.5}],
    )
    assert "takes time" in found["arrivals.0.load"]


def test_stages_run_as_often_as_maps_and_branches_let_them():
    workflow = Workflow(
        name="w",
        stages=(
            Stage(name="root", function="f"),
            Stage(name="each", function="f", after=("root",), map=(2, 4)),
            Stage(name="then", function="f", after=("each",)),
            Stage(name="all", function="f", after=("then",), join=True),
            Stage(name="often", function="f", after=("all",), when=0.6),
            Stage(name="left", function="f", after=("often",)),
            Stage(name="right", function="f", after=("often",)),
            Stage(name="meet", function="f", after=("left", "right")),
            Stage(name="rarely", function="f", after=("all",), when=0.1),
            Stage(name="either", function="f", after=("meet", "rarely")),
        ),
    )
    assert expected_runs(workflow) == pytest.approx(
        {
            "root": 1,
            "each": 3,
            "then": 3,
            "all": 1,
            "often": 0.6,
            "left": 0.6,
            "right": 0.6,
            "meet": 0.6,
            "rarely": 0.1,
            "either": 0.7,
        }
    )


# --- overrides and sweeps


@pytest.mark.parametrize(
    ("path", "value", "read"),
    [
        ("duration_s", "1e2", lambda s: s.duration_s == 100.0),
        ("duration_s", 20, lambda s: s.duration_s == 20.0),
        ("cluster.nodes.0.count", "8", lambda s: len(s.cluster.nodes) == 8),
        ("arrivals.*.rate_rps", "3", lambda s: s.arrivals == (Poisson("main", 3.0),)),
        ("functions.*.noise", "0.1", lambda s: s.profiles["detect"].noise == 0.1),
        ("decision.fixed_s", "0.5", lambda s: s.decision.fixed_s == 0.5),
        ("policy.dispatch", "esg", lambda s: s.policy.name == "esg"),
        ("workflows.main.slo.latency_s", ".inf", lambda s: s.workflows["main"].slo.latency_s == inf),
        ("arrivals.0", "{workflow: main, process: list, at: [1]}", lambda s: s.arrivals == (Listed("main", (1.0,)),)),
    ],
)
def test_overrides(path, value, read):
    assert read(parse({path: value}))


@pytest.mark.parametrize(
    ("path", "value", "where", "phrase"),
    [
        ("duration", "1", "duration", "unknown key. Did you mean 'duration_s'?"),
        ("cluster.nodes.0.cont", "1", "cluster.nodes.0.cont", "unknown key. Did you mean 'count'?"),
        ("cluster.nodes.1.count", "1", "cluster.nodes.1.count", "there is no item 1; the list has 1"),
        ("cluster.nodes.first.count", "1", "cluster.nodes.first.count", "'first' is not the number of an item"),
        ("duration_s.x", "1", "duration_s.x", "duration_s is the number 10"),
        ("faults.*.at_s", "1", "faults.*.at_s", "matches nothing"),
        ("a..b", "1", "a..b", "not a dotted path"),
        ("duration_s", "[1", "duration_s", "not valid YAML"),
        ("duration_s", "", "duration_s", "got nothing"),
        ("functions.*.noise", ".nan", "functions.detect.noise", "got NaN"),
    ],
)
def test_wrong_overrides(path, value, where, phrase):
    found = faults({path: value}, faults=[])
    assert list(found) == [where]
    assert phrase in found[where]


def test_a_sweep_is_one_scenario_per_value(tmp_path):
    file = tmp_path / "swept.yaml"
    file.write_text(
        """
        cluster: {nodes: [{name: n, count: 1, vcpus: 4}]}
        functions: {detect: {latency: {constant_s: 0.5}}}
        workflows: {main: {stages: {detect: []}}}
        arrivals: [{workflow: main, process: poisson, load: 0.5}]
        sweep: {key: cluster.nodes.0.count, values: [1, 3]}
        """
    )
    scenario = load_scenario(file)
    assert scenario.sweep == Sweep(key="cluster.nodes.0.count", values=(1, 3))
    points = scenario_points(file)
    assert [point for point, _ in points] == [{"cluster.nodes.0.count": 1}, {"cluster.nodes.0.count": 3}]
    assert [s.arrivals[0].rate_rps for _, s in points] == [4.0, 12.0]
    assert all(s.sweep is None for _, s in points)
    ((point, pinned),) = scenario_points(file, {"cluster.nodes.0.count": "2"})
    assert point == {"cluster.nodes.0.count": 2}
    assert len(pinned.cluster.nodes) == 2
    assert load_scenario(file, overrides={"sweep": "null"}).sweep is None


def test_without_a_sweep_there_is_one_point():
    ((point, scenario),) = scenario_points("kaas-example")
    assert point == {}
    assert scenario.name == "kaas-example"


@pytest.mark.parametrize(
    ("sweep", "path", "phrase"),
    [
        ({"values": [1]}, "sweep.key", "is missing"),
        ({"key": "rate_scale"}, "sweep.values", "is missing"),
        ({"key": "rate_scale", "values": []}, "sweep.values", "at least one value"),
        ({"key": "sweep.key", "values": [1]}, "sweep.key", "cannot sweep itself"),
        ({"key": "rate_scale", "values": [1] * 1001}, "sweep.values", "more than 1,000"),
        ({"key": "rate_scale", "values": [1, -1]}, "sweep.values.1", "with -1, rate_scale: must be positive"),
    ],
)
def test_wrong_sweeps(sweep, path, phrase):
    found = faults(sweep=sweep)
    assert list(found) == [path]
    assert phrase in found[path]


# --- where scenarios come from


def test_a_near_miss_of_a_shipped_name_is_suggested():
    with pytest.raises(UnknownNameError, match=r"No scenario named 'kaas-exampel'\. Did you mean 'kaas-example'\?"):
        load_scenario("kaas-exampel")


@pytest.mark.parametrize(
    ("source", "phrase"),
    [("no/such.yaml", "there is no such file"), ("nowhere.yaml", "there is no such file"), (Path(), "is a folder")],
)
def test_what_cannot_be_read(source, phrase):
    with pytest.raises(ConfigError, match=phrase):
        load_scenario(source)


def test_a_file_is_named_by_its_stem(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("")
    with pytest.raises(ConfigError, match=r"mine\.yaml: the file is empty"):
        load_scenario(str(file))


def test_shipped_scenarios_are_all_good_and_described():
    shipped = shipped_scenarios()
    assert {"kaas-example", "kaas-example-stated", "kaas-gpus", "kaas-load", "kaas-poisson", "quickstart"} <= set(
        shipped
    )
    for name, description in shipped.items():
        assert description
        assert "\n" not in description
        assert all(scenario.name == name for _, scenario in scenario_points(name))


def test_kaas_loads_are_what_they_say():
    def load(scenario: Scenario) -> float:
        rates = {stream.workflow: stream.rate_rps for stream in scenario.arrivals}
        return (5 * rates["client-1"] + 20 * rates["client-2"]) / len(scenario.cluster.nodes)

    assert load(load_scenario("kaas-poisson")) == pytest.approx(0.8)
    for point, scenario in scenario_points("kaas-load"):
        assert load(scenario) == pytest.approx(point["rate_scale"])
    for _, scenario in scenario_points("kaas-gpus"):
        assert load(scenario) == pytest.approx(0.8)
        assert scenario.arrivals[0].rate_rps == pytest.approx(scenario.arrivals[1].rate_rps)


# --- values made by hand


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DecisionTime(fixed_s=-1), "fixed_s must be finite and not negative"),
        (lambda: NodeFault(node="n", at_s=-1), "at_s must be finite and not negative"),
        (lambda: NodeFault(node="n", at_s=1, back_s=0), "back_s must be positive and finite"),
        (lambda: PressureChange(node="n", at_s=1, pressure=-1), "pressure must be finite and not negative"),
        (lambda: Sweep(key="", values=(1,)), "key must name a setting"),
        (lambda: Sweep(key="a", values=()), "values must hold at least one value"),
    ],
)
def test_bad_arguments_of_scenario_values_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
