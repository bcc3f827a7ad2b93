"""The fallback's signals, from kernel files made by hand; and the probes, on this machine."""

import os
from collections import deque
from time import process_time

import pytest
from kernel_files import Machine

from fairlead.monitor import Instance, InstanceReader, Place, RefusedError, Signals, instances_in, mean
from fairlead.monitor import fallback as fallback_module
from fairlead.monitor.fallback import Fallback
from fairlead.monitor.files import cpu_times, parse_cpus, run_and_wait_s, stalled_s
from fairlead.monitor.place import quota_cpus, room_cpus
from fairlead.monitor.probes import Probes, make_work, slowdown


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(fallback_module, "monotonic", found)
    return found


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def provider(machine):
    return Fallback(probe_every_s=None, proc=machine.proc, cpu_folder=machine.cpus)


def whole():
    return Place(name="local", cpus=(0, 1))


def emulated(machine):
    return Place(name="w01", cpus=(0, 1), cgroup=machine.node)


def test_a_node_of_whole_cpus_is_as_busy_as_they_are(machine, clock):
    fallback = provider(machine)
    fallback.open([whole()])
    clock.now += 1
    machine.stat(busy0=50, idle0=30, steal0=20, busy1=100, switches=400)
    signals = fallback.sample(whole())
    assert signals.c0 == pytest.approx(150 / 200)
    assert signals.extras["steal"] == pytest.approx(20 / 200)
    assert signals.extras["context_switches_per_s"] == 400
    assert signals.c1 is None  # no cpuidle here


def test_c1_is_the_time_in_the_first_idle_state_that_is_no_polling(machine, clock):
    for cpu in (0, 1):
        machine.write(machine.cpus / f"cpu{cpu}" / "cpuidle" / "state1" / "time", "0\n")
    fallback = provider(machine)
    fallback.open([whole()])
    clock.now += 2
    machine.write(machine.cpus / "cpu1" / "cpuidle" / "state1" / "time", "1000000\n")
    assert fallback.sample(whole()).c1 == pytest.approx(1 / 4)


def test_an_emulated_node_is_judged_by_its_quota(machine, clock):
    fallback = provider(machine)
    fallback.open([emulated(machine)])
    clock.now += 2
    machine.used(600_000)  # of 0.5 cores x 2 s
    machine.throttled(200, 50)
    machine.pressure("cpu", 500_000)
    machine.pressure("memory", 200_000)
    machine.ran(70, 400_000_000, 100_000_000)
    machine.ran(71, 200_000_000, 100_000_000)
    signals = fallback.sample(emulated(machine))
    assert signals.c0 == pytest.approx(0.6)
    assert signals.c1 == pytest.approx(0.4)
    assert signals.memory_writes == pytest.approx(0.1)
    assert signals.rest == pytest.approx(0.25)
    assert signals.extras["throttled"] == pytest.approx(0.25)
    assert signals.extras["psi_cpu"] == pytest.approx(0.25)
    assert signals.extras["wait_share"] == pytest.approx(0.25)  # 0.2 of 0.8 s


def test_what_third_parties_hold_and_use_counts_as_the_nodes(machine, clock):
    holder = machine.node.with_name("w01@other")
    machine.write(machine.node / "cpu.cfs_quota_us", "3000\n")
    machine.write(holder / "cpu.cfs_quota_us", "2000\n")
    machine.write(holder / "cpu.cfs_period_us", "10000\n")
    machine.used(0, "w01@other")
    fallback = provider(machine)
    fallback.open([emulated(machine)])
    clock.now += 2
    machine.used(100_000)
    machine.used(400_000, "w01@other")
    assert room_cpus(machine.node) == pytest.approx(0.5)
    assert fallback.sample(emulated(machine)).c0 == pytest.approx(0.5)


def test_a_sample_counts_from_the_one_before(machine, clock):
    fallback = provider(machine)
    fallback.open([emulated(machine)])
    for used in (500_000, 750_000):
        clock.now += 1
        machine.used(used)
        last = fallback.sample(emulated(machine))
    assert last.c0 == pytest.approx(0.5)


def test_a_group_that_is_not_there_is_refused(machine):
    with pytest.raises(RefusedError, match="no such control group"):
        provider(machine).open([Place(name="w02", cpus=(0,), cgroup=machine.node.with_name("w02"))])


