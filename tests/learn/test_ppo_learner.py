"""The PPO learner: returns, gradients, agents that are alone or many, that come and go, and what is learnt."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.learn.simppo import MODERN, PAPER, Learner, Rollout, Settings
from fairlead.learn.simppo.networks import Shape
from fairlead.learn.simppo.rollout import advantages_of, normalised

INPUTS, ACTIONS = 3, 4
SMALL = replace(MODERN, hidden=(8, 8), minibatch=16, epochs=3, learning_rate=1e-2)


def rollout(*, agents=3, steps=40, seed=0, masks=False, is_present=None):
    """Steps with random figures; the episode is cut after every tenth."""
    rng = np.random.default_rng(seed)
    allowed = rng.random((steps, agents, ACTIONS)) < 0.7
    allowed[..., 0] = True
    chances = np.where(allowed, rng.random(allowed.shape), 0.0) if masks else rng.random(allowed.shape)
    actions = chances.argmax(axis=2)
    normal = rng.standard_normal
    return Rollout(
        observations=normal((steps, agents, INPUTS)).astype(np.float32),
        actions=actions,
        log_probs=np.log(rng.uniform(0.1, 0.6, actions.shape)).astype(np.float32),
        values=normal(actions.shape).astype(np.float32),
        rewards=normal(actions.shape).astype(np.float32),
        ends=np.arange(steps) % 10 == 9,
        next_values=normal(actions.shape).astype(np.float32),
        is_present=is_present,
        masks=allowed if masks else None,
    )


def part(whole, agent):
    """The rollout of one agent."""
    fields = {name: getattr(whole, name) for name in whole.__dataclass_fields__}
    chosen = {
        name: value if value is None or name == "ends" else value[:, agent : agent + 1]
        for name, value in fields.items()
    }
    return Rollout(**chosen)


def learner(agents=3, *, how=SMALL, seed=5, is_shared=False):
    return Learner(agents, INPUTS, ACTIONS, how, is_shared=is_shared, seed=seed)


def alone(agent, *, of=3, how=SMALL):
    """A learner with one of several agents: the others were removed."""
    one = learner(of, how=how)
    for other in reversed(range(of)):
        if other != agent:
            one.remove(other)
    return one


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def row_of(arrays, agent):
    return {name: array[agent] for name, array in arrays.items()}


# --- returns ---------------------------------------------------------------------------------------------------------


def steps_of(rewards, values, *, ends=(), next_values=None, is_present=None):
    """One agent's rollout of which only these figures matter."""
    n = len(rewards)

    def column(figures):
        return np.array(figures, np.float32)[:, None]

    return Rollout(
        observations=np.zeros((n, 1, 1), np.float32),
        actions=np.zeros((n, 1), np.int64),
        log_probs=np.zeros((n, 1), np.float32),
        values=column(values),
        rewards=column(rewards),
        ends=np.isin(np.arange(n), ends),
        next_values=None if next_values is None else column(next_values),
        is_present=None if is_present is None else np.array(is_present)[:, None],
    )


HALF = replace(PAPER, gamma=0.5)
GAE = replace(HALF, gae_lambda=0.5, bootstraps=True)


def test_a_monte_carlo_return_is_the_discounted_sum_of_rewards_to_the_end_of_the_episode():
    advantages, returns = advantages_of(steps_of([1, 2, 4, 8], [1, 1, 1, 1], ends=[1], next_values=[9] * 4), HALF)
    assert returns[:, 0].tolist() == [2, 2, 8, 8]  # 1 + 2/2, 2, 4 + 8/2, 8
    assert advantages[:, 0].tolist() == [1, 1, 7, 7]


def test_a_cut_episode_goes_on_with_the_value_of_what_follows():
    how = replace(HALF, bootstraps=True)
    _, returns = advantages_of(steps_of([1, 2, 4, 8], [1] * 4, ends=[1], next_values=[0, 4, 0, 2]), how)
    assert returns[:, 0].tolist() == [3, 4, 8.5, 9]  # 1 + 4/2, 2 + 4/2, 4 + 9/2, 8 + 2/2


def test_generalised_advantages_by_hand():
    # surprises: 1 + 2/2 - 4 = -2, 0 + 6/2 - 2 = 1; the advantage adds a quarter of the next one
    advantages, returns = advantages_of(steps_of([1, 0], [4, 2], ends=[1], next_values=[0, 6]), GAE)
    assert advantages[:, 0].tolist() == [-1.75, 1]
    assert returns[:, 0].tolist() == [2.25, 3]


