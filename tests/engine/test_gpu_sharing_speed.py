"""How fast runs go that share a device: side by side under MPS, by turns under time slicing."""

from dataclasses import replace

import polars as pl
import pytest
from toy_policies import Doing, start_oldest

from fairlead.engine import simulate
from fairlead.model import Cluster, Configuration, Device, Node
from fairlead.policy import Cancel, Start
from fairlead.profile import Row, ScalingLaw, Table, space
from fairlead.profile.interference import device_slowdown, turn_slowdown
from fairlead.testing import check_accounts, check_capacity, cluster, declared, scenario
from fairlead.workload import Listed, NodeFault, Poisson


def gpus(sharing="mps", *, devices=1, vgpus=7.0, vcpus=4.0, **device):
    """One node with such devices."""
    gpu = Device(vgpus=vgpus, sharing=sharing, **device)
    return Cluster(nodes=(Node(name="n0", kind="gpu", vcpus=vcpus, devices=(gpu,) * devices),))


def on_gpu(seconds=1.0, vgpus=2.0, **settings):
    return declared(Table((Row(vgpus=vgpus, seconds=seconds),)), **settings)


def together(functions, *instants, **settings):
    """One workflow per function, each called at its instant (0 unless given)."""
    at = dict(zip(functions, instants, strict=True)) if instants else dict.fromkeys(functions, 0.0)
    listed = [Listed(name, (float(instant),)) for name, instant in at.items()]
    return scenario(functions, workflows={name: (name,) for name in functions}, arrivals=listed, **settings)


def ends(where, policy=None):
    """When each function ended."""
    recording = simulate(where, policy or Doing(start_oldest))
    check_capacity(recording, where)
    check_accounts(recording)
    done = recording.invocations.filter(outcome="done")
    return {name: pytest.approx(end) for name, end in done.select("function", "end").rows()}


class TestLaws:
    def test_side_by_side_it_is_linear_in_the_share_of_the_others(self):
        assert [device_slowdown(2.0, share) for share in (0.0, 0.25, 1.0)] == [1.0, 1.5, 3.0]

    def test_by_turns_it_is_their_number_and_what_changing_costs(self):
        assert [turn_slowdown(runs, 0.5) for runs in (0, 1, 2, 4)] == [1.0, 1.0, 3.0, 6.0]


