"""INFless: what an instance is good for, how rates are divided, where instances go, and when a batch starts."""

from math import inf, isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.model import SLO, Configuration, Device, Function, Node, Workflow
from fairlead.policy import Start, Warm
from fairlead.policy.infless.offers import Offer, offer, offers, smaller
from fairlead.policy.infless.placement import Placement, score
from fairlead.policy.infless.policy import Infless
from fairlead.policy.infless.service import Booking, Service
from fairlead.policy.infless.shares import shares, subset
from fairlead.policy.kit.capacity import Capacity, Reservation
from fairlead.policy.kit.options import all_options
from fairlead.profile import Row, Table
from fairlead.testing import cluster, decisions, declared, scenario, site_of
from fairlead.workload import Listed

ONE = Configuration()

# What is planned with is 1.2 times the declared time, before anything was observed.


def feasible(*rows, slo_s, most_vgpus=inf):
    """The configurations of a function with these rows that keep an objective, and what they are good for."""
    site = site_of(scenario({"f": declared(Table(rows))}, on=cluster(1, vcpus=16, vgpus=7)))
    return offers(all_options(site)["f"], site.profiles["f"], "plain", slo_s, most_vgpus)


def good_for(rps, *, batch=1, vcpus=1.0, vgpus=0.0):
    """An offer of this size."""
    return Offer(Configuration(batch=batch, vcpus=vcpus, vgpus=vgpus), batch / rps, 0.0, rps, 0.0)


class TestOffers:
    def test_a_batch_fills_within_what_the_objective_leaves(self):
        found = offer(Configuration(batch=4), 0.2, 1.0)
        assert (found.high_rps, found.low_rps, found.timeout_s) == (20.0, 5.0, 0.8)

    def test_one_at_a_time_waits_for_nobody(self):
        found = offer(Configuration(), 0.25, 1.0)
        assert (found.high_rps, found.low_rps, found.timeout_s) == (4.0, 1.0, 0.0)

    def test_the_least_rate_is_never_above_the_greatest(self):
        assert offer(Configuration(), 2.0, 3.0).low_rps == 0.5

    def test_without_an_objective_a_batch_waits_as_long_as_it_runs(self):
        found = offer(Configuration(batch=4), 0.5, inf)
        assert (found.timeout_s, found.low_rps) == (0.5, 8.0)

    def test_a_batch_may_run_for_half_the_objective_and_one_for_all_of_it(self):
        rows = (Row(batch=4, seconds=0.5), Row(batch=2, seconds=0.4), Row(batch=1, seconds=0.8))  # 0.6, 0.48, 0.96 s
        assert [each.configuration.batch for each in feasible(*rows, slo_s=1.0)] == [2, 1]

    def test_sizes_are_those_of_the_published_grid(self):
        rows = [Row(batch=1, vcpus=c, vgpus=g, seconds=0.1) for c in (1, 2, 4) for g in (1, 3, 4)]
        found = {(o.configuration.vcpus, o.configuration.vgpus) for o in feasible(*rows, slo_s=1.0, most_vgpus=3.5)}
        assert found == {(1, 1), (1, 3), (2, 1), (2, 3)}

    def test_a_larger_batch_may_have_as_many_vcpus_as_it_holds(self):
        rows = [Row(batch=4, vcpus=c, seconds=0.1) for c in (4, 8)]
        assert [each.configuration.vcpus for each in feasible(*rows, slo_s=1.0)] == [4]

    def test_beyond_the_grid_only_if_nothing_in_it_keeps_the_objective(self):
        rows = (Row(vgpus=3, seconds=1.0), Row(vgpus=7, seconds=0.5))
        assert [each.configuration.vgpus for each in feasible(*rows, slo_s=0.7, most_vgpus=3.5)] == [7]

    def test_an_objective_that_nothing_keeps_gives_the_quickest_of_the_smallest_batch(self):
        rows = (Row(vcpus=1, seconds=2.0), Row(vcpus=2, seconds=1.5), Row(batch=2, vcpus=2, seconds=1.0))
        (found,) = feasible(*rows, slo_s=0.1)
        assert (found.configuration, found.timeout_s) == (Configuration(vcpus=2), 0.0)


