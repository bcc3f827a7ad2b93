"""Instances: what they hold, who is evicted, what stays warm, what fits on a device."""

from itertools import combinations_with_replacement

import pytest
from toy_policies import Doing, start_oldest

from fairlead.engine import simulate
from fairlead.model import Configuration
from fairlead.policy import Cancel, Retire, Start, Wake, Warm
from fairlead.profile import Row, Table
from fairlead.testing import check_accounts, check_capacity, cluster, declared, mig_fits, scenario
from fairlead.workload import Listed

ONE = cluster(vcpus=1)


def gpu(*sizes, vcpus=1.0, seconds=1.0, **settings):
    """A function that runs on slices of these sizes."""
    return declared(Table(tuple(Row(vcpus=vcpus, vgpus=size, seconds=seconds) for size in sizes)), **settings)


def each(functions, *arrivals):
    """One workflow per function; arrivals as (function, instant)."""
    at = {}
    for name, instant in arrivals:
        at.setdefault(name, []).append(instant)
    return {
        "functions": functions,
        "workflows": {name: (name,) for name in functions},
        "arrivals": [Listed(name, tuple(instants)) for name, instants in at.items()],
    }


def lives(recording, *columns):
    return recording.instances.sort("instance").select(columns).rows()


def colds(recording):
    return recording.invocations.sort("start").select("function", "is_cold").rows()


class TestEviction:
    def test_least_recently_used_goes_when_memory_runs_out(self):
        three = {name: declared(1.0, memory_gb=4, idle_holds="memory") for name in "abc"}
        arrivals = [("a", 0), ("b", 2), ("a", 4), ("c", 6), ("a", 8), ("b", 10)]
        recording = simulate(scenario(**each(three, *arrivals), on=cluster(memory_gb=8)))
        # At 6 there is room for two: b was used longest ago. At 10 it comes back for c.
        assert lives(recording, "function", "stopped", "cause") == [
            ("a", None, None),
            ("b", 6, "evicted"),
            ("c", 10, "evicted"),
            ("b", None, None),
        ]
        check_capacity(recording)

    def test_busy_instances_are_never_evicted(self):
        two = {name: declared(5.0, memory_gb=6) for name in "ab"}
        recording = simulate(scenario(**each(two, ("a", 0), ("b", 1)), on=cluster(memory_gb=8)))
        assert recording.invocations.sort("start").select("function", "start").rows() == [("a", 0), ("b", 5)]

    def test_device_memory_is_made_on_the_device_that_needs_it(self):
        three = {name: gpu(1, device_memory_gb=6, idle_holds="memory") for name in "abc"}
        on = cluster(vcpus=8, vgpus=4, devices=2, device_memory_gb=8)
        device = {"a": 0, "b": 1, "c": 1}

        def deed(view):
            for invocation in view.by_ready():
                yield Start((invocation,), Configuration(vgpus=1), "n0", device[invocation.function])

        recording = simulate(scenario(**each(three, ("a", 0), ("b", 0), ("b", 2), ("c", 4)), on=on), Doing(deed))
        # The instance of a was used longest ago, but it is on the other device.
        found = lives(recording, "function", "device", "cause")
        assert found == [("a", 0, None), ("b", 1, "evicted"), ("c", 1, None)]

    def test_an_idle_slice_makes_way_for_vcpus(self):
        two = {"a": declared(1.0), "b": declared(1.0)}
        recording = simulate(scenario(**each(two, ("a", 0), ("b", 2), ("a", 4)), on=ONE))
        assert colds(recording) == [("a", True), ("b", True), ("a", True)]

    def test_idle_memory_does_not_hold_vcpus(self):
        two = {"a": declared(1.0, idle_holds="memory"), "b": declared(1.0, idle_holds="memory")}
        recording = simulate(scenario(**each(two, ("a", 0), ("b", 2), ("a", 4)), on=ONE))
        assert colds(recording) == [("a", True), ("b", True), ("a", False)]

    @pytest.mark.parametrize(("holds", "third_is_cold"), [("slice", True), ("memory", False)])
    def test_idle_holds_decides_who_stays_warm_on_a_device(self, holds, third_is_cold):
        two = {name: gpu(7, device_memory_gb=4, idle_holds=holds) for name in "ab"}
        on = cluster(vcpus=8, vgpus=7, device_memory_gb=16)
        recording = simulate(scenario(**each(two, ("a", 0), ("b", 2), ("a", 4)), on=on))
        assert colds(recording) == [("a", True), ("b", True), ("a", third_is_cold)]