class TestMps:
    """Two of seven vGPUs and a sensitivity of 3.5: one neighbour doubles the time (1 + 3.5 x 2/7 = 2)."""

    PAIR = staticmethod(lambda **settings: {name: on_gpu(gpu_sensitivity=3.5, **settings) for name in "ab"})

    def test_two_at_once_take_twice_as_long(self):
        assert ends(together(self.PAIR(), on=gpus())) == {"a": 2, "b": 2}

    def test_rates_change_when_the_device_does(self):
        # Alone until 0.5; then the other half of a takes a second. By then b has done half, and goes on alone.
        assert ends(together(self.PAIR(), 0, 0.5, on=gpus())) == {"a": 1.5, "b": 2}

    def test_two_batches_of_one_function_disturb_each_other(self):
        where = scenario(on_gpu(gpu_sensitivity=3.5), arrivals=[0, 0.5], on=gpus())
        found = simulate(where)
        assert found.invocations["end"].to_list() == pytest.approx([1.5, 2])

    def test_only_the_sensitive_are_slowed_and_every_neighbour_counts(self):
        functions = {"meek": on_gpu(gpu_sensitivity=7.0), "loud": on_gpu(4.0, vgpus=3), "deaf": on_gpu(4.0, vgpus=1)}
        # 1 + 7 x (3 + 1) / 7 = 5: alone again from 4 on, when 0.8 of its second are done.
        assert ends(together(functions, on=gpus())) == {"meek": 4.2, "loud": 4, "deaf": 4}

    def test_another_device_is_no_neighbour(self):
        def deed(view):
            for device, invocation in enumerate(view.by_ready()):
                yield Start((invocation,), Configuration(vgpus=2), "n0", device=device)

        assert ends(together(self.PAIR(), on=gpus(devices=2)), Doing(deed)) == {"a": 1, "b": 1}

    def test_a_run_without_vgpus_is_no_neighbour(self):
        functions = {"a": on_gpu(gpu_sensitivity=3.5), "cpu": declared(5.0)}
        assert ends(together(functions, on=gpus())) == {"a": 1, "cpu": 5}

    def test_both_kinds_of_interference_multiply(self):
        # On the node: 1 + 2 x 1/4 = 1.5. On the device: 2.
        functions = self.PAIR(sensitivity=2.0)
        assert ends(together(functions, on=gpus(vcpus=4))) == {"a": 3, "b": 3}

    def test_a_neighbour_that_is_cancelled_no_longer_disturbs(self):
        ids = {}

        def deed(view):
            if view.now == 1:
                yield Cancel(ids["b"])
                return
            for invocation in view.by_ready():
                ids[invocation.function] = invocation.id
            if view.now == 0:
                yield from start_oldest(view)

        functions = {**self.PAIR(), "late": declared(1.0)}
        found = simulate(together(functions, 0, 0, 1, on=gpus()), Doing(deed))
        # Half of a is done at 1, the rest alone.
        assert found.invocations.filter(function="a")["end"].to_list() == pytest.approx([1.5])

    @pytest.mark.parametrize("sharing", ["mig", "time"])
    def test_it_is_a_matter_of_mps(self, sharing):
        functions = {"a": on_gpu(gpu_sensitivity=3.5), "b": on_gpu(gpu_sensitivity=3.5)}
        insensitive = {"a": on_gpu(), "b": on_gpu()}
        assert ends(together(functions, on=gpus(sharing))) == ends(together(insensitive, on=gpus(sharing)))

    def test_on_mps_nobody_is_slowed_unless_declared(self):
        assert ends(together({"a": on_gpu(), "b": on_gpu()}, on=gpus())) == {"a": 1, "b": 1}


