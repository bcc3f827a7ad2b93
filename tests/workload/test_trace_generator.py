"""The generator: what it makes follows the published figures, and always the same for a seed."""

import numpy as np
import pytest

from fairlead.workload.traces import generate, summarise
from fairlead.workload.traces.generator import TRIGGERS


@pytest.fixture(scope="module")
def day():
    return generate(4000, invocations=40_000_000, seed=1)


def test_there_are_as_many_functions_minutes_and_calls_as_asked_for(day):
    assert (len(day), day.minutes) == (4000, 1440)
    assert day.invocations == pytest.approx(40_000_000, rel=0.01)


def test_most_functions_are_rare_and_few_make_nearly_all_calls(day):
    found = summarise(day)
    assert found.below_one_a_minute == pytest.approx(0.81, abs=0.02)
    assert (day.calls <= 24).mean() == pytest.approx(0.45, abs=0.03)
    assert found.top_10 > 0.95
    assert day.calls.min() == 1
    assert day.calls.max() > 1_000_000


def test_triggers_have_their_shares(day):
    found = summarise(day).functions_by_trigger
    for trigger, share in TRIGGERS.items():
        assert found[trigger] / 4000 == pytest.approx(share, abs=0.02)


def test_timers_keep_to_a_period_of_whole_minutes(day):
    timers = np.flatnonzero((day.functions["trigger"] == "timer").to_numpy())
    begins, minutes, counts = day.by_function
    for number in timers[:200]:
        piece = slice(begins[number], begins[number + 1])
        assert set(counts[piece]) == {1}
        assert len(set(np.diff(minutes[piece]))) <= 1


def test_mean_durations_are_log_normal(day):
    logs = np.log(day.column("mean_s"))
    assert logs.mean() == pytest.approx(-0.38, abs=0.15)
    assert logs.std() == pytest.approx(2.36, abs=0.15)
    assert day.column("mean_s").max() <= 600


def test_popular_functions_are_shorter(day):
    assert np.corrcoef(np.log(day.calls), np.log(day.column("mean_s")))[0, 1] == pytest.approx(-0.32, abs=0.08)


def test_the_memory_of_apps_has_the_burr_law(day):
    memory = day.functions.select("app", "memory_mb").group_by("app").sum()["memory_mb"].to_numpy()
    for share in (0.25, 0.5, 0.9):
        expected = 107.083 * ((1 - share) ** (-1 / 0.221) - 1) ** (1 / 11.652)
        assert np.quantile(memory, share) == pytest.approx(expected, rel=0.08)


def test_half_of_the_calls_follow_the_day(day):
    by_hour = np.diff(day.calls_before).reshape(24, 60).sum(axis=1)
    assert by_hour.argmax() in (14, 15)
    assert by_hour.min() / by_hour.mean() == pytest.approx(0.5, abs=0.05)
    assert by_hour.max() / by_hour.mean() == pytest.approx(1.5, abs=0.05)


def test_the_same_seed_makes_the_same_trace():
    one, same, other = (generate(100, minutes=60, seed=seed) for seed in (7, 7, 8))
    assert one.functions.equals(same.functions)
    assert (one.counts == same.counts).all()
    assert not one.functions.equals(other.functions)


@pytest.mark.parametrize("functions", [1, 2, 7])
def test_a_few_functions_are_a_trace_too(functions):
    made = generate(functions, minutes=5, invocations=1000, seed=0)
    assert len(made) == functions
    assert made.calls.min() >= 1


def test_few_calls_make_every_function_rarer():
    made = generate(1000, minutes=1440, invocations=20_000)
    assert made.invocations == pytest.approx(20_000, rel=0.15)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"functions": 0}, "functions must be at least 1"),
        ({"minutes": 0}, "minutes must be from 1 to"),
        ({"functions": 10, "invocations": 9}, "invocations must be at least one per function"),
    ],
)
def test_what_cannot_be_made_is_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        generate(**asked)