class TestSizes:
    def test_vcpus_resize_in_place(self):
        law = Table((Row(vcpus=1, seconds=1), Row(vcpus=2, seconds=0.5)))
        sizes = iter([Configuration(vcpus=1), Configuration(vcpus=2), Configuration(vcpus=1)])

        def deed(view):
            yield Start((view.oldest(),), next(sizes), "n0")

        where = scenario(declared(law, cold_start_s=1), arrivals=[0, 5.0, 10.0])
        recording = simulate(where, Doing(deed))
        found = recording.invocations.select("vcpus", "is_cold", "end").rows()
        assert found == [
            (1, True, 2),
            (2, False, 5.5),
            (1, False, 11),
        ]
        assert recording.instances.height == 1

    def test_another_gpu_size_is_a_cold_start(self):
        sizes = iter([1, 2, 1])

        def deed(view):
            yield Start((view.oldest(),), Configuration(vgpus=next(sizes)), "n0")

        where = scenario(gpu(1, 2, cold_start_s=1), arrivals=[0, 5.0, 10.0], on=cluster(vgpus=7))
        recording = simulate(where, Doing(deed))
        assert recording.invocations.select("vgpus", "is_cold").rows() == [(1, True), (2, True), (1, False)]

    def test_partly_filled_batch_takes_what_the_whole_takes(self):
        def deed(view):
            yield Start(tuple(view.by_ready()), Configuration(batch=4), "n0")

        law = Table((Row(batch=1, seconds=1), Row(batch=4, seconds=2)))
        recording = simulate(scenario(law, arrivals=[0, 0, 0]), Doing(deed))
        assert recording.invocations.select("batch_size", "end").rows() == [(3, 2)] * 3
        whole = 2 * recording.cluster.price.usd_per_s(1, 0)
        assert sum(recording.invocations["cost_usd"]) == pytest.approx(whole)

    @pytest.mark.parametrize(
        ("start", "reason"),
        [
            (lambda i: Start(tuple(i), Configuration(), "n0"), "2 invocations in a batch of 1"),
            (lambda i: Start((i[0], i[0]), Configuration(batch=2), "n0"), "twice"),
            (lambda i: Start((i[0],), Configuration(vcpus=3), "n0"), "has no configuration"),
            (lambda i: Start((i[0],), Configuration(), "nowhere"), "no node 'nowhere'"),
            (lambda i: Start((), Configuration(), "n0"), "empty"),
            (lambda i: Retire(7), "not idle"),
            (lambda i: Cancel(7), "does not run"),
            (lambda i: Wake(0.0), "in the future"),
            (lambda i: "start", "not an action"),
        ],
    )
    def test_what_cannot_be_is_refused_with_its_reason(self, start, reason):
        def deed(view):
            yield start(tuple(view.by_ready()))
            raise AssertionError("a refused action ends the call")

        law = Table((Row(batch=1, seconds=1), Row(batch=2, seconds=1)))
        recording = simulate(scenario(law, arrivals=[0, 0]), Doing(deed))
        (refusal,) = recording.refusals
        assert reason in refusal.reason
        assert set(recording.requests["outcome"]) == {"unfinished"}


class TestMig:
    SIZES = (1, 2, 3, 4, 7)

    def together(self, *sizes):
        """Whether these slices, started in this order, run at once on one device."""
        wanted = list(sizes)

        def deed(view):
            for invocation in view.by_ready():
                configuration = Configuration(vcpus=1, vgpus=wanted[invocation.request])
                if view.fits("f", configuration, "n0"):
                    yield Start((invocation,), configuration, "n0")

        on = cluster(vcpus=16, vgpus=7, sharing="mig")
        recording = simulate(scenario(gpu(*self.SIZES), arrivals=[0.0] * len(sizes), on=on), Doing(deed))
        check_capacity(recording)
        return set(recording.invocations["start"]) == {0.0}

    @pytest.mark.parametrize(
        "sizes", [(3, 3), (4, 3), (3, 4), (2, 2, 2, 1), (4, 2, 1), (4, 1, 1, 1), (3, 2, 1), (7,), (1,) * 7], ids=str
    )
    def test_these_fit(self, sizes):
        assert self.together(*sizes)

    @pytest.mark.parametrize("sizes", [(4, 4), (7, 1), (3, 3, 1), (2, 2, 2, 2), (4, 3, 1), (1,) * 8], ids=str)
    def test_these_do_not(self, sizes):
        assert not self.together(*sizes)

    @pytest.mark.parametrize("count", [2, 3])
    def test_no_more_fits_than_there_are_places(self, count):
        for sizes in combinations_with_replacement(self.SIZES, count):
            descending = tuple(reversed(sizes))
            assert self.together(*descending) <= mig_fits(sizes), sizes

    def test_only_these_sizes_exist(self):
        on = scenario(gpu(5, 1), on=cluster(vcpus=16, vgpus=7, sharing="mig"))
        fits = []

        def deed(view):
            fits.append(view.fits("f", Configuration(vgpus=5), "n0"))
            yield from ()

        simulate(on, Doing(deed))
        assert fits == [False]

    def test_mps_shares_freely(self):
        on = cluster(vcpus=16, vgpus=7)
        recording = simulate(scenario(gpu(3.5, 2.5), arrivals=[0, 0, 0], on=on))
        assert sorted(recording.invocations["start"]) == [0, 0, 1]

    def test_one_run_never_spans_devices(self):
        recording = simulate(scenario(gpu(3), arrivals=[0] * 5, on=cluster(vcpus=16, vgpus=4, devices=2)))
        assert sorted(recording.invocations["start"]) == [0, 0, 1, 1, 2]


