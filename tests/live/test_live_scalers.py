"""Scalers over real processes: replicas come and go, limits follow, and no function is left alone."""

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from time import sleep

import msgspec
import numpy as np
import pytest
from runtimes import HEAD, Served, local_instances, run, until
from serving import serving, wait_for, write_app
from typer.testing import CliRunner

from fairlead.app.describe import describe
from fairlead.app.scenario import scenario_of
from fairlead.cli import app as command
from fairlead.engine.live import runtime as runtimes_module
from fairlead.engine.live.limits import make_limiter
from fairlead.engine.live.runtime import Runtime
from fairlead.engine.live.store import Store
from fairlead.errors import ConfigError
from fairlead.policy import Policy, make_policy
from fairlead.policy.base import Action, Grow, Resize, Scale, Shrink, View
from fairlead.policy.simppo.checkpoint import Checkpoint, Description, Trained, write_checkpoint
from fairlead.policy.simppo.observation import Encoding
from fairlead.runlog import read_scaling
from fairlead.workload import PolicyChoice

NAP = """
    import time

    @app.function(vcpus=(0.5, 1), warm=1)
    def nap(seconds):
        time.sleep(seconds)
        return "rested"

    app.workflow("main", nap)
"""

SPIN = """
    import os, time

    @app.function(vcpus=(0.25, 1))
    def spin(seconds):
        end, used = time.monotonic() + seconds, time.process_time()
        while time.monotonic() < end:
            pass
        return [os.getpid(), time.process_time() - used]

    app.workflow("main", spin)
"""

KNATIVE = {"stable_window_s": 1.2, "panic_window_s": 0.6, "grace_s": 0.3, "min_replicas": 1, "max_replicas": 4}
HPA = {"period_s": 0.3, "stabilisation_s": 0.6, "max_replicas": 4}
SCALERS = [("knative", KNATIVE), ("hpa", HPA), ("threshold", {"max_replicas": 4})]
ALONE = {"max_replicas": 1}


@asynccontextmanager
async def scaled(
    folder: Path, source: str, scaler: str, given: Mapping[str, object], *, period_s: float = 0.3, overcommit: float = 4
):
    """Serve an app file with this text, under a scaler."""
    path = folder / "app.py"
    path.write_text(HEAD + dedent(source))
    manifest = await asyncio.to_thread(describe, path)
    scenario = scenario_of(manifest)
    nodes = tuple(msgspec.structs.replace(node, overcommit=overcommit) for node in scenario.cluster.nodes)
    scenario = replace(
        scenario,
        cluster=msgspec.structs.replace(scenario.cluster, nodes=nodes),
        policy=PolicyChoice(name="least-loaded"),
        scaler=PolicyChoice(name=scaler, parameters=given),
        control_period_s=period_s,
    )
    store, log = Store.make(), []
    async with local_instances(path, scenario.cluster, store, log) as instances:
        runtime = Runtime(manifest, scenario, instances, log.append)
        try:
            await runtime.open()
            yield Served(runtime, store, log)
        finally:
            await runtime.close()


def ready(app: Served, function: str) -> int:
    return sum(
        instance.is_ready and not instance.is_draining
        for instance in app.runtime.controller.pool.instances.values()
        if instance.flavour.function.name == function
    )


@asynccontextmanager
async def load(app: Served, clients: int, seconds: float):
    """Clients that call without a pause; how their requests ended."""
    endings: list[str] = []
    is_over = False

    async def keep_calling() -> None:
        while not is_over:
            endings.append((await app.call("main", seconds)).outcome)

    calling = [asyncio.ensure_future(keep_calling()) for _ in range(clients)]
    try:
        yield endings
    finally:
        is_over = True
        await asyncio.gather(*calling)


@pytest.mark.parametrize(("scaler", "given"), SCALERS)
def test_load_brings_replicas_and_its_end_takes_them_away(tmp_path, scaler, given):
    async def test():
        async with scaled(tmp_path, NAP, scaler, given) as app:
            first = app.pids("nap")
            assert len(first) == 1
            async with load(app, 6, 0.1) as endings:
                await until(lambda: ready(app, "nap") >= 3)
                assert len(app.pids("nap")) >= 3  # real processes
                if scaler != "threshold":  # which begins with one vCPU, so with another process
                    assert first[0] in app.pids("nap")  # it was a replica from the start
            await until(lambda: len(app.pids("nap")) == 1)
            assert set(endings) == {"completed"}

    run(test)


