"""The reference environment: its table by formula, what is forbidden, and the best possible return."""

from itertools import product

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.learn.environments.reference import (
    DOWN,
    IN,
    NOTHING,
    OUT,
    STEPS,
    UP,
    ReferenceEnv,
    ReferenceEnvs,
    latency_s,
    optimum,
    slo_preservation,
    utilisation,
    worth,
)

STABLE = [(c, rate) for c in range(1, 21) for rate in range(9) if rate < 1.5 * min(c, 8)]
SATURATED = [(2, 3), (4, 6)]
OVERLOADED = [(c, rate) for c in range(1, 21) for rate in range(9) if rate > 1.5 * min(c, 8)]


def begun(*, rate_rps=3, start=2, steps=STEPS):
    env = ReferenceEnv(steps=steps)
    seen, _ = env.reset(seed=0, options={"rate_rps": rate_rps, "start": start})
    return env, seen


def rewards_of(env, *actions):
    return [round(env.step(action)[1], 6) for action in actions]


def test_the_rows_are_as_many_as_in_the_table():
    assert (len(STABLE), len(SATURATED), len(OVERLOADED)) == (159, 2, 19)


def test_stable_rows_are_queues_with_a_share_of_eight_cores():
    for containers, rate in STABLE:
        service_rps = 1.5 * min(1, 8 / containers)
        assert latency_s(containers, rate) == pytest.approx(1 / (service_rps - rate / containers), rel=1e-12)
        assert utilisation(containers, rate) == pytest.approx(rate / (1.5 * containers), rel=1e-12)
        assert slo_preservation(containers, rate) == min(1, 9 / latency_s(containers, rate))


def test_saturated_rows_keep_the_slo_and_overloaded_ones_do_not():
    for containers, rate in SATURATED:
        assert (latency_s(containers, rate), slo_preservation(containers, rate)) == (8.1, 1)
        assert worth(containers, rate) == 1.0
    for containers, rate in OVERLOADED:
        assert slo_preservation(containers, rate) < 1e-3
        assert utilisation(containers, rate) == 1


@pytest.mark.parametrize(
    ("containers", "rate", "latency", "reward"),
    [(1, 1, 2.0, 0.9), (16, 4, 2.0, 0.75), (5, 7, 10.0, 0.91), (6, 7, 3.0, 14 / 60 + 0.7), (3, 0, 2 / 3, 0.7)],
    ids=["half-loaded", "cores-shared", "slo-missed", "slo-kept", "idle"],
)
def test_some_rows_by_hand(containers, rate, latency, reward):
    assert latency_s(containers, rate) == pytest.approx(latency)
    assert worth(containers, rate) == pytest.approx(reward)


def test_requests_without_containers_are_punished():
    assert [worth(0, rate) for rate in (0, 1, 8)] == [0.7, -1, -1]


def test_the_fewest_stable_containers_are_best_but_for_seven_requests_per_second():
    """There five containers would do, but take 10 s where the SLO is 9 s."""
    for rate in range(1, 9):
        fewest = min(c for c in range(1, 21) if rate <= 1.5 * min(c, 8))
        best = max(range(21), key=lambda c: worth(c, rate))
        assert best == (6 if rate == 7 else fewest), rate


def test_what_is_seen_is_normalised():
    _, seen = begun(rate_rps=3, start=4)
    np.testing.assert_allclose(seen, [3 / 6, 1, 4 * 1024 / 20480, 0, 4 / 20, 3 / 10], rtol=1e-6)


def test_containers_come_and_go_one_at_a_time():
    env, _ = begun(rate_rps=3, start=2)
    assert env.step(OUT)[0][4] == pytest.approx(3 / 20)
    env.step(NOTHING)
    assert env.step(IN)[0][4] == pytest.approx(2 / 20)


def test_vertical_moves_change_the_shares_and_no_reward():
    env, _ = begun(rate_rps=3, start=2)
    seen, reward, *_ = env.step(UP)
    assert seen[2] == pytest.approx(2 * 1152 / 20480)
    assert reward == 1.0
    assert rewards_of(env, DOWN, DOWN, UP) == [1.0, 1.0, 1.0]


