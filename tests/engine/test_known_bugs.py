"""Behaviour that is promised and does not hold: each test is the smallest case that shows it."""

from toy_policies import Adjusting, Doing, yielding

from fairlead.engine import simulate
from fairlead.model import Configuration
from fairlead.policy import Scale
from fairlead.profile import Row, Table
from fairlead.testing import check_accounts, cluster, declared, scenario


def test_run_on_a_replica_that_waits_for_its_replacement_has_that_replicas_size():
    """At 2.5 the new replica, without a GPU, still starts and the old one serves, with a GPU that is not recorded."""
    law = Table((Row(vgpus=1, seconds=1.0), Row(vgpus=0, seconds=4.0)))
    where = scenario(declared(law, cold_start_s=1.0), arrivals=[2.5], on=cluster(vgpus=4), control_period_s=1.0)
    deeds = yielding(Scale("f", 1, Configuration(vgpus=1))), yielding(Scale("f", 1, Configuration()))
    recording = simulate(where, Doing(), scaler=Adjusting(deeds))
    check_accounts(recording)
    assert recording.invocations.select("device", "vgpus", "end").rows() == [(0, 1, 3.5)]
