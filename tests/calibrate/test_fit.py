"""From loads to a host: figures that were put in come out again."""

import numpy as np
import pytest

from fairlead.calibrate.fit import Sample, fit_gateway, make_host
from fairlead.profile import Host
from fairlead.profile.host import MachineProfile, read_machine, write_machine

REQUEST, TURN, BATCH = 100e-6, 50e-6, 50e-6  # both ways of a batch together
COLD, AFTER = 2.0, 0.004


def sample(name, requests, turns, batches, *, seconds=1.0, slower=1.0, more_s=0.0, mb=0.0):
    used = (requests * REQUEST + turns * TURN + batches * BATCH + more_s) * slower
    kinds = {"hop": 1e-4, "slow": 4e-4}
    return Sample(
        load=name,
        duration_s=seconds,
        requests=requests,
        turns=turns,
        batches=batches,
        gateway_cpu_s=used,
        client_cpu_s=1e-4 * requests,
        runs_s=(kinds.get(name, 1e-3),) * 10,
        mb=mb,
    )


def slower(pause_s):
    return 1 + COLD * (1 - np.exp(-pause_s / AFTER))


SAMPLES = {
    "hop": sample("hop", 1000, 2000, 1000),
    "single": sample("single", 4000, 4100, 4000),
    "chain": sample("chain", 1000, 4300, 4000),
    "brisk": sample("brisk", 250, 500, 250, slower=slower(1 / 500)),
    "slow": sample("slow", 50, 100, 50, slower=slower(1 / 100)),
    "large": sample("large", 400, 700, 400, more_s=400 * 0.5 * 3e-3, mb=0.5),
}


def test_costs_of_requests_turns_and_batches_are_told_apart():
    found = fit_gateway(SAMPLES)
    assert found["request_s"] + found["answer_s"] == pytest.approx(REQUEST, rel=0.01)
    assert found["turn_s"] == pytest.approx(TURN, rel=0.01)
    assert found["send_s"] + found["end_s"] == pytest.approx(BATCH, rel=0.01)
    assert found["mb_s"] == pytest.approx(3e-3, rel=0.05)


def test_pauses_tell_how_much_slower_cold_code_is():
    found = fit_gateway(SAMPLES)
    assert found["cold_factor"] == pytest.approx(COLD, rel=0.1)
    assert found["cold_after_s"] == pytest.approx(AFTER, rel=0.15)


def test_decision_time_is_what_a_policy_takes_beyond_the_reference():
    under = {"slow-policy": {"chain": sample("chain", 1000, 4300, 4000, more_s=4300 * 80e-6)}}
    host = make_host(2, SAMPLES, under, "fifo", 1e-4)
    assert host.decision_s == {"fifo": 0.0, "slow-policy": pytest.approx(80e-6, rel=0.02)}
    assert host.decides_s("unknown") == host.decision_s["slow-policy"]


def test_a_machine_file_can_be_carried_elsewhere(tmp_path):
    machine = MachineProfile(cpu="some", host=Host(cores=2, wake_s=(1e-5, 2e-5), decision_s={"fifo": 0.0}))
    write_machine(machine, tmp_path / "new" / "machine.json")
    assert read_machine(tmp_path / "new" / "machine.json") == machine