def test_a_move_back_is_done_and_punished():
    env, _ = begun(rate_rps=3, start=3)
    assert rewards_of(env, OUT, IN, OUT) == [0.85, -1, -1]  # 4 containers: 0.3 x 3/6 + 0.7 x 1
    env, _ = begun(rate_rps=3, start=3)
    assert rewards_of(env, OUT, NOTHING, IN, UP, OUT) == [0.85, 0.85, 0.9, 0.9, 0.85]


@pytest.mark.parametrize(
    ("start", "actions"),
    [(0, [IN]), (0, [UP]), (0, [DOWN]), (20, [OUT]), (2, [UP] * 9), (2, [DOWN] * 8)],
    ids=["in-at-none", "up-at-none", "down-at-none", "out-at-most", "above-2048", "below-128"],
)
def test_what_cannot_be_done_is_punished_and_changes_nothing(start, actions):
    env, seen = begun(rate_rps=3, start=start)
    for action in actions[:-1]:
        seen, reward, *_ = env.step(action)
        assert reward > 0
    after, reward, *_ = env.step(actions[-1])
    assert reward == -1
    assert np.array_equal(after, seen)


def test_an_episode_is_cut_after_its_steps():
    env, _ = begun(steps=3)
    assert [env.step(NOTHING)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


def test_it_is_a_gymnasium_environment():
    check_env(ReferenceEnv(), skip_render_check=True)


def test_rates_and_starts_are_drawn_from_what_they_may_be():
    env = ReferenceEnv()
    seen = {tuple(env.reset(seed=seed)[0][4:].round(3).tolist()) for seed in range(300)}
    assert {round(c * 20) for c, _ in seen} == {0, 8}
    assert {round(rate * 10) for _, rate in seen} == set(range(1, 9))
    many = ReferenceEnvs(300, seed=1).reset()
    assert set((many[:, 4] * 20).round().tolist()) == {0, 8}
    assert set((many[:, 5] * 10).round().tolist()) == set(range(1, 9))


@given(st.integers(0, 8), st.integers(0, 20), st.lists(st.integers(0, 4), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_many_worlds_are_single_ones(rate, start, actions):
    env, seen = begun(rate_rps=rate, start=start)
    many = ReferenceEnvs(2)
    assert np.array_equal(many.reset(rates_rps=np.array([rate, 1]), starts=np.array([start, 0]))[0], seen)
    for action in actions:
        seen, reward, *_ = env.step(action)
        all_seen, rewards = many.step(np.array([action, NOTHING]))
        assert np.array_equal(all_seen[0], seen)
        assert rewards[0] == reward


def test_the_optimum_by_hand():
    assert optimum(3, 2) == pytest.approx(200)  # stay: 1 per step
    assert optimum(3, 0) == pytest.approx(0.3 + 199)  # one container is overloaded: SLO preservation 0, utilisation 1
    # From eight one goes in until two are left: 0.3 x 3 / (1.5 c) + 0.7 with 7, 6, 5, 4 and 3 of them, then 1.
    assert optimum(3, 8) == pytest.approx(sum(0.6 / c + 0.7 for c in (7, 6, 5, 4, 3)) + 195, abs=1e-6)


def return_of(env, rate, start, actions):
    env.reset(options={"rate_rps": rate, "start": start})
    return sum(env.step(action)[1] for action in actions)


@pytest.mark.parametrize(("rate", "start"), [(1, 0), (7, 4), (3, 3), (8, 20)])
def test_the_optimum_is_the_best_of_all_sequences(rate, start):
    env = ReferenceEnv()
    best = max(return_of(env, rate, start, actions) for actions in product(range(5), repeat=4))
    assert optimum(rate, start, steps=4) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("wrong", [{"starts": ()}, {"starts": (21,)}, {"steps": 0}], ids=str)
def test_impossible_episodes_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        ReferenceEnv(**wrong)
