"""Scaling environments: agents that come and go, actions, what is measured, rewards."""

from dataclasses import replace

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test

from fairlead.errors import UncoveredError
from fairlead.learn.environments import ScalingEnv
from fairlead.learn.environments.tenants import Ladder
from fairlead.learn.environments.worlds import tenants_scenario
from fairlead.model import SLO, Cluster, Function, Node, Workflow
from fairlead.policy.simppo.observation import OWN_FIELDS
from fairlead.profile import Profile, ScalingLaw
from fairlead.workload import Deterministic, Poisson, Scenario

FIELDS = (*OWN_FIELDS["seven"], "others_slo", "others_utilisation", "others_vcpus", "others_replicas")
STAY, OUT, IN, FASTER, SLOWER, ROOMIER, TIGHTER = range(7)
LADDER = Ladder(vcpus=(0.5, 1.0, 2.0), memory_gb=(0.5, 1.0), first_vcpus=1.0, first_memory_gb=0.5)


def world(*, functions=("a",), rate_rps=2.0, t1_s=0.2, slo_s=1.0, vcpus=8.0, chain=False):
    """Functions that take `t1_s` on one vCPU and half of it on two, on one node of 8 GB; a cold start takes 0.5 s."""
    workflows = (
        {"w": Workflow.chain("w", *functions, slo=SLO(latency_s=slo_s))}
        if chain
        else {name: Workflow.chain(name, name, slo=SLO(latency_s=slo_s)) for name in functions}
    )
    return Scenario(
        name="tenants",
        cluster=Cluster(nodes=(Node(name="n", kind="n", vcpus=vcpus, memory_gb=8.0),)),
        functions={name: Function(name=name, memory_gb=0.25) for name in functions},
        profiles={
            name: Profile(law=ScalingLaw(t1_s=t1_s, fixed=0.0, gamma=1.0), cold_start_s=0.5) for name in functions
        },
        workflows=workflows,
        arrivals=tuple(Poisson(name, rate_rps) for name in workflows),
        control_period_s=10.0,
    )


def make(scenario=None, **settings):
    env = ScalingEnv(world() if scenario is None else scenario, ladder=LADDER, **{"replicas": (0, 4), **settings})
    env.reset(seed=1)
    return env


def see(shown):
    return dict(zip(FIELDS, shown.tolist(), strict=True))


def step(env, **actions):
    shown, rewards, *_ = env.step(actions)
    return {name: see(values) for name, values in shown.items()}, rewards


# --- the library's own checks


def test_pettingzoo_finds_nothing_wrong():
    parallel_api_test(ScalingEnv(periods=30), num_cycles=40)


def test_pettingzoo_finds_nothing_wrong_where_agents_come_and_go():
    env = ScalingEnv(periods=30, joins={"primes": 5, "image-resize": 12}, leaves={"base64": 8, "image-resize": 20})
    parallel_api_test(env, num_cycles=40)


# --- what is measured


def test_first_observation_shows_what_an_agent_begins_with():
    env = ScalingEnv(world(functions=("a", "b")), ladder=LADDER, replicas=(0, 4), first_replicas=2)
    shown, _ = env.reset(seed=0)
    assert see(shown["a"]) == pytest.approx(
        {
            "cpu_utilisation": 0,
            "memory_utilisation": 0.5,  # 0.25 of 0.5 GB
            "slo_preservation": 1,
            "arrival_rate": 0,
            "vcpus": 2 / 20,
            "memory": 1 / 20,
            "replicas": 2 / 4,
            "others_slo": 1,
            "others_utilisation": 0,
            "others_vcpus": 2 / 8,
            "others_replicas": 2 / 8,
        }
    )


def test_utilisation_is_work_over_what_the_replicas_hold():
    env = make(first_replicas=2)
    for _ in range(5):
        shown, _ = step(env)
        arrived = round(shown["a"]["arrival_rate"] * 100)
        # each run takes 0.2 s of two replicas' 20 s; at either end of the period a run may be cut in two
        assert shown["a"]["cpu_utilisation"] == pytest.approx(arrived * 0.2 / 20, abs=2 * 0.2 / 20)
        assert shown["a"]["slo_preservation"] > 0.5


def test_arrivals_come_at_the_declared_rate():
    env = make(world(rate_rps=5.0), periods=400)
    rates = [step(env)[0]["a"]["arrival_rate"] * 10 for _ in range(200)]
    assert np.mean(rates) == pytest.approx(5.0, abs=4 * np.sqrt(5.0 / 2000))


def test_too_few_replicas_lose_the_slo_and_too_many_the_utilisation():
    few, many = make(world(rate_rps=6.0), first_replicas=1), make(world(rate_rps=6.0), first_replicas=4)
    for _ in range(10):
        (shown_few, _), (shown_many, _) = step(few), step(many)
    assert shown_few["a"]["slo_preservation"] < 0.1  # 1.2 times what it can do: the queue has grown for 100 s
    assert shown_few["a"]["cpu_utilisation"] == pytest.approx(1.0)
    assert shown_many["a"]["slo_preservation"] == 1.0
    assert shown_many["a"]["cpu_utilisation"] < 0.5


