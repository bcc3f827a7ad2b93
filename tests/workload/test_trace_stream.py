"""A trace as a stream: exactly its calls, in order, the same however they are taken."""

from math import exp
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.workload.chunks import Chunk
from fairlead.workload.traces import Trace, chunks
from fairlead.workload.traces.kernel import mixed, normal_quantile

MASK = 2**64 - 1
GOLDEN, DRAWS = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03


def trace_of(table, sigmas=None):
    """A trace from a table of counts, a row per function."""
    counts = np.array(table, dtype=np.int32)
    functions = len(counts)
    starts = np.concatenate([[0], np.cumsum((counts > 0).sum(axis=0))]).astype(np.int64)
    minutes, called = np.nonzero(counts.T)
    labels = {name: [f"{name}{i}" for i in range(functions)] for name in ("owner", "app", "name", "trigger")}
    numbers = {"mean_s": [1.0] * functions, "median_s": [1.0] * functions, "memory_mb": [100.0] * functions}
    frame = pl.DataFrame(labels | numbers | {"sigma": sigmas or [0.5] * functions})
    return Trace(
        source="table",
        functions=frame,
        starts=starts,
        called=called.astype(np.int32),
        counts=counts.T[minutes, called].astype(np.int32),
    )


def joined(pieces):
    pieces = list(pieces)
    return tuple(np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("times", "workflows", "draws"))


def splitmix(state):
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def slowly(table, sigmas, seed):
    """The same stream in plain Python: hash every call, sort, draw."""
    seeded = splitmix((seed + GOLDEN) & MASK)
    found, number = [], 0
    for minute in range(len(table[0])):
        for function, row in enumerate(table):
            for _ in range(row[minute]):
                key = splitmix((seeded + number * GOLDEN) & MASK)
                found.append((minute, key, function))
                number += 1
    times, called, draws = [], [], []
    for minute, key, function in sorted(found):
        times.append(minute * 60.0 + (key >> 28) * (60.0 / 2**36))
        called.append(function)
        sigma = sigmas[function]
        if sigma:
            z = NormalDist().inv_cdf(((splitmix(key ^ DRAWS) >> 12) + 0.5) / 2**52)
            draws.append(exp(sigma * z - sigma**2 / 2))
    return times, called, draws


TABLES = st.integers(1, 5).flatmap(
    lambda minutes: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 2, 7, 40]), min_size=minutes, max_size=minutes), min_size=1, max_size=6
    )
)


@settings(max_examples=60, deadline=None)
@given(table=TABLES, seed=st.integers(0, 2**63 - 1), chunk=st.integers(1, 100), data=st.data())
def test_the_stream_is_the_slow_one_in_pieces_of_any_size(table, seed, chunk, data):
    sigmas = data.draw(st.lists(st.sampled_from([0.0, 0.3, 2.0]), min_size=len(table), max_size=len(table)))
    trace = trace_of(table, sigmas)
    pieces = list(chunks(trace, seed, chunk=chunk))
    times, called, draws = slowly(table, sigmas, seed)
    assert all(len(piece) == chunk for piece in pieces[:-1])
    assert sum(map(len, pieces)) == len(times)
    if pieces:
        found = joined(pieces)
        assert found[0].tolist() == times
        assert found[1].tolist() == called
        assert found[2] == pytest.approx(draws, rel=1e-12)


@pytest.fixture(scope="module")
def busy():
    """200 functions over 20 minutes, up to 400 calls a minute each, most of them rare."""
    rng = np.random.default_rng(5)
    rates = rng.choice([0.05, 1.0, 400.0], p=[0.7, 0.2, 0.1], size=(200, 1))
    return rng.poisson(rates, (200, 20))


