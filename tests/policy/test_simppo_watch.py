"""When an agent is retrained and when that ends, by hand-made rewards; and what is kept to learn from."""

import numpy as np
import pytest
from simppo_worlds import agents

from fairlead.policy.simppo.retraining import Explorers, Period, Retraining
from fairlead.policy.simppo.transitions import Transitions
from fairlead.policy.simppo.watch import Rule, Verdict, Watch

ONE = np.ones(1, np.bool_)


def verdicts(rewards, *, rule=None, reference=0.8, swing=0.01, length=1, learns=True):
    """What is said after each of these rewards of one agent, whose networks are exchanged all the time."""
    watch = Watch(rule or Rule(window=4), np.array([reference]), np.array([swing]), length)
    found = []
    for reward in rewards:
        found.append(next((v for _, v in watch.add(np.array([reward]), ONE)), None))
        if learns:
            watch.learnt(ONE)
    return found


class TestTrigger:
    def test_a_mean_of_nine_tenths_is_still_good_and_less_is_not(self):
        assert verdicts([0.73] * 4) == [None] * 4  # 0.9 x 0.8 = 0.72
        assert verdicts([0.71] * 4) == [None, None, None, Verdict.RETRAIN]

    def test_nothing_is_said_before_the_window_is_full(self):
        assert verdicts([-1.0] * 3) == [None] * 3

    def test_a_reward_that_swings_sets_it_off_as_well(self):
        # Mean 0.8; the deviation is 0.03 and then 0.05, where 0.05 x 0.8 = 0.04 is allowed.
        assert verdicts([0.77, 0.83] * 2) == [None] * 4
        assert verdicts([0.75, 0.85] * 2)[-1] is Verdict.RETRAIN

    def test_who_swung_in_training_may_swing(self):
        assert verdicts([0.75, 0.85] * 2, swing=0.02) == [None] * 4  # 3 x 0.02

    def test_a_negative_reference_is_not_always_too_low(self):
        assert verdicts([-0.2] * 4, reference=-0.2) == [None] * 4
        assert verdicts([-0.3] * 4, reference=-0.2)[-1] is Verdict.RETRAIN

    def test_published_rule_asks_for_a_mean_of_0_6_and_a_deviation_below_0_05(self):
        rule = Rule(trigger="absolute", window=4)
        assert verdicts([0.6] * 4, rule=rule, reference=0.1) == [None] * 4
        assert verdicts([0.59] * 4, rule=rule, reference=0.1)[-1] is Verdict.RETRAIN
        assert verdicts([0.76, 0.84] * 2, rule=rule)[-1] is None  # 0.04
        assert verdicts([0.74, 0.86] * 2, rule=rule)[-1] is Verdict.RETRAIN  # 0.06

    def test_an_episode_is_the_mean_of_its_periods(self):
        # Each two periods make 0.71.
        found = verdicts([0.6, 0.82] * 4, length=2)
        assert found == [None] * 7 + [Verdict.RETRAIN]

    def test_periods_in_which_the_rule_decided_do_not_count(self):
        watch = Watch(Rule(window=2), np.array([0.8]), np.array([0.0]), 1)
        for reward, counts in [(0.8, True), (-1.0, False), (0.8, True), (-1.0, False)]:
            assert watch.add(np.array([reward]), np.array([counts])) == []


class TestStop:
    FALLEN = (0.5,) * 4

    def test_it_ends_when_the_reward_is_back(self):
        found = verdicts([*self.FALLEN, 0.5, 0.75, 0.78, 0.78, 0.8, 0.8])
        # 0.75, 0.78, 0.78, 0.8: mean 0.7775, deviation 0.018.
        assert found[4:] == [None, None, None, None, Verdict.RECOVERED, None]

    def test_it_ends_when_the_reward_no_longer_changes_and_that_is_the_new_reference(self):
        found = verdicts([*self.FALLEN, *[0.6] * 8, *[0.6] * 4, *[0.5] * 4])
        assert found[4:12] == [None] * 7 + [Verdict.LEVEL]
        assert found[12:16] == [None] * 4
        assert Verdict.RETRAIN in found[16:]  # 0.9 x 0.6 = 0.54

    def test_an_agent_that_has_not_learnt_yet_is_not_given_up(self):
        assert verdicts([*self.FALLEN, *[0.6] * 20], learns=False)[4:] == [None] * 20

    def test_it_fails_when_the_reward_falls_by_more_than_a_fifth(self):
        # From 0.5 to below 0.3 over the first half of the window: 0.29 on average.
        assert verdicts([*self.FALLEN, 0.27, 0.31])[-2:] == [None, Verdict.WORSE]
        assert verdicts([*self.FALLEN, 0.31, 0.31])[-2:] == [None, None]

    def test_what_still_swings_is_not_level(self):
        assert Verdict.LEVEL not in verdicts([*self.FALLEN, *[0.5, 0.7] * 8])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trigger": "never"}, "trigger must be one of relative, absolute; got 'never'"),
        ({"window": 1}, "window must be at least 2; got 1"),
        ({"drop": 0}, "drop must be positive; got 0"),
    ],
)
def test_a_rule_out_of_range_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Rule(**changes)


