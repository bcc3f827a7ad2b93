"""The compiled core against queueing theory, with as many arrivals as it is made for.

M/M/c and Erlang's loss system with 1, 4 and 16 servers; a million arrivals drawn by the scenario itself, and ten
million that are given. The closed form must lie in the 99 % interval around the measured mean, by batch means: the run
after its first 21st part is cut into 20 batches, each much longer than the queue's memory (see the theory tests of the
Python engine). The interval must be narrow enough to say something.

At a load of 0.5 the mean latency must also be within 0.5 % of theory. So must the mean wait, as far as it can be
measured so well: ten million arrivals give it with a standard error of 0.17 % with one server and 0.35 % with four
(hence fifty million there). With 16 servers only one in a hundred waits at all, the error is 1.7 %, and it would take
more than a billion arrivals.

A 99 % interval misses once in a hundred. All are with seed 0.
"""

from heapq import heapify, heapreplace
from math import inf

import numpy as np
import pytest
from closed_forms import batch_means, erlang_b, mmc_wait_s, relaxation_s

from fairlead.engine import simulate
from fairlead.engine.sim.compiled import CompiledRun
from fairlead.policy import make_policy
from fairlead.profile import Exponential
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Poisson
from fairlead.workload.chunks import Chunk

MILLION = 10**6
BATCHES = 20
SERVERS = (1, 4, 16)
LOADS = (0.5, 0.8, 0.95)


def queue(servers, load, arrivals):
    """Poisson arrivals for servers that take one second on average, and cold starts that take none."""
    rate_rps = servers * load
    function = declared(Exponential(1.0), keep_alive_s=inf, idle_holds="memory")
    return scenario(
        function,
        arrivals=[Poisson("main", rate_rps)],
        on=cluster(1, vcpus=servers),
        duration_s=arrivals / rate_rps,
    )


def drawn(servers, load, count, seed=0):
    """Arrivals with the seconds that each takes, since the mean is one."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(1 / (servers * load), count))
    return Chunk(times, np.zeros(count, dtype=np.int32), rng.standard_exponential(count))


def requests(where, policy, chunk, *columns):
    """What became of given arrivals, in their order. All records of so many would not fit into memory."""
    run = CompiledRun(where, policy, record="requests", arrivals=[chunk])
    run.go()
    table, *_ = run.tables()
    assert table.height == len(chunk)
    return table.select("request", *columns).sort("request")


def latencies(where, chunk):
    """Of given arrivals that all wait until there is room."""
    table = requests(where, make_policy("fifo"), chunk, "arrival", "end")
    assert np.array_equal(table["arrival"].to_numpy(), chunk.times)
    return (table["end"] - table["arrival"]).to_numpy()


def lost(servers, load, count):
    """Which of given arrivals find all servers busy, where nobody may wait."""
    chunk = drawn(servers, load, count)
    policy = make_policy("fifo", {"queue_limit": 0})
    table = requests(queue(servers, load, count), policy, chunk, "outcome")
    return (table["outcome"] == "rejected").to_numpy()


def check(values, expected, most, *, length_s, memory_s):
    """The interval around the mean of values must hold what is expected, and be no wider than so much of it."""
    interval = batch_means(values[len(values) // (BATCHES + 1) :], BATCHES)
    found = f"{expected:.5g} by theory, {interval.mean:.5g} +- {interval.half_width:.2g} measured"
    assert length_s / (BATCHES + 1) >= 25 * memory_s, "batches are too short for the memory of the queue"
    assert interval.half_width <= most * expected, f"too wide to say anything: {found}"
    assert interval.contains(expected), found


# --- arrivals of the scenario's own, with all records ----------------------------------------------------------------


def test_mean_wait_in_the_records_of_a_million_is_erlangs():
    servers, load = 4, 0.8
    where = queue(servers, load, MILLION)
    table = simulate(where, "fifo", seed=0, engine="compiled").invocations.select("request", "ready", "start")
    table = table.sort("request")
    waits = (table["start"] - table["ready"]).to_numpy()
    assert abs(len(waits) / MILLION - 1) < 0.01
    check(waits, mmc_wait_s(servers, load), 0.25, length_s=where.duration_s, memory_s=relaxation_s(servers, load))


def test_lost_share_in_the_records_of_a_million_is_erlangs():
    servers, load = 4, 0.8
    where = queue(servers, load, MILLION)
    policy = make_policy("fifo", {"queue_limit": 0})
    table = simulate(where, policy, seed=0, engine="compiled").requests.select("request", "outcome").sort("request")
    lost = (table["outcome"] == "rejected").to_numpy()
    check(lost, erlang_b(servers, servers * load), 0.05, length_s=where.duration_s, memory_s=4.0)


# --- given arrivals --------------------------------------------------------------------------------------------------


def test_every_answer_is_that_of_a_plain_recursion():
    servers, load = 16, 0.8
    chunk = drawn(servers, load, 200_000)
    free = [0.0] * servers  # when each server is free; the earliest first
    heapify(free)
    ends = []
    for at, seconds in zip(chunk.times.tolist(), chunk.draws.tolist(), strict=True):
        ends.append(max(at, free[0]) + seconds)
        heapreplace(free, ends[-1])
    found = latencies(queue(servers, load, len(chunk)), chunk)
    assert np.array_equal(found, np.asarray(ends) - chunk.times)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("servers", SERVERS)
def test_mean_wait_of_a_million_is_erlangs(servers, load):
    chunk = drawn(servers, load, MILLION)
    waits = latencies(queue(servers, load, len(chunk)), chunk) - chunk.draws
    check(waits, mmc_wait_s(servers, load), 0.25, length_s=chunk.times[-1], memory_s=relaxation_s(servers, load))


@pytest.mark.parametrize("servers", SERVERS)
def test_lost_share_of_a_million_is_erlangs(servers):
    check(lost(servers, 0.9, MILLION), erlang_b(servers, servers * 0.9), 0.05, length_s=MILLION / servers, memory_s=4.0)


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("servers", SERVERS)
def test_mean_wait_of_ten_million_is_erlangs(servers, load):
    chunk = drawn(servers, load, 10 * MILLION)
    found = latencies(queue(servers, load, len(chunk)), chunk)
    expected = mmc_wait_s(servers, load)
    if load == 0.5:
        assert found.mean() == pytest.approx(1 + expected, rel=0.005)
    waits = found - chunk.draws
    check(waits, expected, 0.06, length_s=chunk.times[-1], memory_s=relaxation_s(servers, load))
    if load == 0.5 and servers == 1:
        assert waits.mean() == pytest.approx(expected, rel=0.005)


@pytest.mark.slow
def test_mean_wait_with_four_servers_is_within_half_a_percent():
    means = []
    for seed in range(5):
        chunk = drawn(4, 0.5, 10 * MILLION, seed)
        means.append((latencies(queue(4, 0.5, len(chunk)), chunk) - chunk.draws).mean())
    assert np.mean(means) == pytest.approx(mmc_wait_s(4, 0.5), rel=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("servers", SERVERS)
def test_lost_share_of_ten_million_is_erlangs(servers, load):
    share = lost(servers, load, 10 * MILLION)
    check(share, erlang_b(servers, servers * load), 0.06, length_s=10 * MILLION / servers, memory_s=4.0)