class TestShares:
    @pytest.mark.parametrize(
        ("rate_rps", "expected"),
        [(10.0, [4.0, 4.0]), (7.0, [3.5, 3.5]), (3.5, [3.5, 0.0]), (2.5, [2.5, 0.0]), (0.5, [0.5, 0.0]), (0, [0, 0])],
        ids=["too-much", "well-loaded", "one-at-83-percent", "one-at-50-percent", "too-little", "nothing"],
    )
    def test_two_equal_instances(self, rate_rps, expected):
        assert shares([(1.0, 4.0), (1.0, 4.0)], rate_rps) == pytest.approx(expected)

    def test_the_cut_is_in_proportion_to_the_span(self):
        # Together 2 to 10, of which 9 is 7/8: above 80 %. What is missing is an eighth of each span.
        assert shares([(1.0, 3.0), (1.0, 7.0)], 9.0) == pytest.approx([2.75, 6.25])

    def test_what_is_kept_is_loaded_as_well_as_possible(self):
        # The large alone would be at 37 %, the small two together at 88 %.
        assert subset([(0.0, 20.0), (0.0, 4.0), (0.0, 4.5)], 7.5) == [False, True, True]

    def test_among_equally_loaded_the_fewest_are_dropped(self):
        # 9 is 90 % of ten small ones and of one large one.
        kept = subset([(0.0, 10.0), *[(0.0, 1.0)] * 10], 9.0)
        assert kept == [False, *[True] * 10]

    def test_no_part_will_do_where_all_are_needed(self):
        assert subset([(0.0, 1.0), (0.0, 1.0)], 1.5) is None
        assert shares([(0.0, 1.0), (0.0, 1.0)], 1.5) == pytest.approx([0.75, 0.75])

    @given(
        st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([1.0, 2.0, 5.0])), min_size=1, max_size=9),
        st.floats(0, 60),
    )
    @settings(max_examples=60, deadline=None)
    def test_all_that_can_be_served_is_given_out(self, spans, rate_rps):
        found = shares(spans, rate_rps)
        assert isclose(sum(found), min(rate_rps, sum(most for _, most in spans)), abs_tol=1e-9)
        assert all(-1e-9 <= part <= most + 1e-9 for part, (_, most) in zip(found, spans, strict=True))


class TestPlacement:
    F = Function(name="f")

    def nodes(self, count=2, **device):
        gpu = Device(vgpus=7, **device)
        return Capacity([Node(name=f"n{i}", kind="a", vcpus=16, devices=(gpu,)) for i in range(count)])

    def best(self, capacity, *offers, rate_rps=inf):
        return Placement(capacity).best(self.F, {"a": offers}, rate_rps)

    def put(self, capacity, offer, node, device=0):
        capacity.reserve(Reservation(self.F, offer.configuration, node, device))

    def test_the_score_is_the_rate_over_what_is_left(self):
        room = self.nodes().rooms["n0"]
        # Of 16 vCPUs at 64 and 100 % at 142 there remain 14 and 4/7.
        left = (14 * 64 + 14200 * 4 / 7) / (16 * 64 + 14200)
        assert score(room, good_for(10, vcpus=2, vgpus=3)) == pytest.approx(10 / (left + 0.001))

    def test_a_node_in_use_comes_first(self):
        capacity = self.nodes()
        large = good_for(10, vcpus=2, vgpus=3)
        self.put(capacity, large, "n1")
        offer, room, device = self.best(capacity, large)
        assert (offer, room.node.name, device) == (large, "n1", 0)

    def test_on_an_empty_node_the_larger_wins_and_in_a_gap_whatever_fits(self):
        capacity = self.nodes(1)
        small, large = good_for(3, vgpus=1), good_for(7, vgpus=3)
        taken = []
        while (found := self.best(capacity, small, large)) is not None:
            taken.append(found[0].configuration.vgpus)
            self.put(capacity, found[0], found[1].node.name, found[2])
        assert taken == [3, 3, 1]

    def test_the_largest_batch_comes_first_if_the_rate_fills_it(self):
        single = good_for(50)
        batch = Offer(Configuration(batch=8), 0.5, 10.0, 16.0, 0.8)
        assert self.best(self.nodes(), batch, single, rate_rps=12.0)[0] is batch
        assert self.best(self.nodes(), batch, single, rate_rps=9.0)[0] is single

    def test_the_smallest_batch_will_do_for_any_rate(self):
        batch = Offer(Configuration(batch=8), 0.5, 10.0, 16.0, 0.8)
        assert self.best(self.nodes(), batch, rate_rps=0.1)[0] is batch

    @pytest.mark.parametrize(("sharing", "fits"), [("mps", True), ("mig", False)])
    def test_slices_of_a_mig_device_need_places(self, sharing, fits):
        capacity = self.nodes(1, sharing=sharing)
        for _ in range(2):  # two of three vGPUs take all eight places of a MIG device
            self.put(capacity, good_for(1, vgpus=3), "n0")
        assert (self.best(capacity, good_for(1, vgpus=1)) is not None) == fits


