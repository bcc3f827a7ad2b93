"""Loads, durations and the lists of a league."""

import pytest

from fairlead.errors import ConfigError, UnknownPolicyError
from fairlead.league.catalogue import catalogue
from fairlead.league.load import at_load, offered_rps
from fairlead.league.plan import app_entrant, capacity_rps, check_policies, core_plan, file_entrant, make_plan
from fairlead.league.times import shortened
from fairlead.policy import policy_class, policy_names, role
from fairlead.testing import scenario as built
from fairlead.workload import (
    AzureLike,
    Burst,
    ClosedLoop,
    Deterministic,
    Listed,
    MinuteCounts,
    Pillar,
    Poisson,
    Share,
    UniformInterval,
    Window,
    load_scenario,
    shipped_names,
)

RULE = catalogue().times


@pytest.mark.parametrize(
    ("process", "thrice"),
    [
        (Poisson("main", 2.0), Poisson("main", 6.0)),
        (UniformInterval("main", 3.0, 6.0), UniformInterval("main", 1.0, 2.0)),
        (Deterministic("main", 3.0, 1.0), Deterministic("main", 1.0, 1.0)),
        (Burst("main", 10), Burst("main", 30)),
        (Pillar("main", 10, 5), Pillar("main", 30, 5)),
        (MinuteCounts("main", (1, 2)), MinuteCounts("main", (3, 6))),
        (AzureLike("main", 2.0), AzureLike("main", 6.0)),
        (Share("main", Poisson("main", 2.0), 0.0, 0.5, 0), Share("main", Poisson("main", 6.0), 0.0, 0.5, 0)),
        (Window("main", Listed("main", (3.0,)), 1.0, 9.0), Window("main", Listed("main", (1.0,)), 1.0, 9.0)),
        (ClosedLoop("main", 2, 1.0), ClosedLoop("main", 6, 1.0)),
        (Listed("main", (3.0, 6.0)), Listed("main", (1.0, 2.0))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_load_multiplies_every_kind_of_arrivals(process, thrice):
    scenario = built(arrivals=(process,))
    assert at_load(scenario, 3).arrivals == (thrice,)
    assert at_load(scenario, 1) is scenario


def test_a_closed_loop_keeps_a_user_at_any_load():
    scenario = built(arrivals=(ClosedLoop("main", 2, 1.0),))
    assert at_load(scenario, 0.1).arrivals == (ClosedLoop("main", 1, 1.0),)


def test_the_load_multiplies_what_a_file_offers():
    quickstart = load_scenario("quickstart")
    assert offered_rps(at_load(quickstart, 0.5)) == pytest.approx(offered_rps(quickstart) / 2)


def test_a_shipped_scenario_offers_eight_hundred_requests_after_its_own_warm_up():
    quickstart = load_scenario("quickstart")  # 36 requests/s; 5 s of warm-up
    short = shortened(quickstart, 1, RULE)
    assert short.warmup_s == 5
    assert short.duration_s == pytest.approx(5 + 800 / 36)


def test_the_warm_up_has_the_same_number_of_requests_at_a_higher_load():
    esg = load_scenario("esg-moderate-normal")  # warm-up 240 s, cold starts up to 22.3 s, objectives below 1.9 s
    assert [shortened(esg, load, RULE).warmup_s for load in (0.5, 1, 3)] == [240, 240, 80]
    assert shortened(esg, 10, RULE).warmup_s == pytest.approx(3 * 22.3, abs=0.5)


def test_a_run_is_never_longer_than_shipped():
    for name in shipped_names():
        whole = load_scenario(name)
        for load in (0.5, 1, 3):
            assert shortened(whole, load, RULE).duration_s <= whole.duration_s


@pytest.mark.parametrize("name", ["table-4.1", "node-lost", "mig-changing-mix"])
def test_what_is_fixed_in_a_scenario_is_not_cut(name):
    whole = load_scenario(name)
    assert shortened(whole, 1, RULE) is whole


def test_listed_policies_dispatch_and_listed_scenarios_are_spelt_right():
    chosen = catalogue()
    for name in (*chosen.general(), *(one for names in chosen.specialised.values() for one in names)):
        assert role(policy_class(name)) == "dispatch"
    assert set(chosen.left_out) | set(chosen.core) <= set(shipped_names())
    assert len(set(chosen.core)) == len(chosen.core) == 26
    assert not set(chosen.left_out) & set(chosen.core)


def test_the_core_league_has_every_general_policy_in_every_cell():
    chosen = catalogue()
    plan = core_plan(chosen, scenarios=["quickstart", "table-4.1"])
    assert len(plan.cells) == 2 * 3 * len(chosen.general())
    assert len(plan.runs) == 3 * len(plan.cells)
    assert len({run.key for run in plan.runs}) == len(plan.runs)


def test_specialised_policies_are_for_their_scenarios_only():
    assert "kaas-balance" in catalogue().specialised_for("kaas-poisson")
    assert catalogue().specialised_for("quickstart") == ()


def test_the_own_policy_of_a_scenario_keeps_its_parameters():
    scenario = load_scenario("quickstart", overrides={"policy": {"dispatch": "fifo", "batching": "full"}})
    plan = make_plan([file_entrant(scenario, ["fifo", "esg"], [1])], 1)
    assert [dict(run.scenario.policy.parameters) for run in plan.runs] == [{"batching": "full"}, {}]


def test_parameters_that_a_policy_does_not_take_are_said_before_any_run():
    scenario = load_scenario("quickstart", overrides={"policy": {"dispatch": "fifo", "hedroom": 1}})
    with pytest.raises(ConfigError, match="hedroom"):
        make_plan([file_entrant(scenario, ["fifo"], [1])], 1)


def test_only_dispatchers_compete():
    check_policies(policy_names()[:1])
    with pytest.raises(UnknownPolicyError, match="Did you mean 'orion'"):
        check_policies(["orionn"])
    with pytest.raises(ConfigError, match="knative scales"):
        check_policies(["knative"])


def test_the_capacity_of_an_app_is_what_keeps_its_cluster_busy():
    (name,) = load_scenario("quickstart").workflows
    arrivals = [{"workflow": name, "process": "poisson", "load": 1}]
    scenario = load_scenario("quickstart", overrides={"arrivals": arrivals})
    (stream,) = scenario.arrivals
    assert capacity_rps(scenario) == pytest.approx(stream.rate_rps)
    entrant = app_entrant(scenario, ["fifo"], [0.5, 1], catalogue())
    assert entrant.is_app
    assert offered_rps(entrant.at[0.5]) == pytest.approx(stream.rate_rps / 2)