def test_what_waits_without_a_run_counts_by_its_age():
    env = make(world(rate_rps=3.0), first_replicas=0, penalties=False)
    shown, rewards = step(env)
    assert shown["a"]["cpu_utilisation"] == 0
    # the oldest has waited for nearly the whole period
    assert shown["a"]["slo_preservation"] == pytest.approx(1 / 10, abs=0.02)
    assert rewards["a"] == pytest.approx(0.7 * shown["a"]["slo_preservation"])


def test_more_vcpus_make_runs_shorter():
    env = make(world(rate_rps=4.0), first_replicas=2)
    slow = np.mean([step(env)[0]["a"]["cpu_utilisation"] for _ in range(20)])
    shown, _ = step(env, a=FASTER)
    assert shown["a"]["vcpus"] == pytest.approx(4 / 20)
    fast = np.mean([step(env)[0]["a"]["cpu_utilisation"] for _ in range(20)])
    assert fast == pytest.approx(slow / 2, rel=0.15)  # half the time


def test_more_memory_is_held_once_new_replicas_have_taken_over():
    env = make(first_replicas=2)
    shown, _ = step(env, a=ROOMIER)
    assert shown["a"]["memory"] == pytest.approx(2 / 20)
    assert shown["a"]["memory_utilisation"] == pytest.approx(0.25)
    shown, _ = step(env, a=TIGHTER)
    assert shown["a"]["memory"] == pytest.approx(1 / 20)


# --- actions and rewards


def test_reward_weighs_slo_preservation_and_utilisation():
    for alpha in (0.0, 0.7, 1.0):
        shown, rewards = step(make(alpha=alpha))
        own = shown["a"]
        assert rewards["a"] == pytest.approx(alpha * own["slo_preservation"] + (1 - alpha) * own["cpu_utilisation"])


def test_replicas_come_and_go_by_one():
    env = make(first_replicas=2)
    assert step(env, a=OUT)[0]["a"]["replicas"] == 3 / 4
    assert step(env, a=OUT)[0]["a"]["replicas"] == 4 / 4
    assert step(env, a=STAY)[0]["a"]["replicas"] == 4 / 4
    assert step(env, a=IN)[0]["a"]["replicas"] == 3 / 4


@pytest.mark.parametrize(
    ("first", "actions"),
    [
        (4, [OUT]),
        (0, [FASTER]),
        (2, [SLOWER, SLOWER]),
        (2, [TIGHTER]),
        (4, [FASTER, STAY]),  # 8 vCPUs: all there are; the second step is fine
        (2, [OUT, IN]),
        (2, [IN, OUT]),
        (1, [IN]),
    ],
    ids=[
        "above the most",
        "resize nothing",
        "below the smallest",
        "below the need",
        "fits exactly",
        "in after out",
        "out after in",
        "none left",
    ],
)
def test_penalties(first, actions, request):
    env = make(first_replicas=first)
    rewards = [step(env, a=action)[1]["a"] for action in actions]
    if request.node.callspec.id == "fits exactly":
        assert min(rewards) > 0
    else:
        assert rewards[-1] == -1
        assert all(reward > -1 for reward in rewards[:-1])


def test_what_cannot_be_done_changes_nothing():
    env = make(world(vcpus=4.0), first_replicas=4)
    before, _ = step(env)
    after, rewards = step(env, a=FASTER)  # no room for four replicas of two vCPUs
    assert rewards["a"] == -1
    assert after["a"]["vcpus"] == before["a"]["vcpus"] == pytest.approx(4 / 20)


def test_mask_has_what_is_within_the_bounds():
    env = ScalingEnv(world(), ladder=LADDER, replicas=(1, 2), first_replicas=2, mask=True)
    _, infos = env.reset(seed=0)
    assert infos["a"]["action_mask"].tolist() == [1, 0, 1, 1, 1, 1, 0]
    *_, infos = env.step({"a": IN})
    assert infos["a"]["action_mask"].tolist() == [1, 1, 0, 1, 1, 1, 0]


def test_without_memory_there_are_five_actions():
    env = ScalingEnv(memory=False)
    assert {env.action_space(name).n for name in env.possible_agents} == {5}


# --- who is there


def test_functions_join_and_leave_by_schedule():
    env = make(world(functions=("a", "b", "c")), joins={"b": 2}, leaves={"a": 3}, periods=5)
    assert env.agents == ["a", "c"]
    there = []
    for _ in range(5):
        shown, rewards, terminated, truncated, _ = env.step({})
        assert set(shown) == set(rewards) == set(terminated) == set(truncated)
        there.append((sorted(shown), sorted(name for name in terminated if terminated[name]), sorted(env.agents)))
    assert there == [
        (["a", "c"], [], ["a", "c"]),
        (["a", "b", "c"], [], ["a", "b", "c"]),
        (["a", "b", "c"], ["a"], ["b", "c"]),
        (["b", "c"], [], ["b", "c"]),
        (["b", "c"], [], []),
    ]