class TestService:
    def test_a_batch_that_is_not_full_takes_the_smallest_that_holds_it(self):
        rows = [Row(batch=b, vcpus=c, seconds=1.0) for b in (1, 2, 4, 8) for c in (1, 2)]
        site = site_of(scenario({"f": declared(Table(rows))}))
        service = Service(("main", "f"), Function(name="f"), 1.0)
        service.renew({}, smaller(all_options(site)["f"]))
        eight = Configuration(batch=8, vcpus=2)
        assert [service.filled(eight, count).batch for count in (1, 2, 3, 5, 8)] == [1, 2, 4, 8, 8]
        assert service.filled(eight, 1).vcpus == 2

    def test_what_starts_counts_as_capacity_and_is_given_nothing(self):
        service = Service(("main", "f"), Function(name="f"), 1.0)
        service.bookings = [Booking(service.function, ONE, "n", None, i, good_for(4.0)) for i in range(2)]
        service.bookings[0].is_ready = True
        service.rate_rps = 7.0
        service.share(0.0)
        assert [booking.rate_rps for booking in service.bookings] == [4.0, 0.0]
        assert service.unserved_rps == -1.0
        assert not service.bookings[1].is_spare


def steady(rate_rps, until_s, start_s=0.0):
    """Arrivals at a constant rate."""
    return [start_s + i / rate_rps for i in range(round((until_s - start_s) * rate_rps))]


class TestDecisions:
    def test_every_function_gets_one_instance_before_any_load_is_known(self):
        chain = scenario({"a": declared(0.1, cold_start_s=1), "b": declared(0.1, cold_start_s=1)}, slo_s=2)
        actions = decisions(Infless(), 2.0, scenario=chain)
        assert [action.function for action in actions if isinstance(action, Warm)] == ["a", "b"]
        assert not any(isinstance(action, Start) for action in actions)

    def test_the_objective_is_split_by_time(self):
        # On average a makes (0.4 + 0.25) / 2 of the time, which leaves it 0.39 s: on one vCPU it would take 0.48 s.
        quick = Table((Row(vcpus=1, seconds=0.4), Row(vcpus=2, seconds=0.2)))
        slow = Table((Row(vcpus=1, seconds=0.6), Row(vcpus=2, seconds=0.6)))
        chain = scenario({"a": declared(quick), "b": declared(slow)}, slo_s=1.2)
        warmed = [action for action in decisions(Infless(), 1.2, scenario=chain) if isinstance(action, Warm)]
        assert warmed[0].configuration == Configuration(vcpus=2)

    def test_a_batch_starts_when_it_is_full(self):
        four = scenario({"f": declared(Table((Row(batch=4, seconds=0.25),)))}, arrivals=[1.0] * 4, slo_s=1.0)
        assert simulate(four, Infless()).invocations["start"].to_list() == [1.0] * 4

    def test_a_batch_that_does_not_fill_starts_at_its_time_out(self):
        four = scenario({"f": declared(Table((Row(batch=4, seconds=0.25),)))}, arrivals=[1.0, 1.1], slo_s=1.0)
        rows = simulate(four, Infless()).invocations  # 0.3 s of the second are for the run
        assert rows["start"].to_list() == pytest.approx([1.7, 1.7])
        assert rows["batch"].n_unique() == 1

    def test_it_is_called_at_the_time_out_though_nothing_else_happens(self):
        four = scenario({"f": declared(Table((Row(batch=4, seconds=0.25),)))}, slo_s=1.0, arrivals=[0.0])
        assert simulate(four, Infless(period_s=5.0)).invocations["start"].to_list() == pytest.approx([0.7])


