"""The model of Fairlead by hand: menus, supply, tables of costs, admission, paces and sensitivities."""

from math import inf
from types import SimpleNamespace

import numpy as np
import pytest

from fairlead.model import SLO, Configuration, Instance, Price, Request, Workflow
from fairlead.policy.base import Changes
from fairlead.policy.fairlead.admission import Admission, Run
from fairlead.policy.fairlead.ground import Ground, Sensitivity
from fairlead.policy.fairlead.menu import Menu, Supply
from fairlead.policy.fairlead.outlook import GRID, Outlook, headcount
from fairlead.policy.fairlead.roster import Roster
from fairlead.profile import Estimate, Row, Table
from fairlead.testing import cluster, declared, scenario, site_of

ONE = cluster(1, vcpus=1)
DOLLAR = Price(vcpu_usd_per_hour=3600)  # one USD per second of a vCPU
SIZES = declared(Table((Row(vcpus=1, seconds=1.0), Row(vcpus=4, seconds=0.4))))  # USD 1 and 1.6


def menu_of(rows, on=None, **settings):
    where = scenario({"f": declared(Table(tuple(rows)), **settings)}, on=on)
    site = site_of(where)
    return Menu(site.functions["f"], site.profiles["f"], site.cluster, Supply(site.cluster))


def instance_on(node, number):
    return Instance(number, "f", node, -1, 1.0, 0.0, 0.0, is_ready=True, is_idle=True)


def outlook_of(where):
    site = site_of(where)
    supply = Supply(site.cluster)
    menus = {name: Menu(one, site.profiles[name], site.cluster, supply) for name, one in site.functions.items()}
    return Outlook(site, menus, supply)


class TestMenu:
    def test_an_option_that_is_no_faster_and_needs_more_is_left_out(self):
        rows = [Row(vcpus=1, seconds=1.0), Row(vcpus=2, seconds=1.0), Row(vcpus=4, seconds=0.5)]
        assert [c.vcpus for c, _ in menu_of(rows).options] == [1, 4]

    def test_a_function_that_takes_no_time_has_times_that_can_be_compared(self):
        menu = menu_of([Row(vcpus=1, seconds=0.0), Row(vcpus=2, seconds=0.0)])
        assert [c.vcpus for c, _ in menu.options] == [1]
        assert 0 < menu.upper_s[0] < 1e-6

    def test_options_of_different_batches_do_not_drive_each_other_out(self):
        rows = [Row(batch=1, seconds=0.1), Row(batch=4, seconds=0.2), Row(batch=4, vcpus=2, seconds=0.2)]
        assert [(c.batch, c.vcpus) for c, _ in menu_of(rows).options] == [(1, 1), (4, 1)]

    def test_use_and_price_are_counted_per_kind_at_its_speed(self):
        """A node of speed 2 takes half the time, and a second of it counts twice: the use is the same."""
        on = cluster(1, vcpus=4, kind="fast", speed=2.0, beside=cluster(1, vcpus=4, kind="slow", price=DOLLAR))
        menu = menu_of([Row(vcpus=2, seconds=1.0)], on=on)
        by_kind = {kind: i for i, (_, kind) in enumerate(menu.options)}
        fast, slow = by_kind["fast"], by_kind["slow"]
        assert [menu.mean_s[fast], menu.mean_s[slow]] == pytest.approx([0.5, 1.0])
        assert [menu.use[fast, 0], menu.use[slow, 0]] == pytest.approx([2.0, 2.0])

    def test_a_node_that_is_too_small_is_no_option(self):
        menu = menu_of([Row(vcpus=2, seconds=1.0)], on=ONE)
        assert len(menu) == 0
        assert menu.fastest_s == inf

    def test_runs_are_planned_half_way_to_the_safe_time(self):
        menu = menu_of([Row(seconds=1.0)])
        assert menu.upper_s.tolist() == pytest.approx([1.1])  # 1.2 s is safe while nothing has been observed

    def test_overhead_is_part_of_every_run(self):
        assert menu_of([Row(seconds=1.0)], overhead_s=0.25).mean_s.tolist() == pytest.approx([1.25])

    def test_an_option_that_was_not_tried_costs_half_of_what_was_seen_of_another_and_is_in_time_if_all_of_it_is(self):
        """Five runs at twice the declared time count as much as the declaration: 1.5 for an option never tried.

        An option declared with 2.5 times as long may take a fixed time longer: 1.2 instead of 1.5. Of that, half is
        hoped for where there is room.
        """
        on = cluster()
        profile = declared(Table((Row(batch=1, seconds=1.0), Row(batch=4, seconds=2.5)))).profile
        menu = menu_of(profile.law.rows, on=on)
        menu.safety = 0.0
        for _ in range(5):
            menu.started(0)
        estimate = Estimate(profile, on, correction=lambda c, _: 1 + 5 / 15 if c.batch == 1 else 1.0)
        menu.learn(estimate)
        assert menu.mean_s[1] == menu.upper_s[1] == pytest.approx(2.5 * 1.5, rel=0.01)
        menu.safety = 1.0  # as where there is room
        menu.learn(estimate)
        assert menu.mean_s[1] == pytest.approx(2.5 * 1.1, rel=0.01)
        assert menu.upper_s[1] == pytest.approx(2.5 * 1.5 * 1.2, rel=0.01)

    def test_nothing_is_corrected_before_the_first_run(self):
        on = cluster()
        menu = menu_of([Row(seconds=1.0)], on=on)
        menu.learn(Estimate(declared(1.0).profile, on, correction=lambda *_: 2.0))
        assert menu.mean_s.tolist() == [1.0]

    def test_a_batch_that_is_not_full_takes_the_smallest_option_that_holds_it(self):
        menu = menu_of([Row(batch=n, seconds=0.1 * n) for n in (1, 2, 4, 8)])
        eight = int(menu.batch.argmax())
        assert [menu.batch[menu.smallest_for(eight, members)] for members in (1, 2, 3, 8)] == [1, 2, 4, 8]

    def test_a_function_whose_instances_do_not_stay_pays_for_its_cold_start_in_every_run(self):
        menu = menu_of([Row(seconds=1.0)], cold_start_s=0.5, keep_alive_s=0)
        assert (menu.cold_s, menu.mean_s.tolist()) == (0.0, [1.5])


