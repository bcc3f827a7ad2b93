"""Summaries: what is counted, and what the numbers mean. The run is `small` of `report_frames`."""

import json
from math import inf

import pytest
from report_frames import CLUSTER, instance, invocation, recording, request, small

from fairlead.model import Cluster, Price
from fairlead.report import aggregate, results_json, summarise


def billed(*, cold=True, idle=False):
    price = Price(vcpu_usd_per_hour=3600, vgpu_usd_per_hour=7200, bill_cold_start=cold, bill_idle=idle)
    return Cluster(nodes=CLUSTER.nodes, price=price)


def test_requests_of_the_warm_up_are_not_counted():
    summary = summarise(small())
    assert (summary.requests, summary.completed, summary.rejected, summary.unfinished) == (5, 3, 1, 1)
    assert summarise(small(warmup_s=0.0)).requests == 6


def test_attainment_is_over_all_counted_requests():
    # Requests 1 and 5 are in time, 2 is late, 3 rejected, 4 unfinished.
    assert summarise(small()).slo_attainment == 2 / 5


@pytest.mark.parametrize(
    ("end", "cost", "expected"),
    [(5.0, 1.0, 1.0), (5.0 + 1e-9, 1.0, 1.0), (5.001, 1.0, 0.0), (4.0, 2.0, 0.0)],
    ids=["at-the-deadline", "late-by-rounding", "late", "over-budget"],
)
def test_a_request_is_met_by_its_deadline_and_within_its_budget(end, cost, expected):
    one = recording([request(0, 0.0, end, slo_s=5.0, budget=1.5, cost=cost)])
    assert summarise(one).slo_attainment == expected


def test_a_request_without_an_objective_is_met_when_it_completes():
    assert summarise(recording([request(0, 0.0, 99.0, slo_s=inf)])).slo_attainment == 1.0


def test_goodput_is_answers_in_time_per_counted_second():
    assert summarise(small()).goodput_rps == 2 / (10 - 1)  # arrivals stop at 10 s, after the last end
    assert summarise(small(duration_s=5.0)).goodput_rps == 2 / (9 - 1)  # the last counted end is at 9 s


def test_latency_is_from_arrival_to_answer():
    latency = summarise(small()).latency_s  # 3, 6 and 4 s
    assert latency.mean == pytest.approx(13 / 3)
    assert (latency.p50, latency.p95, latency.p99) == pytest.approx((4.0, 5.8, 5.96))


def test_wait_is_from_ready_to_start_of_what_is_done():
    wait = summarise(small()).wait_s  # 1, 0, 3 and 2 s; the lost attempt does not count
    assert (wait.mean, wait.p50) == (1.5, 1.5)
    assert summarise(small()).invocations == 4


def test_cost_has_every_attempt_of_the_counted_requests():
    assert summarise(small()).cost_usd == 1 + 1 + 0.5 + 4 + 4


def test_idle_time_costs_where_it_is_billed():
    # Instance 0 is idle for 10-2-1 = 7 s, 1 for 20-3-2 = 15 s, 2 for 9-5-2 = 2 s at 1 + 2 USD/s, 3 never was ready.
    summary = summarise(small(cluster=billed(idle=True)))
    assert summary.cost_parts_usd["idle"] == pytest.approx(7 + 15 + 2 * 3)
    assert summary.cost_usd == pytest.approx(10.5 + 28)
    assert summary.billing.idle


def test_cold_starts_have_their_share_of_the_cost():
    # The batch of requests 1 and 2 is cold for one second of two: half of 2 USD.
    assert summarise(small()).cost_parts_usd == {"run": 9.5, "cold_start": 1.0, "idle": 0.0}
    assert summarise(small(cluster=billed(cold=False))).cost_parts_usd["cold_start"] == 0


def test_a_cold_batch_counts_once_and_in_the_warm_up_too():
    summary = summarise(small())
    assert summary.cold_starts == 2
    assert (summary.cache_hits, summary.cache_hit_ratio) == (3, 3 / 5)
    assert summary.instances_started == 4


def test_a_batch_that_waits_for_a_warming_instance_is_neither_cold_nor_a_hit():
    summary = summarise(recording([request(0, 0.0, 3.0)], [invocation(0, 0.0, 1.0, 3.0, batch=0, cold_s=0.5)]))
    assert (summary.cold_starts, summary.cache_hits) == (0, 0)


def test_makespan_is_the_latest_end_of_anything():
    assert summarise(small()).makespan_s == 9.0
    late = recording(
        [request(0, 0, 3)], [invocation(0, 0, 1, 7, batch=0, outcome="discarded")], [instance(0, 0, 1, 15, 6)]
    )
    assert summarise(late).makespan_s == 7.0  # an instance kept warm is not work


