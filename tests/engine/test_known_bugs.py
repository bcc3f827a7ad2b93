"""Behaviour that is promised and does not hold: each test is the smallest case that shows it."""

import pytest
from toy_policies import Adjusting, Doing, yielding

from fairlead.engine import simulate
from fairlead.model import Configuration
from fairlead.policy import Scale
from fairlead.profile import Row, Table
from fairlead.testing import check_accounts, cluster, declared, scenario
from fairlead.workload import DecisionTime, NodeFault


def test_instance_that_is_lost_before_a_decision_is_made_does_not_stop_before_it_starts():
    """Lost at 0.5, while the decision to start it takes until 1: it is recorded as started at 1, stopped at 0.5."""
    faults = (NodeFault(node="n0", at_s=0.5, back_s=5.0),)
    recording = simulate(scenario(1.0, decision=DecisionTime(fixed_s=1.0), node_faults=faults))
    check_accounts(recording)


def test_replica_that_never_starts_in_time_does_not_keep_the_run_going_for_ever():
    """It takes 5 s to start and may take 2: every two seconds it is started again, long after all requests ended."""

    def progress(now):
        if now > 1e4:
            pytest.fail(f"the run is at {now:g} s, and its only request ended at 2 s")

    where = scenario(declared(1.0, cold_start_s=5, start_limit_s=2), control_period_s=1.0)
    simulate(where, Doing(), scaler=Adjusting((yielding(Scale("f", 1)),)), progress=progress)


def test_run_on_a_replica_that_waits_for_its_replacement_has_that_replicas_size():
    """At 2.5 the new replica, without a GPU, still starts and the old one serves: with its GPU, which is not recorded."""
    law = Table((Row(vgpus=1, seconds=1.0), Row(vgpus=0, seconds=4.0)))
    where = scenario(declared(law, cold_start_s=1.0), arrivals=[2.5], on=cluster(vgpus=4), control_period_s=1.0)
    deeds = yielding(Scale("f", 1, Configuration(vgpus=1))), yielding(Scale("f", 1, Configuration()))
    recording = simulate(where, Doing(), scaler=Adjusting(deeds))
    check_accounts(recording)
    assert recording.invocations.select("device", "vgpus", "end").rows() == [(0, 1, 3.5)]