class TestSupply:
    def test_amounts_are_summed_at_the_speeds_of_the_nodes(self):
        on = cluster(2, vcpus=4, vgpus=7, kind="fast", speed=2.0, beside=cluster(1, vcpus=3))
        assert Supply(on).amounts.tolist() == [2 * 2 * 4 + 3, 2 * 2 * 7]

    def test_what_is_in_use_when_nothing_more_can_be_started_is_learned(self):
        supply = Supply(cluster(2, vcpus=4))
        supply.observe_full(np.array([4.0, 0.0]), np.array([1.0, 0.0]))
        assert supply.attainable.tolist() == pytest.approx([1 - 0.05 * 0.5, 1.0])  # half of the 8 vCPUs were in use
        assert supply.usable.tolist() == pytest.approx([7.8, 0.0])
        for _ in range(200):
            supply.observe_full(np.array([4.0, 0.0]), np.array([1.0, 0.0]))
        assert supply.attainable[0] == pytest.approx(0.5, abs=1e-4)

    def test_only_the_bottleneck_among_what_is_needed_is_corrected(self):
        supply = Supply(cluster(1, vcpus=8, vgpus=7))
        supply.observe_full(np.array([8.0, 3.5]), np.array([0.0, 1.0]))  # it needs no vCPU: the device is short
        assert supply.attainable.tolist() == pytest.approx([1.0, 1 - 0.05 * 0.5])
        supply.observe_full(np.array([8.0, 3.5]), np.array([1.0, 1.0]))
        assert supply.attainable.tolist() == pytest.approx([1.0, 1 - 0.05 * 0.5])

    def test_a_slice_of_a_mig_device_counts_with_what_it_keeps_from_others(self):
        supply = Supply(cluster(1, vcpus=1, vgpus=7, sharing="mig", kind="mig"))
        assert [supply.part("mig", size) for size in (1, 2, 3, 4, 7)] == pytest.approx([1, 7 / 3, 3.5, 3.5, 7])
        assert Supply(cluster(1, vgpus=7)).part("plain", 3) == 3


