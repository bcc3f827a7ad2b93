"""Arrival processes: hand-checkable instants, and what holds for all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.workload import (
    AzureLike,
    Burst,
    ClosedLoop,
    Deterministic,
    Listed,
    MinuteCounts,
    Pillar,
    Poisson,
    Share,
    UniformInterval,
    Window,
)

RNG = np.random.default_rng  # a seed makes a generator


def times(process, duration_s, seed=0):
    return process.times(RNG(seed), duration_s).tolist()


def test_poisson_has_its_rate():
    found = times(Poisson("w", 50.0), 1000.0)
    assert len(found) == pytest.approx(50_000, abs=5 * 50_000**0.5)
    assert np.std(np.diff(found)) == pytest.approx(1 / 50, rel=0.05)


def test_a_longer_run_begins_with_the_same_arrivals():
    short, long = times(Poisson("w", 300.0), 10.0), times(Poisson("w", 300.0), 50.0)
    assert long[: len(short)] == short


def test_gaps_of_uniform_interval_stay_in_their_bounds():
    gaps = np.diff(times(UniformInterval("w", 0.5, 1.5), 2000.0), prepend=0.0)
    assert gaps.min() >= 0.5 - 1e-9
    assert gaps.max() <= 1.5 + 1e-9
    assert gaps.mean() == pytest.approx(1.0, abs=0.05)


def test_deterministic_comes_every_interval_from_its_offset():
    assert times(Deterministic("w", 2.0, 1.0), 7.0) == [1.0, 3.0, 5.0]


def test_deterministic_leaves_out_the_end():
    assert times(Deterministic("w", 2.0), 6.0) == [0.0, 2.0, 4.0]


def test_deterministic_past_the_end_is_empty():
    assert times(Deterministic("w", 2.0, 9.0), 6.0) == []


def test_half_of_a_burst_comes_in_the_first_tenth():
    assert times(Burst("w", 8), 100.0) == [0.0, 2.5, 5.0, 7.5, 10.0, 32.5, 55.0, 77.5]


def test_burst_of_another_shape():
    assert times(Burst("w", 4, share=0.75, within=0.5), 12.0) == [0.0, 2.0, 4.0, 6.0]


def test_pillars_share_what_is_left_over_from_the_first_on():
    assert times(Pillar("w", 5, 3), 9.0) == [0.0, 0.0, 3.0, 3.0, 6.0]


def test_listed_instants_are_sorted_and_cut():
    assert times(Listed("w", (3.0, 0.0, 2.0, 4.0)), 4.0) == [0.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("spread", "expected"),
    [("start", [0.0, 0.0, 60.0, 60.0, 60.0]), ("even", [0.0, 30.0, 60.0, 80.0])],
    ids=["all-at-the-start", "evenly-until-the-end"],
)
def test_minutes_spread_their_counts(spread, expected):
    assert times(MinuteCounts("w", (2, 3), spread), 100.0) == expected


def test_uniform_spread_keeps_every_minute_its_count():
    found = times(MinuteCounts("w", (5, 0, 7), "uniform"), 180.0)
    assert np.histogram(found, bins=[0, 60, 120, 180])[0].tolist() == [5, 0, 7]


def test_scaled_counts_keep_the_running_sum():
    assert MinuteCounts("w", (1, 1, 1, 1)).scaled(0.5).counts == (0, 1, 1, 0)  # 0.5, 1, 1.5, 2 rounded to even
    assert sum(MinuteCounts("w", (3,) * 100).scaled(0.1).counts) == 30


@pytest.mark.parametrize(
    ("process", "expected"),
    [
        (Poisson("w", 2.0), 20.0),
        (UniformInterval("w", 0.0, 1.0), 20.0),
        (Deterministic("w", 0.5), 20.0),
        (Burst("w", 20), 20),
        (Pillar("w", 20, 4), 20),
        (Listed("w", (0.0, 9.0, 10.0)), 2),
        (MinuteCounts("w", (120, 30)), 20.0),
        (Window("w", Poisson("w", 2.0), until_s=4.0), 8.0),
        (Window("w", Poisson("w", 2.0), from_s=4.0), 12.0),
        (Window("w", Burst("w", 20), from_s=10.0), 0.0),
    ],
)
def test_expected_number(process, expected):
    assert process.expected(10.0) == expected


@pytest.mark.parametrize(
    ("process", "scaled"),
    [
        (Poisson("w", 2.0), Poisson("w", 6.0)),
        (UniformInterval("w", 3.0, 6.0), UniformInterval("w", 1.0, 2.0)),
        (Deterministic("w", 3.0, 5.0), Deterministic("w", 1.0, 5.0)),
        (Burst("w", 2), Burst("w", 6)),
        (Pillar("w", 4, 2), Pillar("w", 12, 2)),
        (MinuteCounts("w", (1, 2)), MinuteCounts("w", (3, 6))),
        (Window("w", Poisson("w", 2.0), 1.0, 5.0), Window("w", Poisson("w", 6.0), 1.0, 5.0)),
    ],
)
def test_three_times_the_rate(process, scaled):
    assert process.scaled(3.0) == scaled


def test_listed_instants_have_no_rate():
    listed = Listed("w", (1.0,))
    assert listed.scaled(1.0) is listed
    with pytest.raises(ValueError, match="no rate"):
        listed.scaled(2.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Poisson("w", 0.0), "rate_rps must be positive and finite; got 0.0"),
        (lambda: Poisson("w", float("nan")), "rate_rps must be positive"),
        (lambda: UniformInterval("w", 2.0, 1.0), "low_s must be at most high_s"),
        (lambda: UniformInterval("w", 0.0, 0.0), "high_s must be positive"),
        (lambda: UniformInterval("w", -1.0, 1.0), "low_s must be finite and not negative"),
        (lambda: Deterministic("w", 0.0), "interval_s must be positive"),
        (lambda: Deterministic("w", 1.0, -1.0), "offset_s must be finite and not negative"),
        (lambda: Burst("w", 0), "count must be at least 1"),
        (lambda: Burst("w", 1, share=1.1), r"share must be in \[0, 1\]"),
        (lambda: Burst("w", 1, within=0.0), r"within must be in \(0, 1\)"),
        (lambda: Pillar("w", 2, 3), "pillars must be at most count"),
        (lambda: Listed("w", ()), "at must list at least one"),
        (lambda: Listed("w", (1.0, -1.0)), "at must hold finite instants"),
        (lambda: MinuteCounts("w", ()), "counts must list at least one"),
        (lambda: MinuteCounts("w", (1, -2)), "counts must not be negative; got -2"),
        (lambda: MinuteCounts("w", (1,), "odd"), "spread must be"),
        (lambda: Window("w", Poisson("w", 1.0), -1.0), "from_s must be finite and not negative; got -1.0"),
        (lambda: Window("w", Poisson("w", 1.0), 2.0, 2.0), "until_s must be above from_s; got 2.0 and 2.0"),
        (lambda: Window("w", Poisson("w", 1.0), 0.0, float("nan")), "until_s must be above from_s"),
        (lambda: ClosedLoop("w", 0, 1.0), "users must be at least 1"),
        (lambda: ClosedLoop("w", 1, -1.0), "think_s must be finite and not negative"),
        (lambda: ClosedLoop("w", 1, 1.0, "long"), "think must be"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


positive = st.floats(0.05, 20.0)
plain_processes = st.one_of(
    st.builds(Poisson, st.just("w"), positive),
    st.builds(lambda a, b: UniformInterval("w", min(a, b), max(a, b)), positive, positive),
    st.builds(Deterministic, st.just("w"), positive, st.floats(0, 300)),
    st.builds(Burst, st.just("w"), st.integers(1, 200), st.floats(0, 1), st.floats(0.01, 0.99)),
    st.builds(lambda p, extra: Pillar("w", p + extra, p), st.integers(1, 30), st.integers(0, 90)),
    st.builds(Listed, st.just("w"), st.lists(st.floats(0, 300), min_size=1).map(tuple)),
    st.builds(
        MinuteCounts,
        st.just("w"),
        st.lists(st.integers(0, 20), min_size=1, max_size=6).map(tuple),
        st.sampled_from(["uniform", "even", "start"]),
    ),
)
processes = plain_processes | st.builds(
    lambda process, from_s, length_s: Window("w", process, from_s, from_s + length_s),
    plain_processes,
    st.floats(0.0, 200.0),
    st.floats(0.1, 100.0),
)


@given(process=processes, duration_s=st.floats(0.1, 250.0), seed=st.integers(0, 1000))
def test_instants_are_sorted_inside_the_run_and_repeatable(process, duration_s, seed):
    found = process.times(RNG(seed), duration_s)
    assert found.dtype == np.float64
    assert np.all(np.diff(found) >= 0)
    assert np.all((found >= 0) & (found < duration_s))
    assert np.array_equal(found, process.times(RNG(seed), duration_s))


@given(process=processes, duration_s=st.floats(0.1, 250.0))
def test_processes_without_chance_bring_what_is_expected(process, duration_s):
    if isinstance(process, Burst | Pillar | Deterministic | Listed):
        assert abs(process.times(RNG(0), duration_s).size - process.expected(duration_s)) <= 1 + 1e-6


def test_shares_of_one_stream_are_together_the_stream():
    whole = UniformInterval("a", 0.01, 0.02)
    parts = [Share(name, whole, low, high, 0) for name, low, high in (("a", 0.0, 0.25), ("b", 0.25, 1.0))]
    first, second = (times(part, 100.0) for part in parts)
    assert sorted(first + second) == times(whole, 100.0)
    assert len(first) / len(first + second) == pytest.approx(0.25, abs=0.02)


def test_a_share_of_a_longer_run_begins_with_the_same_arrivals():
    part = Share("a", Poisson("a", 40.0), 0.0, 0.5, 0)
    short, long = times(part, 10.0), times(part, 300.0)
    assert long[: len(short)] == short


def test_a_window_starts_its_process_at_from_s_and_ends_it_before_until_s():
    every_two = Deterministic("w", 2.0, 1.0)
    assert times(Window("w", every_two, from_s=10.0, until_s=15.0), 100.0) == [11.0, 13.0]
    assert times(Window("w", every_two, from_s=10.0), 14.0) == [11.0, 13.0]
    assert times(Window("w", every_two, from_s=10.0), 10.0) == []


def test_two_windows_of_one_process_are_drawn_apart_and_each_has_the_rate():
    first, second = (
        times(Window("w", Poisson("w", 50.0), from_s, from_s + 400.0), 1000.0, seed)
        for seed, from_s in enumerate((0.0, 600.0))
    )
    assert max(first) < 400.0 < 600.0 <= min(second)
    for found in (first, second):
        assert len(found) == pytest.approx(20_000, abs=5 * 20_000**0.5)


def test_azure_like_keeps_its_mean_and_spreads_its_levels():
    found = np.array(times(AzureLike("a", 100.0, cv=0.5, correlation=0.0, period_s=1.0), 4000.0))
    counts = np.bincount(found.astype(int), minlength=4000)
    assert counts.mean() == pytest.approx(100, rel=0.03)
    # The variance of counts is that of the levels, and the mean once more for chance within a level.
    assert np.sqrt(counts.var() - counts.mean()) / counts.mean() == pytest.approx(0.5, rel=0.08)


def test_neighbouring_levels_are_correlated():
    found = np.array(times(AzureLike("a", 2000.0, cv=0.3, correlation=0.8, period_s=1.0), 1000.0))
    logs = np.log(np.bincount(found.astype(int), minlength=1000))
    assert np.corrcoef(logs[:-1], logs[1:])[0, 1] == pytest.approx(0.8, abs=0.08)


def test_azure_like_without_spread_is_poisson():
    counts = np.bincount(np.array(times(AzureLike("a", 50.0, cv=0.0, period_s=7.0), 2000.0)).astype(int))
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(("key", "value"), [("rate_rps", 0.0), ("cv", -0.1), ("correlation", 1.0), ("period_s", 0.0)])
def test_azure_like_refuses_what_has_no_meaning(key, value):
    with pytest.raises(ValueError, match=f"^{key} must"):
        AzureLike("a", **{"rate_rps": 1.0, key: value})
