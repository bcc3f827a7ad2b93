"""Behaviour that is promised and does not hold: each test is the smallest case that shows it."""

from collections import Counter
from contextlib import suppress

import pytest
from toy_policies import Adjusting, Doing, yielding

from fairlead.engine import simulate
from fairlead.errors import FairleadError
from fairlead.model import Configuration
from fairlead.policy import Scale
from fairlead.policy.fifo import Fifo
from fairlead.profile import Row, Table
from fairlead.testing import check_accounts, cluster, declared, scenario
from fairlead.workload import ClosedLoop


def test_replica_that_waits_for_its_replacement_keeps_its_gpu_after_a_batch():
    """From 4 on the function is to run without a GPU. Until its replacement is ready at 7, the old replica serves.

    After its first batch it takes over not only the vCPUs of the new size: the second run is recorded, timed and priced
    without the GPU that it has.
    """
    law = Table((Row(vcpus=0.5, vgpus=1, seconds=1.0), Row(vcpus=1, seconds=9.0)))
    where = scenario(declared(law, cold_start_s=3.0), arrivals=[4.5, 4.5], on=cluster(vgpus=4), control_period_s=1.0)
    old, new = Configuration(vcpus=0.5, vgpus=1), Configuration()
    deeds = yielding(Scale("f", 1, old)), yielding(), yielding(), yielding(Scale("f", 1, new))
    recording = simulate(where, Doing(), scaler=Adjusting(deeds))
    check_accounts(recording)
    assert recording.invocations.select("start", "vgpus", "end").rows() == [(4.5, 1, 5.5), (5.5, 1, 6.5)]


def test_user_who_is_rejected_and_does_not_think_does_not_stop_time():
    """While the other's call runs, a rejected user calls again at the same instant, for ever."""
    seen = Counter()

    def progress(now):
        seen[now] += 1
        if seen[now] > 5:
            pytest.fail(f"thousands of calls at {now:g} s, and no end")

    loop = ClosedLoop("main", users=2, think_s=0, think="constant")
    where = scenario(1.0, arrivals=[loop], on=cluster(vcpus=1), duration_s=5)
    with suppress(FairleadError):  # to say that this cannot work would do as well
        simulate(where, Fifo(queue_limit=0), progress=progress)