class TestTables:
    """A chain of two stages, 1 s for USD 1 or 0.4 s for USD 1.6 each, and an objective of 16 s: an entry per 0.1 s."""

    def flow(self):
        where = scenario({"a": SIZES, "b": SIZES}, slo_s=GRID / 10, on=cluster(1, vcpus=4, price=DOLLAR))
        return outlook_of(where).flows["main"]

    @pytest.mark.parametrize(
        ("left", "cost"),
        [(4, inf), (5, 1.6), (10, 1.6), (11, 1.0), (GRID, 1.0)],
        ids=["too-late", "only-fast", "still-only-fast", "slow-is-in-time", "everything-left"],
    )
    def test_the_last_stage_costs_what_its_cheapest_option_in_time_costs(self, left, cost):
        """Planned with 0.44 s and 1.1 s: 5 and 11 tenths."""
        assert self.flow().steps["b"].cost[left] == pytest.approx(cost)

    @pytest.mark.parametrize(
        ("left", "cost"),
        [(9, inf), (10, 3.2), (15, 3.2), (16, 2.6), (21, 2.6), (22, 2.0), (GRID, 2.0)],
        ids=["too-late", "fast-fast", "still-fast-fast", "one-fast", "still-one-fast", "slow-slow", "everything-left"],
    )
    def test_the_first_stage_costs_the_best_split_of_the_time_left(self, left, cost):
        assert self.flow().steps["a"].cost[left] == pytest.approx(cost)

    def test_the_plan_of_a_new_request_is_the_cheapest_way_through(self):
        flow = self.flow()
        assert flow.use.tolist() == pytest.approx([2.0, 0.0])
        assert flow.fresh_cost == pytest.approx(2.0)
        assert flow.fastest_s == pytest.approx(0.802)  # with 2 ms for the reply
        assert flow.steps["a"].rest_s == pytest.approx(0.4)

    def test_options_are_ranked_by_what_they_cost_with_all_that_follows(self):
        """With 1.7 s left (16 tenths after the headroom), 1 s now and 0.4 s then, or the other way round."""
        step = self.flow().steps["a"]
        options, costs = step.ranked(1.7, waiting=1)
        assert sorted(step.menu.vcpus[options]) == [1, 4]
        assert costs == pytest.approx([2.6, 2.6])
        options, costs = step.ranked(1.2, waiting=1)
        assert (step.menu.vcpus[options].tolist(), costs) == ([4], pytest.approx([3.2]))
        assert step.ranked(0.9, waiting=1) == ([], [])

    def test_whether_a_run_of_the_last_stage_is_in_time_is_not_rounded_to_the_table(self):
        """A safe time is 1.1 x 1.05 = 1.155 s; planned are (1.2 - 0.002) x 0.97 = 1.162 s of 1.2 s, 1.152 of 1.19 s."""
        step = outlook_of(scenario(declared(1.05), slo_s=GRID / 10, on=ONE)).flows["main"].first[0]
        assert step.ranked(1.2, waiting=1)[0] == [0]
        assert step.ranked(1.19, waiting=1)[0] == []

    def test_the_last_call_is_the_least_time_in_which_a_request_is_worth_its_cost(self):
        """In the last stage, 1.1 s for a cost of 1 and 0.44 s for 1.6; 3 % of the time left stays unplanned."""
        last = self.flow().steps["b"]
        cheap, fast = sorted(last.run_cost)
        assert last.last_call_s(cheap) == pytest.approx(1.1 / 0.97, abs=2 * last.grid_s)
        assert last.last_call_s(fast) == pytest.approx(0.44 / 0.97, abs=2 * last.grid_s)
        assert last.last_call_s(0.0) >= last.slo_s

    def test_a_surcharge_on_what_is_scarce_is_part_of_the_cost(self):
        flow = self.flow()
        flow.tabulate(np.array([1.0, 0.0]), {"a": 0.0, "b": 0.0})  # USD 2 per second of a vCPU instead of 1
        assert flow.steps["a"].cost[GRID] == pytest.approx(4.0)

    def test_a_batch_is_planned_with_the_time_in_which_it_fills(self):
        """At 10/s the three others of a batch of four come in 0.3 s, of which 0.7 are set aside: 0.22 s + 0.21 s."""
        rows = (Row(batch=1, seconds=0.1), Row(batch=4, seconds=0.2))
        flow = outlook_of(scenario(declared(Table(rows)), slo_s=GRID / 100, on=ONE)).flows["main"]
        flow.tabulate(np.zeros(2), {"f": 10.0})
        step = flow.steps["f"]
        assert [step.menu.batch[step.best[left]] for left in (42, 43, 44, GRID)] == [1, 4, 4, 4]

    def test_no_objective_is_planned_as_a_minute(self):
        flow = outlook_of(scenario({"a": SIZES})).flows["main"]
        assert flow.first[0].slo_s == 60.0
        assert flow.use.tolist() == pytest.approx([1.0, 0.0])