def test_a_replica_that_is_killed_is_replaced_and_its_request_answered(tmp_path):
    async def test():
        async with scaled(tmp_path, NAP, "hpa", {"initial": 2, "min_replicas": 2, "max_replicas": 2}) as app:
            await until(lambda: ready(app, "nap") == 2)
            async with load(app, 3, 0.05) as endings:
                await asyncio.sleep(0.1)
                killed = app.pids("nap")[0]
                os.kill(killed, signal.SIGKILL)
                await until(lambda: killed not in app.pids("nap") and ready(app, "nap") == 2)
            assert set(endings) == {"completed"}

    run(test)


def quotas(pid: int) -> list[int]:
    """The CPU quota of a process in microseconds, in either version of control groups; empty where it has none."""
    found = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        roots = [Path("/sys/fs/cgroup") / controllers, Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")]
        for root in roots if "cpu" in controllers.split(",") or not controllers else ():
            for name in ("cpu.cfs_quota_us", "cpu.max"):
                with suppress(OSError, ValueError):
                    found.append(int((root / path.lstrip("/") / name).read_text().split()[0]))
    return found


@pytest.mark.skipif(make_limiter().kind == "affinity", reason="affinity does not hold a share below one CPU")
def test_a_resize_changes_what_the_same_process_gets_of_the_cpu(tmp_path):
    async def test():
        async with scaled(tmp_path, SPIN, "hpa", ALONE, period_s=60) as app:
            app.runtime.order(Resize("spin", 1.0))
            pid, _ = await app.answer("main", 0.0)
            assert 2_500 not in quotas(pid)
            app.runtime.order(Resize("spin", 0.25))
            same, slow_s = await app.answer("main", 0.8)
            assert (pid, app.runtime.refused_actions) == (same, 0)
            assert 2_500 in quotas(pid)  # a quarter of the period of 10 ms
            assert slow_s <= 0.3  # 0.2, and what a period more is

    run(test)


def test_more_memory_comes_with_another_process_and_no_request_notices(tmp_path):
    async def test():
        async with scaled(tmp_path, NAP, "hpa", ALONE, period_s=60) as app:
            (before,) = app.pids("nap")
            async with load(app, 2, 0.02) as endings:
                await asyncio.sleep(0.1)
                app.runtime.order(Resize("nap", 0.5, 0.5))
                living = []
                await until(lambda: (living.append(ready(app, "nap")), before not in app.pids("nap"))[1])
                (instance,) = app.runtime.controller.pool.instances.values()
                assert instance.configuration.memory_gb == 0.5
            assert min(living) == 1  # the replacement was ready before the old one went
            assert set(endings) == {"completed"}

    run(test)


SEVERAL = """
    import time

    @app.function()
    def one(x): return x

    @app.function()
    def two(x): return x

    @app.function()
    def three(x): return x

    app.node("small", vcpus=1)
    app.workflow("main", one >> two >> three)
"""


def test_a_node_promises_more_than_it_has_only_if_it_is_told_to(tmp_path):
    async def test():
        with pytest.raises(ConfigError, match="no room for the first replicas of every function; there is 1 vCPUs"):
            async with scaled(tmp_path, SEVERAL, "hpa", ALONE, overcommit=1):
                pass
        async with scaled(tmp_path, SEVERAL, "hpa", ALONE, overcommit=3) as app:
            assert await app.answer("main", 7) == 7
            assert [ready(app, name) for name in ("one", "two", "three")] == [1, 1, 1]

    run(test)


@dataclass
class Odd(Policy):
    """Wants three replicas, notes something, and fails or asks for nodes when it is told to."""

    fails: str = ""
    grows: str = ""
    asked = 0

    def prepare(self, site, rng) -> None:
        self._functions = tuple(site.functions)

    def adjust(self, view: View) -> Iterator[Action]:
        self.asked += 1
        if self.grows:
            yield from (Grow(self.grows), Shrink(self.grows))
        for function in self._functions:
            yield Scale(function, 3)
        if self.fails == "adjust" and self.asked > 1:
            raise RuntimeError("as asked")

    def observe(self, record) -> None:
        if self.fails == "observe":
            raise RuntimeError("as asked")

    def notes(self) -> Mapping[str, Mapping[str, float]]:
        if self.fails == "notes":
            raise RuntimeError("as asked")
        return {name: {"shadow_replicas": 4 + self.asked * 0} for name in self._functions}


def with_odd(monkeypatch, scaler: Odd) -> None:
    def made(name, given=None):
        return scaler if name == "odd" else make_policy(name, given)

    monkeypatch.setattr(runtimes_module, "make_policy", made)


def test_a_scaler_that_raises_gives_way_to_a_rule_and_takes_no_replica_with_it(tmp_path, monkeypatch):
    async def test():
        with_odd(monkeypatch, Odd(fails="adjust"))
        async with scaled(tmp_path, NAP, "odd", {}) as app:
            await until(lambda: app.runtime.policy_errors == 1)
            assert app.runtime.scaler_name == "hpa"
            assert app.runtime.policy_name == "least-loaded"  # the dispatcher did nothing wrong
            assert any("RuntimeError: as asked; hpa takes over" in line for line in app.log)
            await until(lambda: app.runtime.controller.decisions.adjustments >= 4)
            assert app.runtime.controller.replicas.sets["nap"].target == 3
            assert await app.answer("main", 0.0) == "rested"

    run(test)


def test_an_operators_order_wins_over_the_scaler_until_it_is_taken_back(tmp_path, monkeypatch):
    async def test():
        with_odd(monkeypatch, Odd())
        async with scaled(tmp_path, NAP, "odd", {}) as app:
            decisions = app.runtime.controller.decisions

            def nap():
                return app.runtime.tally.functions()[0]

            await until(lambda: nap().replicas == 3)
            assert nap().held is None
            app.runtime.scale("nap", 1)
            await until(lambda: nap().replicas == 1)
            asked = decisions.adjustments
            await until(lambda: decisions.adjustments >= asked + 3)
            assert (nap().replicas, nap().held) == (1, "operator")
            assert app.runtime.refused_actions >= 2  # one per control period
            app.runtime.scale("nap", None)
            await until(lambda: nap().replicas == 3)
            assert nap().held is None
            assert app.runtime.policy_errors == 0

    run(test)


def test_a_cluster_that_cannot_grow_refuses_and_everything_goes_on(tmp_path, monkeypatch):
    async def test():
        with_odd(monkeypatch, Odd(grows="local"))
        async with scaled(tmp_path, NAP, "odd", {}) as app:
            await until(lambda: app.runtime.controller.decisions.adjustments >= 3)
            assert app.runtime.refused_actions >= 4  # a Grow and a Shrink per control period
            assert app.runtime.controller.replicas.sets["nap"].target == 3  # what it wanted after them
            assert app.runtime.policy_errors == 0
            assert await app.answer("main", 0.0) == "rested"

    run(test)


def test_a_scaler_that_cannot_observe_gives_way_and_the_request_that_it_saw_is_answered(tmp_path, monkeypatch):
    async def test():
        with_odd(monkeypatch, Odd(fails="observe"))
        async with scaled(tmp_path, NAP, "odd", {}) as app:
            assert await app.answer("main", 0.0) == "rested"
            assert (app.runtime.scaler_name, app.runtime.policy_name) == ("hpa", "least-loaded")

    run(test)


def test_notes_are_shown_by_function_and_a_scaler_that_cannot_tell_them_scales_on(tmp_path, monkeypatch):
    async def test():
        with_odd(monkeypatch, Odd())
        async with scaled(tmp_path, NAP, "odd", {}) as app:
            await until(lambda: app.runtime.notes() == {"nap": {"shadow_replicas": 4.0}})
        with_odd(monkeypatch, Odd(fails="notes"))
        async with scaled(tmp_path, NAP, "odd", {}) as app:
            await until(lambda: app.runtime.controller.decisions.adjustments >= 3)
            assert app.runtime.notes() == {}
            assert sum("what the scaler notes cannot be read" in line for line in app.log) == 1
            assert app.runtime.controller.replicas.sets["nap"].target == 3

    run(test)


def agents_that_always(action: int, path: Path) -> str:
    """A file with one network for all, which takes the same action whatever it sees."""
    inputs = Encoding(own="seven", others="global4").size
    arrays = {}
    for network, outputs in (("actor", 7), ("critic", 1)):
        for layer, (ins, outs) in enumerate(pairwise((inputs, 4, outputs))):
            arrays[f"{network}.{layer}.weight"] = np.zeros((1, ins, outs), np.float32)
            arrays[f"{network}.{layer}.bias"] = np.zeros((1, outs), np.float32)
    arrays["actor.1.bias"][0, action] = 5
    description = Description(
        own="seven",
        others="global4",
        slots=0,
        is_workflow_aware=False,
        actions=7,
        activation="relu",
        is_shared=True,
        slo_weight=0.7,
        period_s=1.0,
        most_replicas=20,
        preset="modern",
        scenario="tests",
        seed=0,
        episodes=1,
        agents=(Trained(function="nap", time_s=0.1, slo_s=1.0, reward=0.8, reward_deviation=0.01),),
    )
    write_checkpoint(Checkpoint(description=description, arrays=arrays), path)
    return str(path)


def test_trained_agents_act_on_processes_and_in_shadow_they_only_say_so(tmp_path):
    async def test():
        more = agents_that_always(1, tmp_path / "more.safetensors")
        async with scaled(tmp_path, NAP, "simppo", {"checkpoint": more, "first_replicas": 1}) as app:
            await until(lambda: ready(app, "nap") >= 3)
            assert app.runtime.notes()["nap"]["is_agent"] == 1
        shadow = {"checkpoint": more, "first_replicas": 1, "mode": "shadow"}
        async with scaled(tmp_path, NAP, "simppo", shadow) as app:
            await until(lambda: app.runtime.controller.decisions.adjustments >= 4)
            assert app.runtime.controller.replicas.sets["nap"].target == 1  # by the rule: nothing arrives
            notes = app.runtime.notes()["nap"]
            assert (notes["is_agent"], notes["shadow_replicas"]) == (0, 2)

    run(test)


def test_served_replicas_show_in_status_metrics_and_records(tmp_path):
    app = write_app(
        tmp_path / "app.py",
        """
        @app.function(vcpus=0.5)
        def nap(seconds):
            time.sleep(seconds)

        app.workflow("main", nap)
        """,
    )
    options = ("--policy", "least-loaded", "--scaler", "hpa", "--set", "scaler.initial=3", "--overcommit", "4")
    state = tmp_path / "state"
    with serving(app, state, *options, "--control-period", "300ms") as served:

        def function():
            return served.ask("GET", "/v1/status").json["apps"][0]["functions"][0]

        wait_for(lambda: function()["idle"] == 3, why=lambda: str(function()))
        found = function()
        assert (found["replicas"], found["replica_vcpus"], found["vcpus"]) == (3, 0.5, 1.5)
        assert found["cpu_s"] > 0
        assert served.ask("GET", "/v1/status").json["apps"][0]["scaler"] == "hpa"
        text = served.ask("GET", "/metrics").body.decode()
        assert 'fairlead_scaler_replicas{app="demo",function="nap"} 3.0' in text
        assert 'fairlead_held_vcpus{app="demo",function="nap"} 1.5' in text
        sleep(1.0)  # three control periods: the record has a row of each
        assert served.stop() == 0
    rows = read_scaling(next((state / "runs").iterdir()))
    assert {row.function for row in rows} == {"nap"}
    assert (rows[-1].replicas, rows[-1].ready, rows[-1].vcpus) == (3, 3, 1.5)
    exact = CliRunner().invoke(command, ["replay", str(next((state / "runs").iterdir())), "--exact"])
    assert exact.exit_code == 0, exact.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--overcommit", "0.5"), "--overcommit must be at least 1"),
        (("--control-period", "2s"), "--control-period needs --scaler"),
        (("--scaler", "hpa", "--control-period", "soon"), "--control-period must be a positive duration"),
    ],
    ids=["less-than-there-is", "nobody-to-ask", "no-duration"],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options, message):
    app = write_app(tmp_path / "app.py", "")
    result = CliRunner().invoke(command, ["serve", str(app), *options])
    assert result.exit_code == 2
    assert message in result.output + str(result.exception)
