"""Scalers over real processes: what only they can show. `test_live_scalers.py` has the rest, on virtual time."""

import asyncio
from collections.abc import Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from time import sleep

import msgspec
import pytest
from runtimes import HEAD, Served, load, local_instances, ready, run, until
from serving import serving, wait_for, write_app
from typer.testing import CliRunner

from fairlead.app.describe import describe
from fairlead.app.scenario import scenario_of
from fairlead.cli import app as command
from fairlead.engine.live.limits import make_limiter
from fairlead.engine.live.runtime import Runtime
from fairlead.engine.live.store import Store
from fairlead.policy.base import Resize
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

HPA = {"period_s": 0.3, "stabilisation_s": 0.6, "max_replicas": 4}
SCALERS = [("hpa", HPA)]
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


@pytest.mark.parametrize(("scaler", "given"), SCALERS)
def test_load_brings_replicas_and_its_end_takes_them_away(tmp_path, scaler, given):
    async def test():
        async with scaled(tmp_path, NAP, scaler, given) as app:
            first = app.pids("nap")
            assert len(first) == 1
            async with load(app, 6, 0.1) as endings:
                await until(lambda: ready(app, "nap") >= 3)
                assert len(app.pids("nap")) >= 3  # real processes
                assert first[0] in app.pids("nap")  # it was a replica from the start
            await until(lambda: len(app.pids("nap")) == 1)
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
    ids=["less-than-there-is", "no-one-to-ask", "no-duration"],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options, message):
    app = write_app(tmp_path / "app.py", "")
    result = CliRunner().invoke(command, ["serve", str(app), *options])
    assert result.exit_code == 2
    assert message in result.output + str(result.exception)