def test_utilisation_counts_a_batch_once():
    use = summarise(small()).utilisation
    assert use["n0"].vcpu == pytest.approx((2 + 2 + 1) / (4 * 9))
    assert use["n0"].vgpu is None
    assert use["n1"].vgpu == pytest.approx(2 / (2 * 9))


def test_every_workflow_has_its_own_numbers():
    main, side = (summarise(small()).by_workflow[name] for name in ("main", "side"))
    assert (main.requests, main.completed, main.slo_attainment) == (3, 2, 1 / 3)
    assert (side.requests, side.completed, side.slo_attainment) == (2, 1, 1 / 2)
    assert main.wait_s.mean == pytest.approx(4 / 3)
    assert side.wait_s.mean == 2.0
    assert side.latency_s.mean == 4.0


def test_decision_times_are_measured():
    times = summarise(small(decision_s=(0.1, 0.3))).decision_s
    assert (times.mean, times.p99) == pytest.approx((0.2, 0.298))


def test_an_empty_run_has_no_numbers_rather_than_wrong_ones():
    summary = summarise(recording())
    assert summary.slo_attainment is None
    assert summary.latency_s.p50 is None
    assert (summary.cost_usd, summary.makespan_s) == (0.0, 0.0)


@pytest.mark.parametrize("one", [recording(), small(parameters={"limit_s": inf}, point={"rate_rps": 40.0})])
def test_json_has_no_number_that_json_does_not_have(one):
    text = json.dumps(results_json("small", [summarise(one)]), allow_nan=False)
    assert json.loads(text)["scenario"] == "small"


def test_json_has_the_documented_keys_first_and_the_point_in_a_sweep_only():
    keys = list(summarise(small()).as_json())
    documented = "policy scaler seed requests completed rejected slo_attainment goodput_rps cost_usd latency_s wait_s"
    documented += " makespan_s cold_starts invocations decision_s engine run_wall_s"
    assert keys[: len(documented.split())] == documented.split()
    assert "point" not in keys
    assert summarise(small(point={"rate_rps": 40})).as_json()["point"] == {"rate_rps": 40}


def test_aggregate_gives_mean_and_half_width_over_seeds():
    runs = [recording([request(0, 0.0, end)], seed=seed) for seed, end in enumerate((1.0, 2.0, 3.0))]
    (row,) = aggregate(summarise(run) for run in runs)
    estimate = row.estimates["latency_s.mean"]
    assert row.seeds == (0, 1, 2)
    assert estimate.mean == 2.0
    assert estimate.half_width == pytest.approx(4.302653 * 1.0 / 3**0.5)  # t(0.975, 2), deviation 1


@pytest.mark.parametrize(("seeds", "t"), [(2, 12.7062), (11, 2.2281), (12, 2.2010), (31, 2.0423), (101, 1.9840)])
def test_half_widths_follow_students_t(seeds, t):
    runs = [recording([request(0, 0.0, 1.0 + seed % 2)], seed=seed) for seed in range(seeds)]
    estimate = aggregate(summarise(run) for run in runs)[0].estimates["latency_s.mean"]
    ones = seeds // 2
    mean = 1 + ones / seeds
    deviation = (((seeds - ones) * (1 - mean) ** 2 + ones * (2 - mean) ** 2) / (seeds - 1)) ** 0.5
    assert estimate.half_width == pytest.approx(t * deviation / seeds**0.5, rel=1e-4)


def test_one_seed_has_no_half_width():
    (row,) = aggregate([summarise(small())])
    assert row.estimates["cost_usd"].half_width is None


def test_aggregate_keeps_policies_scalers_and_points_apart():
    runs = [
        small(seed=seed, scaler=scaler, point={"rate": rate})
        for seed in (0, 1)
        for scaler in (None, "s")
        for rate in (1, 2)
    ]
    rows = aggregate(summarise(run) for run in runs)
    assert [(row.scaler, row.point["rate"]) for row in rows] == [(None, 1), (None, 2), ("s", 1), ("s", 2)]
    assert all(row.seeds == (0, 1) for row in rows)


def test_aggregate_keeps_parameters_apart():
    runs = [small(seed=seed, parameters={"mode": mode, "limit": inf}) for seed in (0, 1) for mode in ("a", "b")]
    rows = aggregate(summarise(run) for run in runs)
    assert [(row.parameters["mode"], row.seeds) for row in rows] == [("a", (0, 1)), ("b", (0, 1))]


def test_parameters_that_are_written_otherwise_are_the_same():
    runs = [
        small(seed=0, parameters={"sizes": (1, 2), "mode": "a"}),
        small(seed=1, parameters={"mode": "a", "sizes": [1, 2]}),
    ]
    assert len(aggregate(summarise(run) for run in runs)) == 1
