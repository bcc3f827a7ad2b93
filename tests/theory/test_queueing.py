"""The simulator against queueing theory: M/M/c, M/D/1 and Erlang's loss system.

Each scenario file is a textbook queue: Poisson arrivals, one node with a vCPU per server, service of one second on
average, cold starts that take no time. The closed form must lie in a 99 % confidence interval around the measured mean,
by batch means: the run after the warm-up (1/21 of it) is cut into 20 batches, whose means are nearly independent if a
batch is much longer than the queue's memory. That memory is the relaxation time, 1 / (sqrt(c) - sqrt(c * load))^2
service times for M/M/c: 12, 90 and 1,560 s for M/M/1 at loads 0.5, 0.8 and 0.95, and c times less with c servers. A
batch here is at least 25 relaxation times long, which is checked; the correlation of neighbours is then below one part
in 25. A wide interval contains anything, so its width is checked as well.

A 99 % interval misses once in a hundred. There are 18 of them, all with seed 0.
"""

from math import ceil
from pathlib import Path

import pytest
from closed_forms import batch_means, erlang_b, erlang_c, mg1_wait_s, mmc_wait_s, relaxation_s

from fairlead.engine import simulate
from fairlead.workload import load_scenario

SCENARIOS = Path(__file__).parent / "scenarios"
BATCHES = 20


def measured(name, value):
    """The interval around the mean of `value(recording)`, one number per request, and the length of a batch."""
    scenario = load_scenario(SCENARIOS / f"{name}.yaml")
    recording = simulate(scenario, seed=0)
    values = value(recording)
    counted = recording.requests.sort("request")["arrival"].to_numpy() >= scenario.warmup_s
    length_s = (scenario.duration_s - scenario.warmup_s) / BATCHES
    return batch_means(values[counted], BATCHES), length_s


def waits(recording):
    table = recording.invocations.sort("request")
    return (table["start"] - table["ready"]).to_numpy()


def losses(recording):
    return (recording.requests.sort("request")["outcome"] == "rejected").to_numpy()


def check(name, expected, value, most, memory_s):
    interval, length_s = measured(name, value)
    found = f"{expected:.5g} by theory, {interval.mean:.5g} +- {interval.half_width:.2g} measured"
    assert length_s >= 25 * memory_s, f"a batch of {length_s:g} s is too short for a memory of {memory_s:g} s"
    assert interval.half_width <= most * expected, f"too wide to say anything: {found}"
    assert interval.contains(expected), found


def width(load):
    """How wide an interval may be, as a share of the value: at a load of 0.95 means converge slowly."""
    return 0.25 if load > 0.9 else 0.15


def _mmc(servers, load, *marks):
    return pytest.param(servers, load, marks=marks, id=f"mm{servers}-{ceil(load * 100 - 1e-6)}")


@pytest.mark.parametrize(
    ("servers", "load"),
    [
        _mmc(1, 0.5),
        _mmc(1, 0.8),
        _mmc(1, 0.95, pytest.mark.slow),
        _mmc(2, 0.5),
        _mmc(2, 0.8, pytest.mark.slow),
        _mmc(2, 0.95, pytest.mark.slow),
        _mmc(8, 0.5, pytest.mark.slow),
        _mmc(8, 0.8, pytest.mark.slow),
        _mmc(8, 0.95, pytest.mark.slow),
        _mmc(16, 0.5, pytest.mark.slow),
        _mmc(16, 0.8, pytest.mark.slow),
        _mmc(16, 0.95, pytest.mark.slow),
    ],
)
def test_mean_wait_of_mmc_is_erlangs(servers, load):
    name = f"mm{servers}-{round(load * 100)}"
    check(name, mmc_wait_s(servers, load), waits, width(load), relaxation_s(servers, load))


@pytest.mark.parametrize("load", [0.5, *(pytest.param(load, marks=pytest.mark.slow) for load in (0.8, 0.95))])
def test_mean_wait_of_md1_is_pollaczeks_and_khinchines(load):
    # With constant service the queue forgets faster than with exponential service: the bound is on the safe side.
    check(f"md1-{round(load * 100)}", mg1_wait_s(load, 0), waits, width(load), relaxation_s(1, load))


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.75), pytest.param(16, 0.9, marks=pytest.mark.slow)])
def test_lost_share_is_erlangs(servers, load):
    # A loss system has no queue: it forgets within a few service times.
    check(f"loss{servers}-{round(load * 100)}", erlang_b(servers, servers * load), losses, 0.15, 4.0)


def test_closed_forms_agree_where_they_meet():
    assert mmc_wait_s(1, 0.8) == pytest.approx(mg1_wait_s(0.8, 1)) == pytest.approx(4.0)
    assert erlang_c(1, 0.8) == pytest.approx(0.8)
    assert erlang_b(1, 1.0) == pytest.approx(0.5)
    assert erlang_b(2, 1.0) == pytest.approx(0.2)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert mg1_wait_s(0.5, 0) == pytest.approx(0.5)
