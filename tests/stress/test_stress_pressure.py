"""Pressure on real processes: what functions are left with, and that all is as before afterwards."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from emulated import children, emulated_node, has_cgroups, holders, is_alive, wait_until

from fairlead.engine.live.limits.groups import run_name
from fairlead.errors import UnknownNameError
from fairlead.monitor import choose, local_place
from fairlead.stress import MissingBurnerError, Phase, Pressure, Schedule, StressError, Stressor, run_schedule
from fairlead.stress import holding as holding_module
from fairlead.stress.burners import command
from fairlead.stress.holding import Holding, limit_writes, recover

needs_cgroups = pytest.mark.skipif(not has_cgroups(), reason="no control groups can be made here")
needs_stress_ng = pytest.mark.skipif(shutil.which("stress-ng") is None, reason="stress-ng is not installed")
PAIRS = [("python", 1), ("python", 3), pytest.param("stress-ng", 3, marks=needs_stress_ng)]

CPU = Pressure(share=0.5)


def left_to_functions(node, stressor, seconds=0.6):
    """The functions' part of all that the node did."""
    group = stressor._holding.groups[-1]
    file = group / "cpuacct.usage"

    def held_s():
        if file.exists():
            return int(file.read_text()) / 1e9
        fields = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6

    functions, third = node.functions_cpu_s(), held_s()
    time.sleep(seconds)
    functions, third = node.functions_cpu_s() - functions, held_s() - third
    return functions / (functions + third)


@needs_cgroups
@pytest.mark.parametrize(("burner", "functions"), PAIRS)
def test_functions_get_what_the_pressure_leaves(burner, functions):
    with emulated_node() as node, Stressor(node.place, burner=burner) as stressor:
        for _ in range(functions):
            node.add_function()
        before = node.limits()
        for share in (0.25, 0.75):
            stressor.set(Pressure(share=share))
            assert wait_until(lambda left=1 - share: left_to_functions(node, stressor) == pytest.approx(left, abs=0.06))
        stressor.set(Pressure(share=0.0))
        assert node.limits() == before
        assert not stressor.is_running


@needs_cgroups
def test_an_instance_of_its_own_limit_has_it_again_afterwards():
    with emulated_node() as node, Stressor(node.place, burner="python") as stressor:
        node.add_function(vcpus=0.8)  # 0.4 cores: more than what 75 % leaves, less than what 10 % does
        before = node.limits()
        stressor.set(Pressure(share=0.75))
        stressor.set(Pressure(share=0.1))
        inner = [name for name in before if "/1/" in name]
        assert {name: node.limits()[name] for name in inner} == {name: before[name] for name in inner}
        stressor.stop()
        assert node.limits() == before


@needs_cgroups
@pytest.mark.parametrize("speed", [0.07, 64.0], ids=["slow", "without-a-limit"])
def test_a_node_of_any_size_is_afterwards_as_it_was(speed):
    with emulated_node(speed) as node, Stressor(node.place, burner="python") as stressor:
        before = node.limits()
        for share in (0.5, 1.0):
            stressor.set(Pressure(share=share))
            assert node.limits() != before
        stressor.stop()
        assert node.limits() == before


@needs_cgroups
def test_an_instance_can_start_while_the_node_is_pressed_on():
    with emulated_node() as node, Stressor(node.place, burner="python") as stressor:
        stressor.set(Pressure(share=0.75))
        node.add_function()
        assert wait_until(lambda: left_to_functions(node, stressor) == pytest.approx(0.25, abs=0.06))
        assert not node.limiter._has_complained


@needs_cgroups
def test_the_monitor_sees_an_idle_node_busy_with_what_others_do():
    with emulated_node() as node, Stressor(node.place, burner="python") as stressor:
        provider, _ = choose([node.place], "fallback", probe_every_s=None)
        stressor.set(CPU)

        def busy():
            provider.sample(node.place)
            time.sleep(0.9)
            return provider.sample(node.place).c0

        assert wait_until(lambda: busy() == pytest.approx(0.5, abs=0.1))