def test_a_lost_step_cuts_the_episode_and_counts_nothing():
    nan = np.nan
    lost = steps_of([1, nan, 4], [1, nan, 1], next_values=[2, nan, 0], is_present=[True, False, True])
    _, returns = advantages_of(lost, replace(HALF, bootstraps=True))
    assert returns[:, 0].tolist() == [2, 0, 4]  # 1 + 2/2: what follows the first step is the value that was given


@given(st.lists(st.tuples(st.floats(-1, 1), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_lambda_one_is_monte_carlo(steps):
    rewards, cuts = zip(*steps, strict=True)
    one = steps_of(rewards, rewards[::-1], ends=np.flatnonzero(cuts), next_values=rewards)
    for how in (HALF, replace(HALF, bootstraps=True)):
        found, wanted = advantages_of(one, replace(how, gae_lambda=1.0)), advantages_of(one, how)
        assert np.array_equal(found, wanted)


def test_advantages_are_normalised_for_each_agent_by_itself():
    figures = np.array([[1, 100, 5], [3, 300, 7]], np.float32)
    present = np.array([[True, True, True], [True, True, False]])
    assert normalised(figures, present).round(4).tolist() == [[-1, -1, 0], [1, 1, 0]]


# --- gradients -------------------------------------------------------------------------------------------------------


def plain_update(arrays, own, how):
    """A plain implementation for one agent on whole rollouts: recorded gradients and torch's own Adam."""
    weights = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}
    optimiser = torch.optim.Adam(weights.values(), lr=how.learning_rate, eps=how.adam_epsilon)
    advantages, returns = advantages_of(own, how)
    advantages = torch.tensor(normalised(advantages, own.present)[:, 0])
    targets, then = torch.tensor(returns[:, 0]), torch.tensor(own.log_probs[:, 0])
    x, actions = torch.tensor(own.observations[:, 0]), torch.tensor(own.actions[:, 0])
    act = torch.relu if how.activation == "relu" else torch.tanh

    def through(network):
        y = x
        for i in range(len(how.hidden) + 1):
            y = y @ weights[f"{network}.{i}.weight"] + weights[f"{network}.{i}.bias"]
            y = act(y) if i < len(how.hidden) else y
        return y

    for _ in range(how.epochs):
        logits = through("actor")
        if own.masks is not None:
            logits = logits.masked_fill(~torch.tensor(own.masks[:, 0]), -1e8)
        choice = torch.distributions.Categorical(logits=logits)
        ratio = (choice.log_prob(actions) - then).exp()
        gain = torch.min(ratio * advantages, ratio.clamp(1 - how.clip, 1 + how.clip) * advantages).mean()
        error = ((through("critic")[:, 0] - targets) ** 2).mean()
        loss = -gain - how.entropy * choice.entropy().mean() + how.value_weight * error
        optimiser.zero_grad()
        loss.backward()
        if how.gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(weights.values(), how.gradient_norm)
        optimiser.step()
    return {name: weight.detach().numpy() for name, weight in weights.items()}


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("masks", [False, True], ids=["all-allowed", "masked"])
@pytest.mark.parametrize("norm", [None, 0.05], ids=["free", "clipped"])
def test_agents_together_learn_what_a_plain_implementation_learns_for_each(activation, masks, norm):
    how = replace(
        SMALL, activation=activation, minibatch=40, epochs=6, is_value_normalised=False, gradient_norm=norm, entropy=0.1
    )
    given_steps = rollout(masks=masks)
    many = learner(how=how)
    before = many.arrays()
    many.update(given_steps)
    after = many.arrays()
    for agent in range(3):
        wanted = plain_update(row_of(before, agent), part(given_steps, agent), how)
        for name, array in wanted.items():
            assert not np.allclose(array, before[name][agent], atol=1e-3) or "critic.2" in name, name
            np.testing.assert_allclose(after[name][agent], array, atol=1e-5, err_msg=name)


def test_agents_together_are_the_same_agents_one_by_one():
    given_steps = rollout()
    many = learner()
    for _ in range(2):
        many.update(given_steps)
    for agent in range(3):
        one = alone(agent)
        for _ in range(2):
            one.update(part(given_steps, agent))
        for name, array in one.arrays().items():
            np.testing.assert_allclose(many.arrays()[name][agent], array[0], atol=1e-5, err_msg=name)


def test_what_an_agent_does_does_not_depend_on_the_others():
    rng = np.random.default_rng(0)
    many, one = learner(), alone(1)
    for _ in range(100):
        seen = rng.standard_normal((3, INPUTS)).astype(np.float32)
        assert many.act(seen).actions[1] == one.act(seen[1:2]).actions[0]


# --- who learns, and from what ---------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    def trained(seed):
        own = learner(seed=seed)
        seen = own.act(rollout().observations[0])
        own.update(rollout())
        return own.arrays() | {"actions": seen.actions}

    assert same(trained(1), trained(1))
    assert not same(trained(1), trained(2))


def test_agents_begin_with_weights_of_their_own():
    first = learner().arrays()
    assert not np.array_equal(first["actor.0.weight"][0], first["actor.0.weight"][1])


@pytest.mark.parametrize("is_moved", [True, False], ids=["some", "last"])
def test_only_the_chosen_agents_learn(is_moved):
    chosen = np.array([True, False, True]) if is_moved else np.array([False, False, True])
    own, all_of_them = learner(), learner()
    before = own.arrays()
    losses = own.update(rollout(), only=chosen)
    all_of_them.update(rollout())
    for agent, is_chosen in enumerate(chosen):
        after = row_of(own.arrays(), agent)
        assert same(after, row_of(before, agent)) is not is_chosen
        if is_chosen:
            for name, array in row_of(all_of_them.arrays(), agent).items():
                np.testing.assert_allclose(after[name], array, atol=1e-5)
    assert np.isnan(losses.policy).tolist() == (~chosen).tolist()


def test_steps_that_do_not_count_change_nothing():
    present = np.ones((40, 3), bool)
    present[25:, 0] = False  # leaves
    present[:10, 1] = False  # joins
    present[:, 2] = False  # was never there
    whole = rollout(is_present=present)
    odd = {
        name: np.where(
            present.reshape(40, 3, *[1] * (getattr(whole, name).ndim - 2)), getattr(whole, name), 1e6
        ).astype(getattr(whole, name).dtype)
        for name in ("observations", "log_probs", "values", "rewards")
    }
    own, other = learner(), learner()
    before = own.arrays()
    own.update(whole)
    other.update(replace(whole, **odd))
    assert same(own.arrays(), other.arrays())
    assert same(row_of(own.arrays(), 2), row_of(before, 2))
    assert not same(row_of(own.arrays(), 0), row_of(before, 0))


def test_an_agent_with_fewer_steps_learns_as_it_would_alone():
    present = np.ones((40, 3), bool)
    present[25:, 0] = False  # two minibatches of 16 where the others have three
    whole = rollout(is_present=present)
    many, one = learner(), alone(0)
    many.update(whole)
    cut = part(whole, 0)
    one.update(cut)
    for name, array in one.arrays().items():
        np.testing.assert_allclose(many.arrays()[name][0], array[0], atol=1e-5, err_msg=name)


def test_shared_weights_see_the_steps_of_all_agents():
    own = learner(is_shared=True)
    assert own.arrays()["actor.0.weight"].shape == (1, INPUTS, 8)
    whole = rollout()
    without = []
    for agent in range(3):
        other = learner(is_shared=True)
        other.update(whole, only=np.arange(3) != agent)
        without.append(other.arrays())
    own.update(whole)
    assert not any(same(own.arrays(), arrays) for arrays in without)
    seen = np.repeat(whole.observations[0, :1], 3, axis=0)
    assert len(set(own.values(seen).tolist())) == 1


def test_shared_weights_learn_one_step_as_the_mean_of_all_agents():
    how = replace(SMALL, minibatch=40, epochs=4, is_value_normalised=False, gradient_norm=None)
    whole = rollout()
    own = learner(how=how, is_shared=True)
    begun = row_of(own.arrays(), 0)
    own.update(whole)
    advantages, returns = advantages_of(whole, how)
    joined = Rollout(  # the same steps as those of one agent; its advantages would be normalised together
        observations=whole.observations.reshape(-1, 1, INPUTS),
        actions=whole.actions.reshape(-1, 1),
        log_probs=whole.log_probs.reshape(-1, 1),
        values=np.zeros((120, 1), np.float32),
        rewards=normalised(advantages, whole.present).reshape(-1, 1),
        ends=np.ones(120, bool),
    )
    policy = plain_update(begun, joined, replace(how, gamma=0.0, value_weight=0.0))
    value = plain_update(begun, replace(joined, rewards=returns.reshape(-1, 1)), replace(how, gamma=0.0))
    for name, array in own.arrays().items():
        wanted = (policy if name.startswith("actor") else value)[name]
        np.testing.assert_allclose(array[0], wanted, atol=2e-5, err_msg=name)


def test_a_newcomer_takes_after_another_and_then_goes_its_own_way():
    own = learner()
    own.update(rollout())
    before = own.arrays()
    assert own.add(like=1) == 3
    assert same(row_of(own.arrays(), 3), row_of(before, 1))
    assert all(same(row_of(own.arrays(), agent), row_of(before, agent)) for agent in range(3))
    own.update(rollout(agents=4), only=np.array([False, False, False, True]))
    assert not same(row_of(own.arrays(), 3), row_of(before, 1))
    assert same(row_of(own.arrays(), 1), row_of(before, 1))


def test_a_newcomer_may_begin_afresh():
    own = learner()
    own.add()
    fresh = learner(4)
    assert same(own.arrays(), fresh.arrays())  # agent 3 has the same random numbers whenever it comes


def test_who_is_removed_takes_its_optimizer_with_it():
    whole = rollout()
    own, wanted = learner(), learner()
    own.update(whole)
    wanted.update(whole)
    own.remove(0)
    later = rollout(seed=1)
    rest = {
        name: value if value is None or name == "ends" else value[:, 1:]
        for name, value in ((name, getattr(later, name)) for name in later.__dataclass_fields__)
    }
    own.update(Rollout(**rest))
    wanted.update(later)
    for name, array in own.arrays().items():
        np.testing.assert_allclose(array, wanted.arrays()[name][1:], atol=1e-5, err_msg=name)


def test_agents_with_shared_weights_come_and_go_too():
    own = learner(is_shared=True)
    before = own.arrays()
    assert own.add(like=0) == 3
    own.remove(1)
    assert own.agents == 3
    assert own.act(rollout().observations[0]).actions.shape == (3,)
    assert same(own.arrays(), before)


# --- acting and checkpoints ------------------------------------------------------------------------------------------


def test_a_masked_action_is_never_chosen_and_the_others_as_often_as_they_are_likely():
    own = learner(1)
    seen = np.zeros((1, INPUTS), np.float32)
    allowed = np.array([[False, True, True, False]])
    taken = [own.act(seen, mask=allowed) for _ in range(4000)]
    actions = np.array([step.actions[0] for step in taken])
    assert set(actions.tolist()) == {1, 2}
    chance = float(np.exp(next(step.log_probs[0] for step in taken if step.actions[0] == 1)))
    assert (actions == 1).mean() == pytest.approx(chance, abs=4 * np.sqrt(0.25 / 4000))


def test_a_greedy_agent_takes_the_likeliest_action():
    own = learner()
    seen = rollout().observations[0]
    tried = [own.act(seen) for _ in range(300)]
    likeliest = [max(tried, key=lambda step: step.log_probs[agent]).actions[agent] for agent in range(3)]
    assert own.act(seen, is_greedy=True).actions.tolist() == likeliest


def test_log_probs_are_those_that_the_update_expects():
    """Then nothing is clipped and no distance is measured before the first gradient step."""
    how = replace(SMALL, epochs=1, minibatch=40)
    own = learner(how=how)
    whole = rollout()
    steps = [own.act(seen) for seen in whole.observations]
    own_steps = replace(
        whole,
        actions=np.array([step.actions for step in steps]),
        log_probs=np.array([step.log_probs for step in steps]),
    )
    losses = own.update(own_steps)
    assert np.abs(losses.kl).max() < 1e-6
    assert (losses.clip_share == 0).all()
    assert (losses.entropy <= np.log(ACTIONS) + 1e-6).all()


@pytest.mark.parametrize("is_shared", [False, True], ids=["separate", "shared"])
def test_arrays_and_load_are_exact(is_shared):
    own, other = learner(is_shared=is_shared), learner(seed=99, is_shared=is_shared)
    own.update(rollout())
    other.load(own.arrays())
    assert same(own.arrays(), other.arrays())
    seen = rollout(seed=3).observations[0]
    assert np.array_equal(own.values(seen), other.values(seen))
    assert np.array_equal(own.act(seen, is_greedy=True).actions, other.act(seen, is_greedy=True).actions)
    assert {array.dtype for array in own.arrays().values()} == {np.dtype(np.float32)}


def test_normalised_values_are_told_in_the_rewards_own_scale():
    how = replace(SMALL, learning_rate=1e-2, epochs=40, gamma=0.0)
    own = learner(1, how=how)
    whole = rollout(agents=1, steps=200)
    flat = replace(whole, rewards=1000 + 0 * whole.rewards)
    for _ in range(3):
        own.update(flat)
    assert own.values(whole.observations[0])[0] == pytest.approx(1000, rel=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("critic.1.bias"), "critic.1.bias is missing"),
        (lambda a: a.update({"actor.0.weight": a["actor.0.weight"][:2]}), r"actor.0.weight must be \[3, 3, 8\]"),
        (lambda a: a["actor.2.bias"].fill(np.nan), "actor.2.bias must be finite"),
    ],
    ids=["missing", "other-number", "not-finite"],
)
def test_arrays_that_do_not_fit_are_refused_and_nothing_changes(change, message):
    own = learner()
    before = own.arrays()
    wrong = own.arrays()
    change(wrong)
    with pytest.raises(ValueError, match=message):
        own.load(wrong)
    assert same(own.arrays(), before)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden": ()},
        {"activation": "elu"},
        {"gamma": 1.5},
        {"gae_lambda": -0.1},
        {"clip": 0},
        {"minibatch": 0},
        {"gradient_norm": 0},
        {"learning_rate": float("nan")},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        Settings(**wrong)