def admission(slo_s=10.0, on=ONE):
    """One function of a second on one vCPU, of workflows `main` and `other`."""
    outlook = outlook_of(scenario({"f": 1.0}, workflows={"main": ("f",), "other": ("f",)}, slo_s=slo_s, on=on))
    return outlook, Admission(outlook)


def ask(desk, *deadlines, now=0.0, workflow="main", first=0):
    """For each deadline, whether a request is admitted at `now`; ids count from `first`."""
    return [desk.admit(Request(first + i, workflow, now, at), now, now) for i, at in enumerate(deadlines)]


class TestAdmission:
    def test_as_much_is_admitted_as_can_be_done_until_it_is_due(self):
        _, desk = admission()
        assert ask(desk, *[10.0] * 10) == [None] * 10
        (refusal,) = ask(desk, 10.0, first=10)
        assert refusal.retry_after_s == pytest.approx(1.0)  # 11 s of work for 10 s

    def test_work_that_is_due_earlier_counts(self):
        _, desk = admission()
        assert ask(desk, *[5.0] * 5) == [None] * 5
        answers = ask(desk, *[10.0] * 6, first=5)
        assert [answer is None for answer in answers] == [True] * 5 + [False]

    def test_work_that_is_due_later_does_not_count(self):
        _, desk = admission()
        ask(desk, *[10.0] * 10)
        answers = ask(desk, *[4.0] * 5, first=10)
        assert [answer is None for answer in answers] == [True] * 4 + [False]

    def test_prices_that_are_still_high_while_no_load_is_expected_refuse_nothing(self):
        outlook, desk = admission()
        outlook.is_short = True
        assert outlook.load == 0.0
        assert desk.admit(Request(0, "main", 0.0, 10.0), 0.0, 0.5) is None  # it could start in 0.5 s

    def test_long_runs_leave_the_room_that_is_kept_but_one_may_always_run(self):
        """Of one vCPU 0.6 are kept: a second run of a whole vCPU beside one that runs would take them."""
        outlook, desk = admission()
        menu, step = outlook.menus["f"], outlook.flows["main"].steps["f"]
        step.kept = np.array([0.6, 0.0])
        assert desk.leaves_room(step, menu.holding[0])
        desk.begin(Run(menu, "n0", 1.0, 0.0, 2.0, menu.holding[0], end=2.0, deadline=10.0, step=step))
        assert not desk.leaves_room(step, menu.holding[0])

    def test_runs_of_those_for_whom_room_is_kept_do_not_count_and_an_end_gives_it_back(self):
        outlook, desk = admission()
        menu, step = outlook.menus["f"], outlook.flows["main"].steps["f"]
        step.kept, step.kept_for = np.array([0.6, 0.0]), frozenset(["main"])
        run = Run(menu, "n0", 1.0, 0.0, 2.0, menu.holding[0], end=2.0, deadline=10.0, step=step)
        desk.begin(run)
        assert desk.leaves_room(step, menu.holding[0])
        step.kept_for = frozenset()
        assert not desk.leaves_room(step, menu.holding[0])
        desk.end(run)
        assert desk.leaves_room(step, menu.holding[0])

    def test_a_workflow_is_starved_if_less_than_its_floor_is_answered(self):
        """Of ten requests each, all of one workflow are answered and six of the other: 0.6 is below 0.65 of 0.8."""
        flows = {name: Workflow.chain(name, "f", slo=SLO(latency_s=10.0)) for name in ("main", "other")}
        desk = Admission(outlook_of(scenario({"f": 0.1}, workflows=flows, on=ONE)))
        ask(desk, *[10.0] * 10)
        ask(desk, *[10.0] * 10, first=10, workflow="other")
        for number in range(20):
            desk.close(number, is_wasted=number >= 14)
        assert [desk.is_starved(name) for name in ("main", "other")] == [False, True]

    def test_a_request_that_closed_makes_room(self):
        _, desk = admission()
        ask(desk, *[10.0] * 10)
        desk.close(3, is_wasted=False)
        assert [answer is None for answer in ask(desk, 10.0, 10.0, first=10)] == [True, False]

    def test_requests_without_a_deadline_are_always_admitted(self):
        _, desk = admission()
        assert ask(desk, *[inf] * 100) == [None] * 100

    def test_work_without_a_deadline_is_due_last(self):
        """It is not due before anything, and gives way to what is."""
        flows = {
            "main": Workflow.chain("main", "f", slo=SLO(latency_s=10.0)),
            "other": Workflow.chain("other", "f"),
        }
        desk = Admission(outlook_of(scenario({"f": 1.0}, workflows=flows, on=ONE)))
        ask(desk, *[inf] * 100, workflow="other")
        assert ask(desk, *[10.0] * 10, first=100) == [None] * 10

    def test_what_takes_longer_than_is_left_is_refused_without_a_time_to_try_again(self):
        _, desk = admission()
        (refusal,) = ask(desk, 0.5)
        assert "it takes at least 1 s, and it is due in 0.5 s" in refusal.reason
        assert refusal.retry_after_s is None

    def test_a_workflow_gets_its_share_by_tokens_of_which_there_is_one_at_first(self):
        """Half of two requests per second: one token per second, once the vCPU is in use."""
        outlook, desk = admission()
        flow = outlook.flows["main"]
        flow.rate, flow.share = 2.0, 0.5
        assert ask(desk, 10.0, 10.0) == [None, None]  # nothing runs, so no token is needed
        desk.held = np.array([1.0, 0.0])
        first = ask(desk, 10.0, 10.0, first=2)
        assert [answer is None for answer in first] == [True, False]
        assert first[1].retry_after_s == pytest.approx(1.0)
        (early,) = ask(desk, 10.5, now=0.5, first=4)
        assert "share" in early.reason
        assert early.retry_after_s == pytest.approx(0.5)
        assert ask(desk, 11.0, now=1.0, first=5) == [None]

    def test_a_workflow_whose_share_is_all_it_asks_for_needs_no_tokens(self):
        outlook, desk = admission()
        outlook.flows["main"].rate, outlook.flows["main"].share = 2.0, 0.5
        assert ask(desk, *[10.0] * 10, workflow="other") == [None] * 10

    def test_less_is_promised_after_work_was_wasted_in_a_full_cluster(self):
        """One of ten was given up: a tenth of the work, with 10 of 10 vCPU-seconds in use. 8.5 s remain of 10."""
        _, desk = admission()
        ask(desk, *[10.0] * 10)
        for request in range(10):
            desk.started([request], cost=1.0, used=np.array([1.0, 0.0]))
            desk.close(request, is_wasted=request == 0)
        desk.adapt(passed_s=10.0)
        assert desk.window == pytest.approx(0.85)
        answers = ask(desk, *[20.0] * 9, now=10.0, first=10)
        assert [answer is None for answer in answers] == [True] * 8 + [False]

    def test_as_much_is_promised_as_before_where_waste_is_not_for_lack_of_room(self):
        _, desk = admission()
        ask(desk, 10.0)
        desk.started([0], cost=1.0, used=np.array([1.0, 0.0]))
        desk.close(0, is_wasted=True)
        desk.adapt(passed_s=10.0)  # a tenth of the cluster was in use
        assert desk.window >= 1.0