@needs_cgroups
def test_functions_wait_longer_under_pressure():
    with emulated_node() as node, Stressor(node.place, burner="python") as stressor:
        node.add_function()
        provider, _ = choose([node.place], "fallback", probe_every_s=None)

        def wait_share():
            provider.sample(node.place)
            time.sleep(0.8)
            return provider.sample(node.place).extras["wait_share"]

        alone = wait_share()
        stressor.set(CPU)
        assert wait_until(lambda: wait_share() > alone + 0.1)


@needs_cgroups
def test_pressure_on_whole_cpus_takes_its_share_of_them():
    place = local_place([min(os.sched_getaffinity(0))])
    with Stressor(place, burner="python") as stressor:
        stressor.set(CPU)
        time.sleep(0.3)
        group = stressor._holding.groups[-1]
        before = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        began = time.monotonic()
        time.sleep(1.0)
        passed_s = time.monotonic() - began
        after = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    if "usage_usec" in before:
        used_s = (int(after["usage_usec"]) - int(before["usage_usec"])) / 1e6
        assert 0.02 < used_s / passed_s < 0.6  # less than a half where others want the CPU too


def test_without_groups_a_share_is_kept_by_pausing(caplog):
    place = local_place([min(os.sched_getaffinity(0))])
    with Stressor(place, burner="python", with_groups=False) as stressor:
        stressor.set(Pressure(share=0.3))
        assert stressor._holding is None
        (burner,) = children(stressor._keeper.pid)
        assert os.sched_getaffinity(burner) == set(place.cpus)
        assert wait_until(lambda: cpu_s(burner) > 0.05)
        began, used = time.monotonic(), cpu_s(burner)
        time.sleep(1.0)
        share = (cpu_s(burner) - used) / (time.monotonic() - began)
        assert 0.02 < share < 0.4  # less where others want the CPU too
    assert wait_until(lambda: not is_alive(burner))


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@needs_stress_ng
@pytest.mark.parametrize("kind", ["cache", "memory-bandwidth"])
def test_stress_ng_does_the_other_kinds(kind):
    place = local_place([min(os.sched_getaffinity(0))])
    with Stressor(place, with_groups=has_cgroups()) as stressor:
        stressor.set(Pressure(share=0.3, kinds=(kind,)))
        assert wait_until(lambda: any(cpu_s(pid) > 0.05 for pid in children(stressor._keeper.pid)))
        assert stressor.is_running


def test_an_absent_stress_ng_is_said_with_what_mends_it():
    with pytest.raises(MissingBurnerError, match=r"apt-get install stress-ng.*--burner python"):
        command("stress-ng", CPU, 2, is_limited=True, which=lambda name: None)
    with pytest.raises(MissingBurnerError, match="presses on the CPU only, not on cache"):
        command("python", Pressure(share=0.5, kinds=("cache",)), 2, is_limited=True)