class TestTurns:
    """Seven seconds on one vGPU, one second on all seven: the law knows both."""

    LAW = ScalingLaw(t1_s=7.0, fixed=0.0, delta=1.0)

    def pair(self, vgpus=1.0):
        sizes = space(vgpus=(vgpus,))
        return {name: declared(self.LAW, configurations=sizes) for name in "ab"}

    def test_alone_it_has_the_whole_device(self):
        one = {"a": self.pair()["a"]}
        assert ends(together(one, on=gpus())) == {"a": 7}
        assert ends(together(one, on=gpus("time"))) == {"a": 1}
        assert ends(together(one, on=gpus("time", slice_overhead=0.5))) == {"a": 1}

    def test_two_have_half_of_the_time_each(self):
        assert ends(together(self.pair(), on=gpus("time"))) == {"a": 2, "b": 2}

    def test_changing_costs_every_turn(self):
        assert ends(together(self.pair(), on=gpus("time", slice_overhead=0.25))) == {"a": 2.5, "b": 2.5}

    @pytest.mark.parametrize(
        ("overhead", "expected"), [(0.0, {"a": 1.5, "b": 2.0}), (0.25, {"a": 1.75, "b": 2.25})], ids=str
    )
    def test_the_second_comes_later(self, overhead, expected):
        # Half of a is done at 0.5; the other half takes 0.5 x 2 x (1 + overhead). Then b, half done, is alone.
        assert ends(together(self.pair(), 0, 0.5, on=gpus("time", slice_overhead=overhead))) == expected

    def test_who_stays_is_alone_again(self):
        functions = {"short": on_gpu(1.0), "long": on_gpu(3.0)}
        # Both at half speed until 2; the other two seconds of long are alone.
        assert ends(together(functions, on=gpus("time"))) == {"short": 2, "long": 4}

    def test_the_share_counts_for_admission_only(self):
        functions = {name: on_gpu(1.0, vgpus=3) for name in "abc"}
        # Two of three vGPUs each fit on seven; the third waits until they end, at 2.
        assert ends(together(functions, on=gpus("time"))) == {"a": 2, "b": 2, "c": 3}
        sizes = {"large": on_gpu(1.0, vgpus=6), "small": on_gpu(1.0, vgpus=1)}
        assert ends(together(sizes, on=gpus("time"))) == {"large": 2, "small": 2}

    def test_a_table_that_ends_before_the_whole_gives_its_most(self):
        rows = (Row(vgpus=1, seconds=4), Row(vgpus=3, seconds=2), Row(vgpus=3, batch=2, seconds=1))
        function = declared(Table(rows), configurations=(Configuration(vgpus=1),))
        # The space offers one vGPU alone; the row of three is then not part of what a policy could choose.
        assert ends(together({"a": function}, on=gpus("time"))) == {"a": 4}
        whole = declared(Table(rows))
        assert ends(together({"a": whole}, on=gpus("time"))) == {"a": 2}

    def test_other_devices_have_turns_of_their_own(self):
        def deed(view):
            for device, invocation in enumerate(view.by_ready()):
                yield Start((invocation,), Configuration(vgpus=1), "n0", device=device)

        assert ends(together(self.pair(), on=gpus("time", devices=2)), Doing(deed)) == {"a": 1, "b": 1}

    def test_a_start_takes_no_turns(self):
        functions = {"a": on_gpu(2.0), "b": on_gpu(1.0, cold_start_s=1.5)}
        # b is ready at 1.5, when a has half a second to go: a second by turns, after which b has half of its own.
        assert ends(together(functions, on=gpus("time"))) == {"a": 2.5, "b": 3}

    def test_interference_on_the_node_comes_on_top(self):
        functions = {name: on_gpu(1.0, sensitivity=2.0) for name in "ab"}
        assert ends(together(functions, on=gpus("time", vcpus=4))) == {"a": 3, "b": 3}

    def test_loss_of_the_node_ends_the_turns(self):
        faults = (NodeFault(node="n0", at_s=0.5, back_s=0.5),)
        where = together(self.pair(), on=gpus("time"), node_faults=faults)
        assert ends(where) == {"a": 3, "b": 3}  # both begin anew at 1

    def test_beliefs_follow_what_is_seen(self):
        told = []

        def deed(view):
            told.append(view.profile("a").latency_s(Configuration(vgpus=1)))
            yield from start_oldest(view)

        one = self.pair()["a"]
        simulate(scenario({"a": one}, arrivals=[2.0 * i for i in range(300)], on=gpus("time")), Doing(deed))
        assert told[0] == 7.0
        assert told[-1] == pytest.approx(1, rel=0.15)

    @pytest.mark.parametrize("load", [0.3, 0.6])
    def test_sojourn_is_that_of_processor_sharing(self, load):
        """M/D/1 by turns: the mean sojourn is D / (1 - load), whatever the distribution of the work."""
        function = declared(Table((Row(vcpus=0, vgpus=0.01, seconds=1.0),)))
        where = scenario(function, arrivals=[Poisson("main", load)], on=gpus("time"), duration_s=15_000)
        found = simulate(where, "fifo", seed=2)
        spans = found.requests.filter(pl.col("arrival") > 200)
        assert (spans["end"] - spans["arrival"]).mean() == pytest.approx(1 / (1 - load), rel=0.05)


class TestRecords:
    def test_ends_are_the_same_twice(self):
        where = together({name: on_gpu(gpu_sensitivity=3.5, noise=0.3) for name in "abc"}, on=gpus())
        one, other = (simulate(where, seed=4).invocations for _ in range(2))
        assert one.equals(other)

    def test_vgpus_of_turns_are_counted(self):
        where = scenario(on_gpu(vgpus=3), arrivals=[0, 0], on=gpus("time"))
        found = simulate(where)
        with pytest.raises(AssertionError, match="6 vGPUs in use on n0/0"):
            check_capacity(replace(found, cluster=cluster(vgpus=5)))
