"""What runs of some options tell of others: a factor, a fixed time, and what is not known."""

from dataclasses import replace

import numpy as np
import pytest

from fairlead.engine import simulate
from fairlead.policy.fairlead.carried import carried, seen
from fairlead.profile import Host
from fairlead.profile.laws import Row, Table
from fairlead.testing import cluster, declared, scenario

SIZES = np.array([0.001, 0.002, 0.004, 0.008])  # declared seconds of batches of 1, 2, 4 and 8
SOME = np.array([0, 1, 2])


def told(ratios, runs=50.0, known=SOME):
    """Hopeful and cautious times by what was seen of some sizes, in milliseconds."""
    hopeful, cautious = carried(SIZES, known, np.array(ratios), np.full(len(ratios), runs))
    return hopeful * SIZES * 1e3, cautious * SIZES * 1e3


def test_runs_that_always_take_2_ms_longer_say_the_same_of_larger_batches():
    """1, 2 and 4 ms took 3, 4 and 6 ms. By the mean factor, 2.17, a run of 8 ms would take 17."""
    _, cautious = told([3.0, 2.0, 1.5])
    assert cautious[3] == pytest.approx(10.0, rel=0.02)


def test_runs_that_take_one_and_a_half_times_as_long_say_the_same_of_larger_batches():
    _, cautious = told([1.5, 1.5, 1.5])
    assert cautious[3] == pytest.approx(12.0, rel=0.02)


def test_runs_that_take_2_ms_and_one_and_a_half_times_as_long_say_both_of_larger_batches():
    """3.5, 5 and 8 ms were seen."""
    _, cautious = told([3.5, 2.5, 2.0])
    assert cautious[3] == pytest.approx(14.0, rel=0.02)


def test_one_size_does_not_tell_a_fixed_time_from_a_factor():
    """Five runs of 1 ms took 3: half of what they say is believed. A run of 4 ms takes 6 ms by a fixed time, or 12.

    The cautious time is half way from 4 to 12 ms; the hopeful one is a quarter of the way from 4 to 6 ms.
    """
    hopeful, cautious = told([3.0], runs=5.0, known=np.array([0]))
    assert (hopeful[2], cautious[2]) == pytest.approx((4.5, 8.0), rel=0.01)


def test_smaller_sizes_are_taken_to_be_slower_by_a_factor():
    """Five runs of 4 ms took 6. One of 1 ms takes 1.5 ms or 3; half way from 1 to 1.5 it is, and a half of that."""
    hopeful, cautious = told([1.5], runs=5.0, known=np.array([2]))
    assert (hopeful[0], cautious[0]) == pytest.approx((1.125, 1.25), rel=0.01)


def test_no_size_gains_more_than_the_best_that_was_seen():
    """Five runs of 4 ms took 2: a fixed time of -2 ms would leave nothing of 1 ms. Half way from 1 to 0.5."""
    hopeful, _ = told([0.5], runs=5.0, known=np.array([2]))
    assert hopeful[0] == pytest.approx(0.75, rel=0.02)


def test_an_excess_that_may_be_chance_is_none():
    """Five runs that took 5 % longer: with a spread of 20 % their mean is known to 9 %. Of 150, to 1.6 %."""
    few, many = (
        told([1.05] * len(known), runs=runs, known=known)[1][3] for known, runs in ((SOME[:1], 5.0), (SOME, 50.0))
    )
    assert few == 8.0
    assert many > 8.3


def test_runs_that_take_the_declared_time_correct_nothing():
    hopeful, cautious = told([1.0, 1.0, 1.0])
    assert hopeful.tolist() == cautious.tolist() == (SIZES * 1e3).tolist()


@pytest.mark.parametrize("runs", [1, 10, 90])
def test_what_was_seen_is_recovered_from_a_belief_that_has_ten_declared_runs_in_it(runs):
    believed = (10 * 1.0 + runs * 3.0) / (10 + runs)
    assert seen(np.array([believed]), np.array([float(runs)]))[0] == pytest.approx(3.0)


def test_a_batch_of_four_is_tried_though_it_is_declared_with_more_than_two_batches_of_two():
    """Each run takes 2 ms longer: 3, 3.9 and 6.1 ms, per member 3, 1.95 and 1.53.

    By the factor of batches of one and two, about 2.4, it would take 2.5 ms per member: all batches would be of two.
    """
    law = Table(tuple(Row(batch=n, vcpus=1, seconds=s) for n, s in ((1, 0.001), (2, 0.0019), (4, 0.0041))))
    arrivals = [0.01 * n for n in range(600)]
    made = scenario(
        {"f": declared(law, cold_start_s=0.1, warm=1)},
        arrivals=arrivals,
        slo_s=0.1,
        on=cluster(1, vcpus=1),
        duration_s=arrivals[-1],
    )
    recording = simulate(replace(made, host=Host(cores=9, run_s={"f": 0.002})), "fairlead", seed=0)
    late = recording.invocations.sort("start").tail(200)
    assert late["batch_size"].mean() > 3