def test_the_paper_preset_takes_two_hundred_minibatches_of_five_per_epoch():
    own = Learner(1, INPUTS, ACTIONS, PAPER, seed=0)
    whole = rollout(agents=1, steps=PAPER.steps)
    batches = list(own._minibatches([np.arange(1000)], np.array([0])))
    assert [len(batch.at[0]) for batch in batches] == [5] * 200
    assert len(np.unique(np.concatenate([batch.at.numpy() for batch in batches]))) < 800  # with replacement
    assert np.isfinite(own.update(whole).policy).all()


def test_orthogonal_weights_keep_lengths():
    shape = Shape(6, (64, 64), 5)
    row = shape.first(np.random.default_rng(0), "orthogonal")
    weight = {p.name: row[p.start : p.end].reshape(p.shape) for p in shape.parts}
    np.testing.assert_allclose(weight["critic.1.weight"] @ weight["critic.1.weight"].T, 2 * np.eye(64), atol=1e-5)
    np.testing.assert_allclose(weight["actor.2.weight"].T @ weight["actor.2.weight"], 1e-4 * np.eye(5), atol=1e-7)
    assert not weight["actor.0.bias"].any()


# --- what is learnt --------------------------------------------------------------------------------------------------


def play(own, world, *, updates, steps):
    """Train in a world: `world(state, actions)` gives the next observations and the rewards of the step."""
    seen = world.begin()
    for _ in range(updates):
        kept = []
        for _ in range(steps):
            step = own.act(seen)
            after, rewards, is_over = world.step(step.actions)
            kept.append((seen, *step, rewards, is_over, own.values(after)))
            seen = world.begin() if is_over else after
        names = ("observations", "actions", "log_probs", "values", "rewards", "ends", "next_values")
        own.update(
            Rollout(**{name: np.array(column) for name, column in zip(names, zip(*kept, strict=True), strict=True)})
        )
    return own