class TestRuns:
    def test_instances_follow_the_rate(self):
        # One takes 0.2 s and is planned with a little more: ten per second need three of them.
        busy = scenario({"f": 0.2}, arrivals=steady(10, 30), on=cluster(1, vcpus=8), slo_s=1)
        recording = simulate(busy, Infless())
        assert recording.instances.height == 3

    def test_nothing_is_sent_to_a_container_that_starts(self):
        busy = scenario({"f": declared(0.2, cold_start_s=3)}, arrivals=steady(10, 20), on=cluster(2, vcpus=4), slo_s=1)
        recording = simulate(busy, Infless())
        assert recording.invocations["cold_s"].max() == 0.0
        assert not recording.invocations["is_cold"].any()

    def test_what_is_idle_for_long_is_deleted_but_for_one(self):
        often, seldom = steady(10, 10), steady(1, 40, start_s=10)
        less = scenario({"f": declared(0.2)}, arrivals=often + seldom, on=cluster(1, vcpus=8), slo_s=1)
        instances = simulate(less, Infless(idle_s=5.0)).instances
        assert instances.height > 1
        assert instances.filter(instances["cause"] == "retired").height == instances.height - 1

    def test_paused_containers_stay_when_an_instance_is_deleted(self):
        often, seldom = steady(10, 10), steady(1, 40, start_s=10)
        f = declared(0.2, idle_holds="memory", memory_gb=1)
        less = scenario({"f": f}, arrivals=often + seldom, on=cluster(1, vcpus=8), slo_s=1)
        instances = simulate(less, Infless(idle_s=5.0)).instances
        assert instances.height > 1
        assert instances["cause"].is_null().all()

    def test_reserved_room_is_not_used_by_others(self):
        # Each has a vCPU of its own and needs another, of which there is none: b waits, though a does nothing.
        flows = {"main": ("a",), "other": ("b",)}
        functions = {"a": declared(0.1), "b": declared(1.0)}
        arrivals = [0.0, Listed("other", (1.0, 1.0))]
        crowd = scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(1, vcpus=2), slo_s=5)
        rows = simulate(crowd, Infless()).invocations
        starts = rows.filter(rows["function"] == "b")["start"].to_list()
        assert starts == pytest.approx([1.0, 2.0])

    def test_a_function_without_room_gets_its_turn(self):
        # One vCPU, three functions: the oldest goes first.
        chain = scenario({name: declared(0.2) for name in "abc"}, arrivals=[0.0, 0.1, 0.2], on=cluster(1, vcpus=1))
        assert (simulate(chain, Infless()).requests["outcome"] == "completed").all()

    def test_a_large_instance_without_room_is_not_overtaken_for_ever(self):
        # Small ones keep two of two vCPUs busy; the large one needs both at once.
        functions = {"small": declared(0.5), "large": declared(0.5, configurations=(Configuration(vcpus=2),))}
        crowd = scenario(
            functions,
            workflows={"main": ("small",), "other": ("large",)},
            arrivals=[*steady(3.5, 20), Listed("other", (5.0,))],
            on=cluster(1, vcpus=2),
        )
        rows = simulate(crowd, Infless()).invocations
        (start,) = rows.filter(rows["function"] == "large")["start"].to_list()
        assert start < 10  # after the small ones that came before it, and before the last

    def test_a_chain_of_more_functions_than_vcpus_is_in_time_when_it_is_idle(self):
        functions = {name: declared(0.02, cold_start_s=0.5, idle_holds="memory") for name in "abc"}
        idle = scenario(functions, arrivals=steady(5, 20), on=cluster(1, vcpus=2), slo_s=0.15)
        requests = simulate(idle, Infless()).requests
        late = requests.filter((requests["end"] > requests["deadline"]) & (requests["arrival"] > 2))
        assert late.is_empty()


BATCHES = Table(tuple(Row(batch=b, seconds=0.008 + 0.002 * b) for b in (1, 2, 4, 8)))


