"""Fairness: slowdowns from records by hand, Jain's index, and where both are shown."""

from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_frames import invocation, recording, request
from rich.console import Console

from fairlead.engine import simulate
from fairlead.model import Stage, Workflow
from fairlead.report import aggregate, comparison_table, render_html, summarise
from fairlead.report.fairness import jain
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Listed


def slowdown(*rows, arrival=0.0, end=10.0, **settings):
    one = recording([request(0, arrival, end, **settings)], rows)
    return summarise(one).by_workflow["main"].slowdown


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((3, 3, 3), 1.0),
        ((1, 0, 0, 0), 0.25),
        ((1, 3), 16 / 20),
        ((5,), None),
        ((), None),
        ((0, 0), None),
    ],
    ids=["equal", "one-has-all", "one-to-three", "alone", "none", "nothing"],
)
def test_jain(values, expected):
    assert jain(values) == (None if expected is None else pytest.approx(expected))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=12), st.floats(0.1, 10))
def test_jain_lies_between_one_over_n_and_one_and_has_no_unit(values, factor):
    index = jain(values)
    assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
    assert jain([factor * value for value in values]) == pytest.approx(index)


def test_slowdown_leaves_out_waits_cold_starts_and_transfers():
    # 10 s in all, of which 4 s ran: 3 s of wait, 2 s cold, 1 s of transfer.
    assert slowdown(invocation(0, 0, 3, 10, batch=0, cold_s=2, transfer_s=1)) == 10 / 4


def test_a_chain_adds_up():
    rows = (invocation(0, 0, 1, 3, batch=0), invocation(0, 3, 3, 5, batch=1), invocation(0, 5, 9, 10, batch=2))
    assert slowdown(*(row | {"stage": f"s{i}"} for i, row in enumerate(rows))) == 10 / 5


def test_of_branches_the_longest_chain_counts():
    # split 0-1; left runs 1-4, right waits and runs 2-3; join 4-10 after left, which ended last.
    split, left = invocation(0, 0, 0, 1, batch=0), invocation(0, 1, 1, 4, batch=1)
    right, join = invocation(0, 1, 2, 3, batch=2), invocation(0, 4, 4, 10, batch=3)
    rows = [row | {"stage": name} for name, row in zip("slrj", (split, left, right, join), strict=True)]
    assert slowdown(*rows) == 10 / (1 + 3 + 6)


def test_a_longer_branch_that_ended_first_still_counts_for_itself():
    # left runs 0-6, right waits and runs 8-9, join 9-10: the chain of the join has 2 s, left alone 6 s.
    left, right = invocation(0, 0, 0, 6, batch=0), invocation(0, 0, 8, 9, batch=1)
    rows = [row | {"stage": n} for n, row in zip("lrj", (left, right, invocation(0, 9, 9, 10, batch=2)), strict=True)]
    assert slowdown(*rows) == 10 / 6


def test_a_retry_continues_the_chain_of_its_first_attempt():
    # The first stage runs 0-2; the second fails at 4 and is done 5-10: 2 + 5 s of the 10 count.
    rows = (
        invocation(0, 0, 0, 2, batch=0) | {"stage": "one"},
        invocation(0, 2, 2, 4, batch=1, outcome="failed") | {"stage": "two"},
        invocation(0, 5, 5, 10, batch=2, attempt=2) | {"stage": "two"},
    )
    assert slowdown(*rows) == pytest.approx(10 / 7)


@pytest.mark.parametrize("outcome", ["rejected", "unfinished"])
def test_only_answers_have_a_slowdown(outcome):
    assert slowdown(invocation(0, 0, 0, 4, batch=0), outcome=outcome, end=None) is None


def test_a_request_whose_runs_took_no_time_has_no_slowdown():
    assert slowdown(invocation(0, 0, 5, 5, batch=0)) is None
    assert slowdown() is None


