"""Keep-alive rules: what each does, by hand, and agreement with a plain simulator on random fleets."""

from collections import Counter
from math import inf

import numpy as np
import pytest
from fleet_reference import Fleet
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.sim.compiled import (
    Fixed,
    GreedyDual,
    HybridHistogram,
    LeastRecentlyUsed,
    Sample,
    Windows,
    make_keep_alive,
    run_stream,
)
from fairlead.errors import UnknownNameError
from fairlead.model import SLO, Cluster, Function, Node, Workflow
from fairlead.profile import Exponential, Profile
from fairlead.workload import Scenario
from fairlead.workload.chunks import Chunk

GB = 1024


def fleet(nodes, functions, keep_alive_s=600.0):
    """Nodes are (vCPUs, MB), functions (MB, seconds of a cold start). A call lasts as many seconds as its factor."""
    names = [f"f{i}" for i in range(len(functions))]
    return Scenario(
        name="fleet",
        cluster=Cluster(
            nodes=tuple(
                Node(name=f"n{i}", kind="node", vcpus=vcpus, memory_gb=megabytes / GB)
                for i, (vcpus, megabytes) in enumerate(nodes)
            )
        ),
        functions={
            name: Function(name=name, memory_gb=megabytes / GB, keep_alive_s=keep_alive_s, idle_holds="memory")
            for name, (megabytes, _) in zip(names, functions, strict=True)
        },
        profiles={
            name: Profile(law=Exponential(1.0), cold_start_s=cold_s)
            for name, (_, cold_s) in zip(names, functions, strict=True)
        },
        workflows={name: Workflow.chain(name, name, slo=SLO(latency_s=inf)) for name in names},
        arrivals=(),
        duration_s=1.0,
    )


def stream(calls, size=7):
    """Calls are (instant, function, seconds)."""
    for first in range(0, len(calls), size):
        part = calls[first : first + size]
        yield Chunk(
            np.array([at for at, _, _ in part], np.float64),
            np.array([function for _, function, _ in part], np.int32),
            np.array([seconds for _, _, seconds in part], np.float64),
        )


def run(nodes, functions, calls, rule, record="all", **others):
    return run_stream(fleet(nodes, functions), stream(calls), keep_alive=rule, record=record, **others)


ONE = [(4, 4 * GB)]


# --- by hand


def test_fixed_keeps_an_instance_for_its_time_after_the_run():
    calls = [(0.0, 0, 1.0), (10.0, 0, 1.0), (31.0, 0, 1.0)]  # idle for 8 and 20 s
    found = run(ONE, [(GB, 1.0)], calls, Fixed(seconds=20.0))
    # It expires at the instant of the third call, and what expires goes first.
    assert (found.cold_starts, found.invocations) == (2, 3)
    assert found.wasted_gb_s == 8 + 20
    assert found.used_gb_s == 2 + 1  # cold start and run, then a warm run; the last call is the end of the count


def test_a_longer_time_saves_the_cold_start_and_wastes_as_much():
    calls = [(0.0, 0, 1.0), (10.0, 0, 1.0), (31.0, 0, 1.0)]
    found = run(ONE, [(GB, 1.0)], calls, Fixed(seconds=21.0))
    assert (found.cold_starts, found.wasted_gb_s) == (1, 28)


def test_without_a_rule_each_function_has_its_own_time():
    calls = [(0.0, 0, 1.0), (700.0, 0, 1.0)]
    scenario = fleet(ONE, [(GB, 1.0)], keep_alive_s=600.0)
    assert run_stream(scenario, stream(calls)).cold_starts == 2
    assert run_stream(scenario, stream(calls), keep_alive="lru").cold_starts == 1


HOURLY = HybridHistogram(bins=10, bin_s=10.0, margin=0.1, least_samples=3)


def test_hybrid_keeps_for_its_range_until_it_has_seen_enough():
    calls = [(50.0 * i, 0, 1.0) for i in range(3)]
    found = run(ONE, [(GB, 1.0)], calls, HOURLY)
    assert (found.cold_starts, found.prewarmed) == (1, 0)
    assert found.wasted_gb_s == 48 + 49


def test_hybrid_unloads_and_loads_again_before_the_next_call():
    calls = [(50.0 * i, 0, 1.0) for i in range(6)]
    found = run(ONE, [(GB, 1.0)], calls, HOURLY)
    # Idle times 48, 49, 49: all in the bin of 40 to 50. From the fourth run on it comes back after 36 s and starts
    # in 1 s, so that it is idle for 12 s before each of the two calls that follow.
    assert (found.cold_starts, found.prewarmed) == (1, 2)
    assert found.wasted_gb_s == pytest.approx(48 + 49 + 49 + 12 + 12)


