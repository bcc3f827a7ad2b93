"""Fairlead on random small scenarios: no action is refused, records are consistent, and runs repeat themselves."""

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.model import SLO, Workflow
from fairlead.policy.fairlead.policy import Fairlead
from fairlead.profile import Row, Table
from fairlead.testing import check_accounts, check_capacity, check_order, cluster, declared, scenario
from fairlead.workload import NodeFault, Poisson

SPEEDUPS = {(1, 1): 1.0, (1, 2): 0.6, (4, 1): 2.0, (4, 2): 1.1}  # time by batch and vCPUs

functions = st.builds(
    lambda seconds, options, **rest: declared(
        Table(tuple(Row(batch=b, vcpus=v, seconds=seconds * SPEEDUPS[b, v]) for b, v in sorted(options))), **rest
    ),
    st.sampled_from([0.05, 0.2, 0.5]),
    st.sets(st.sampled_from(sorted(SPEEDUPS)), min_size=1),
    cold_start_s=st.sampled_from([0.0, 0.3, 3.0]),
    idle_holds=st.sampled_from(["slice", "memory"]),
    keep_alive_s=st.sampled_from([0.0, 2.0, 600.0]),
    memory_gb=st.sampled_from([0.5, 3.0]),
    noise=st.sampled_from([0.0, 0.3]),
    bias=st.sampled_from([0.7, 1.0, 1.5]),
    sensitivity=st.sampled_from([0.0, 0.5]),
    output_mb=st.sampled_from([0.0, 10.0]),
)


@st.composite
def worlds(draw):
    """One to three functions in a chain, a second workflow of the last of them, one to three nodes, any load."""
    parts = dict(zip("abc", draw(st.lists(functions, min_size=1, max_size=3)), strict=False))
    slos = st.builds(
        SLO, latency_s=st.sampled_from([0.1, 0.5, 2.0, inf]), cost_usd=st.sampled_from([inf, inf, 4e-6, 1e-5])
    )
    flows = {
        "main": Workflow.chain("main", *parts, slo=draw(slos)),
        "last": Workflow.chain("last", list(parts)[-1], slo=draw(slos)),
    }
    on = cluster(
        draw(st.integers(1, 3)),
        vcpus=draw(st.sampled_from([2.0, 4.0])),
        memory_gb=draw(st.sampled_from([4.0, 64.0])),
        bandwidth_gbps=1.0,
    )
    if draw(st.booleans()):
        on = cluster(1, vcpus=4.0, memory_gb=8.0, kind="fast", speed=2.0, beside=on, bandwidth_gbps=1.0)
    faults = (NodeFault(node="n0", at_s=1.0, back_s=1.0),) if draw(st.booleans()) else ()
    rates = st.sampled_from([1.0, 8.0, 40.0])
    arrivals = (Poisson("main", draw(rates)), Poisson("last", draw(rates)))
    return scenario(parts, workflows=flows, arrivals=arrivals, on=on, node_faults=faults, duration_s=3.0)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(worlds(), st.integers(0, 3))
def test_no_action_is_refused_and_the_same_seed_gives_the_same_records(where, seed):
    first, second = (simulate(where, Fairlead(), seed=seed) for _ in range(2))
    assert first.refusals == ()
    for table in ("requests", "invocations", "instances"):
        assert getattr(first, table).equals(getattr(second, table))
    check_capacity(first, where)
    check_order(first, where)
    check_accounts(first)
    assert first.requests["outcome"].null_count() == 0
