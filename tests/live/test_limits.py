"""Limits: what real processes get of a CPU and of memory, and what is left of the groups afterwards."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead.engine.live.limits import make_limiter
from fairlead.engine.live.limits.cgroups import CgroupV2, quota
from fairlead.engine.live.limits.groups import is_dead, run_name
from fairlead.engine.live.limits.hierarchies import find_hierarchies
from fairlead.engine.live.limits.places import find_places
from fairlead.errors import FairleadError
from fairlead.model import Node

GB = 2**30
SPIN = "import sys\nsys.stdin.readline()\nwhile True: pass"
ALLOCATE = "import sys\nsys.stdin.readline()\nkept = b'x' * (400 * 2**20)\nprint('kept', len(kept), flush=True)"
NODE = Node(name="whole", kind="whole", vcpus=2)
HALF = Node(name="half", kind="half", vcpus=1, speed=0.5)


def has_cgroups() -> bool:
    return make_limiter().kind != "affinity"


needs_cgroups = pytest.mark.skipif(not has_cgroups(), reason="no control groups can be made here")


@contextmanager
def opened(nodes, kind=None):
    limiter = make_limiter(kind)
    limiter.open(nodes)
    try:
        yield limiter
    finally:
        limiter.close()


@contextmanager
def waiting(code):
    """A process that runs this once it is told to: limits come first."""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def go(process):
    process.stdin.write("\n")
    process.stdin.flush()


def share_of_a_cpu(limiter, instance, seconds=1.0):
    """What an instance uses from now on, per second."""
    time.sleep(0.2)  # past the start of the interpreter
    before, began = limiter.usage(instance).cpu_s, time.monotonic()
    time.sleep(seconds)
    return (limiter.usage(instance).cpu_s - before) / (time.monotonic() - began)


def groups_named(name):
    places = [base for hierarchy in find_hierarchies() for base in hierarchy.bases()]
    return [path for base in places for path in base.glob(f"{name}*") if path.is_dir()]


@needs_cgroups
def test_half_a_vcpu_is_half_of_the_time():
    with opened([NODE]) as limiter, waiting(SPIN) as process:
        limiter.admit(7, process.pid, "whole", 0.5, 0.0)
        go(process)
        assert 0.05 <= share_of_a_cpu(limiter, 7) <= 0.65  # 0.5, or less where the machine is busy
        assert limiter.usage(7).throttled_s is not None


@needs_cgroups
def test_a_whole_vcpu_of_a_node_of_half_the_speed_is_half_of_the_time():
    with opened([NODE, HALF]) as limiter, waiting(SPIN) as process:
        limiter.admit(1, process.pid, "half", 1.0, 0.0)
        go(process)
        assert 0.05 <= share_of_a_cpu(limiter, 1) <= 0.65


@needs_cgroups
def test_two_instances_share_what_their_node_has():
    with opened([HALF]) as limiter, waiting(SPIN) as first, waiting(SPIN) as second:
        for instance, process in enumerate((first, second)):
            limiter.admit(instance, process.pid, "half", 1.0, 0.0)
            go(process)
        time.sleep(0.2)
        before, began = [limiter.usage(i).cpu_s for i in (0, 1)], time.monotonic()
        time.sleep(1.0)
        used = sum(limiter.usage(i).cpu_s - before[i] for i in (0, 1))
        assert 0.05 <= used / (time.monotonic() - began) <= 0.65


@needs_cgroups
def test_resize_takes_effect_on_what_runs():
    with opened([NODE]) as limiter, waiting(SPIN) as process:
        limiter.admit(1, process.pid, "whole", 1.0, 0.0)
        go(process)
        limiter.resize(1, 0.2)
        assert share_of_a_cpu(limiter, 1) <= 0.3


@needs_cgroups
def test_who_takes_more_memory_than_allowed_is_ended():
    with opened([NODE]) as limiter, waiting(ALLOCATE) as process:
        limiter.admit(1, process.pid, "whole", 1.0, 0.1)
        go(process)
        assert "kept" not in process.stdout.read()
        assert process.wait(60) != 0
        assert limiter.usage(1).oom_kills in (1, None)


def test_by_affinity_an_allocation_beyond_the_limit_fails():
    with opened([NODE], "affinity") as limiter, waiting(ALLOCATE) as process:
        limiter.admit(1, process.pid, "whole", 1.0, 0.1)
        go(process)
        assert "kept" not in process.stdout.read()
        assert process.wait(60) == 1  # MemoryError


@pytest.mark.parametrize("kind", [None, "affinity"])
def test_memory_within_the_limit_is_given_and_its_peak_known(kind):
    with opened([NODE], kind) as limiter, waiting(f"{ALLOCATE}\ninput()") as process:
        limiter.admit(1, process.pid, "whole", 1.0, 1.0)
        go(process)
        assert "kept" in process.stdout.readline()
        assert 0.38 * GB < limiter.usage(1).peak_bytes < GB
        assert 0.38 * GB < limiter.usage(1).memory_bytes < GB


def test_by_affinity_an_instance_is_held_to_its_number_of_cpus_and_gives_way():
    with opened([NODE], "affinity") as limiter, waiting(SPIN) as process:
        limiter.admit(1, process.pid, "whole", 0.5, 0.0)
        assert len(os.sched_getaffinity(process.pid)) == 1
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 4  # 1.25^-4 = 0.41, the first below a half
        limiter.resize(1, 2.0)
        assert os.sched_getaffinity(process.pid) == set(sorted(os.sched_getaffinity(0))[:2])


def test_by_affinity_instances_spread_over_the_cpus_of_their_node():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU only")
    with opened([NODE], "affinity") as limiter, waiting(SPIN) as first, waiting(SPIN) as second:
        limiter.admit(1, first.pid, "whole", 1.0, 0.0)
        limiter.admit(2, second.pid, "whole", 1.0, 0.0)
        assert os.sched_getaffinity(first.pid).isdisjoint(os.sched_getaffinity(second.pid))


@pytest.mark.parametrize("kind", [None, "affinity"])
def test_a_process_that_has_died_is_nobodys_fault(kind):
    with opened([NODE], kind) as limiter:
        with waiting("") as process:
            process.kill()
        limiter.admit(1, process.pid, "whole", 1.0, 0.5)
        limiter.resize(1, 0.5)
        limiter.usage(1)
        limiter.remove(1)
        limiter.remove(1)
        limiter.resize(1, 0.5)
        assert limiter.usage(1).cpu_s is None


@needs_cgroups
def test_remove_ends_what_an_instance_left_running():
    code = f"""
        import subprocess, sys
        sys.stdin.readline()
        child = subprocess.Popen([sys.executable, "-c", {SPIN!r}], stdin=subprocess.PIPE)
        print(child.pid, flush=True)
        sys.stdin.readline()
    """
    with opened([NODE]) as limiter, waiting(textwrap.dedent(code)) as process:
        limiter.admit(1, process.pid, "whole", 1.0, 0.0)
        go(process)
        child = int(process.stdout.readline())
        process.kill()
        limiter.remove(1)
        assert ends(child)


@needs_cgroups
def test_groups_are_gone_after_close():
    with opened([NODE, HALF]) as limiter, waiting(SPIN) as process:
        limiter.admit(1, process.pid, "half", 1.0, 0.5)
        go(process)
        assert groups_named(f"{run_name().rpartition('-')[0]}-")
    assert not groups_named(f"{run_name().rpartition('-')[0]}-")


@needs_cgroups
def test_groups_of_an_owner_that_was_killed_go_with_the_next_open():
    code = f"""
        import subprocess, sys
        from fairlead.engine.live.limits import make_limiter
        from fairlead.model import Node
        limiter = make_limiter()
        limiter.open([Node(name="n", kind="n", vcpus=1)])
        child = subprocess.Popen([sys.executable, "-c", {SPIN!r}], stdin=subprocess.PIPE)
        limiter.admit(1, child.pid, "n", 0.1, 0.5)
        child.stdin.write(b"\\n"); child.stdin.flush()
        print(child.pid, flush=True)
        sys.stdin.readline()
    """
    with waiting(textwrap.dedent(code)) as owner:
        orphan = int(owner.stdout.readline())
        owner.send_signal(signal.SIGKILL)
        owner.wait(60)
        left = [path for path in groups_named("fairlead-") if f"-{owner.pid}-" in path.name]
        assert left
        with opened([NODE]):
            assert ends(orphan)
            assert not [path for path in left if path.exists()]


@needs_cgroups
def test_services_that_end_meanwhile_do_not_hinder_the_search_for_nodes():
    is_over = threading.Event()

    def come_and_go():
        while not is_over.is_set():
            with opened([NODE, HALF]):
                pass

    others = [threading.Thread(target=come_and_go) for _ in range(2)]
    with opened([Node(name="stays", kind="stays", vcpus=1)]):
        for other in others:
            other.start()
        try:
            for _ in range(40):
                assert "stays" in [place.name for place in find_places()]
        finally:
            is_over.set()
            for other in others:
                other.join()


def ends(pid):
    """Whether a process that is not ours to wait for is gone, or taken apart, soon."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_a_group_is_dead_only_when_its_very_process_is():
    mine = run_name()
    prefix, namespace, pid, start, random = mine.split("-")
    assert not is_dead(mine)
    assert is_dead(f"{prefix}-{namespace}-{pid}-{int(start) + 1}-{random}")  # an id that was used again
    assert not is_dead(f"{prefix}-1-{pid}-{int(start) + 1}-{random}")  # another container's: who knows
    assert not is_dead("fairlead-notes")


