"""MIG: slices that are cut stay, idle ones are used again, and a GPU is cut otherwise only while nothing runs there."""

from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_worlds import scenarios
from toy_policies import Adjusting, Doing, start_oldest, yielding

from fairlead.engine import simulate
from fairlead.engine.core.slices import Slices
from fairlead.model import Buffer, Cluster, Configuration, Device, Node
from fairlead.model.mig import MIG_SIZES, mig_layout
from fairlead.policy import Cancel, Scale, Start, Wake, Warm
from fairlead.profile import Row, Table
from fairlead.testing import check_accounts, check_capacity, declared, mig_fits, scenario
from fairlead.workload import Listed, NodeFault

CUT_S = 3.0


def mig(devices=1, nodes=1, vcpus=16, **device):
    """Equal nodes with MIG devices on which a cut takes three seconds."""
    gpu = Device(vgpus=7, sharing="mig", **{"repartition_s": CUT_S, **device})
    return Cluster(
        nodes=tuple(Node(name=f"n{i}", kind="gpu", vcpus=vcpus, devices=(gpu,) * devices) for i in range(nodes))
    )


def sized(size, seconds=1.0, **settings):
    """A function on slices of one size, with a cold start of a second."""
    return declared(Table((Row(vgpus=size, seconds=seconds),)), **{"cold_start_s": 1.0, **settings})


def world(functions, *arrivals, on, **settings):
    """One workflow per function; arrivals as (function, instant)."""
    at = {}
    for name, instant in arrivals:
        at.setdefault(name, []).append(instant)
    listed = [Listed(name, tuple(instants)) for name, instants in at.items()]
    return scenario(functions, workflows={name: (name,) for name in functions}, arrivals=listed, on=on, **settings)


def run(where, policy=None):
    recording = simulate(where, policy or Doing(start_oldest_that_fits))
    check_capacity(recording, where)
    check_accounts(recording)
    return recording


def start_oldest_that_fits(view):
    """As `start_oldest`, but what does not fit holds nobody up."""
    for invocation in view.by_ready():
        configuration = view.profile(invocation.function).configurations[0]
        node = view.place(invocation.function, configuration)
        if node is not None:
            yield Start((invocation,), configuration, node)


def starts(recording):
    """Function, start and cold start of every invocation, in order."""
    return recording.invocations.sort("start", "batch").select("function", "start", "cold_s").rows()


def causes(recording):
    return recording.instances.sort("instance").select("function", "cause").rows()


class TestCutting:
    def test_first_slice_is_cut_at_a_cost_and_the_second_run_finds_it(self):
        # The instance of a is gone at once; its slice stays, so b only pays its own cold start.
        functions = {"a": sized(2, keep_alive_s=0), "b": sized(2)}
        found = run(world(functions, ("a", 0), ("b", 10), on=mig()))
        assert starts(found) == [("a", 0, 1 + CUT_S), ("b", 10, 1)]

    def test_partition_is_there_from_the_beginning(self):
        functions = {"a": sized(3), "b": sized(2), "c": sized(1)}
        arrivals = [("a", 0), ("b", 0), ("c", 0), ("c", 0)]
        found = run(world(functions, *arrivals, on=mig(partition=(3, 2, 1, 1))))
        assert {cold_s for _, _, cold_s in starts(found)} == {1.0}
        assert found.invocations["start"].to_list() == [0] * 4

    def test_places_that_are_part_of_no_slice_are_cut_while_others_run(self):
        functions = {"long": sized(4, seconds=20), "late": sized(2)}
        found = run(world(functions, ("long", 0), ("late", 5), on=mig()))
        assert starts(found) == [("long", 0, 1 + CUT_S), ("late", 5, 1 + CUT_S)]

    def test_each_cut_is_paid_once(self):
        found = run(world({"a": sized(1)}, ("a", 0), ("a", 0), ("a", 20), ("a", 20), ("a", 20), on=mig()))
        # At 20 two are warm; the third needs a slice of its own.
        assert [cold_s for *_, cold_s in starts(found)] == [4, 4, 0, 0, 4]

    def test_without_a_cost_a_cut_takes_no_time(self):
        found = run(world({"a": sized(1)}, ("a", 0), on=mig(repartition_s=0.0)))
        assert starts(found) == [("a", 0, 1)]

    def test_warming_pays_and_the_start_that_claims_it_does_not(self):
        def deed(view):
            if view.now == 0:
                yield Warm("a", Configuration(vgpus=2), "n0")
                yield Wake(9.0)
            elif view.now == 9:
                yield from start_oldest(view)

        found = run(world({"a": sized(2)}, ("a", 0), on=mig()), Doing(deed))
        assert starts(found) == [("a", 9, 0)]
        assert found.instances["ready"].to_list() == [1 + CUT_S]

    def test_prediction_knows_of_the_cut(self):
        seen = []

        def deed(view):
            yield from start_oldest(view)
            seen.append(view.finishes("n0"))

        run(world({"a": sized(2)}, ("a", 0), on=mig()), Doing(deed))
        assert seen[0] == (1 + CUT_S + 1,)