def test_who_leaves_gives_its_vcpus_back_and_brings_no_requests():
    env = make(world(functions=("a", "b")), first_replicas=2)
    step(env)
    env.leave("a")
    assert env.agents == ["b"]
    shown, _ = step(env)
    assert shown["b"]["others_vcpus"] == 0
    assert env.state()[: len(FIELDS)].sum() == 0


def test_who_joins_in_mid_episode_acts_from_then_on():
    env = make(world(functions=("a", "b")), joins={"b": 10**9})
    step(env)
    first = see(env.join("b"))
    assert (first["vcpus"], first["others_vcpus"]) == pytest.approx((2 / 20, 2 / 8))
    shown, _ = step(env, b=OUT)
    assert shown["b"]["replicas"] == 3 / 4
    assert shown["b"]["arrival_rate"] > 0


def test_who_has_left_cannot_come_back_in_the_same_episode():
    env = make(world(functions=("a", "b")))
    env.leave("a")
    with pytest.raises(ValueError, match="a has left"):
        env.join("a")
    with pytest.raises(ValueError, match="b is there already"):
        env.join("b")
    with pytest.raises(ValueError, match="a is not there"):
        env.leave("a")
    with pytest.raises(ValueError, match="no function is called 'z'"):
        env.join("z")
    env.reset()
    assert env.agents == ["a", "b"]


def test_a_chain_stops_when_one_of_its_functions_leaves():
    env = make(world(functions=("a", "b"), chain=True, rate_rps=4.0))
    shown, _ = step(env)
    assert shown["b"]["arrival_rate"] > 0
    env.leave("b")
    step(env)
    shown, _ = step(env)
    assert shown["a"]["arrival_rate"] == 0
    assert shown["a"]["slo_preservation"] == 1


def test_in_a_chain_the_slo_is_shared_by_the_time_of_the_stages():
    env = make(world(functions=("a", "b"), chain=True, slo_s=1.0))
    assert env.tenancy.site.slo_s == pytest.approx([0.5, 0.5])


# --- the same again


def test_a_seed_repeats_an_episode():
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 7, (40, 5))
    runs = []
    for _ in range(2):
        env = ScalingEnv(periods=60, requests=100_000)
        shown, _ = env.reset(seed=7)
        seen = [np.stack(list(shown.values()))]
        for row in actions:
            shown, rewards, *_ = env.step(dict(zip(env.agents, row.tolist(), strict=True)))
            seen += [np.stack(list(shown.values())), np.array(list(rewards.values()))]
        runs.append(seen)
    assert all(np.array_equal(one, other) for one, other in zip(*runs, strict=True))


def test_random_actions_never_leave_the_space():
    env = ScalingEnv(
        tenants_scenario(7, nodes=2),
        periods=120,
        replicas=(0, 6),
        joins={"primes": 9},
        leaves={"image-resize": 50},
        requests=100_000,
    )
    rng = np.random.default_rng(3)
    env.reset(seed=0)
    while env.agents:
        names = list(env.agents)
        shown, rewards, _, _, infos = env.step({name: int(rng.integers(0, 7)) for name in names})
        for name, values in shown.items():
            assert env.observation_space(name).contains(values), (name, values)
            assert -1 <= rewards[name] <= 1
            assert "out_of_room" not in infos[name]
    assert env._step == 120


def test_too_many_open_requests_cut_the_episode_off_and_say_so():
    env = make(world(rate_rps=50.0), first_replicas=1, requests=64)
    for _ in range(10):
        _, _, _, truncated, infos = env.step({})
        if truncated["a"]:
            break
    assert infos["a"]["out_of_room"]
    assert env.agents == []


# --- mistakes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 2.0}, r"slo_weight must be in \[0, 1\]; got 2.0."),
        ({"periods": 0}, "periods must be at least 1; got 0."),
        ({"replicas": (3, 2)}, "first_replicas between"),
        ({"joins": {"z": 1}}, "no function is called 'z'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ScalingEnv(**settings)


def test_a_ladder_must_rise_and_hold_its_first_step():
    with pytest.raises(ValueError, match="vcpus must rise"):
        Ladder(vcpus=(1.0, 0.5))
    with pytest.raises(ValueError, match="first_vcpus must be one of vcpus"):
        Ladder(vcpus=(1.0, 2.0), first_vcpus=1.5)


def test_scenarios_that_cannot_be_scaled_so_are_refused():
    with pytest.raises(UncoveredError, match="workflow a has Deterministic"):
        ScalingEnv(replace(world(), arrivals=(Deterministic("a", 1.0),)), ladder=LADDER)
    with pytest.raises(UncoveredError, match="cannot begin with"):
        ScalingEnv(world(), ladder=replace(LADDER, memory_gb=(0.0625, 0.125), first_memory_gb=0.125))