def test_a_quota_is_short_and_never_below_what_the_kernel_keeps():
    assert quota(0.5, int) == (5_000, 10_000)
    assert quota(0.1, int) == (2_000, 20_000)
    assert quota(0.001, int) == (1_000, 1_000_000)
    assert quota(float(os.cpu_count()), int) is None


def test_version_2_is_written_in_its_own_words(tmp_path):
    """No version 2 with a CPU controller is at hand everywhere: plain files stand in for its control files."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory io\n")
    limiter = CgroupV2(tmp_path)
    limiter.open([Node(name="n", kind="n", vcpus=1, speed=0.5, memory_gb=2)])
    (run,) = tmp_path.glob("fairlead-*")
    node, leaf = run / "n", run / "n" / "3"
    limiter.admit(3, os.getpid(), "n", 1.0, 0.25)
    assert (run / "cgroup.subtree_control").read_text() == "+memory"  # after "+cpu": a file keeps the last word only
    assert (node / "cpu.max").read_text() == "5000 10000"
    assert (node / "memory.max").read_text() == str(2 * GB)
    assert (leaf / "cpu.max").read_text() == "5000 10000"
    assert (leaf / "memory.max").read_text() == str(GB // 4)
    assert (leaf / "memory.swap.max").read_text() == "0"
    assert (leaf / "cgroup.procs").read_text() == str(os.getpid())
    limiter.resize(3, 0.5)
    assert (leaf / "cpu.max").read_text() == "2500 10000"
    (leaf / "cpu.stat").write_text("usage_usec 1500000\nthrottled_usec 250000\n")
    (leaf / "memory.current").write_text("5000000\n")
    (leaf / "memory.stat").write_text("anon 1\ninactive_file 1000000\n")
    (leaf / "memory.events").write_text("oom 2\noom_kill 1\n")
    usage = limiter.usage(3)
    assert (usage.cpu_s, usage.throttled_s, usage.memory_bytes, usage.oom_kills) == (1.5, 0.25, 4_000_000, 1)
    (node / "cpu.pressure").write_text("some avg10=12.50 avg60=1.00 avg300=0.00 total=9\nfull avg10=0.00\n")
    assert limiter.pressure("n") == 0.125


def test_our_place_is_read_as_the_kernel_writes_it(tmp_path):
    for folder in ("cpu/a/b", "unified/user"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "cgroup").write_text("2:cpu,cpuacct:/a/b\n0::/user\n")
    (tmp_path / "mountinfo").write_text(
        f"30 20 0:5 / {tmp_path}/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
        f"31 20 0:6 / {tmp_path}/unified rw - cgroup2 cgroup2 rw\n"
        f"32 20 0:7 / /tmp rw - tmpfs tmpfs rw\n"
    )
    first, second = find_hierarchies(tmp_path)
    assert (first.own, first.controllers) == (tmp_path / "cpu/a/b", {"cpu", "cpuacct"})
    assert second.own == tmp_path / "unified/user"
    assert list(first.bases()) == [tmp_path / "cpu", tmp_path / "cpu/a", tmp_path / "cpu/a/b"]
    (tmp_path / "cpu/a/cpu.cfs_quota_us").write_text("50000\n")  # nothing above it keeps to this limit
    assert list(first.bases()) == [tmp_path / "cpu/a", tmp_path / "cpu/a/b"]


def test_an_unknown_kind_is_refused_with_what_there_is():
    with pytest.raises(ValueError, match="cgroup-v2, cgroup-v1, affinity; got 'cgroups'"):
        make_limiter("cgroups")


def test_a_kind_that_was_asked_for_and_does_not_work_says_why():
    other = "cgroup-v1" if make_limiter().kind == "cgroup-v2" else "cgroup-v2"  # a controller serves one version only
    with pytest.raises(FairleadError, match=r"do not work here: .*Leave the kind out"):
        make_limiter(other)