class TestShares:
    def test_each_workflow_gets_a_floor_and_the_rest_goes_to_the_cheapest(self):
        """12 requests per second of each, of 0.25 s and of 0.75 s, need 12 vCPUs of 4, three times what there is.

        The floor is 0.65 / 3. It takes 2.6 vCPUs. The other 1.4 answer requests of 0.25 s, of which the rest is
        (1 - 0.65 / 3) * 12 * 0.25 = 2.35 vCPUs.
        """
        flows = {"cheap": ("cheap",), "costly": ("costly",)}
        outlook = outlook_of(
            scenario({"cheap": 0.25, "costly": 0.75}, workflows=flows, slo_s=10.0, on=cluster(1, vcpus=4))
        )
        for flow in outlook.flows.values():
            flow.rate = 12.0
        outlook._tabulate()
        outlook._share_out()
        floor = 0.65 / 3
        assert outlook.load == pytest.approx(3.0)
        assert outlook.flows["costly"].share == pytest.approx(floor)
        assert outlook.flows["cheap"].share == pytest.approx(floor + (1 - floor) * 1.4 / 2.35)

    def test_where_all_can_be_answered_there_are_no_shares(self):
        flows = {"cheap": ("cheap",), "costly": ("costly",)}
        outlook = outlook_of(scenario({"cheap": 0.25, "costly": 0.75}, workflows=flows, slo_s=10.0))
        for flow in outlook.flows.values():
            flow.rate = 3.0
        outlook._tabulate()
        outlook._share_out()
        assert [flow.share for flow in outlook.flows.values()] == [1.0, 1.0]

    def test_a_workflow_without_an_objective_takes_no_share(self):
        """Alone, `due` needs 3 of 4 vCPUs; the 9 that `bulk` needs can wait."""
        flows = {"due": Workflow.chain("due", "due", slo=SLO(latency_s=10.0)), "bulk": Workflow.chain("bulk", "bulk")}
        outlook = outlook_of(scenario({"due": 0.25, "bulk": 0.75}, workflows=flows))
        for flow in outlook.flows.values():
            flow.rate = 12.0
        outlook._tabulate()
        outlook._share_out()
        assert outlook.load == pytest.approx(3.0)
        assert [flow.share for flow in outlook.flows.values()] == [1.0, 1.0]