def test_every_function_has_its_calls_in_every_minute(busy):
    times, called, draws = joined(chunks(trace_of(busy), 3, chunk=1000))
    found = np.zeros_like(busy)
    np.add.at(found, (called, (times // 60).astype(int)), 1)
    assert (found == busy).all()
    assert (np.diff(times) >= 0).all()
    assert draws.size == times.size


def test_the_same_seed_gives_the_same_stream_whatever_the_chunks(busy):
    trace = trace_of(busy)
    whole = joined(chunks(trace, 3, chunk=10**9))
    for chunk in (1 << 12, 999):
        assert all(
            (one == other).all() for one, other in zip(whole, joined(chunks(trace, 3, chunk=chunk)), strict=True)
        )
    assert (whole[0] != joined(chunks(trace, 4))[0]).any()


def test_a_window_holds_the_calls_of_that_part_of_the_whole(busy):
    trace = trace_of(busy)
    times, called, draws = joined(chunks(trace, 3))
    part = (times >= 300) & (times < 480)
    found = joined(chunks(trace, 3, start_minute=5, minutes=3))
    assert found[0] == pytest.approx(times[part] - 300, abs=1e-9)
    assert (found[1] == called[part]).all()
    assert (found[2] == draws[part]).all()


def test_instants_are_even_and_factors_log_normal_and_independent_of_each_other(busy):
    times, _, draws = joined(chunks(trace_of(busy, [0.8] * 200), 11))
    instants, z = times % 60 / 60, (np.log(draws) + 0.32) / 0.8
    count = times.size
    assert count > 100_000
    steps = np.sort(instants) - np.arange(count) / count
    assert np.abs(steps).max() < 1.63 / np.sqrt(count)  # Kolmogorov and Smirnov, 1 %
    normal = NormalDist()
    at = np.linspace(-3, 3, 61)
    share = np.searchsorted(np.sort(z), at) / count
    assert np.abs(share - [normal.cdf(each) for each in at]).max() < 1.63 / np.sqrt(count)
    assert abs(np.corrcoef(instants, z)[0, 1]) < 3 / np.sqrt(count)
    assert abs(np.corrcoef(z[1:], z[:-1])[0, 1]) < 3 / np.sqrt(count)


def test_the_hash_and_the_quantile_are_the_published_ones():
    # The first numbers of splitmix64 from seed 1234567, as published with it.
    assert [int(mixed(np.uint64((1234567 + i * GOLDEN) & MASK))) for i in (1, 2)] == [
        6457827717110365317,
        3203168211198807973,
    ]
    normal = NormalDist()
    for p in (1e-16, 1e-9, 0.01, 0.074, 0.3, 0.5, 0.8, 0.926, 1 - 1e-12):
        assert normal_quantile(p) == pytest.approx(normal.inv_cdf(p), abs=1e-13)


def test_a_silent_trace_has_no_chunks_and_a_silent_minute_is_passed_over():
    assert list(chunks(trace_of([[0, 0]]))) == []
    times, called, _ = joined(chunks(trace_of([[1, 0, 1]])))
    assert (times // 60).tolist() == [0, 2]
    assert called.tolist() == [0, 0]


def test_a_function_without_a_spread_has_no_draw():
    (piece,) = chunks(trace_of([[5], [3]], [0.0, 0.5]))
    assert (len(piece), piece.draws.size) == (8, 3)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"seed": -1}, "seed must be from 0"),
        ({"start_minute": 2}, "must lie within the 2 minutes"),
        ({"start_minute": 1, "minutes": 2}, "must lie within the 2 minutes"),
        ({"minutes": 0}, "must lie within the 2 minutes"),
    ],
)
def test_what_cannot_be_streamed_is_refused_at_once(asked, message):
    with pytest.raises(ValueError, match=message):
        chunks(trace_of([[1, 1]]), **asked)


@pytest.mark.parametrize(
    ("times", "workflows", "message"),
    [
        (np.zeros(2), np.zeros(3, dtype=np.int32), "must be as many; got 2 and 3"),
        (np.zeros(2), np.zeros(2), "workflows must be one row of int32; got 1 dimensions of float64"),
        (np.zeros((2, 1)), np.zeros(2, dtype=np.int32), "times must be one row of float64; got 2 dimensions"),
    ],
)
def test_a_chunk_holds_what_it_says(times, workflows, message):
    with pytest.raises(ValueError, match=message):
        Chunk(times, workflows, np.zeros(2))