class TestRepartition:
    def test_it_waits_until_nothing_runs(self):
        functions = {"small": sized(1, seconds=9), "large": sized(2)}
        seen = []

        def deed(view):
            two = Configuration(vgpus=2)
            seen.append((view.now, view.fits("large", two, "n0"), view.place("large", two), view.waiting() > 0))
            yield from start_oldest_that_fits(view)

        found = run(world(functions, ("small", 0), ("large", 1), on=mig(partition=(1,) * 7)), Doing(deed))
        # One of seven runs from 0 to 10: six are free, yet none of two.
        assert seen == [(0, True, "n0", True), (1, False, None, True), (10, True, "n0", True)]
        assert starts(found) == [("small", 0, 1), ("large", 10, 1 + CUT_S)]

    def test_a_start_while_something_runs_is_refused(self):
        def deed(view):
            for invocation in view.by_ready():
                yield Start((invocation,), view.profile(invocation.function).configurations[0], "n0")

        functions = {"small": sized(1, seconds=9), "large": sized(2)}
        found = simulate(world(functions, ("small", 0), ("large", 1), on=mig(partition=(1,) * 7)), Doing(deed))
        assert [refusal.reason for refusal in found.refusals] == ["large at 1x 1 vCPU 2 vGPU does not fit on n0"]

    def test_a_start_that_still_goes_on_is_in_the_way(self):
        functions = {"slow": sized(1, cold_start_s=5), "large": sized(7)}
        found = run(world(functions, ("slow", 0), ("large", 1), on=mig(partition=(1,) * 7)))
        assert starts(found) == [("slow", 0, 5), ("large", 6, 1 + CUT_S)]

    def test_idle_replicas_are_in_the_way(self):
        functions = {"scaled": sized(1), "large": sized(2)}
        where = world(functions, ("large", 15), on=mig(partition=(1,) * 7), control_period_s=10)
        scaler = Adjusting((yielding(Scale("scaled", 1)), lambda view: (), yielding(Scale("scaled", 0))))
        found = simulate(where, Doing(start_oldest_that_fits), scaler=scaler)
        check_capacity(found, where)
        assert starts(found) == [("large", 30, 1 + CUT_S)]  # with the third period the replica goes

    def test_only_slices_in_its_way_are_destroyed(self):
        functions = {"a": sized(3), "b": sized(3), "c": sized(4)}
        found = run(world(functions, ("a", 0), ("b", 0), ("c", 10), ("a", 20), on=mig(partition=(3, 3))))
        # The slice of four begins at place 0, where b was; a stays warm at place 4.
        assert causes(found) == [("a", None), ("b", "evicted"), ("c", None)]
        assert starts(found)[2:] == [("c", 10, 1 + CUT_S), ("a", 20, 0)]

    def test_of_two_places_the_one_that_nobody_holds_is_cut(self):
        functions = {"a": sized(3), "b": sized(2)}
        found = run(world(functions, ("a", 0), ("b", 10), on=mig(partition=(3, 3))))
        assert causes(found) == [("a", None), ("b", None)]
        assert starts(found)[1] == ("b", 10, 1 + CUT_S)

    def test_who_keeps_only_memory_ends_with_the_last_slice_of_its_size(self):
        functions = {"a": sized(7, idle_holds="memory"), "b": sized(4)}
        found = run(world(functions, ("a", 0), ("b", 10), ("a", 20), on=mig()))
        assert causes(found) == [("a", "evicted"), ("b", "evicted"), ("a", None)]
        assert starts(found) == [("a", 0, 4), ("b", 10, 4), ("a", 20, 4)]

    def test_a_lost_node_comes_back_as_it_began(self):
        faults = (NodeFault(node="n0", at_s=10, back_s=1),)
        functions = {"a": sized(3), "b": sized(7)}
        arrivals = [("b", 0), ("a", 12)]
        found = run(world(functions, *arrivals, on=mig(partition=(3, 3)), node_faults=faults))
        assert starts(found) == [("b", 0, 1 + CUT_S), ("a", 12, 1)]