class TestBudgetLimits:
    def test_a_stage_may_spend_what_the_cheapest_of_the_others_leave(self):
        """Each stage costs USD 1 at least; of USD 2.5, a stage may spend 1.5: not the 1.6 of the faster one."""
        flow = Workflow.chain("main", "a", "b", slo=SLO(latency_s=10.0, cost_usd=2.5))
        on = cluster(1, vcpus=4, price=DOLLAR)
        steps = outlook_of(scenario({"a": SIZES, "b": SIZES}, workflows={"main": flow}, on=on)).flows["main"].steps
        assert [steps[name].usd_limit for name in "ab"] == pytest.approx([1.5, 1.5])
        assert [steps[name].usd_after for name in "ab"] == pytest.approx([1.0, 0.0])
        assert steps["b"].cost[8] == inf  # half a second is left, in which only the faster one is in time


@pytest.mark.parametrize(("busy", "instances"), [(0.0, 1), (1.0, 4), (4.0, 9)])
def test_two_standard_deviations_more_are_kept_than_are_busy(busy, instances):
    assert headcount(busy, 2.0) == instances


class TestSensitivity:
    def test_the_declared_slope_holds_until_something_is_seen(self):
        assert Sensitivity(0.2).slope == 0.2

    def test_two_loads_give_the_slope_that_the_declared_one_is_weighed_against(self):
        """1 beside nothing and 1.8 beside a full node: a slope of 0.8, weighed by the spread of the two loads."""
        seen = Sensitivity(0.2)
        seen.observe(0.0, 1.0)
        seen.observe(1.0, 1.8)
        spread = 1 - 1 / 1.99  # the first counts 0.99
        assert seen.slope == pytest.approx((0.8 * spread + 0.2 * 0.2) / (spread + 0.2))

    def test_the_slope_is_learned_from_loads(self):
        seen = Sensitivity(0.2)
        for i in range(300):
            load = i % 5 / 4
            seen.observe(load, 1.3 * (1 + 0.8 * load))  # a bias of 1.3 is not a matter of load
        assert seen.slope == pytest.approx(1.3 * 0.8, abs=0.03)

    def test_one_load_alone_tells_nothing(self):
        seen = Sensitivity(0.2)
        for _ in range(100):
            seen.observe(0.5, 3.0)
        assert seen.slope == pytest.approx(0.2)

    def test_the_slope_is_never_negative(self):
        seen = Sensitivity(0.0)
        seen.observe(0.0, 2.0)
        seen.observe(1.0, 1.0)
        assert seen.slope == 0.0