class TestOverload:
    def test_batches_grow_where_there_is_no_room_for_another_instance(self):
        # One at a time makes 100 per second, four at once 250 (planned with 208, as 95 % of runs).
        full = scenario(BATCHES, arrivals=steady(180, 10), on=cluster(1, vcpus=1), slo_s=0.05)
        recording = simulate(full, Infless())
        late = recording.requests.filter(recording.requests["arrival"] > 4)
        assert (late["end"] <= late["deadline"]).mean() > 0.9
        assert recording.invocations["batch_size"].max() > 1

    def test_a_batch_that_no_longer_fills_shrinks_again(self):
        often, seldom = steady(180, 8), steady(2, 40, start_s=8)
        less = scenario(BATCHES, arrivals=often + seldom, on=cluster(1, vcpus=1), slo_s=0.05)
        rows = simulate(less, Infless()).invocations
        last = rows.filter(rows["ready"] > 30)
        assert (last["start"] == last["ready"]).all()

    def test_what_no_instance_can_serve_in_time_is_refused_and_the_rest_is_in_time(self):
        # One takes 0.1 s: of 20 per second, half is too much.
        twice = scenario(0.1, arrivals=steady(20, 60), on=cluster(1, vcpus=1), slo_s=0.5)
        requests = simulate(twice, Infless()).requests
        requests = requests.filter(requests["arrival"] > 15)
        served = requests.filter(requests["outcome"] == "completed")
        assert 0.4 < served.height / requests.height < 0.52
        assert (served["end"] <= served["deadline"]).mean() > 0.95

    def test_what_the_queue_cannot_hold_is_refused_before_a_rate_is_known(self):
        # One of the twenty runs. One takes 0.1 s and is planned with 0.12, so that 0.38 s are left for waiting: 3.2 can
        # be worked off in that time, and the fourth is the last that may wait.
        burst = scenario(0.1, arrivals=[0.0, *[1.0] * 20], on=cluster(1, vcpus=1), slo_s=0.5)
        requests = simulate(burst, Infless(period_s=10.0)).requests
        served = requests.filter(requests["outcome"] == "completed")
        assert sorted(served["end"].to_list()) == pytest.approx([0.1, 1.1, 1.2, 1.3, 1.4, 1.5])

    def test_one_batch_may_wait_for_an_instance_however_slow_it_is(self):
        # Planned with 1.2 s, nothing is worked off in the 0.1 s that are left; still one waits while another runs.
        burst = scenario(1.0, arrivals=[0.0, *[2.0] * 5], on=cluster(1, vcpus=1), slo_s=1.3)
        requests = simulate(burst, Infless(period_s=10.0)).requests
        assert (requests["outcome"] == "completed").sum() == 3

    def test_a_container_that_was_evicted_starts_again_at_once(self):
        # It is warm after 0.1 s, and gone at once: the run brings its own start.
        f = declared(0.1, cold_start_s=0.1, keep_alive_s=0)
        (row,) = simulate(scenario({"f": f}, arrivals=[0.0], slo_s=2), Infless()).invocations.iter_rows(named=True)
        assert (row["start"], row["end"]) == pytest.approx((0.1, 0.3))

    def test_nothing_is_refused_that_can_wait_for_its_turn(self):
        burst = scenario(
            0.1, arrivals=[*steady(1, 5), *[5.0 + i / 100 for i in range(30)]], on=cluster(1, vcpus=1), slo_s=9
        )
        assert (simulate(burst, Infless()).requests["outcome"] == "completed").all()

    def test_nothing_is_refused_without_an_objective(self):
        twice = scenario(0.1, arrivals=steady(20, 20), on=cluster(1, vcpus=1))
        assert (simulate(twice, Infless()).requests["outcome"] == "completed").all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("period_s", 0.0),
        ("idle_s", 0.0),
        ("refresh_s", inf),
        ("window_s", 0.5),
        ("excess", 1.0),
        ("excess", -0.1),
        ("gpu_share", 0.0),
        ("gpu_share", 1.5),
    ],
)
def test_parameters_have_ranges(name, value):
    with pytest.raises(ValueError, match=name):
        Infless(**{name: value})


def test_an_instance_uses_the_vcpus_that_oversold_others_leave_idle():
    # Four functions share two vCPUs. `a` comes 80 times per second and takes 10 ms, 12 as planned: 0.96 vCPUs. An even
    # part of half a vCPU would not do for that, and batches of four would wait to be filled.
    table = Table((Row(batch=1, seconds=0.01), Row(batch=4, seconds=0.02)))
    names = ("a", "b", "c", "d")
    where = scenario(
        {name: declared(table) for name in names},
        workflows={name: Workflow.chain(name, name, slo=SLO(latency_s=0.1)) for name in names},
        arrivals=[Listed("a", tuple(i / 80 for i in range(400))), *[Listed(name, (0.0,)) for name in names[1:]]],
        on=cluster(1, vcpus=2),
    )
    recording = simulate(where, Infless())
    assert recording.requests["outcome"].unique().to_list() == ["completed"]
    late = recording.invocations.filter(recording.invocations["ready"] > 2.0)
    assert late["batch_size"].unique().to_list() == [1]
    assert (late["start"] - late["ready"]).max() == pytest.approx(0.0)
