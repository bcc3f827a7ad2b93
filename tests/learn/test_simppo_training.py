"""Training: when it ends, what it leaves, and one function more."""

import numpy as np
import pytest

from fairlead.learn.environments.tenancy import Tenancy
from fairlead.learn.functions.tenants import chains_scenario, tenants_scenario
from fairlead.learn.simppo import MODERN, Learner
from fairlead.learn.simppo.incremental import add_function
from fairlead.learn.simppo.plan import Plan, arrays_for, teach, world_of
from fairlead.learn.simppo.settings import Settings
from fairlead.learn.simppo.training import StopRule, train
from fairlead.policy.simppo.observation import Encoding

SMALL = Settings(**{**MODERN.__dict__, "steps": 20, "minibatch": 10, "epochs": 2})


def plan(functions=2, **more):
    return Plan(
        scenario=tenants_scenario(functions, nodes=1),
        **{"settings": SMALL, "episodes": 4, "periods": 10, "stop": None, **more},
    )


@pytest.mark.parametrize(
    ("rewards", "is_met"),
    [
        ([0.5] * 19, False),
        ([0.5] * 20, True),
        ([0.5] * 10 + [0.52] * 10, False),  # 3.8 % more than before
        ([0.5] * 10 + [0.508] * 10, True),  # 1.6 %
        ([0.5] * 10 + [0.45, 0.55] * 5, False),  # the mean is the same, the deviation 10 %
    ],
)
def test_training_ends_when_the_reward_is_steady(rewards, is_met):
    assert StopRule().is_met(np.array(rewards)) is is_met


def test_the_published_rule_is_a_fixed_reward():
    rule = StopRule(least=0.6)
    assert not rule.is_met(np.array([0.59] * 10))
    assert not rule.is_met(np.array([0.61] * 9))
    assert rule.is_met(np.array([0.1] * 10 + [0.61] * 10))
    assert not rule.is_met(np.array([0.5, 0.8] * 5))


def test_what_was_learnt_can_be_described_and_begun_with():
    outcome = teach(plan())
    description = outcome.checkpoint.description
    assert [agent.function for agent in description.agents] == ["base64", "primes"]
    assert description.episodes == 4
    assert outcome.curve.rewards.shape == (4, 2)
    assert outcome.curve.steps == 40
    again = teach(plan(first=outcome.checkpoint, episodes=1))
    assert again.learner.agents == 2
    # A third function begins as the most alike of the two in time on one vCPU: json as base64.
    arrays = arrays_for(outcome.checkpoint, tenants_scenario(6, nodes=1), is_shared=False)
    own = outcome.checkpoint.arrays["actor.0.weight"]
    assert np.array_equal(arrays["actor.0.weight"][5], own[0])


def test_same_seed_same_agents():
    one, other = (teach(plan(seed=3)).checkpoint.arrays for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_each_function_alone_is_in_a_cluster_of_its_own():
    world = world_of(plan(3, is_apart=True, encoding=Encoding(others="none")))
    world.seed(0)
    assert world.reset().shape == (3, 7)
    assert len(world.worlds) == 3
    assert world.step(np.zeros(3, np.int64)).rewards.shape == (3,)


def test_one_function_more_is_learnt_from_where_the_others_are():
    outcome = teach(plan(2, episodes=4))
    change = add_function(outcome, tenants_scenario(3, nodes=1), episodes=6, stop=StopRule(window=2))
    assert outcome.learner.agents == 3
    assert change.curve.rewards.shape[1] == 3
    assert change.drop == pytest.approx((change.before - change.after) / change.before)
    with pytest.raises(ValueError, match="the same functions and one more"):
        add_function(outcome, tenants_scenario(3, nodes=1), episodes=1, stop=StopRule())


def test_only_those_that_are_asked_learn():
    world = world_of(plan())
    learner = Learner(2, world.encoding.size, world.actions, SMALL, seed=0)
    before = learner.arrays()["actor.0.weight"].copy()
    train(world, learner, episodes=2, seed=0, only=np.array([False, True]))
    after = learner.arrays()["actor.0.weight"]
    assert np.array_equal(before[0], after[0])
    assert not np.array_equal(before[1], after[1])


def test_in_a_workflow_lateness_adds_up_along_the_way():
    world = Tenancy(chains_scenario(), periods=40, encoding=Encoding(is_workflow_aware=True))
    world.seed(0)
    world.reset()
    for _ in range(20):
        world.step(np.zeros(world.size, np.int64))
    found = dict(zip(world.functions, world.measures.lateness, strict=True))
    ran = dict(zip(world.functions, world.measures.ran, strict=True))
    assert all(value > 0 for name, value in found.items() if ran[name])
    # Alone in its workflow, a function is late by its own latency over its own SLO.
    single = Tenancy(tenants_scenario(3, nodes=1), periods=10)
    single.seed(0)
    single.reset()
    single.step(np.zeros(3, np.int64))
    assert single.measures.lateness == pytest.approx(single.measures.slowest_s / single.site.slo_s, rel=1e-9)


def test_episodes_begin_at_random_sizes_if_asked():
    starts = []
    world = Tenancy(tenants_scenario(4, nodes=2), periods=5, has_random_starts=True)
    world.seed(1)
    for _ in range(6):
        world.reset()
        starts.append(tuple(world.state.vcpus.round(3)))
    assert len(set(starts)) == 6
    world.seed(1)
    world.reset()
    assert tuple(world.state.vcpus.round(3)) == starts[0]


@pytest.mark.parametrize("own", ["seven", "six"])
@pytest.mark.parametrize("others", ["none", "global4"])
def test_functions_apart_see_and_earn_what_each_would_alone(own, others):
    encoding = Encoding(own=own, others=others, is_workflow_aware=True)
    together = world_of(plan(3, is_apart=True, encoding=encoding))
    each = world_of(plan(3, is_apart=True, encoding=encoding)).worlds
    together.seed(2)
    seen = together.reset()
    for number, world in enumerate(each):
        world.seed(2 * 1009 + number)
        assert np.array_equal(world.reset()[0], seen[number])
    rng = np.random.default_rng(0)
    for _ in range(10):
        actions = rng.integers(0, 7, 3)
        found = together.step(actions)
        for number, world in enumerate(each):
            alone = world.step(actions[number : number + 1])
            assert np.array_equal(alone.observations[0], found.observations[number])
            assert alone.rewards[0] == found.rewards[number]