class TestPace:
    def test_the_pace_of_a_node_follows_its_last_batches(self):
        """Each batch at twice the expected time takes 12 % of the way: 1.12, then 1.2256."""
        on = cluster(2)
        ground = Ground(on.nodes, Supply(on), Roster())
        menu = menu_of([Row(seconds=1.0)], on=on)
        paces = []
        for _ in range(2):
            ground.observe("n0", menu, 0.0, 2.0)
            paces.append(ground.pace["n0"])
        assert paces == pytest.approx([1.12, 1.2256])
        assert ground.pace["n1"] == 1.0

    def test_a_function_runs_on_a_slow_node_if_it_is_on_no_other(self):
        """After ten batches of twice the expected time its pace is 1.72: 1 s counts as 1.72 s, and 1.5 s are left."""
        on = cluster(1, kind="large", beside=cluster(2))
        roster = Roster()
        ground = Ground(on.nodes, Supply(on), roster)
        menu = menu_of([Row(seconds=1.0)], on=on)
        option = [kind for _, kind in menu.options].index("plain")
        for _ in range(10):
            ground.observe("n0", menu, 0.0, 2.0)
        view = SimpleNamespace(is_warm=lambda *what: what[2] in warm, fits=lambda *what, **how: True)

        def found():
            ground.look_again()
            return ground.find(view, menu, option, is_warm=True, evicts=True, left_s=1.5)

        warm = ["n0"]
        roster.follow(Changes(started=(instance_on("n0", 0),)))
        assert found() == "n0"
        warm.append("n1")
        roster.follow(Changes(started=(instance_on("n1", 1),)))
        assert found() == "n1"
        warm.remove("n1")  # its instance is busy: what would be late waits for it
        assert found() is None

    def test_the_part_of_a_node_is_that_of_its_vcpus_or_of_its_devices(self):
        on = cluster(1, vcpus=0, vgpus=4, devices=2, kind="gpu", beside=cluster(1, vcpus=8))
        ground = Ground(on.nodes, Supply(on), Roster())
        cpu = menu_of([Row(vcpus=2, seconds=1.0)], on=on)
        gpu = menu_of([Row(vcpus=0, vgpus=2, seconds=1.0)], on=on)
        assert ground.part("n0", cpu, 0) == 0.25
        assert ground.part("n1", gpu, 0) == 0.25

    @pytest.mark.parametrize(("vcpus", "slots"), [(1, 4), (2, 1), (8, 1)], ids=["everywhere", "on-one", "nowhere"])
    def test_a_run_has_a_slot_where_a_single_node_has_room_for_it(self, vcpus, slots):
        """Of nodes with 2, 1 and 1 vCPUs."""
        on = cluster(1, vcpus=2, kind="large", beside=cluster(2, vcpus=1))
        ground = Ground(on.nodes, Supply(on), Roster())
        menu = menu_of([Row(vcpus=vcpus, seconds=1.0)], on=cluster(1, vcpus=8))
        assert ground.slots(menu, 0) == slots

    def test_a_gpu_has_a_slot_for_each_share_that_fits_on_one_device(self):
        """Two devices of 7 vGPUs: 2 shares of 3 on each, not 4 and two thirds in all."""
        on = cluster(1, vcpus=8, vgpus=7, devices=2)
        ground = Ground(on.nodes, Supply(on), Roster())
        assert ground.slots(menu_of([Row(vcpus=1, vgpus=3, seconds=1.0)], on=on), 0) == 4


def test_the_options_of_a_configuration_space_are_all_offered():
    where = declared(1.0, configurations=(Configuration(vcpus=1), Configuration(vcpus=1, batch=2)))
    site = site_of(scenario({"f": where}))
    menu = Menu(site.functions["f"], site.profiles["f"], site.cluster, Supply(site.cluster))
    assert sorted(menu.batches) == [1, 2]