def test_cpus_that_are_not_there_are_refused(machine):
    with pytest.raises(RefusedError, match="does not tell of CPUs 5"):
        provider(machine).open([Place(name="x", cpus=(5,))])


def test_instances_are_the_inner_groups_that_hold_a_process(machine):
    machine.write(machine.node / "8" / "cgroup.procs", "")
    assert instances_in(emulated(machine)) == [Instance(name="7", pid=70, cgroup=machine.node / "7")]


def test_an_instance_has_its_own_signals(machine):
    machine.write(machine.v2 / "run" / "w01" / "7" / "cpu.pressure", "")
    machine.write(machine.v2 / "run" / "w01" / "7" / "cpu.stat", "usage_usec 2000000\n")
    machine.write(machine.node / "7" / "cpu.stat", "nr_periods 10\nnr_throttled 0\n")
    machine.write(machine.proc / "70" / "statm", "500 25 3 0 0 0 0\n")
    reader = InstanceReader(instances_in(emulated(machine))[0], machine.proc)
    machine.write(machine.node / "7" / "cpu.stat", "nr_periods 30\nnr_throttled 5\n")
    machine.ran(70, 300_000_000, 900_000_000)
    signals = reader.sample()
    assert signals.cpu_s == 2.0
    assert signals.throttled == pytest.approx(0.25)
    assert signals.wait_share == pytest.approx(0.75)
    assert signals.rss_bytes == 25 * os.sysconf("SC_PAGE_SIZE")


def test_an_instance_without_a_group_is_read_by_its_process():
    reader = InstanceReader(Instance(name="me", pid=os.getpid()))
    until = process_time() + 0.1  # the kernel counts in hundredths of a second
    while process_time() < until:
        sum(range(1000))
    signals = reader.sample()
    assert signals.cpu_s > 0
    assert signals.busy_cores > 0
    assert signals.rss_bytes > 2**20
    assert signals.throttled is None


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-2,5", (0, 1, 2, 5)), ("3", (3,)), ("1,0", (0, 1))], ids=["range", "one", "unordered"]
)
def test_cpus_are_read_as_the_kernel_writes_them(text, cpus):
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "1-"])
def test_other_lists_of_cpus_are_refused(text):
    with pytest.raises(ValueError, match="CPUs are written as"):
        parse_cpus(text)


def test_what_cannot_be_read_is_unknown(tmp_path):
    assert stalled_s(None) is None
    assert stalled_s("full avg10=0 total=3") is None
    assert cpu_times("cpu0 1 2 3", [0, 1]) is None
    assert run_and_wait_s("12") is None
    assert quota_cpus(tmp_path) is None


def test_quotas_are_read_in_the_words_of_version_2(tmp_path):
    (tmp_path / "cpu.max").write_text("25000 50000\n")
    assert quota_cpus(tmp_path) == 0.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert quota_cpus(tmp_path) is None


def test_the_mean_leaves_out_what_is_unknown():
    found = mean([Signals(at_s=1, c0=0.2, ipc=1.0, extras={"a": 1.0}), Signals(at_s=2, c0=0.4, extras={"b": 3.0})])
    assert found.c0 == pytest.approx(0.3)
    assert found.ipc == 1.0
    assert found.extras == {"a": 1.0, "b": 3.0}
    assert found.at_s == 2
    assert found.vector() == (1.0, 0.0, 0.0, 0.0, pytest.approx(0.3), 0.0, 0.0)


def test_a_slowdown_is_against_the_least_and_one_odd_run_does_not_count():
    assert slowdown(deque([1.0, 2.0, 2.0, 9.0])) == 2.0
    assert slowdown(deque([4.0])) == 1.0


def test_probes_run_where_they_are_told_and_only_when_due():
    probes, cpu = Probes(every_s=10.0), min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    first = probes.slowdowns((cpu,), 0.0)
    assert set(first) == {"compute", "stream", "gather"}
    assert set(first.values()) == {1.0}  # one run is its own baseline
    assert probes.slowdowns((cpu,), 9.0) == first
    assert len(probes._times[(cpu,), "stream"]) == 1
    probes.slowdowns((cpu,), 10.0)
    assert len(probes._times[(cpu,), "stream"]) == 2
    assert os.sched_getaffinity(0) == before


def test_the_probes_do_what_they_say():
    work = make_work()
    assert work["compute"]() == sum(range(20_000))
    assert work["stream"]() == 32 * 2**20 / 8
    assert work["gather"]().sum() == 20_000
