"""Fusion and competition as changes of a scenario: what the one function is, and which chains there are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.errors import ConfigError, UnknownNameError
from fairlead.model import Configuration, Stage, Workflow
from fairlead.policy import Action, Policy, Start, View
from fairlead.profile import Constant, Exponential, LogNormal, Row, ScalingLaw, Sum, Table, space
from fairlead.profile.interference import under_pressure
from fairlead.testing import check_accounts, check_order, cluster, declared, scenario
from fairlead.workload import compete, fuse, load_scenario, parse_scenario

GPU = (Configuration(vcpus=1, vgpus=1),)


def chain(**functions):
    return scenario(functions, on=cluster(vcpus=8, vgpus=2), duration_s=100)


def graph(functions, *stages, on=None):
    workflow = Workflow(name="main", stages=stages)
    return scenario(functions, workflows={"main": workflow}, on=on or cluster(vcpus=8))


def stage(name, *after, **more):
    return Stage(name=name, function=name, after=after, **more)


def names(where):
    return [stage.name for stage in where.workflows["main"].stages]


class TestWhatTheOneFunctionIs:
    def test_latency_cold_start_and_memory_add_up(self):
        where = fuse(
            chain(
                a=declared(0.25, cold_start_s=1, memory_gb=2, device_memory_gb=1, output_mb=5),
                b=declared(0.5, cold_start_s=2, memory_gb=1, device_memory_gb=3, output_mb=7),
            ),
            "main",
        )
        assert names(where) == ["a+b"]
        function, profile = where.functions["a+b"], where.profiles["a+b"]
        assert profile.latency_s(Configuration(), "plain") == 0.75
        assert profile.cold_s("plain") == 3
        assert (function.memory_gb, function.device_memory_gb, function.output_mb) == (3, 4, 7)

    def test_tables_add_row_by_row_where_both_have_one(self):
        one = Table((Row(seconds=1, batch=1), Row(seconds=1.5, batch=2), Row(seconds=9, batch=4)))
        other = Table((Row(seconds=4, batch=2), Row(seconds=3, batch=1), Row(seconds=9, vcpus=2)))
        profile = fuse(chain(a=one, b=other), "main").profiles["a+b"]
        found = {c: profile.latency_s(c, "plain") for c in profile.configurations}
        assert found == {Configuration(batch=1): 4.0, Configuration(batch=2): 5.5}

    def test_laws_of_different_kinds_add_too(self):
        law = declared(ScalingLaw(t1_s=2.0, fixed=0.5), configurations=space(vcpus=(1, 4)))
        table = Table((Row(seconds=1, vcpus=4), Row(seconds=3)))
        profile = fuse(chain(a=law, b=table), "main").profiles["a+b"]
        scaled = 2 * (0.5 + 0.5 * 4**-0.1)
        assert profile.latency_s(Configuration(vcpus=4), "plain") == pytest.approx(scaled + 1)
        assert profile.latency_s(Configuration(), "plain") == 2 + 3

    def test_a_configuration_that_no_kind_runs_in_both_is_not_common(self):
        on = cluster(vcpus=4, kind="x", beside=cluster(vcpus=4, kind="y"))
        one, other = Table((Row(seconds=1, kind="x"),)), Table((Row(seconds=1, kind="y"),))
        where = scenario({"a": one, "b": other}, on=on)
        assert names(fuse(where, "main")) == ["a", "b"]
        with pytest.raises(ValueError, match="no configuration in common"):
            fuse(where, "main", [["a", "b"]])

    def test_one_of_them_failing_fails_the_whole(self):
        where = chain(a=declared(1, failure_rate=0.1, retries=2), b=declared(1, failure_rate=0.2, retries=1))
        fused = fuse(where, "main")
        assert fused.profiles["a+b"].failure_rate == pytest.approx(1 - 0.9 * 0.8)
        assert fused.functions["a+b"].retries == 2

    def test_noise_adds_up_as_independent_noise_does(self):
        # 1 s with 0.3 and 3 s with 0.2 of noise: deviations of 0.3 s and 0.6 s, of 4 s.
        profile = fuse(chain(a=declared(1, noise=0.3), b=declared(3, noise=0.2)), "main").profiles["a+b"]
        assert profile.noise == pytest.approx(sqrt(0.3**2 + 0.6**2) / 4)

    def test_bias_and_sensitivity_are_weighed_by_time(self):
        parts = {"a": declared(1, bias=3.0, sensitivity=1.0), "b": declared(3, bias=1.0)}
        profile = fuse(chain(**parts), "main").profiles["a+b"]
        assert profile.bias == pytest.approx((1 * 3 + 3) / 4)
        assert profile.sensitivity == pytest.approx(0.5)  # of 6 s in reality, 3 are the first's

    def test_pressure_costs_what_it_costs_the_parts_with_and_without_a_curve(self):
        measured = declared(1, pressure_curves={"plain": ((0.25, 1.25), (0.5, 1.5))})
        profile = fuse(chain(a=measured, b=declared(1, sensitivity=2.0)), "main").profiles["a+b"]
        curve = profile.pressure_curves["plain"]
        # Half of the time at 1.5, and half at 1 + 2 x 0.5; beyond what was measured both lines go on.
        assert [under_pressure(curve, at) for at in (0.0, 0.25, 0.5, 1.0)] == pytest.approx([1, 1.375, 1.75, 2.5])

    def test_limits_add_up_and_no_limit_stays_none(self):
        where = chain(a=declared(1, run_limit_s=2, start_limit_s=3), b=declared(1, run_limit_s=5))
        function = fuse(where, "main").functions["a+b"]
        assert (function.run_limit_s, function.start_limit_s) == (7, inf)

    def test_what_costs_no_time_can_be_fused(self):
        profile = fuse(chain(a=declared(0.0, noise=0.2), b=0.0), "main").profiles["a+b"]
        assert profile.latency_s(Configuration(), "plain") == 0
        assert profile.noise == pytest.approx(0.1)

    def test_cold_starts_by_kind_add_by_kind(self):
        where = chain(a=declared(1, cold_start_by_kind={"plain": 4}), b=declared(1, cold_start_s=2))
        assert fuse(where, "main").profiles["a+b"].cold_s("plain") == 6

    @pytest.mark.parametrize("law", [Exponential(1.0), LogNormal(1.0, 0.5)], ids=str)
    def test_a_sum_has_no_random_part(self, law):
        with pytest.raises(ValueError, match="spreads its runs"):
            Sum((Constant(1.0), law))
        with pytest.raises(ValueError, match="at least one part"):
            Sum(())


class TestWhichChains:
    def test_every_longest_chain_is_taken(self):
        where = graph(dict.fromkeys("abcdef", 1.0), *CROSS)
        assert names(fuse(where, "main")) == ["a+b", "c", "d", "e+f"]

    def test_only_the_chains_that_are_named(self):
        where = graph(dict.fromkeys("abcdef", 1.0), *CROSS)
        fused = fuse(where, "main", [["e", "f"]])
        assert names(fused) == ["a", "b", "c", "d", "e+f"]
        assert fused.workflows["main"].stages[-1].after == ("c", "d")
        assert fuse(where, "main", []) == where

    def test_a_chain_before_another_is_renamed_in_it(self):
        stages = (stage("a"), stage("b", "a"), stage("c", "b", when=0.5), stage("d", "c"), stage("e", "b", "d"))
        fused = fuse(graph(dict.fromkeys("abcde", 1.0), *stages), "main")
        found = {s.name: (s.after, s.when) for s in fused.workflows["main"].stages}
        assert found == {"a+b": ((), None), "c+d": (("a+b",), 0.5), "e": (("a+b", "c+d"), None)}

    def test_a_map_begins_a_chain_and_never_is_inside_one(self):
        stages = (stage("a"), stage("b", "a", map=(2, 3)), stage("c", "b"), stage("d", "c", join=True), stage("e", "d"))
        fused = fuse(graph(dict.fromkeys("abcde", 1.0), *stages), "main")
        assert [(s.name, s.map, s.join) for s in fused.workflows["main"].stages] == [
            ("a", None, False),
            ("b+c", (2, 3), False),
            ("d+e", None, True),
        ]

    def test_a_stage_that_competes_is_left_apart(self):
        where = compete(chain(a=1.0, b=1.0, c=1.0, d=1.0), "main", "b", 2)
        assert names(fuse(where, "main")) == ["a", "b", "c+d"]

    def test_stages_with_and_without_a_gpu_are_left_apart_unless_asked_for(self):
        both = declared(Constant(1.0), configurations=(Configuration(), *GPU))
        gpu = declared(Constant(1.0), configurations=GPU)
        where = chain(a=1.0, b=both, c=gpu)
        assert names(fuse(where, "main")) == ["a", "b+c"]
        asked = fuse(where, "main", [["a", "b"]])
        assert asked.profiles["a+b"].configurations == (Configuration(),)

    @pytest.mark.parametrize(
        ("wanted", "reason"),
        [
            (["a", "c"], "c does not follow a alone"),
            (["b", "c"], "d needs the output of b too"),
            (["e"], "at least two stages"),
            (["e", "f", "g"], "g is an arm of a branch"),
        ],
        ids=["apart", "two-successors", "alone", "branch"],
    )
    def test_what_cannot_be_fused_says_why(self, wanted, reason):
        where = graph(dict.fromkeys("abcdefg", 1.0), *CROSS, stage("g", "f", when=0.5))
        with pytest.raises(ValueError, match=reason):
            fuse(where, "main", [wanted])

    def test_a_stage_cannot_be_in_two_chains(self):
        with pytest.raises(ValueError, match="in two chains"):
            fuse(chain(a=1.0, b=1.0, c=1.0), "main", [["a", "b"], ["b", "c"]])

    @pytest.mark.parametrize("law", [Exponential(1.0), LogNormal(1.0, 0.5)], ids=str)
    def test_random_times_are_left_apart(self, law):
        where = chain(a=law, b=1.0, c=1.0)
        assert names(fuse(where, "main")) == ["a", "b+c"]
        with pytest.raises(ValueError, match="the times of a are drawn from a law"):
            fuse(where, "main", [["a", "b"]])

    def test_unknown_names_are_told(self):
        with pytest.raises(UnknownNameError, match="No stage named 'x'"):
            fuse(chain(a=1.0, b=1.0), "main", [["a", "x"]])
        with pytest.raises(UnknownNameError, match="No workflow named 'mian'"):
            compete(chain(a=1.0), "mian", "a", 2)

    def test_the_same_chain_in_two_workflows_is_one_function(self):
        flows = {"one": ("a", "b"), "two": ("a", "b")}
        where = scenario({"a": 1.0, "b": 2.0}, workflows=flows)
        fused = fuse(fuse(where, "one"), "two")
        assert [w.functions for w in fused.workflows.values()] == [("a+b",), ("a+b",)]
        taken = scenario({"a": 1.0, "b": 2.0, "a+b": 9.0}, workflows=flows)
        with pytest.raises(ValueError, match="another function"):
            fuse(taken, "one")


CROSS = (stage("a"), stage("b", "a"), stage("c", "b"), stage("d", "b"), stage("e", "c", "d"), stage("f", "e"))


@dataclass
class Pinned(Policy):
    """Starts every function on the node that is named for it."""

    nodes: Mapping[str, str]

    def decide(self, view: View) -> Iterator[Action]:
        while (invocation := view.oldest()) is not None:
            yield Start((invocation,), Configuration(), self.nodes[invocation.function])


class TestWhatItDoesToARun:
    def test_nothing_travels_between_fused_stages(self):
        parts = {"a": declared(1.0, output_mb=125), "b": 1.0}  # 125 MB at 1 Gbit/s take a second
        where = scenario(parts, on=cluster(2, bandwidth_gbps=1))
        nodes = {"a": "n0", "b": "n1", "a+b": "n0"}
        assert simulate(where, Pinned(nodes)).requests["end"].to_list() == [3]
        assert simulate(fuse(where, "main"), Pinned(nodes)).requests["end"].to_list() == [2]

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=2, max_size=5), st.sampled_from([0.0, 0.5]))
    def test_a_lone_cold_request_takes_as_long_fused_or_not(self, seconds, cold_start_s):
        parts = {f"s{i}": declared(s, cold_start_s=cold_start_s) for i, s in enumerate(seconds)}
        where = scenario(parts)
        fused = fuse(where, "main")
        assert len(names(fused)) == 1
        for of in (where, fused):
            recording = simulate(of)
            check_order(recording, of)
            check_accounts(recording)
            assert recording.requests["end"][0] == pytest.approx(sum(seconds) + cold_start_s * len(seconds))


FILE = """
cluster: {nodes: [{vcpus: 8, memory_gb: 4}]}
functions:
  a: {latency: {constant_s: 0.25}, memory_gb: 1}
  b: {latency: {constant_s: 0.5}, memory_gb: 2}
  c: {latency: {constant_s: 1}, memory_gb: 2}