class TestTakingOver:
    def test_an_idle_slice_of_the_same_size_needs_no_cut(self):
        found = run(world({"a": sized(7), "b": sized(7)}, ("a", 0), ("b", 10), on=mig(partition=(7,))))
        assert causes(found) == [("a", "evicted"), ("b", None)]
        assert starts(found) == [("a", 0, 1), ("b", 10, 1)]

    def test_least_recently_used_makes_way(self):
        functions = {name: sized(3) for name in "abc"}
        arrivals = [("a", 0), ("b", 0), ("a", 5), ("c", 10)]
        found = run(world(functions, *arrivals, on=mig(partition=(3, 3))))
        assert causes(found) == [("a", None), ("b", "evicted"), ("c", None)]

    def test_while_others_run_too(self):
        functions = {"busy": sized(4, seconds=20), "a": sized(3), "b": sized(3)}
        found = run(world(functions, ("busy", 0), ("a", 0), ("b", 10), on=mig(partition=(4, 3))))
        assert starts(found)[2] == ("b", 10, 1)
        assert causes(found) == [("busy", None), ("a", "evicted"), ("b", None)]

    def test_a_cut_comes_before_an_eviction(self):
        found = run(world({"a": sized(3), "b": sized(3)}, ("a", 0), ("b", 10), on=mig(partition=(3,))))
        assert causes(found) == [("a", None), ("b", None)]
        assert starts(found) == [("a", 0, 1), ("b", 10, 1 + CUT_S)]

    def test_who_keeps_only_memory_wakes_in_any_free_slice_of_its_size(self):
        functions = {"a": sized(3, idle_holds="memory"), "b": sized(3, seconds=20)}
        found = run(world(functions, ("a", 0), ("b", 5), ("a", 10), on=mig(partition=(3, 3))))
        assert starts(found) == [("a", 0, 1), ("b", 5, 1), ("a", 10, 0)]

    def test_a_warm_instance_without_a_slice_is_no_use(self):
        functions = {"a": sized(3, idle_holds="memory"), "b": sized(3, seconds=20)}
        warm = []

        def deed(view):
            warm.append((view.now, view.is_warm("a", Configuration(vgpus=3), "n0")))
            yield from start_oldest_that_fits(view)

        found = run(world(functions, ("a", 0), ("b", 5), ("a", 10), on=mig(partition=(3,))), Doing(deed))
        # At 10 the slice of a is in use by b: another is cut, with a cold start in it.
        assert warm == [(0, False), (5, True), (10, False)]
        assert starts(found) == [("a", 0, 1), ("b", 5, 1), ("a", 10, 1 + CUT_S)]

    def test_cancelled_start_leaves_its_slice(self):
        ids = []

        def deed(view):
            if view.now == 2:
                yield Cancel(ids[0])
            elif view.now in (0, 5):
                ids.extend(invocation.id for invocation in view.by_ready())
                yield from start_oldest(view)

        found = run(world({"a": sized(2)}, ("a", 0), ("a", 2), ("a", 5), on=mig()), Doing(deed))
        rows = found.invocations.sort("start", "batch").select("start", "cold_s", "outcome").rows()
        # Of the three that start at 5, the first finds the slice that was cut for the one cancelled.
        assert rows == [(0, 2, "preempted"), (5, 1, "done"), (5, 4, "done"), (5, 4, "done")]