def test_hybrid_lets_go_after_the_tail():
    calls = [(50.0 * i, 0, 1.0) for i in range(4)] + [(400.0, 0, 1.0)]
    found = run(ONE, [(GB, 1.0)], calls, HOURLY)
    # After the fourth run, at 151: loaded again at 187, ready at 188, gone at 151 + 55.
    assert (found.cold_starts, found.prewarmed) == (2, 1)
    assert found.wasted_gb_s == pytest.approx(48 + 49 + 49 + (206 - 188))


def test_a_call_does_not_wait_for_an_instance_that_is_being_prewarmed():
    calls = [(50.0 * i, 0, 1.0) for i in range(4)] + [(187.5, 0, 1.0)]  # in the midst of its start
    found = run(ONE, [(GB, 1.0)], calls, HOURLY)
    assert (found.cold_starts, found.prewarmed) == (2, 1)
    assert found.end_s == 189.5


def test_a_call_that_comes_early_calls_the_prewarming_off():
    calls = [(50.0 * i, 0, 1.0) for i in range(4)] + [(160.0, 0, 1.0), (300.0, 0, 1.0)]
    found = run(ONE, [(GB, 1.0)], calls, HOURLY)
    # The run from 160 ends at 162: now 5 % of the four idle times lie in the first bin, and nothing is unloaded.
    assert found.prewarmed == 0


def test_idle_times_spread_evenly_are_not_representative():
    at, calls = 0.0, []
    for gap_s in (5, 15, 25, 35, 45, 55, 65, 75, 85, 95):
        at += gap_s + 1.0
        calls.append((at, 0, 1.0))
    flat = HybridHistogram(bins=10, bin_s=10.0, least_samples=1, least_variation=1.0)
    counts = run(ONE, [(GB, 0.0)], [*calls, (at + 99.0, 0, 1.0)], flat)
    # The longer they are, the flatter the histogram: at the end the instance stays for the range of 100 s.
    assert counts.cold_starts < len(calls)
    always = HybridHistogram(bins=10, bin_s=10.0, least_samples=1, least_variation=0.0)
    assert run(ONE, [(GB, 0.0)], [*calls, (at + 99.0, 0, 1.0)], always).cold_starts >= counts.cold_starts


def test_idle_times_beyond_the_range_are_met_by_their_mean():
    calls = [(1000.0 * i, 0, 1.0) for i in range(6)]
    found = run(ONE, [(GB, 0.0)], calls, HybridHistogram(bins=10, bin_s=10.0, least_samples=2))
    # Idle times of 999 s. After two, it is loaded at 849 s and kept until 1149 s: the calls from the fourth on find it.
    assert (found.cold_starts, found.prewarmed) == (3, 3)


def test_greedy_dual_evicts_what_is_cheap_to_start_and_lru_what_is_old():
    functions = [(GB, 10.0), (GB, 1.0), (GB, 1.0)]  # the first is dear
    node = [(1, 2 * GB)]
    calls = [(0.0, 0, 1.0), (20.0, 1, 1.0), (40.0, 2, 1.0), (60.0, 0, 1.0)]
    by_worth = run(node, functions, calls, GreedyDual())
    by_age = run(node, functions, calls, LeastRecentlyUsed())
    assert (by_worth.cold.tolist(), by_worth.evicted) == ([1, 1, 1], 1)
    assert (by_age.cold.tolist(), by_age.evicted) == ([2, 1, 1], 2)


def test_greedy_dual_lets_age_what_is_not_used_any_more():
    functions = [(GB, 3.0), (GB, 1.0), (GB, 1.0)]
    calls = [(0.0, 0, 1.0)] + [(20.0 * i, 1 + i % 2, 1.0) for i in range(1, 7)]
    found = run([(1, 2 * GB)], functions, calls, GreedyDual())
    # Worth 3 for the first; the others take turns at 1, then 1 + 1, then 2 + 1, ... and in the end the first goes.
    assert found.cold.tolist() == [1, 2, 2]


# --- the stream


def test_a_sample_records_every_so_many_requests():
    calls = [(float(i), 0, 0.5) for i in range(20)]
    found = run(ONE, [(GB, 0.0)], calls, None, record=Sample(every=6))
    assert found.requests["request"].to_list() == [0, 6, 12, 18]
    assert found.invocation_records["request"].to_list() == [0, 6, 12, 18]
    assert found.invocations == 20


def test_windows_record_what_arrives_in_them():
    calls = [(float(i), 0, 0.5) for i in range(20)]
    found = run(ONE, [(GB, 0.0)], calls, None, record=Windows(((2.0, 4.0), (10.0, 10.5))))
    assert found.requests["arrival"].to_list() == [2.0, 3.0, 10.0]


def test_nothing_is_recorded_unless_asked_for():
    found = run(ONE, [(GB, 0.0)], [(0.0, 0, 1.0)], None, record="none")
    assert found.requests is None
    assert (found.completed, found.unfinished, found.rejected) == (1, 0, 0)