workflows:
  main: {stages: {a: [], b: [a], c: {after: [b], compete: 2}}}
arrivals: [{workflow: main, process: deterministic, load: 0.5}]
"""


def faults(**optimise):
    with pytest.raises(ConfigError) as caught:
        parse_scenario(FILE, "file", overrides={f"workflows.main.optimise.{k}": v for k, v in optimise.items()})
    return [str(fault) for fault in caught.value.faults]


class TestInAFile:
    def test_copies_are_a_key_of_a_stage(self):
        assert [s.compete for s in parse_scenario(FILE, "file").workflows["main"].stages] == [1, 1, 2]

    @pytest.mark.parametrize(
        ("optimise", "expected"),
        [
            ({"fuse": "true"}, {"a+b": 1, "c": 2}),
            ({"fuse": "false"}, {"a": 1, "b": 1, "c": 2}),
            ({"fuse": "[[a, b]]", "compete.c": "1"}, {"a+b": 1, "c": 1}),
            ({"compete.a": "3"}, {"a": 3, "b": 1, "c": 2}),
            ({"compete": "{a: 3}", "fuse": "true"}, {"a": 3, "b": 1, "c": 2}),
        ],
    )
    def test_overrides_switch_it(self, optimise, expected):
        overrides = {f"workflows.main.optimise.{key}": value for key, value in optimise.items()}
        stages = parse_scenario(FILE, "file", overrides=overrides).workflows["main"].stages
        assert {s.name: s.compete for s in stages} == expected

    def test_what_arrives_does_not_depend_on_it(self):
        plain = parse_scenario(FILE, "file")
        fused = parse_scenario(FILE, "file", overrides={"workflows.main.optimise.fuse": True})
        assert fused.arrivals == plain.arrivals

    def test_faults_say_where_they_are(self):
        assert faults(fuse=3) == [
            "workflows.main.optimise.fuse: must be true, false, or a list of chains of stages; got the number 3."
        ]
        assert faults(fuse=[["a", "x"]]) == ["workflows.main.optimise.fuse.0: there is no stage 'x'."]
        assert faults(fuse=[["a", "c"]]) == [
            "workflows.main.optimise.fuse: a and c cannot be fused: c does not follow a alone."
        ]
        assert faults(compete={"x": 2, "a": 0}) == [
            "workflows.main.optimise.compete.x: there is no stage 'x'.",
            "workflows.main.optimise.compete.a: the number of copies must be at least 1; got 0.",
        ]
        assert faults(fues=True) == ["workflows.main.optimise.fues: unknown key. Did you mean 'fuse'?"]

    def test_what_fits_nowhere_when_fused_is_a_fault(self):
        (fault,) = faults(fuse=True, compete={"c": 1})
        assert fault == (
            "workflows.main.optimise.fuse: no node can hold a+b+c at 1x 1 vCPU: "
            "it needs 5 GB of memory, and the largest node has 4."
        )

    def test_a_stage_needs_at_least_one_copy(self):
        with pytest.raises(
            ConfigError, match=r"workflows.main.stages.c.compete: the number of copies must be at least"
        ):
            parse_scenario(FILE, "file", overrides={"workflows.main.stages.c.compete": 0})


@pytest.mark.parametrize(
    ("name", "fused"),
    [
        ("pipeline-ensemble", ["decode+transform", "alexnet", "resnet", "join+pick"]),
        ("pipeline-cascade", ["decode+transform", "resnet", "inception", "pick"]),
    ],
)
def test_shipped_pipelines_have_chains_to_fuse(name, fused):
    assert names(load_scenario(name, overrides={"workflows.main.optimise.fuse": True})) == fused