class TestTransitions:
    def step(self, kept, number, counts=(True, True)):
        row = np.full(2, number, np.float32)
        kept.begin(np.full((2, 3), number), np.ones((2, 4), bool), row.astype(int), -row, row, np.array(counts))

    def test_a_step_is_what_was_seen_and_the_reward_that_followed(self):
        kept = Transitions(2, agents=2, inputs=3, actions=4)
        self.step(kept, 1)
        kept.end(np.array([0.1, 0.2]), np.array([7.0, 8.0]), np.array([True, True]))
        self.step(kept, 2)
        kept.end(np.array([0.3, 0.4]), np.array([9.0, 9.5]), np.array([True, False]))
        found = kept.arrays()
        assert kept.is_full
        assert found["actions"].tolist() == [[1, 1], [2, 2]]
        assert found["rewards"][:, 0].tolist() == pytest.approx([0.1, 0.3])
        assert found["next_values"][0].tolist() == [7, 8]
        assert found["is_present"].tolist() == [[True, True], [True, False]]  # the second of the other was lost

    def test_a_reward_without_a_step_before_it_is_passed_over(self):
        kept = Transitions(2, agents=2, inputs=3, actions=4)
        kept.end(np.ones(2), np.ones(2), np.ones(2, bool))
        assert len(kept.arrays()["actions"]) == 0


# --- who retrains, explores, and falls back --------------------------------------------------------------------------

NUMBERS = np.arange(4)


class Idle:
    """A trainer that never ends."""

    pid, is_free, tasks = None, True, 0

    def poll(self):
        return None

    def start(self, task, weights, steps, only):
        self.pid, self.is_free, self.tasks, self.steps, self.only = 1, False, self.tasks + 1, steps, only


def made(**changes):
    trained = agents()
    explorers = Explorers(trained, NUMBERS, np.random.default_rng(0), draws=False)
    rule = changes.pop("rule", Rule(window=2))
    own = Retraining(trained, NUMBERS, explorers, rule=rule, episode_periods=1, steps=8, seed=0)
    own.trainer = Idle()
    return own, explorers


def passes(own, explorers, rewards, is_agent=(True,) * 4):
    """One control period."""
    seen, allowed = np.ones((4, 11), np.float32), np.ones((4, 7), np.bool_)
    answers = explorers.choose(seen, allowed)
    own.observe(Period(np.array(rewards, float), seen, allowed, answers, np.array(is_agent), np.ones(4, np.bool_)))


def test_only_who_has_fallen_explores_and_its_steps_alone_are_given_to_the_trainer():
    own, explorers = made()
    for _ in range(3):  # the first reward is of no action
        passes(own, explorers, (0.8, 0.1, 0.8, 0.8))
    assert explorers.is_exploring.tolist() == [False, True, False, False]
    for _ in range(9):
        passes(own, explorers, (0.8, 0.1 + 0.3 * own.trainer.tasks, 0.8, 0.8))
    assert own.trainer.tasks == 1
    assert own.trainer.only.tolist() == [False, True, False, False]
    assert own.trainer.steps["is_present"].sum(axis=0).tolist() == [0, 8, 0, 0]
    assert not explorers.is_exploring.any()  # while the program learns, agents serve as they are


@pytest.mark.parametrize(("of_rule", "is_demoted"), [(0.7, True), (0.5, False)], ids=["better", "worse"])
def test_who_ends_level_is_held_against_the_rule_which_is_tried(of_rule, is_demoted):
    own, explorers = made()
    while not own.is_demoted.any():  # level at 0.6, in place of 0.8
        passes(own, explorers, (0.6, 0.8, 0.8, 0.8))
        own.watch.learnt(np.ones(4, np.bool_))
    assert own.is_demoted.tolist() == [True, False, False, False]
    for _ in range(3):  # a window of two periods of the rule
        passes(own, explorers, (of_rule, 0.8, 0.8, 0.8), is_agent=~own.is_demoted)
    assert own.is_demoted.tolist() == [is_demoted, False, False, False]


def test_who_gets_worse_falls_back_and_has_its_first_weights_again():
    own, explorers = made()
    for _ in range(3):
        passes(own, explorers, (0.5, 0.8, 0.8, 0.8))
    before = {name: array.copy() for name, array in explorers.arrays.items()}
    explorers.take({name: array + 1 for name, array in before.items()}, np.array([True, True, False, False]))
    for reward in (0.5, 0.2, 0.2, 0.2, 0.2):
        passes(own, explorers, (reward, 0.8, 0.8, 0.8))
    assert own.is_demoted.tolist() == [True, False, False, False]
    weight = explorers.arrays["actor.0.weight"]
    assert (weight[0] == before["actor.0.weight"][0]).all()
    assert (weight[1] == before["actor.0.weight"][1] + 1).all()


def test_explorers_draw_by_their_chances_and_know_what_they_were():
    trained = agents()
    trained.arrays["actor.2.weight"][:] = 0
    explorers = Explorers(trained, NUMBERS, np.random.default_rng(0), draws=False)
    explorers.is_exploring = np.array([True, True, False, False])
    seen, allowed = np.ones((4, 11), np.float32), np.ones((4, 7), np.bool_)
    drawn = np.array([explorers.choose(seen, allowed) for _ in range(700)])
    assert np.abs(np.bincount(drawn[:, 0], minlength=7) - 100).max() < 40  # each with a chance of 1/7
    assert set(drawn[:, 2]) == {0}
    assert np.exp(explorers.log_probs) == pytest.approx(np.full(4, 1 / 7), rel=1e-5)
