"""GPU sharing in scenario files, and the independent checkers that know its rules."""

from dataclasses import replace

import msgspec
import polars as pl
import pytest

from fairlead.engine import simulate
from fairlead.errors import ConfigError
from fairlead.model import Cluster, Device, Node
from fairlead.profile import Row, Table
from fairlead.testing import check_capacity, declared, scenario
from fairlead.testing.slices import Span, Started, check_cuts, check_slices
from fairlead.workload import Listed, fuse, parse_scenario

MIG = Device(vgpus=7, sharing="mig", repartition_s=2.0)


def one_node(device):
    return Cluster(nodes=(Node(name="n0", kind="gpu", vcpus=16, devices=(device,)),))


def sized(size, seconds=1.0):
    return declared(Table((Row(vgpus=size, seconds=seconds),)), cold_start_s=1.0)


def parsed(node="", function=""):
    return parse_scenario(
        f"""
        cluster: {{nodes: [{{name: a, vcpus: 4, vgpus: 7{node}}}]}}
        functions: {{f: {{latency: {{constant_s: 1}}, configurations: [{{vgpus: 1}}]{function}}}}}
        workflows: {{main: {{stages: {{f: []}}}}}}
        arrivals: [{{workflow: main, process: list, at: [0]}}]
        """,
        "sharing",
    )


class TestFiles:
    def test_left_out_it_is_as_it_always_was(self):
        found = parsed()
        assert found.cluster.nodes[0].devices == (Device(vgpus=7),)
        assert found.profiles["f"].gpu_sensitivity == 0

    @pytest.mark.parametrize(
        ("node", "device"),
        [
            (", gpu_sharing: time, slice_overhead: 0.1", Device(vgpus=7, sharing="time", slice_overhead=0.1)),
            (
                ", gpu_sharing: mig, partition: [3, 2, 1, 1], repartition_s: 4",
                Device(vgpus=7, sharing="mig", partition=(3, 2, 1, 1), repartition_s=4),
            ),
            # What only counts elsewhere is no fault, so that a sweep over gpu_sharing is one file.
            (", repartition_s: 4, slice_overhead: 0.1", Device(vgpus=7, repartition_s=4, slice_overhead=0.1)),
        ],
        ids=["time", "mig", "mps-with-keys-of-others"],
    )
    def test_keys_of_a_node_are_those_of_its_devices(self, node, device):
        assert parsed(node).cluster.nodes[0].devices == (device,)

    def test_functions_say_how_sensitive_they_are(self):
        assert parsed(function=", gpu_sensitivity: 0.5").profiles["f"].gpu_sensitivity == 0.5

    @pytest.mark.parametrize(
        ("node", "function", "where", "complaint"),
        [
            (", gpu_sharing: turns", "", "nodes.0.gpu_sharing", "must be one of mps, mig, time; got the text"),
            (", partition: [3]", "", "nodes.0.partition", "must be left out unless gpu_sharing is mig"),
            (", gpu_sharing: mig, partition: [4, 4]", "", "nodes.0.partition", "must be slices that one device has"),
            (", gpu_sharing: mig, partition: [5]", "", "nodes.0.partition", r"must be of MIG sizes \(1, 2, 3, 4, 7\)"),
            (", gpu_sharing: mig, partition: 3", "", "nodes.0.partition", "must be a list"),
            (", gpu_sharing: mig, partition: [x]", "", "nodes.0.partition", "must be a number"),
            (", repartition_s: -1", "", "nodes.0.repartition_s", "must be finite and not negative"),
            (", slice_overhead: -1", "", "nodes.0.slice_overhead", "must be finite and not negative"),
            ("", ", gpu_sensitivity: -1", "functions.f.gpu_sensitivity", "must be finite and not negative"),
        ],
        ids=lambda value: value.strip(", ") if value.startswith(",") else "",
    )
    def test_faults_say_where_and_what(self, node, function, where, complaint):
        with pytest.raises(ConfigError, match=complaint) as caught:
            parsed(node, function)
        assert [fault.path for fault in caught.value.faults] == [where if "func" in where else f"cluster.{where}"]

    def test_without_vgpus_they_mean_nothing(self):
        with pytest.raises(ConfigError, match="means nothing without vgpus"):
            parse_scenario(
                """
                cluster: {nodes: [{vcpus: 1, repartition_s: 1}]}
                functions: {f: {latency: {constant_s: 1}}}
                workflows: {main: {stages: {f: []}}}
                arrivals: [{workflow: main, process: list, at: [0]}]
                """,
                "none",
            )