class TestWarm:
    def test_a_start_claims_what_was_warmed(self):
        def deed(view):
            if view.now == 0:
                yield Warm("f", Configuration(), "n0")
                yield Wake(3.0)
            elif view.now == 3.0:
                yield from start_oldest(view)

        where = scenario(declared(1.0, cold_start_s=2), arrivals=[0])
        recording = simulate(where, Doing(deed))
        assert recording.invocations.select("start", "cold_s", "end", "is_cold").rows() == [(3, 0, 4, False)]
        assert lives(recording, "started", "ready", "on_demand") == [(0, 2, False)]

    def test_a_start_may_claim_it_before_it_is_ready(self):
        def deed(view):
            if view.now == 0:
                yield Warm("f", Configuration(), "n0")
                yield Wake(1.5)
            else:
                yield from start_oldest(view)

        recording = simulate(scenario(declared(1.0, cold_start_s=2), arrivals=[0]), Doing(deed))
        assert recording.invocations.select("start", "cold_s", "end", "is_cold").rows() == [(1.5, 0.5, 3, False)]
        check_accounts(recording)

    def test_retired_instances_are_gone(self):
        def deed(view):
            for instance in view.instances("f"):
                if instance.is_idle:
                    yield Retire(instance.id)
            yield from start_oldest(view)

        recording = simulate(scenario(declared(1.0, cold_start_s=1), arrivals=[0, 5.0]), Doing(deed))
        assert recording.invocations["is_cold"].to_list() == [True, True]
        assert lives(recording, "stopped", "cause") == [(5, "retired"), (None, None)]


class TestCancel:
    def test_cancelled_run_waits_again(self):
        ids = []

        def deed(view):
            if view.now == 1.0:
                yield Cancel(ids[0])
                return
            ids.extend(i.id for i in view.by_ready())
            yield from start_oldest(view)

        where = scenario(3.0, arrivals=[0, 1.0, 2.0], on=ONE)
        recording = simulate(where, Doing(deed))
        got = recording.invocations.sort("start", "end").select("request", "ready", "start", "end", "outcome").rows()
        assert got == [
            (0, 0, 0, 1, "preempted"),
            (1, 1, 2, 5, "done"),
            (0, 1, 5, 8, "done"),
            (2, 2, 8, 11, "done"),
        ]
        assert lives(recording, "stopped", "cause") == [(1, "preempted"), (None, None)]


class TestLimits:
    def test_run_that_takes_too_long_fails(self):
        recording = simulate(scenario(declared(3.0, run_limit_s=2, cold_start_s=1), arrivals=[0]))
        assert recording.invocations.select("end", "outcome").rows() == [(3, "failed")]
        assert recording.requests.select("end", "outcome").rows() == [(3, "failed")]
        assert "longer than 2 s" in recording.requests["reason"][0]
        assert lives(recording, "stopped", "cause") == [(3, "limit")]

    def test_run_at_its_limit_is_in_time(self):
        recording = simulate(scenario(declared(2.0, run_limit_s=2), arrivals=[0]))
        assert recording.requests["outcome"].to_list() == ["completed"]

    def test_instance_that_starts_too_slowly_fails(self):
        slow = declared(1.0, cold_start_s=5, start_limit_s=2, retries=1)
        recording = simulate(scenario(slow, arrivals=[0]))
        assert recording.invocations.select("attempt", "start", "end", "outcome").rows() == [
            (1, 0, 2, "failed"),
            (2, 2, 4, "failed"),
        ]
        assert "did not start within 2 s" in recording.requests["reason"][0]
