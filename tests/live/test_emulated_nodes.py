"""Emulated nodes over real processes: functions sit where they were put, and are watched.

How they move is in `test_moves.py`, on virtual time.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from runtimes import HEAD, Served, local_instances, run, until

from fairlead.app.describe import describe
from fairlead.app.scenario import scenario_of
from fairlead.engine.live.limits import make_limiter
from fairlead.engine.live.limits.cgroups import group_name
from fairlead.engine.live.limits.groups import read, write
from fairlead.engine.live.nodes import parse_nodes
from fairlead.engine.live.runtime import Runtime
from fairlead.engine.live.store import Store
from fairlead.errors import ConfigError, FairleadError
from fairlead.model import Node
from fairlead.policy.base import Move
from fairlead.stress import Pressure, Stressor
from fairlead.workload import PolicyChoice

needs_cgroups = pytest.mark.skipif(make_limiter().kind == "affinity", reason="no control groups can be made here")

FAST, SLOW = 0.8, 0.2  # a ratio of four, and both together one core
TWO = {
    "nodes": [
        {"name": "fast", "vcpus": 1, "speed": FAST, "overcommit": 8},
        {"name": "slow", "vcpus": 1, "speed": SLOW, "overcommit": 8},
    ]
}

BURN = """
    import os, time

    @app.function()
    def burn(cpu_s):
        began, used = time.monotonic(), time.thread_time()
        while time.thread_time() - used < cpu_s:
            pass
        return [os.getpid(), (time.monotonic() - began) / (time.thread_time() - used)]

    app.workflow("main", burn)
"""


@asynccontextmanager
async def emulated(
    folder: Path,
    placement: str,
    *,
    nodes: Mapping[object, object] = TWO,
    replicas: int = 1,
    period_s: float = 0.4,
    is_watched: bool | None = False,
):
    """Serve the burning function on these nodes, each where the placement says."""
    path = folder / "app.py"
    path.write_text(HEAD + dedent(BURN))
    manifest = await asyncio.to_thread(describe, path)
    found = parse_nodes(nodes, "nodes.yaml")
    given = {"placement": placement, "replicas": replicas}
    scenario = replace(
        scenario_of(manifest, cluster=found.cluster),
        policy=PolicyChoice(name="least-loaded"),
        scaler=PolicyChoice(name="static-placement", parameters=given),
        control_period_s=period_s,
    )
    store, log = Store.make(), []
    async with local_instances(path, scenario.cluster, store, log, emulated=found) as instances:
        runtime = Runtime(manifest, scenario, instances, log.append, is_watched=is_watched)
        try:
            await runtime.open()
            make_heavy(instances.places()[0].cgroup)
            await until(lambda: runtime.controller.decisions.adjustments > 0 or period_s > 20)  # it has had its say
            yield Served(runtime, store, log)
        finally:
            await runtime.close()


def make_heavy(cgroup: Path | None) -> None:
    """Let the nodes' run go before others on this machine, so that they get all that their speeds allow."""
    for name, weight in (("cpu.shares", "262144"), ("cpu.weight", "10000")):
        if cgroup is not None and (file := cgroup.parent / name).exists():
            write(file, weight)


