"""DagAdmission keeps its word: with exact times no admitted request misses its objectives."""

from dataclasses import replace

import pytest
from exact_worlds import INSTANTS, exact_worlds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.policy import make_policy
from fairlead.testing import check_accounts, check_capacity, check_order
from fairlead.workload import NodeFault

TOLERANCE = 1 + 1e-9
# Always the same worlds: the slow tests below draw others every time. A busy machine is no reason to fail.
FEW = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

POLICIES = st.fixed_dictionaries(
    {
        "selection": st.sampled_from(["random", "cheapest", "fastest", "balanced"]),
        "sample": st.sampled_from([0, 1, 3]),
        "batching": st.booleans(),
        "estimates": st.sampled_from(["learned", "declared"]),
        "slack": st.sampled_from([0.0, 0.25]),
    }
)


@st.composite
def failing_worlds(draw):
    """As `exact_worlds`, but nodes go, for some time or for good; of each kind at least one comes back."""
    world = draw(exact_worlds())
    faults = []
    kinds = set()
    for node in world.cluster.nodes:
        at_s = 0.0
        for _ in range(draw(st.integers(0, 2))):
            at_s += draw(INSTANTS)
            back_s = draw(st.sampled_from([0.1, 0.5, 2.0, None] if node.kind in kinds else [0.1, 0.5, 2.0]))
            faults.append(NodeFault(node=node.name, at_s=at_s, back_s=back_s))
            if back_s is None:
                break
            at_s += back_s + 0.05
        kinds.add(node.kind)
    return replace(
        world,
        node_faults=tuple(faults),
        max_attempts=draw(st.sampled_from([1, 3, 5])),
        retry_delay_s=draw(st.sampled_from([0, 0.3])),
    )


def check_run(world, parameters, seed):
    """A run in which every action was carried out, and whose records are in order."""
    recording = simulate(world, make_policy("dag-admission", parameters), seed=seed)
    assert recording.refusals == ()
    check_capacity(recording, world)
    check_order(recording, world)
    check_accounts(recording)
    return [row for row in recording.requests.iter_rows(named=True) if row["outcome"] != "rejected"]


def check_promises(world, parameters, seed):
    for row in check_run(world, parameters, seed):
        assert row["outcome"] == "completed", row
        assert row["end"] <= row["deadline"] * TOLERANCE, row
        assert row["cost_usd"] <= row["budget_usd"] * TOLERANCE, row
        assert row["end"] <= row["promised"] * TOLERANCE, row


def check_ends(world, parameters, seed):
    for row in check_run(world, parameters, seed):
        assert row["outcome"] in ("completed", "dropped", "failed"), row


@given(world=exact_worlds(), parameters=POLICIES, seed=st.integers(0, 3))
@settings(FEW, max_examples=20)
def test_no_admitted_request_misses_its_objectives_when_times_are_exact(world, parameters, seed):
    check_promises(world, parameters, seed)


@given(world=failing_worlds(), parameters=POLICIES, seed=st.integers(0, 3))
@settings(FEW, max_examples=25)
def test_whatever_nodes_go_every_admitted_request_ends(world, parameters, seed):
    check_ends(world, parameters, seed)


@pytest.mark.slow
@given(world=exact_worlds(), parameters=POLICIES, seed=st.integers(0, 3))
@settings(max_examples=1500, deadline=None)
def test_no_admitted_request_misses_its_objectives_in_many_worlds(world, parameters, seed):
    check_promises(world, parameters, seed)


@pytest.mark.slow
@given(world=failing_worlds(), parameters=POLICIES, seed=st.integers(0, 3))
@settings(max_examples=500, deadline=None)
def test_whatever_nodes_go_every_admitted_request_ends_in_many_worlds(world, parameters, seed):
    check_ends(world, parameters, seed)
