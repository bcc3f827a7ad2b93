"""The four schedulers in front of a world: how many actions, and where a rule sends what moves."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fairlead.learn.darly.schedules import Phase, published
from fairlead.learn.darly.scheduling import Scheduling, deployment
from fairlead.learn.environments.migration import MigrationEnv
from fairlead.policy.darly.actions import Act


def scheduling(scheduler, *phases, seed=0, **settings):
    """Begun, under one phase without pressure unless others are given."""
    schedule = phases or (Phase(steps=20, slo_s=35.0, pressures={}),)
    made = Scheduling(deployment(), scheduler, lambda rng: schedule, **settings)
    made.begin(seed)
    return made


def under(slo_s=35.0, **pressures):
    return Phase(steps=20, slo_s=slo_s, pressures=pressures)


def moved(made, group):
    """Where a group is after it was told to move."""
    made.step(made.acts.index(Act("move", group)))
    return made.world.places[group]


@pytest.mark.parametrize(("scheduler", "actions"), [("fullmap", 15), ("custom", 12), ("kubernetes", 4), ("oracle", 4)])
def test_each_has_its_actions_and_all_see_thirty_five_numbers(scheduler, actions):
    made = scheduling(scheduler)
    assert len(made.acts) == actions
    assert made.size == 35
    assert made.look().shape == (35,)
    assert made.acts[-1] == Act("keep")


def test_everything_begins_on_w01():
    assert set(scheduling("fullmap").world.places.values()) == {"w01"}


def test_fullmap_goes_where_the_agent_says():
    made = scheduling("fullmap")
    made.step(made.acts.index(Act("move", "detector", "w03")))
    assert made.world.places == {"framer": "w01", "detector": "w03", "models": "w01"}


def test_custom_sends_the_models_to_the_least_busy_node():
    made = scheduling("custom", under(w01=0.5, w02=0.25, w04=0.75))
    assert moved(made, "models") == "w03"


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (under(), "w01"),  # within the objective: the quickest
        (under(30.0, w01=0.5), "w02"),  # late: the quickest at rest
        (under(30.0, w01=0.5, w02=0.25), "w03"),
        (under(30.0, w01=0.5, w02=0.25, w03=0.75), "w04"),  # none is
    ],
)
def test_the_oracle_goes_by_what_is_known_of_the_nodes(phase, expected):
    made = scheduling("oracle", phase)
    keep = len(made.acts) - 1
    made.step(keep)
    assert moved(made, "framer") == expected


def test_before_the_first_request_the_oracle_does_not_know_that_it_is_in_time():
    assert moved(scheduling("oracle", under(w01=0.5)), "framer") == "w02"


@pytest.mark.parametrize(
    ("phase", "expected"),
    [(under(), "w01"), (under(w01=0.25), "w01"), (under(w01=0.5), "w02"), (under(w01=0.5, w02=0.5, w03=0.5), "w01")],
)
def test_planned_destinations_are_the_quickest_under_the_pressure_that_is_seen(phase, expected):
    # By the logs, 25 % slows nobody: 15.4 s on w01 against 18.1, 25.7 and 39.6; 50 % makes them 24.6, 28.9 and 41.2.
    assert moved(scheduling("oracle", phase, is_planned=True), "framer") == expected


def test_kubernetes_places_by_room_from_the_beginning():
    for seed in range(3):
        made = scheduling("kubernetes", under(w03=0.75), seed=seed)
        assert made.world.places["framer"] == "w03"  # most room, whatever its speed and pressure


def test_kubernetes_draws_among_equals_and_repeats_with_its_seed():
    def places(seed):
        made = scheduling("kubernetes", seed=seed)
        made.step(1)
        return made.world.places

    assert places(3) == places(3)


def test_as_published_counters_of_different_nodes_are_added_up():
    right, wrong = scheduling("fullmap"), scheduling("fullmap", is_as_published=True)
    assert np.count_nonzero(wrong.look()[:28]) == 10
    assert np.count_nonzero(right.look()[:28]) == 28
    assert wrong.look()[33] == 35.0
    assert right.look()[33] == pytest.approx(1.0)


def test_an_episode_repeats_with_its_seed_and_outcomes_are_kept():
    made = scheduling("fullmap")
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 15, 5).tolist()
    runs = []
    for _ in range(2):
        first = made.begin(7)
        runs.append([first, *((made.step(a).reward, made.look().tolist()) for a in actions)])
    assert np.array_equal(runs[0][0], runs[1][0])
    assert runs[0][1:] == runs[1][1:]
    assert len(made.outcomes) == 10


class TestEnvironment:
    def env(self, steps=3, **settings):
        return MigrationEnv(Scheduling(deployment(), "fullmap", lambda rng: published(steps), **settings))

    @pytest.mark.parametrize("is_as_published", [False, True])
    def test_gymnasium_finds_nothing_wrong(self, is_as_published):
        check_env(self.env(is_as_published=is_as_published), skip_render_check=True)

    def test_no_episode_ends_but_it_is_cut_off_with_its_schedule(self):
        env = self.env(steps=1)
        env.reset(seed=0)
        ends = [env.step(np.int64(14))[2:4] for _ in range(5)]
        assert ends == [(False, False)] * 4 + [(False, True)]

    def test_a_refused_action_says_so_and_moves_nothing(self):
        env = self.env()
        before, _ = env.reset(seed=0)
        seen, reward, _, _, told = env.step(np.int64(13))
        assert reward == -2.0
        assert not told["is_met"]
        assert np.isnan(told["latency_s"])
        assert np.array_equal(before[28:], seen[28:])

    def test_what_is_seen_stays_in_its_box(self):
        env = self.env(steps=4)
        env.reset(seed=0)
        rng = np.random.default_rng(0)
        for _ in range(20):
            seen, *_ = env.step(np.int64(rng.integers(0, 15)))
            assert env.observation_space.contains(seen)

    def test_episodes_differ_unless_their_seed_is_given(self):
        env = self.env()
        one, _ = env.reset(seed=5)
        again, _ = env.reset(seed=5)
        other, _ = env.reset()
        assert np.array_equal(one, again)
        assert not np.array_equal(one, other)
        assert isinstance(env.action_space, gym.spaces.Discrete)
        assert env.action_space.n == 15