def node_of(pid: int) -> str:
    """The emulated node that a process runs on, as the kernel knows it."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "fairlead-" in path and ("cpu" in controllers.split(",") or not controllers):
            return path.split("/")[-2]
    return ""


def are_on(app: Served, node: str, count: int) -> bool:
    """Whether the function has so many instances that are ready, and all its processes are on this node."""
    instances = app.runtime.controller.pool.instances.values()
    is_settled = all(one.is_ready and not one.is_draining and one.node.name == node for one in instances)
    return is_settled and [node_of(pid) for pid in app.pids("burn")] == [node] * count


@needs_cgroups
def test_work_takes_longer_by_the_ratio_of_speeds(tmp_path):
    async def test():
        async with emulated(tmp_path, "*=slow") as app:
            await until(lambda: are_on(app, "slow", 1))
            _, slow = await app.answer("main", 0.25)
            app.runtime.order(Move("burn", "fast"))
            await until(lambda: are_on(app, "fast", 1))
            _, fast = await app.answer("main", 0.25)
            assert slow >= 0.8 / SLOW  # never faster than its share of the time
            assert fast >= 0.8 / FAST
            assert 2 <= slow / fast <= 8  # 4

    run(test)


@needs_cgroups
def test_the_controller_hears_what_the_monitor_sees_and_what_others_take(tmp_path):
    async def test():
        async with emulated(tmp_path, "burn=fast", period_s=0.5, is_watched=None) as app:
            view, watch = app.runtime.controller.view, app.runtime.watch
            nodes = app.runtime.controller.nodes
            await until(lambda: are_on(app, "fast", 1))
            work = asyncio.ensure_future(app.answer("main", 3.0))
            await until(lambda: all(node.signals for node in nodes.values()) and view.signals("fast")[4] > 0.6)
            assert [len(view.signals(name)) for name in nodes] == [7, 7]
            assert view.signals("slow")[4] < 0.4  # its c0: nobody works there
            assert (view.pressure("fast"), view.pressure("slow")) == (0.0, 0.0)
            place = app.runtime._instances.places()[1]
            with Stressor(place, burner="python") as stressor:
                stressor.set(Pressure(share=0.5))
                await until(lambda: view.pressure("slow") > 0.35)
                assert view.pressure("slow") < 0.65
                assert view.pressure("fast") == 0.0
                assert view.signals("slow")[4] > 0.35  # a busy node, whoever it is
            await until(lambda: view.pressure("slow") == 0.0)
            await work
            assert 0 < watch.overhead() < 1  # of a core
            status = {one.name: one for one in app.runtime.tally.nodes(watch.means())}
            assert status["slow"].speed == SLOW
            assert status["fast"].signals["c0"] == watch.means()["fast"].c0

    run(test)


def test_who_is_not_to_be_watched_is_not_and_what_cannot_be_watched_says_so(tmp_path, monkeypatch):
    async def test():
        whole = {"nodes": [{"name": "fast", "vcpus": 1}]}
        async with emulated(tmp_path, "", nodes=whole, is_watched=False) as app:
            assert app.runtime.watch is None

        def refuse(places):
            raise FairleadError("No signals can be read here: as asked.")

        monkeypatch.setattr("fairlead.engine.live.watch.choose", refuse)
        async with emulated(tmp_path, "", nodes=whole, is_watched=None) as app:
            assert app.runtime.watch is None
            assert app.log == ["nodes are not watched: No signals can be read here: as asked."]
        with pytest.raises(ConfigError, match="test: monitor: No signals can be read here"):
            async with emulated(tmp_path, "", nodes=whole, is_watched=True):
                pass

    run(test)


def test_an_instance_runs_on_the_cpus_of_its_node(tmp_path):
    cpu = max(os.sched_getaffinity(0))
    bound = {"nodes": [{"name": "one", "vcpus": 1, "cpus": cpu}]}

    async def test():
        async with emulated(tmp_path, "", nodes=bound) as app:
            (pid,) = app.pids("burn")
            assert os.sched_getaffinity(pid) == {cpu}
            assert app.runtime._instances.places()[0].cpus == (cpu,)

    run(test)


def test_affinity_takes_the_cpus_that_a_node_is_bound_to():
    cpu = max(os.sched_getaffinity(0))
    limiter = make_limiter("affinity")
    limiter.open([Node(name="a", kind="a", vcpus=2)], cpus={"a": (cpu,)})
    assert limiter.place("a").cpus == (cpu,)
    assert limiter.place("a").cgroup is None
    limiter.close()


@pytest.mark.skipif(make_limiter().kind != "cgroup-v1", reason="only version 1 refuses more below than above")
@pytest.mark.parametrize("occasion", ["admit", "resize", "remove"])
def test_an_instance_that_comes_while_others_hold_its_node_is_limited_once_they_are_gone(occasion):
    limiter = make_limiter()
    limiter.open([Node(name="n", kind="n", vcpus=1, speed=0.5)])
    group = limiter.place("n").cgroup
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            limiter.admit(0, process.pid, "n", 0.1, 0.0)
            write(group / "cpu.cfs_quota_us", "1000")  # others hold four fifths
            limiter.admit(1, process.pid, "n", 1.0, 0.0)
            assert limiter.holds(1)
            assert read(group / "1" / "cpu.cfs_quota_us") == "-1"  # that of its node must do
            write(group / "cpu.cfs_quota_us", "5000")
            if occasion == "admit":
                limiter.admit(2, process.pid, "n", 0.5, 0.0)
            elif occasion == "resize":
                limiter.resize(0, 0.2)
            else:
                limiter.remove(0)
            assert read(group / "1" / "cpu.cfs_quota_us") == "5000"
        finally:
            process.kill()
            limiter.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("w01", "w01"), ("tasks", "node.3"), ("a/b", "node.3"), ("a@b", "node.3"), ("..", "node.3")],
)
def test_a_group_has_the_name_of_its_node_where_it_can(name, expected):
    assert group_name(name, 3) == expected
