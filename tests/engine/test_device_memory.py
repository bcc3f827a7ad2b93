"""Device memory of kernels: what is loaded, what stays, who makes room, and how long it takes."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_worlds import MAKERS, made, scenarios
from toy_policies import Doing

from fairlead.engine import simulate
from fairlead.engine.core.capacity import NodeState
from fairlead.engine.core.device_memory import DeviceMemory, Kernel
from fairlead.errors import ConfigError
from fairlead.model import Buffer, Cluster, Configuration, Device, Function, Node, Price
from fairlead.policy import Retire, Start, Wake
from fairlead.report import read_run, write_run
from fairlead.testing import check_accounts, check_capacity, check_order, declared, scenario
from fairlead.workload import Listed, NodeFault, load_scenario, parse_scenario

WHOLE = Configuration(vcpus=0, vgpus=1)
HALF = Configuration(vcpus=0, vgpus=0.5)
LENIENT = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def on(memory_mb=1024, *, nodes=1, price=None, **device):
    """Nodes without vCPUs and with one GPU of so much memory; it loads 1 GB per second unless told."""
    settings = {"load_gb_per_s": 1, **device}
    gpu = Device(vgpus=1, memory_gb=memory_mb / 1024, **settings)
    return Cluster(
        nodes=tuple(Node(name=f"n{i}", kind="gpu", vcpus=0, devices=(gpu,)) for i in range(nodes)),
        price=price or Price(),
    )


def kernel(seconds=1.0, *, configuration=WHOLE, more=(), keep_alive_s=float("inf"), cold_start_s=0.0, **constants_mb):
    """A kernel with these constants, named by keyword, and other buffers as (kind, MB)."""
    buffers = [Buffer(name=name, size_mb=size_mb) for name, size_mb in constants_mb.items()]
    buffers += [Buffer(name=kind, size_mb=size_mb, kind=kind) for kind, size_mb in more]
    return declared(
        seconds,
        configurations=(configuration,),
        idle_holds="memory",
        keep_alive_s=keep_alive_s,
        cold_start_s=cold_start_s,
        buffers=tuple(buffers),
    )


def each(functions, *arrivals, **settings):
    """One workflow per function; arrivals as (function, instant)."""
    at = {}
    for name, instant in arrivals:
        at.setdefault(name, []).append(instant)
    return scenario(
        functions,
        workflows={name: (name,) for name in functions},
        arrivals=[Listed(name, tuple(instants)) for name, instants in at.items()],
        **settings,
    )


def runs(recording, *columns):
    return recording.invocations.sort("start", "batch").select(columns).rows()


def use(recording):
    (one,) = recording.device_memory
    return one


class TestOneDevice:
    """The bookkeeping alone, in MiB."""

    def test_buffers_used_at_most_twice_go_before_older_ones_that_are_used_often(self):
        device = memory(10)
        a, b, c, d, e = (model(name, size) for name, size in zip("abcde", (3, 3, 3, 4, 7), strict=True))
        for one in (a, a, a, b, c):
            ran(device, one)
        assert resident(device) == {"a", "b", "c"}
        ran(device, d)  # 9 + 4 MiB: one of 3 must go; a is the oldest, but was used three times
        assert resident(device) == {"a", "c", "d"}
        ran(device, e)  # 10 + 7 MiB: c and d go, a stays
        assert resident(device) == {"a", "e"}
        ran(device, model("f", 10))  # nothing else is left
        assert resident(device) == {"f"}
        assert device.buffers.counts.evictions == 5

    def test_third_use_saves_a_buffer(self):
        device = memory(6)
        a, b, c = (model(name, 3) for name in "abc")
        for one in (a, b, a, b, a):  # b was used twice, a three times
            ran(device, one)
        ran(device, c)
        assert resident(device) == {"a", "c"}

    def test_second_use_does_not(self):
        device = memory(6)
        a, b, c = (model(name, 3) for name in "abc")
        for one in (a, a, b):
            ran(device, one)
        ran(device, c)
        assert resident(device) == {"b", "c"}

    def test_misses_are_compulsory_at_first_and_for_lack_of_capacity_after_an_eviction(self):
        device = memory(4)
        a, b = model("a", 3), model("b", 3)
        for one in (a, a, b, a):
            ran(device, one)
        counts = device.buffers.counts
        assert (counts.hits, counts.compulsory_misses, counts.capacity_misses, counts.evictions) == (1, 2, 1, 2)
        assert counts.loaded_mb == 9

    def test_only_what_is_missing_is_loaded(self):
        device = memory(10)
        both = Kernel(Function(name="k", idle_holds="memory", buffers=(buffer("x", 2), buffer("y", 3))))
        assert started(device, both) == 5
        ended(device, both)
        started(device, model("other", 7))  # x, the older of two, makes way: 2 + 3 + 7 MiB
        ended(device, model("other", 7))
        assert device.buffers.missing(both) == 2
        assert started(device, both) == 2

    def test_sizes_are_rounded_up_and_bytes_are_not(self):
        device = memory(3)
        small = Kernel(Function(name="k", idle_holds="memory", buffers=(buffer("x", 0.25), buffer("y", 1.5))))
        assert started(device, small) == 1.75
        assert device.memory_free == 0

    @LENIENT
    @given(st.data())
    def test_pinned_is_never_evicted_and_sums_are_exact(self, data):
        sizes = data.draw(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), min_size=2, max_size=5))
        kernels = [model(f"k{i}", constant, scratch) for i, (constant, scratch) in enumerate(sizes)]
        device, running = memory(12), []
        for _ in range(data.draw(st.integers(5, 40))):
            which = data.draw(st.integers(0, len(kernels) - 1))
            if data.draw(st.booleans()) and device.buffers.fits(kernels[which]):
                started(device, kernels[which])
                running.append(kernels[which])
            elif running:
                ended(device, running.pop(data.draw(st.integers(0, len(running) - 1))))
            pinned = {one.name for one in running}
            there = resident(device)
            assert pinned <= there
            size = {one.name: one.constants[0][1] for one in kernels}
            in_use = sum(size[name] for name in pinned) + sum(one.scratch for one in running)
            assert device.memory_free == 12 - in_use >= 0
            assert device.memory_held == sum(size[name] for name in there - pinned) <= device.memory_free


def memory(mib):
    (device,) = NodeState(0, on(mib).nodes[0], has_kernels=True).devices
    return device


def buffer(name, size_mb, kind="constant"):
    return Buffer(name=name, size_mb=size_mb, kind=kind)


def model(name, size, scratch=0):
    more = (buffer("t", scratch, "temporary"),) if scratch else ()
    return Kernel(Function(name=name, idle_holds="memory", buffers=(buffer("w", size), *more)))


def started(device, one):
    load_mb, _ = device.buffers.pin(one)
    while device.memory_held > device.memory_free:
        assert device.buffers.evict() is not None
    device.buffers.ready(one)
    return load_mb


def ended(device, one):
    device.buffers.unpin(one)


def ran(device, one):
    assert device.buffers.fits(one)
    started(device, one)
    ended(device, one)


def resident(device):
    return {function for function, _ in device.buffers._resident}


class TestTime:
    def test_first_run_pays_executor_load_and_allocation_and_every_run_its_copies(self):
        # 2 s executor, 0.1 s allocation, 512 MB at 1 GB/s; then 0.1 s of input and 0.15 s of output around 1 s of work
        one = kernel(w=512, more=[("input", 102.4), ("output", 153.6), ("temporary", 200)])
        cluster = on(executor_start_s=2, allocation_s=0.1)
        recording = simulate(each({"k": one}, ("k", 0), ("k", 10), on=cluster))
        assert [
            (start, is_cold, pytest.approx(cold_s), pytest.approx(transfer_s), pytest.approx(end))
            for start, is_cold, cold_s, transfer_s, end in runs(
                recording, "start", "is_cold", "cold_s", "transfer_s", "end"
            )
        ] == [(0, True, 2.6, 0.25, 3.85), (10, False, 0, 0.25, 11.25)]
        found = use(recording)
        assert (found.hits, found.compulsory_misses, found.executor_starts) == (1, 1, 1)
        assert (found.loaded_mb, found.input_mb, found.output_mb) == (512, 204.8, 307.2)

    def test_executor_is_paid_once_per_device_and_a_load_per_kernel(self):
        two = {"a": kernel(w=256), "b": kernel(w=512)}
        recording = simulate(each(two, ("a", 0), ("b", 10), on=on(executor_start_s=2)))
        assert runs(recording, "function", "cold_s") == [("a", 2.25), ("b", 0.5)]

    def test_kernel_without_constants_is_cold_only_until_the_executor_runs(self):
        one = kernel(more=[("temporary", 100)])
        recording = simulate(each({"k": one}, ("k", 0), ("k", 10), on=on(executor_start_s=2, allocation_s=1)))
        assert runs(recording, "is_cold", "cold_s") == [(True, 2), (False, 0)]

    @pytest.mark.parametrize(("is_billed", "seconds"), [(True, 1.5), (False, 1.0)])
    def test_load_is_billed_as_a_cold_start_is(self, is_billed, seconds):
        price = Price(vgpu_usd_per_hour=3600, bill_cold_start=is_billed)
        recording = simulate(each({"k": kernel(w=512)}, ("k", 0), on=on(price=price)))
        assert recording.requests["cost_usd"].to_list() == [seconds]

    def test_without_a_rate_loading_takes_no_time(self):
        recording = simulate(each({"k": kernel(w=512)}, ("k", 0), on=on(load_gb_per_s=float("inf"))))
        assert runs(recording, "is_cold", "cold_s", "end") == [(True, 0, 1)]

    def test_declared_cold_start_adds_to_a_load_only(self):
        one = kernel(w=512, cold_start_s=0.25)
        recording = simulate(each({"k": one}, ("k", 0), ("k", 5), on=on()))
        assert runs(recording, "cold_s") == [(0.75,), (0,)]


class TestRoom:
    def test_alternating_kernels_that_do_not_fit_together_load_every_time(self):
        two = {"a": kernel(w=600), "b": kernel(w=600)}
        recording = simulate(each(two, ("a", 0), ("b", 10), ("a", 20), ("b", 30), on=on()))
        assert all(is_cold for (is_cold,) in runs(recording, "is_cold"))
        found = use(recording)
        assert (found.compulsory_misses, found.capacity_misses, found.evictions) == (2, 2, 3)
        assert [cause for (cause,) in recording.instances.sort("instance").select("cause").rows()] == [
            *["evicted"] * 3,
            None,
        ]

    def test_kernels_that_fit_together_stay_warm(self):
        two = {"a": kernel(w=500), "b": kernel(w=500)}
        recording = simulate(each(two, ("a", 0), ("b", 10), ("a", 20), ("b", 30), on=on()))
        assert [is_cold for (is_cold,) in runs(recording, "is_cold")] == [True, True, False, False]

    def test_kernel_that_lost_one_of_two_buffers_loads_only_that(self):
        two = {"k": kernel(x=256, y=512), "other": kernel(w=384)}
        recording = simulate(each(two, ("k", 0), ("other", 10), ("k", 20), on=on()))
        assert runs(recording, "function", "cold_s") == [("k", 0.75), ("other", 0.375), ("k", 0.25)]

    def test_reserve_is_kept_free(self):
        two = {"a": kernel(w=500), "b": kernel(w=500)}
        recording = simulate(each(two, ("a", 0), ("b", 10), ("a", 20), on=on(reserve_gb=0.1)))
        assert [is_cold for (is_cold,) in runs(recording, "is_cold")] == [True, True, True]

    def test_pinned_memory_keeps_a_kernel_waiting_although_half_the_device_is_free(self):
        two = {name: kernel(w=600, configuration=HALF) for name in "ab"}
        recording = simulate(each(two, ("a", 0), ("b", 0.5), on=on(load_gb_per_s=float("inf"))))
        assert runs(recording, "function", "start") == [("a", 0), ("b", 1)]

    def test_temporaries_need_room_only_while_they_are_used(self):
        two = {name: kernel(w=300, more=[("temporary", 400)]) for name in "ab"}
        recording = simulate(each(two, ("a", 0), ("b", 10), ("a", 20), on=on()))
        assert [is_cold for (is_cold,) in runs(recording, "is_cold")] == [True, True, False]

    def test_second_run_beside_the_first_shares_its_constants(self):
        one = kernel(4.0, w=512, configuration=HALF)
        recording = simulate(each({"k": one}, ("k", 0), ("k", 0.25), ("k", 5), ("k", 5), on=on(memory_mb=600)))
        # The second waits no less for what is still being loaded; afterwards both run at once and load nothing.
        assert runs(recording, "start", "is_cold", "cold_s") == [
            (0, True, 0.5),
            (0.25, True, 0.5),
            (5, False, 0),
            (5, False, 0),
        ]
        assert use(recording).loaded_mb == 512

    def test_instance_of_its_own_beside_resident_constants_is_not_cold(self):
        one = kernel(4.0, w=512, configuration=HALF)
        recording = simulate(each({"k": one}, ("k", 0), ("k", 1), on=on(memory_mb=600)))
        assert runs(recording, "start", "is_cold", "cold_s") == [(0, True, 0.5), (1, False, 0)]
        check_accounts(recording)

    def test_buffers_make_way_before_idle_processes(self):
        process = declared(
            1.0, configurations=(WHOLE,), idle_holds="memory", device_memory_gb=300 / 1024, cold_start_s=5
        )
        parts = {"p": process, "a": kernel(w=300), "b": kernel(w=600)}
        recording = simulate(each(parts, ("p", 0), ("a", 10), ("b", 20), ("p", 30), on=on()))
        assert runs(recording, "function", "is_cold") == [("p", True), ("a", True), ("b", True), ("p", False)]
        assert use(recording).evictions == 1

    def test_process_takes_memory_from_unused_buffers(self):
        process = declared(1.0, configurations=(WHOLE,), device_memory_gb=0.75)
        recording = simulate(each({"k": kernel(w=512), "p": process}, ("k", 0), ("p", 10), ("k", 20), on=on()))
        assert runs(recording, "function", "is_cold") == [("k", True), ("p", True), ("k", True)]
        assert use(recording).capacity_misses == 1


class TestLife:
    def test_buffers_go_when_their_instance_expires(self):
        one = kernel(w=512, keep_alive_s=2)
        recording = simulate(each({"k": one}, ("k", 0), ("k", 3), ("k", 20), on=on()))
        assert [is_cold for (is_cold,) in runs(recording, "is_cold")] == [True, False, True]
        assert use(recording).compulsory_misses == 2  # nobody needed the room

    def test_retired_kernel_is_loaded_again(self):
        def decide(view):
            for instance in view.instances("k"):
                if instance.is_idle:
                    yield Retire(instance.id)
            for invocation in view.by_ready():
                yield Start((invocation,), WHOLE, "n0")

        recording = simulate(each({"k": kernel(w=512)}, ("k", 0), ("k", 10), on=on()), Doing(decide))
        assert [is_cold for (is_cold,) in runs(recording, "is_cold")] == [True, True]

    def test_lost_node_loses_its_buffers_and_its_executor(self):
        faults = (NodeFault(node="n0", at_s=5, back_s=1),)
        recording = simulate(
            each({"k": kernel(w=512)}, ("k", 0), ("k", 10), on=on(executor_start_s=2), node_faults=faults)
        )
        assert runs(recording, "is_cold", "cold_s") == [(True, 2.5), (True, 2.5)]
        assert use(recording).executor_starts == 2

    def test_view_knows_what_is_resident_and_when_a_load_will_be_over(self):
        seen = []

        def decide(view):
            seen.append(
                (view.now, view.is_warm("k", WHOLE, "n0"), view.is_warm("k", WHOLE, "n0", 0), view.finishes("n0"))
            )
            for invocation in view.by_ready():
                yield Start((invocation,), WHOLE, "n0")
                yield Wake(view.now + 0.25)
                seen.append(view.finishes("n0"))

        simulate(each({"k": kernel(w=512)}, ("k", 0), ("k", 10), on=on()), Doing(decide))
        assert seen == [
            (0, False, False, ()),
            (1.5,),
            (0.25, False, False, (1.5,)),
            (10, True, True, ()),
            (11,),
            (10.25, True, True, (11,)),
        ]

    def test_estimate_of_a_cold_start_is_the_load_of_all_constants(self):
        found = []

        def decide(view):
            found.append(view.profile("k").cold_start_s("gpu"))
            yield from (Start((i,), WHOLE, "n0") for i in view.by_ready())

        simulate(each({"k": kernel(w=256, v=256)}, ("k", 0), on=on(allocation_s=0.1)), Doing(decide))
        assert found == [0.6]


class TestRecords:
    def test_same_seed_gives_the_same_records_and_counts(self):
        world = load_scenario("kaas-contention", overrides={"duration_s": 12})
        one, other = (simulate(world, seed=3) for _ in range(2))
        assert one.invocations.equals(other.invocations)
        assert one.instances.equals(other.instances)
        assert one.device_memory == other.device_memory

    def test_written_run_keeps_what_happened_in_memory(self, tmp_path):
        recording = simulate(each({"k": kernel(w=512)}, ("k", 0), on=on()))
        assert read_run(write_run(recording, tmp_path / "run")).device_memory == recording.device_memory

    def test_run_without_buffers_says_nothing_of_memory(self):
        process = declared(1.0, configurations=(WHOLE,), device_memory_gb=0.5)
        assert simulate(each({"p": process}, ("p", 0), on=on())).device_memory == ()

    def test_seven_clients_fit_and_an_eighth_thrashes(self):
        for gone, has_evictions in ((0, True), (1, False)):
            world = load_scenario("kaas-contention", overrides={"duration_s": 12})
            world = parse_scenario_without(world, gone)
            assert bool(use(simulate(world, "kaas-balance")).capacity_misses) == has_evictions


def parse_scenario_without(world, count):
    """The scenario with so many clients fewer."""
    kept = tuple(world.arrivals[: len(world.arrivals) - count])
    return type(world)(**{name: getattr(world, name) for name in world.__dataclass_fields__} | {"arrivals": kept})


def with_buffers(world):
    """The same world with every function that takes device memory turned into a kernel of as much."""
    kernels = {
        name: msgspec.structs.replace(
            function,
            device_memory_gb=0,
            idle_holds="memory",
            buffers=(buffer("v", 1024), buffer("w", 1536.5), buffer("t", 511, "temporary"), buffer("i", 0.5, "input")),
        )
        if function.device_memory_gb
        else function
        for name, function in world.functions.items()
    }
    rated = tuple(
        msgspec.structs.replace(
            node,
            devices=tuple(
                msgspec.structs.replace(d, load_gb_per_s=10, allocation_s=0.05, executor_start_s=0.25)
                for d in node.devices
            ),
        )
        for node in world.cluster.nodes
    )
    changes = {"functions": kernels, "cluster": msgspec.structs.replace(world.cluster, nodes=rated)}
    return type(world)(**{name: getattr(world, name) for name in world.__dataclass_fields__} | changes)


@settings(LENIENT, max_examples=25)
@given(scenarios().map(with_buffers), MAKERS | st.just("adversary"), st.integers(0, 3))
def test_memory_is_never_overfull_and_accounts_hold_in_random_worlds(world, name, seed):
    check_memory(world, name, seed)


@pytest.mark.slow
@settings(LENIENT, max_examples=300)
@given(scenarios().map(with_buffers), MAKERS | st.just("adversary"), st.integers(0, 3))
def test_memory_is_never_overfull_and_accounts_hold_in_many_random_worlds(world, name, seed):
    check_memory(world, name, seed)


def check_memory(world, name, seed):
    with CheckedMemory():
        recording = simulate(world, made(name), seed=seed)
    check_capacity(recording, world)
    check_order(recording, world)
    check_accounts(recording)


class CheckedMemory:
    """While it is entered, every device memory is checked after each change."""

    METHODS = ("pin", "unpin", "evict", "leave")

    def __enter__(self):
        self._before = {name: getattr(DeviceMemory, name) for name in self.METHODS}
        for name, method in self._before.items():
            setattr(DeviceMemory, name, self._checked(name, method))

    def __exit__(self, *_):
        for name, method in self._before.items():
            setattr(DeviceMemory, name, method)

    @staticmethod
    def _checked(name, method):
        def call(memory, *arguments, **keywords):
            pinned = {key for key, one in memory._resident.items() if one.pins}
            result = method(memory, *arguments, **keywords)
            assert pinned <= set(memory._resident), f"{name} freed what was pinned."
            assert memory._device.memory_free >= 0
            unpinned = [one.size for one in memory._resident.values() if not one.pins]
            assert memory._device.memory_held >= sum(unpinned)  # idle processes hold the rest
            return result

        return call


class TestFiles:
    def kernels(self, **settings):
        function = {"latency": {"constant_s": 1}, "idle_holds": "memory", **settings}
        return {
            "cluster": {"nodes": [{"vgpus": 1, "device_memory_gb": 1, "load_gb_per_s": 8}]},
            "functions": {"k": {"configurations": [{"vcpus": 0, "vgpus": 1}], **function}},
            "workflows": {"w": {"stages": {"k": []}}},
            "arrivals": [{"workflow": "w", "process": "list", "at": [0]}],
        }

    def read(self, **settings):
        return parse_scenario(msgspec.yaml.encode(self.kernels(**settings)).decode(), "kernels")

    def test_buffers_and_rates_are_read(self):
        found = self.read(buffers=[{"name": "w", "size_mb": 10}, {"name": "i", "size_mb": 0.5, "kind": "input"}])
        assert found.functions["k"].buffers == (buffer("w", 10), buffer("i", 0.5, "input"))
        assert found.cluster.nodes[0].devices[0].load_gb_per_s == 8

    @pytest.mark.parametrize(
        ("settings", "fault"),
        [
            ({"device_memory_gb": 0.5}, "functions.k.device_memory_gb: must be left out beside buffers"),
            ({"idle_holds": "slice"}, "functions.k.idle_holds: must be 'memory' beside buffers"),
            ({"buffers": [{"name": "w", "size_mb": 1}] * 2}, "functions.k.buffers: must have names of their own"),
            ({"buffers": [{"name": "w"}]}, "functions.k.buffers.0.size_mb: is missing"),
            ({"buffers": [{"name": "w", "size_mb": -1}]}, "functions.k.buffers.0.size_mb: must be positive"),
            (
                {"buffers": [{"name": "w", "size_mb": 1, "kind": "inputs"}]},
                "functions.k.buffers.0.kind: must be one of",
            ),
            ({"buffers": [{"name": "w", "size_mb": 1, "size": 1}]}, "functions.k.buffers.0.size: unknown key"),
            ({"buffers": []}, "functions.k.buffers: a kernel needs at least one buffer"),
            ({"buffers": [{"name": "w", "size_mb": 1025}]}, "it needs 1.00098 GB of device memory"),
        ],
    )
    def test_faults_are_named_with_their_path(self, settings, fault):
        with pytest.raises(ConfigError, match=fault.replace(".", r"\.")):
            self.read(**{"buffers": [{"name": "w", "size_mb": 10}], **settings})

    @pytest.mark.parametrize(
        ("key", "value"),
        [("load_gb_per_s", 0), ("allocation_s", -1), ("executor_start_s", -1), ("device_reserve_gb", 1)],
    )
    def test_device_settings_out_of_range_are_faults(self, key, value):
        data = self.kernels(buffers=[{"name": "w", "size_mb": 10}])
        data["cluster"]["nodes"][0][key] = value
        with pytest.raises(ConfigError, match=rf"cluster\.nodes\.0\.{key}: must be"):
            parse_scenario(msgspec.yaml.encode(data).decode(), "kernels")


def test_loads_are_cut_short_by_nothing_but_their_end():
    # Two kernels in turn, twice each: starts do not overlap on a whole device.
    two = {"a": kernel(w=600), "b": kernel(w=600)}
    recording = simulate(each(two, ("a", 0), ("b", 0), ("a", 0), ("b", 0), on=on()))
    spans = runs(recording, "start", "end")
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