def test_shares_of_cold_runs_are_by_function_and_leave_out_who_never_ran():
    calls = [(10.0 * i, 0, 1.0) for i in range(4)] + [(100.0, 1, 1.0)]
    found = run(ONE, [(GB, 0.0)] * 3, calls, None)
    assert found.cold_shares[:2].tolist() == [0.25, 1.0]
    assert np.isnan(found.cold_shares[2])
    assert found.cold_share_percentile(50) == 0.625
    assert found.cold_share == 2 / 5


def test_progress_counts_requests_up_to_all_of_them():
    seen = []
    run(ONE, [(GB, 0.0)], [(float(i), 0, 0.5) for i in range(20)], None, progress=lambda n, at: seen.append((n, at)))
    assert seen == [(7, 6.0), (14, 13.0), (20, 19.0)]


def test_a_stream_may_be_empty():
    found = run(ONE, [(GB, 0.0)], [], HybridHistogram())
    assert (found.invocations, found.cold_share, found.wasted_gb_s) == (0, 0.0, 0.0)


def test_rules_have_names():
    assert make_keep_alive("fixed", seconds=5.0) == Fixed(seconds=5.0)
    with pytest.raises(UnknownNameError, match="hybrid"):
        make_keep_alive("hybrid")


@pytest.mark.parametrize(
    ("rule", "parameters"),
    [
        (Fixed, {"seconds": -1.0}),
        (HybridHistogram, {"bins": 0}),
        (HybridHistogram, {"bin_s": inf}),
        (HybridHistogram, {"head": 0.9, "tail": 0.5}),
        (HybridHistogram, {"margin": 1.0}),
        (HybridHistogram, {"most_outside": 1.5}),
        (HybridHistogram, {"least_variation": -1.0}),
        (Sample, {"every": 0}),
        (Windows, {"spans": ((3.0, 3.0),)}),
    ],
)
def test_parameters_out_of_range_are_refused(rule, parameters):
    with pytest.raises(ValueError, match="must"):
        rule(**parameters)


# --- agreement with the plain simulator

GAPS_S = [0.0, 0.25, 0.5, 1.0, 3.0, 7.0, 10.0, 12.5, 30.0, 31.0, 45.0, 70.0, 100.0, 150.0]

rules = st.one_of(
    st.sampled_from([0.0, 0.5, 10.0, 60.0, inf]).map(lambda seconds: Fixed(seconds=seconds)),
    st.just(GreedyDual()),
    st.builds(
        HybridHistogram,
        bins=st.integers(2, 12),
        bin_s=st.sampled_from([0.5, 5.0, 10.0]),
        head=st.sampled_from([0.0, 0.05, 0.3]),
        tail=st.sampled_from([0.5, 0.9, 0.99, 1.0]),
        margin=st.sampled_from([0.0, 0.1, 0.25]),
        least_samples=st.integers(1, 3),
        least_variation=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        most_outside=st.sampled_from([0.0, 0.5, 1.0]),
        mean_margin=st.sampled_from([0.0, 0.15, 0.5]),
    ),
)


@st.composite
def small_fleets(draw):
    nodes = draw(
        st.lists(st.tuples(st.integers(1, 4), st.integers(4, 12).map(lambda n: 128 * n)), max_size=3, min_size=1)
    )
    functions = draw(
        st.lists(
            st.tuples(st.sampled_from([128, 256, 384, 512]), st.sampled_from([0.0, 0.25, 1.0, 5.0])),
            min_size=1,
            max_size=4,
        )
    )
    calls = []
    for function in range(len(functions)):
        at, gaps = 0.0, draw(st.lists(st.sampled_from(GAPS_S), min_size=1, max_size=3))
        for _ in range(draw(st.integers(1, 15))):
            at += draw(st.sampled_from(gaps))
            calls.append((at, function, draw(st.sampled_from([0.0, 0.25, 1.0, 4.0, 20.0]))))
    return nodes, functions, sorted(calls, key=lambda call: call[0])


def test_random_fleets_agree_with_the_plain_simulator():
    seen = Counter()

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(small_fleets(), rules)
    def agree(world, rule):
        nodes, functions, calls = world
        found = run(nodes, functions, calls, rule)
        keep_s = rule.seconds if isinstance(rule, Fixed) else inf
        wanted = Fleet(nodes, [(*function, keep_s) for function in functions], rule).run(calls)
        assert found.cold.tolist() == wanted.cold
        assert (found.prewarmed, found.evicted) == (wanted.prewarmed, wanted.evicted)
        assert found.requests.sort("request")["end"].to_list() == wanted.ends
        assert found.wasted_gb_s == pytest.approx(wanted.wasted_mb_s / GB, rel=1e-12, abs=1e-9)
        assert found.used_gb_s == pytest.approx(wanted.used_mb_s / GB, rel=1e-12, abs=1e-9)
        name = type(rule).__name__
        seen.update([name])
        seen.update(f"{name} {what}" for what in ("prewarmed", "evicted") if getattr(found, what))

    agree()
    for what in ("Fixed evicted", "GreedyDual evicted", "HybridHistogram prewarmed", "HybridHistogram evicted"):
        assert seen[what] >= 5, seen