class TestFusing:
    def test_sensitivity_is_weighed_by_time(self):
        parts = {
            "a": declared(Table((Row(vgpus=1, seconds=1.0),)), gpu_sensitivity=2.0),
            "b": declared(Table((Row(vgpus=1, seconds=3.0),))),
        }
        profile = fuse(scenario(parts, on=one_node(MIG)), "main").profiles["a+b"]
        assert profile.gpu_sensitivity == pytest.approx(0.5)


class TestSlices:
    """Spans are (start, end, size): 4 + 1 and 3 + 1 fit on a device, 4 + 3 + 1 do not."""

    def test_one_after_the_other_fits_if_nothing_runs_between(self):
        check_slices("gpu", [Span(0, 1, 4), Span(0, 1, 1), Span(1, 2, 3), Span(1, 2, 1)])

    def test_what_runs_all_the_time_forbids_another_cut(self):
        with pytest.raises(AssertionError, match=r"slices \[1, 3, 4\] were on gpu until 2"):
            check_slices("gpu", [Span(0, 1, 4), Span(0, 5, 1), Span(2, 3, 3)])

    def test_an_idle_instance_does_not(self):
        check_slices("gpu", [Span(0, 1, 4), Span(0, 5, 1, is_used=False), Span(2, 3, 3)])

    def test_but_its_slice_has_a_place(self):
        with pytest.raises(AssertionError, match=r"slices \[3, 7\] ran together on gpu at 1"):
            check_slices("gpu", [Span(0, 5, 3, is_used=False), Span(1, 3, 7)])

    def test_slices_are_paid_for_unless_the_device_began_with_them(self):
        spans = [Span(0, 5, 3), Span(1, 5, 3)]
        check_cuts("gpu", (3,), 2.0, spans, [Started(0, 3, 0.0), Started(1, 3, 2.0)])
        check_cuts("gpu", (3, 3), 2.0, spans, [Started(0, 3, 0.0), Started(1, 3, 0.0)])
        with pytest.raises(AssertionError, match="2 slices of 3 are on gpu at 1: it began with 1, and 0 cuts were"):
            check_cuts("gpu", (3,), 2.0, spans, [Started(0, 3, 0.0), Started(1, 3, 0.0)])

    def test_nothing_else_delays_a_start(self):
        with pytest.raises(AssertionError, match="took 1 s longer than declared; a cut takes 2 s"):
            check_cuts("gpu", (3,), 2.0, [Span(0, 5, 3)], [Started(0, 3, 1.0)])


class TestCheckers:
    def test_a_run_that_mps_allows_may_break_the_rule_of_mig(self):
        functions = {"long": sized(1, 10.0), "a": sized(4), "b": sized(3)}
        arrivals = [Listed("long", (0.0,)), Listed("a", (0.0,)), Listed("b", (4.0,))]
        where = scenario(
            functions, workflows={n: (n,) for n in functions}, arrivals=arrivals, on=one_node(Device(vgpus=7))
        )
        found = simulate(where)
        check_capacity(found)
        with pytest.raises(AssertionError, match=r"MIG slices \[1, 3, 4\] were on n0/0"):
            check_capacity(replace(found, cluster=one_node(MIG)))

    def test_a_cut_that_was_not_paid_for_is_found(self):
        where = scenario(sized(3), arrivals=[0.0], on=one_node(MIG))
        found = simulate(where)
        check_capacity(found, where)
        early = found.instances.with_columns(ready=pl.col("ready") - 2.0)
        with pytest.raises(AssertionError, match=r"1 slices of 3 are on n0/0 at 0\.0: it began with 0, and 0 cuts"):
            check_capacity(replace(found, instances=early), where)

    def test_a_partition_needs_no_payment(self):
        where = scenario(sized(3), arrivals=[0.0], on=one_node(msgspec.structs.replace(MIG, partition=(3, 3))))
        found = simulate(where)
        assert found.instances["ready"].to_list() == [1.0]
        check_capacity(found, where)