class Bandit:
    """Two arms; agent 0 is paid for the first, agent 1 for the second."""

    def begin(self):
        return np.ones((2, 1), np.float32)

    def step(self, actions):
        return self.begin(), (actions == [0, 1]).astype(np.float32), True


class Chain:
    """Five places; going right pays 1 only at the last one, going left a little at once."""

    def begin(self):
        self.place = np.zeros(2, int)
        self.left = 10
        return self.seen()

    def seen(self):
        return np.eye(5, dtype=np.float32)[self.place]

    def step(self, actions):
        self.left -= 1
        self.place = np.clip(self.place + np.where(actions == 1, 1, -1), 0, 4)
        rewards = (self.place == 4) + 0.1 * (actions == 0)
        return self.seen(), rewards.astype(np.float32), self.left == 0


@pytest.mark.parametrize("preset", [PAPER, MODERN], ids=["paper", "modern"])
def test_a_bandit_is_learnt(preset):
    how = replace(preset, hidden=(8, 8), learning_rate=1e-2, steps=50, minibatch=min(25, preset.minibatch))
    own = play(Learner(2, 1, 2, how, seed=0), Bandit(), updates=8, steps=how.steps)
    assert own.act(Bandit().begin(), is_greedy=True).actions.tolist() == [0, 1]


@pytest.mark.parametrize("is_shared", [False, True], ids=["separate", "shared"])
def test_a_chain_that_pays_at_its_end_is_learnt(is_shared):
    how = replace(MODERN, hidden=(16, 16), learning_rate=1e-2, minibatch=50, gamma=0.95)
    own = play(Learner(2, 5, 2, how, is_shared=is_shared, seed=0), Chain(), updates=15, steps=200)
    for place in range(5):
        seen = np.repeat(np.eye(5, dtype=np.float32)[place : place + 1], 2, axis=0)
        assert own.act(seen, is_greedy=True).actions.tolist() == [1, 1], place