class TestDevices:
    def test_one_with_a_free_slice_comes_before_one_to_be_cut(self):
        functions = {"a": sized(1, keep_alive_s=0), "b": sized(1, seconds=30), "c": sized(1)}

        def deed(view):
            for invocation in view.by_ready():
                device = {"a": 1, "b": 1}.get(invocation.function)
                yield Start((invocation,), Configuration(vgpus=1), "n0", device=device)

        found = run(world(functions, ("b", 0), ("a", 0), ("c", 20), on=mig(devices=2)), Doing(deed))
        # Device 0 is empty; but on device 1, where b runs, the slice of a is free.
        last = found.invocations.filter(function="c")
        assert last.select("device", "cold_s").rows() == [(1, 1)]

    def test_slices_are_isolated(self):
        functions = {"a": sized(3, seconds=2, gpu_sensitivity=5.0), "b": sized(3, seconds=2, gpu_sensitivity=5.0)}
        found = run(world(functions, ("a", 0), ("b", 0), on=mig(partition=(3, 3))))
        assert found.invocations["end"].to_list() == [3, 3]

    def test_a_kernel_waits_for_the_cut_too(self):
        def kernel(size):
            weights = (Buffer(name="weights", size_mb=10),)
            return declared(Table((Row(vgpus=size, seconds=1.0),)), idle_holds="memory", buffers=weights)

        found = run(world({"a": kernel(4), "b": kernel(7)}, ("a", 0), ("b", 10), ("a", 20), on=mig()))
        rows = found.invocations.sort("start").select("function", "cold_s", "is_cold").rows()
        # Its constants still lie on the device when a comes again, but its slice is gone.
        assert rows == [("a", 3, True), ("b", 3, True), ("a", 3, True)]
        assert found.device_memory[0].compulsory_misses == 2
        assert found.device_memory[0].capacity_misses == 0


class TestLayout:
    @pytest.mark.parametrize("count", range(1, 5))
    def test_every_layout_has_places_beside_each_other(self, count):
        for sizes in combinations_with_replacement(MIG_SIZES, count):
            places = mig_layout(sizes)
            assert (places is not None) == (sum(sizes) <= 7 and mig_fits(sizes)), sizes
            if places is not None:
                assert sum(places).bit_count() == sum(place.bit_count() for place in places), sizes

    @pytest.mark.parametrize(
        ("partition", "complaint"),
        [
            ((5,), "partition must be of MIG sizes"),
            ((4, 4), "partition must be slices that one device has places for"),
            ((3, 3, 1), "partition must be slices that one device has places for"),
            ((1,) * 8, "partition must be slices that one device has places for"),
        ],
        ids=str,
    )
    def test_impossible_partitions_are_refused(self, partition, complaint):
        with pytest.raises(ValueError, match=complaint):
            Device(vgpus=7, sharing="mig", partition=partition)

    @pytest.mark.parametrize("sharing", ["mps", "time"])
    def test_only_mig_has_a_partition(self, sharing):
        with pytest.raises(ValueError, match="partition must be left out unless gpu_sharing is mig"):
            Device(vgpus=7, sharing=sharing, partition=(3,))


STEPS = st.lists(st.tuples(st.sampled_from(["take", "take", "give", "hold"]), st.sampled_from(MIG_SIZES)), max_size=25)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(STEPS, st.sampled_from([(), (3, 2, 1, 1), (1,) * 7, (2, 2, 2)]))
def test_slices_keep_their_promises(steps, partition):
    """Whatever comes: slices never overlap, none in use is destroyed, and what fits can be taken."""
    slices = Slices(Device(vgpus=7, sharing="mig", partition=partition))
    used, held = [], []
    for what, size in steps:
        vgpus = size * 1000
        if what == "take":
            before = dict(slices.cut)
            fits = slices.fits(vgpus)
            # Places are free if they are in no slice; or if nothing is in use, anywhere.
            is_there = any(s == vgpus and place not in used for place, s in before.items())
            uncut = any(all(not place & other for other in before) for place in _places(size))
            assert fits == (is_there or uncut or not used)
            if not fits:
                continue
            place, is_cut = slices.take(vgpus, [p for p in held if before.get(p) == vgpus], may_cut=True)
            assert place not in used
            assert is_cut == (before.get(place) != vgpus)
            assert all(slices.cut[other] == before[other] for other in used)
            if set(before) - set(slices.cut):
                assert not used  # something was destroyed
            held = [p for p in held if p in slices.cut and p != place]
            slices.held = sum(held)
            used.append(place)
        elif used:
            place = used.pop(size % len(used))
            slices.busy &= ~place
            if what == "hold":
                held.append(place)
                slices.held |= place
        assert sum(slices.cut).bit_count() == sum(place.bit_count() for place in slices.cut)
        assert all(place in slices.cut for place in (*used, *held))


