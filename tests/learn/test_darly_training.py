"""Deep Q learning on the cluster of Darly: what comes out, that it repeats, and that it learns where there is time."""

from dataclasses import replace

import numpy as np
import pytest

from fairlead.learn.darly.schedules import Phase
from fairlead.learn.darly.scheduling import Scheduling, deployment
from fairlead.learn.darly.training import PUBLISHED, train
from fairlead.policy.darly.network import Layer, forward

SMALL = replace(PUBLISHED, hidden=(16, 8), learning_starts=5)


def scheduling(**pressures):
    phase = Phase(steps=1000, slo_s=30.0, pressures=pressures)
    return Scheduling(deployment(), "fullmap", lambda rng: (phase,))


def test_the_published_numbers_are_the_defaults():
    assert (PUBLISHED.learning_rate, PUBLISHED.gamma, PUBLISHED.batch, PUBLISHED.replay) == (0.0025, 0.99, 32, 10**6)
    assert (PUBLISHED.target_every, PUBLISHED.exploration, PUBLISHED.last_epsilon) == (60, 0.2, 0.01)
    assert (PUBLISHED.hidden, PUBLISHED.learning_starts) == ((256, 128, 64), 15)


def test_one_outcome_for_each_step_and_a_network_of_the_published_size():
    found = train(scheduling(), 20)
    assert len(found.outcomes) == 20
    assert [weight.shape for weight, _ in found.layers] == [(35, 256), (256, 128), (128, 64), (64, 15)]
    assert sum(weight.size + bias.size for weight, bias in found.layers) == 51_343


def test_training_repeats_with_its_seed():
    one, again, other = (train(scheduling(), 40, settings=SMALL, seed=seed) for seed in (1, 1, 2))
    for (weight, bias), (weight2, bias2) in zip(one.layers, again.layers, strict=True):
        assert np.array_equal(weight, weight2)
        assert np.array_equal(bias, bias2)
    assert [outcome.act for outcome in one.outcomes] == [outcome.act for outcome in again.outcomes]
    assert [outcome.act for outcome in one.outcomes] != [outcome.act for outcome in other.outcomes]


def test_progress_is_told_each_step_and_can_end_it():
    told = []
    found = train(scheduling(), 40, settings=SMALL, progress=lambda step: told.append(step) or step == 12)
    assert told == list(range(1, 13))
    assert len(found.outcomes) == 12


def test_what_was_learnt_can_be_served_without_torch():
    found = train(scheduling(), 20, settings=SMALL)
    world = scheduling()
    values = forward([Layer(weight, bias) for weight, bias in found.layers], world.begin(0))
    assert values.shape == (15,)
    assert np.isfinite(values).all()


@pytest.mark.slow
def test_an_agent_learns_to_leave_a_node_under_pressure():
    # With 30 s to keep, w01 at 50 % takes 34 s, w03 and w04 are slower: who stays misses all, who roams about half.
    outcomes = train(scheduling(w01=0.5, w03=0.75), 600, seed=0).outcomes
    first, last = (sum(outcome.is_met for outcome in part) for part in (outcomes[:100], outcomes[-100:]))
    assert first < 75
    assert last > 90