@needs_cgroups
def test_an_absent_stress_ng_leaves_the_node_as_it_is(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with emulated_node() as node:
        before = node.limits()
        with Stressor(node.place) as stressor, pytest.raises(MissingBurnerError):
            stressor.set(CPU)
        assert node.limits() == before
        assert not [path for path in holders(os.getpid()) if "@" in path.name]


@needs_cgroups
def test_what_a_killed_owner_and_keeper_left_is_given_back(monkeypatch):
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", ""]) as gone:
        gone.wait()
    name = run_name().replace(f"-{os.getpid()}-", f"-{gone.pid}-")
    monkeypatch.setattr(holding_module, "run_name", lambda: name)
    with emulated_node() as node:
        before = node.limits()
        holding = Holding(node.place)
        holding.limit(0.5)
        assert node.limits() != before
        recover(node.place.cgroup)
        assert node.limits() == before
        assert not any(group.exists() for group in holding.groups)


@pytest.mark.parametrize(
    ("cpus", "v1", "v2"),
    [
        (0.375, ["10000", "3750"], "3750 10000"),
        (0.05, ["20001", "1000"], "1000 20001"),  # the kernel takes no quota below a millisecond
        (None, ["10000", "-1"], "max 10000"),
    ],
    ids=["part", "small", "none"],
)
def test_limits_are_written_in_the_words_of_either_version(tmp_path, cpus, v1, v2):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    (new / "cpu.max").touch()
    assert limit_writes(new, cpus) == [(str(new / "cpu.max"), v2)]
    writes = [(Path(path).name, text) for path, text in limit_writes(old, cpus)]
    period, quota = v1
    assert writes == [("cpu.cfs_quota_us", "-1"), ("cpu.cfs_period_us", period), ("cpu.cfs_quota_us", quota)]


def test_a_schedule_presses_on_each_node_in_turn_and_stops_when_told():
    place, stop, seen = local_place([min(os.sched_getaffinity(0))]), threading.Event(), []
    schedule = Schedule(
        phases=(
            Phase(seconds=0.3, pressure={"local": Pressure(share=0.1)}),
            Phase(seconds=0.2),
            Phase(seconds=60, pressure={"local": Pressure(share=0.1)}),
        )
    )

    def on_phase(i, phase):
        seen.append((i, len(children(os.getpid()))))
        if i == 2:
            stop.set()

    before = len(children(os.getpid()))
    began = time.monotonic()
    run_schedule(schedule, [place], burner="python", with_groups=False, stop=stop, on_phase=on_phase)
    assert 0.5 <= time.monotonic() - began < 60
    assert [i for i, _ in seen] == [0, 1, 2]
    assert seen[0][1] > before
    assert seen[1][1] == before
    assert len(children(os.getpid())) == before


def test_a_node_that_there_is_not_is_refused_before_anything_is_pressed_on():
    schedule = Schedule(phases=(Phase(seconds=1, pressure={"w01": CPU}),))
    with pytest.raises(UnknownNameError, match="No node named 'w01'"):
        run_schedule(schedule, [local_place()], burner="python")


def test_a_burner_that_is_killed_is_noticed():
    schedule = Schedule(phases=(Phase(seconds=30, pressure={"local": Pressure(share=0.1)}),))

    def kill(i, phase):
        for pid in children(os.getpid()):
            said = Path(f"/proc/{pid}/cmdline").read_text()
            if "burn.py" in said and "keeper.py" not in said:
                os.kill(pid, signal.SIGKILL)

    place = local_place([min(os.sched_getaffinity(0))])
    with pytest.raises(StressError, match=r"burner of node local was killed, by signal 9\."):
        run_schedule(schedule, [place], burner="python", with_groups=False, on_phase=kill)


def test_a_burner_that_ends_by_itself_is_told_with_its_exit_code(tmp_path, monkeypatch):
    program = tmp_path / "stress-ng"
    program.write_text("#!/bin/sh\nsleep 0.2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    schedule = Schedule(phases=(Phase(seconds=30, pressure={"local": Pressure(share=0.1)}),))
    with pytest.raises(StressError, match=r"ended with exit code 3\. See why by hand: .*stress-ng .*--cpu-load 10"):
        run_schedule(schedule, [local_place([min(os.sched_getaffinity(0))])], with_groups=False)


@needs_cgroups
def test_a_node_that_goes_while_it_is_pressed_on_is_told():
    schedule = Schedule(phases=(Phase(seconds=30, pressure={"half": CPU}),))
    with emulated_node() as node, pytest.raises(StressError, match="Node half is gone: the service that had it"):
        run_schedule(schedule, [node.place], burner="python", on_phase=lambda i, phase: node.limiter.close())


@needs_cgroups
def test_a_node_that_went_before_is_told():
    with emulated_node() as node:
        node.limiter.close()
        with Stressor(node.place, burner="python") as stressor, pytest.raises(StressError, match="Node half is gone"):
            stressor.set(CPU)


@needs_cgroups
def test_a_second_one_on_a_node_is_refused_and_changes_nothing():
    with emulated_node() as node, Stressor(node.place, burner="python") as first:
        first.set(Pressure(share=0.75))
        before = node.limits()
        with Stressor(node.place, burner="python") as second:
            with pytest.raises(StressError, match=f"half is pressed on already by process {os.getpid()}.*: kill "):
                second.set(CPU)
            assert node.limits() == before
            assert first._holding.groups == [path for path in first._holding.groups if path.exists()]
            first.stop()
            second.set(CPU)  # now that it is free