def _places(size):
    width = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}[size]
    return [((1 << width) - 1) << at for at in {1: range(7), 2: (0, 2, 4), 3: (0, 4)}.get(size, (0,))]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(scenarios(), st.integers(0, 3))
def test_the_index_misses_nothing_and_claims_nothing(where, seed):
    """`place` finds a node if and only if one `fits`, on some device if and only if on the node."""

    def deed(view):
        for function in sorted(where.functions):
            for configuration in view.profile(function).configurations:
                fitting = [n.name for n in view.nodes if view.fits(function, configuration, n.name)]
                assert (
                    (view.place(function, configuration) in fitting)
                    if fitting
                    else (view.place(function, configuration) is None)
                )
                if configuration.vgpus:
                    for node in view.nodes:
                        some = any(
                            view.fits(function, configuration, node.name, device) for device in range(len(node.devices))
                        )
                        assert some == (node.name in fitting)
        for invocation in view.by_ready():
            options = view.profile(invocation.function).configurations
            configuration = options[(invocation.id + seed) % len(options)]
            node = view.place(invocation.function, configuration)
            if node is not None:
                yield Start((invocation,), configuration, node)

    found = simulate(where, Doing(deed), seed=seed)
    assert found.refusals == ()
    check_capacity(found, where)


class TestFixed:
    """The MIG instances of a live node: used as they are, and never cut."""

    def test_what_has_no_slice_waits_although_it_could_be_cut_for_it(self):
        functions = {"one": sized(1), "two": sized(2), "three": sized(3)}
        on = mig(partition=(2, 1), is_fixed=True)
        where = world(functions, ("three", 0.0), ("two", 0.0), ("two", 0.5), ("one", 0.0), on=on)
        recording = run(where)
        assert starts(recording) == [("two", 0.0, 1.0), ("one", 0.0, 1.0), ("two", 2.0, 0.0)]  # and three never

    def test_an_idle_instance_gives_its_slice_to_another_function_of_its_size(self):
        on = mig(partition=(3,), is_fixed=True)
        recording = run(world({"a": sized(3), "b": sized(3)}, ("a", 0.0), ("b", 5.0), on=on))
        assert starts(recording) == [("a", 0.0, 1.0), ("b", 5.0, 1.0)]
        assert causes(recording)[0] == ("a", "evicted")

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.sampled_from(MIG_SIZES), max_size=7).filter(lambda sizes: mig_layout(sizes) is not None))
    def test_just_the_sizes_of_the_partition_are_held(self, partition):
        slices = Slices(Device(vgpus=7, sharing="mig", partition=tuple(partition), is_fixed=True))
        for size in sorted(partition):
            assert slices.fits(size * 1000)
            _, is_cut = slices.take(size * 1000, (), may_cut=True)
            assert not is_cut
        assert not any(slices.fits(size * 1000) or slices.fits_beside(size * 1000) for size in MIG_SIZES)

    def test_only_a_mig_device_is_fixed(self):
        with pytest.raises(ValueError, match="is_fixed must be false unless gpu_sharing is mig"):
            Device(vgpus=7, is_fixed=True)


def test_functions_and_kernels_keep_to_the_devices_that_serve_them():
    kernel = declared(
        Table((Row(vgpus=1, seconds=1.0),)),
        buffers=(Buffer(name="b", size_mb=1, kind="constant"),),
        idle_holds="memory",
    )
    devices = (Device(vgpus=7, serves="functions"), Device(vgpus=7, memory_gb=1, serves="kernels"))
    on = Cluster(nodes=(Node(name="n", kind="gpu", vcpus=16, devices=devices),))
    arrivals = [(name, float(i)) for i in range(3) for name in ("kernel", "function")]
    recording = run(world({"kernel": kernel, "function": sized(1)}, *arrivals, on=on))
    assert set(recording.invocations.select("function", "device").rows()) == {("function", 0), ("kernel", 1)}