def two_clients(**settings):
    """a: slowdowns 1 and 3; b: slowdown 4, and one more answer after arrivals have stopped, with slowdown 2."""
    return recording(
        [
            request(0, 0, 2, workflow="a"),
            request(1, 2, 8, workflow="a"),
            request(2, 1, 9, workflow="b"),
            request(3, 8, 12, workflow="b"),
        ],
        [
            invocation(0, 0, 0, 2, batch=0, workflow="a"),
            invocation(1, 2, 6, 8, batch=1, workflow="a"),
            invocation(2, 1, 7, 9, batch=2, workflow="b"),
            invocation(3, 8, 10, 12, batch=3, workflow="b"),
        ],
        **settings,
    )


def test_fairness_is_over_the_means_of_the_workflows():
    summary = summarise(two_clients())
    assert {name: part.slowdown for name, part in summary.by_workflow.items()} == {"a": 2.0, "b": 3.0}
    assert summary.jain_slowdown == pytest.approx(25 / (2 * 13))
    assert summary.jain_throughput == pytest.approx(9 / (2 * 5))  # two answers against one by 10 s
    assert summarise(two_clients(duration_s=12.0)).jain_throughput == 1.0


def test_the_warm_up_does_not_count():
    assert summarise(two_clients(warmup_s=1.5)).by_workflow["a"].slowdown == 3.0


def test_one_workflow_has_no_fairness():
    one = recording([request(0, 0, 4)], [invocation(0, 0, 0, 4, batch=0)])
    assert (summarise(one).jain_slowdown, summarise(one).jain_throughput) == (None, None)


def test_a_client_without_an_answer_counts_as_zero_throughput():
    one = recording([request(0, 0, 4, workflow="a"), request(1, 0, None, outcome="unfinished", workflow="b")])
    assert summarise(one).jain_throughput == 0.5


def text_of(run):
    console = Console(file=StringIO(), width=200)
    console.print(comparison_table([summarise(run)], width=200))
    return console.file.getvalue()


def test_fairness_is_shown_where_there_is_more_than_one_workflow():
    one = recording([request(0, 0, 4)], [invocation(0, 0, 0, 4, batch=0)])
    assert "fairness" in text_of(two_clients())
    assert "0.962" in text_of(two_clients())
    assert "fairness" not in text_of(one)
    assert "slowdown" in render_html([two_clients()])
    assert "<th>slowdown</th>" not in render_html([one])


def test_means_over_seeds_have_fairness():
    (row,) = aggregate([summarise(two_clients()), summarise(two_clients(seed=1))])
    assert row.estimates["by_workflow.b.slowdown"].mean == 3.0
    assert row.estimates["jain_slowdown"].count == 2


def forked(instants, vcpus):
    stages = (
        Stage(name="cut", function="cut"),
        Stage(name="left", function="work", after=("cut",)),
        Stage(name="right", function="long", after=("cut",)),
        Stage(name="merge", function="cut", after=("left", "right")),
    )
    functions = {"cut": declared(0.5, cold_start_s=1), "work": declared(1.0), "long": declared(2.0)}
    return summarise(
        simulate(
            scenario(
                functions,
                workflows={"main": Workflow(name="main", stages=stages), "side": ("long",)},
                arrivals=[*sorted(instants), Listed("side", tuple(sorted(instants)))],
                on=cluster(1, vcpus=vcpus),
            ),
            "fifo",
        )
    )


def test_a_simulated_request_alone_is_slowed_down_by_its_cold_start_only():
    # A second of cold start beside 0.5 + 2 + 0.5 s along the longer branch.
    summary = forked([0.0], 4)
    assert summary.by_workflow["main"].slowdown == pytest.approx(4 / 3)
    assert summary.by_workflow["side"].slowdown == pytest.approx(1)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 20), min_size=1, max_size=12), st.integers(1, 3))
def test_simulated_requests_are_never_quicker_than_their_own_runs(instants, vcpus):
    assert all(part.slowdown >= 1 - 1e-9 for part in forked(instants, vcpus).by_workflow.values())
