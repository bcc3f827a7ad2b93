"""The cheapest ways to run a workflow within its objective."""

from itertools import product

import pytest

from fairlead.planning.outline import outline
from fairlead.workload import parse_scenario

USD_PER_VCPU_S = 0.034 / 3600
SIZES = {"a": ((1, 0.10), (2, 0.06), (4, 0.05)), "b": ((1, 0.20), (2, 0.12), (4, 0.10)), "c": ((1, 0.15), (4, 0.05))}


def scenario(stages, slo):
    functions = {
        name: {"latency": {"table": [{"vcpus": vcpus, "seconds": seconds} for vcpus, seconds in sizes]}}
        for name, sizes in SIZES.items()
    }
    return parse_scenario(
        {
            "name": "plan",
            "cluster": {"nodes": [{"name": "n", "kind": "n", "vcpus": 8, "memory_gb": 64}]},
            "functions": functions,
            "workflows": {"w": {"stages": stages, "slo": slo}},
            "arrivals": [{"workflow": "w", "process": "poisson", "rate_rps": 1}],
            "duration_s": 10,
            "policy": {"dispatch": "fifo"},
        },
        "plan.yaml",
    )


def all_ways(takes):
    """Every choice of sizes as (cost, latency), cheapest first; `takes` makes the latency of three."""
    ways = []
    for chosen in product(*SIZES.values()):
        cost = sum(vcpus * seconds for vcpus, seconds in chosen) * USD_PER_VCPU_S
        ways.append((cost, takes(*(seconds for _, seconds in chosen))))
    return sorted(ways)


CHAIN = {"a": [], "b": ["a"], "c": ["b"]}
FORK = {"a": [], "b": ["a"], "c": ["a"]}


@pytest.mark.parametrize("slo_s", [0.45, 0.4, 0.3, 0.21])
def test_of_a_chain_the_cheapest_of_all_are_named(slo_s):
    found = outline(scenario(CHAIN, {"latency_s": slo_s}), "w", top=4)
    expected = [cost for cost, latency_s in all_ways(lambda a, b, c: a + b + c) if latency_s <= slo_s + 1e-9][:4]
    assert [each.cost_usd for each in found.top] == pytest.approx(expected)
    assert all(each.latency_s <= slo_s + 1e-9 for each in found.top)
    assert len({each.stages for each in found.top}) == len(found.top)


def test_the_first_is_what_to_choose():
    found = outline(scenario(CHAIN, {"latency_s": 0.4}), "w")
    assert found.top[0] == found.chosen
    assert (found.latency_s, found.cost_usd, found.stages) == (
        found.chosen.latency_s,
        found.chosen.cost_usd,
        found.chosen.stages,
    )
    assert sum(way.cost_usd for way in found.stages) == pytest.approx(found.cost_usd)
    assert sum(way.latency_s for way in found.stages) == pytest.approx(found.latency_s)


def test_of_a_fork_the_members_of_the_front_are_named_cheapest_first():
    found = outline(scenario(FORK, {"latency_s": 0.26}), "w", top=3)
    in_time = [
        pair
        for pair in zip(found.front.latency_s.tolist(), found.front.cost_usd.tolist(), strict=True)
        if pair[0] <= 0.26
    ]
    assert [(each.latency_s, each.cost_usd) for each in found.top] == in_time[::-1][:3]
    best = min(pair for pair in all_ways(lambda a, b, c: a + max(b, c)) if pair[1] <= 0.26 + 1e-9)
    assert found.cost_usd == pytest.approx(best[0])


def test_what_cannot_be_met_names_the_fastest_and_a_cheaper_one_near_it():
    found = outline(scenario(CHAIN, {"latency_s": 0.1}), "w")
    assert not found.is_met
    assert found.top == ()
    assert found.in_time is None
    assert found.chosen == found.fastest
    ways = all_ways(lambda a, b, c: a + b + c)
    assert found.fastest.latency_s == pytest.approx(min(latency for _, latency in ways))
    assert found.near_fastest.cost_usd == pytest.approx(min(cost for cost, latency in ways if latency <= 1.2 * 0.2))


def test_what_is_in_time_may_be_too_dear():
    limit_usd = 0.5 * USD_PER_VCPU_S  # 2 vCPUs for a and b, 4 for c make 0.56 vCPU-seconds
    found = outline(scenario(CHAIN, {"latency_s": 0.25, "cost_usd": limit_usd}), "w")
    assert not found.is_met
    assert found.in_time is not None
    ways = all_ways(lambda a, b, c: a + b + c)
    assert found.in_time.cost_usd == pytest.approx(min(cost for cost, latency in ways if latency <= 0.25))
    assert found.in_time.cost_usd > limit_usd


def test_the_limit_on_the_cost_ends_the_list():
    ways = all_ways(lambda a, b, c: a + b + c)
    limit_usd = ways[2][0]
    found = outline(scenario(CHAIN, {"latency_s": 1, "cost_usd": limit_usd}), "w", top=20)
    assert [each.cost_usd for each in found.top] == pytest.approx(
        [cost for cost, _ in ways if cost <= limit_usd + 1e-15]
    )


def test_at_least_one_is_asked_for():
    with pytest.raises(ValueError, match="top must be at least 1; got 0"):
        outline(scenario(CHAIN, {"latency_s": 1}), "w", top=0)
