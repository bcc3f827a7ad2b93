"""`fairlead serve --nodes`: what operators see of emulated nodes, and what stays of it in the records."""

import asyncio

import msgspec
import pytest
from serving import serving, wait_for, write_app
from typer.testing import CliRunner

from fairlead.cli import app as command
from fairlead.engine.core import events as ev
from fairlead.engine.live.eventlog import decode_instant, encode_instant
from fairlead.engine.live.host import Host, Options
from fairlead.engine.live.limits import make_limiter
from fairlead.engine.live.nodes import read_nodes
from fairlead.errors import ConfigError
from fairlead.monitor import COUNTERS
from fairlead.runlog.segments import EVENTS
from fairlead.workload import PolicyChoice

NODES = """
cluster:
  nodes:
    - {name: w01, vcpus: 1, speed: 0.7, overcommit: 4}
    - {name: w02, vcpus: 1, speed: 0.3, overcommit: 4}
"""

NAP = """
@app.function()
def nap(seconds):
    time.sleep(seconds)

@app.function()
def rest(seconds):
    return "rested"

app.workflow("main", nap >> rest)
"""


@pytest.mark.skipif(make_limiter().kind == "affinity", reason="no control groups can be made here")
def test_nodes_are_served_on_watched_and_left(tmp_path):
    app = write_app(tmp_path / "app.py", NAP)
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(NODES)
    options = ("--nodes", str(nodes), "--policy", "least-loaded", "--scaler", "static-placement")
    placed = ("--set", "scaler.placement=nap=w02,rest=w01", "--control-period", "600ms")
    state = tmp_path / "state"
    with serving(app, state, *options, *placed) as served:

        def status():
            return served.ask("GET", "/v1/status").json["apps"][0]

        def on(node):
            return next(one for one in status()["nodes"] if one["name"] == node)

        def are(first, second):
            return [on(name)["instances"] for name in ("w01", "w02")] == [first, second]

        wait_for(lambda: are(1, 1) and on("w01")["signals"], why=lambda: f"{status()} {served.err}")
        assert [on(name)["speed"] for name in ("w01", "w02")] == [0.7, 0.3]
        assert on("w01")["pressure"] == 0
        assert set(on("w02")["signals"]) >= {"c0", "c1", "rest", "pressure"}
        assert status()["monitor"]["provider"] in ("perf", "pcm", "fallback")
        text = served.ask("GET", "/metrics").body.decode()
        assert 'fairlead_node_pressure_ratio{app="demo",node="w02"} 0.0' in text
        assert 'fairlead_node_counter{app="demo",counter="c0",node="w01"}' in text
        assert 'fairlead_node_signal{app="demo",node="w01",signal="throttled"}' in text
        assert 'fairlead_monitor_overhead_ratio{app="demo",provider=' in text
        top = CliRunner().invoke(command, ["top", "--state", str(state), "--once"])
        assert "others" in top.output, top.output
        moving = served.ask("POST", "/v1/apps/demo/functions/rest/move", {"node": "w02"})
        assert moving.status == 202
        assert served.call("main", 0.2).json["output"] == "rested"  # while it moves
        wait_for(lambda: are(0, 2), why=lambda: f"{status()} {served.err}")
        assert served.ask("POST", "/v1/apps/demo/functions/rest/move", {"node": "w03"}).status == 404
        assert served.call("main", 0.0).json["output"] == "rested"
        assert served.stop() == 0
    (run,) = (state / "runs").iterdir()
    exact = CliRunner().invoke(command, ["replay", str(run), "--exact"])
    assert exact.exit_code == 0, exact.output


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (NODES, r"node w01 has speed 0\.7, which only control groups can emulate"),
        ("nodes: [{name: tiny, vcpus: 0.5}]", "no node can hold an instance of it: it needs at least"),
    ],
    ids=["no-groups", "too-small"],
)
def test_what_cannot_be_emulated_or_used_is_refused_with_the_reason(tmp_path, nodes, message):
    app = write_app(tmp_path / "app.py", NAP)
    (tmp_path / "nodes.yaml").write_text(nodes)
    found = read_nodes(tmp_path / "nodes.yaml")

    async def serve():
        host = Host(tmp_path / "state", Options(nodes=found, limits="affinity", apps=(app,)), print)
        try:
            await host.open()
        finally:
            await host.close()

    with pytest.raises(ConfigError, match=message):
        asyncio.run(serve())


def test_a_scaler_that_cannot_do_as_told_is_refused_and_leaves_no_run(tmp_path):
    app = write_app(tmp_path / "app.py", NAP)
    scaler = PolicyChoice(name="static-placement", parameters={"placement": "nap=w09"})

    async def serve():
        host = Host(tmp_path / "state", Options(scaler=scaler, apps=(app,)), print)
        try:
            await host.open()
        finally:
            await host.close()

    with pytest.raises(ConfigError, match="policy static-placement: placement names the node 'w09'; there are local"):
        asyncio.run(serve())
    assert not list((tmp_path / "state" / "runs").iterdir())


def test_nodes_of_the_machines_own_speed_need_no_groups(tmp_path):
    app = write_app(tmp_path / "app.py", NAP)
    (tmp_path / "nodes.yaml").write_text("nodes: [{name: a, vcpus: 1, overcommit: 2}, {name: b, vcpus: 1}]")
    found = read_nodes(tmp_path / "nodes.yaml")

    async def serve():
        options = Options(nodes=found, limits="affinity", is_watched=True, control_period_s=0.2, apps=(app,))
        host = Host(tmp_path / "state", options, print)
        try:
            await host.open()
            for _ in range(1200):
                await asyncio.sleep(0.05)
                nodes = host.status().apps[0].nodes
                if all(node.signals for node in nodes):
                    return nodes
        finally:
            await host.close()

    first, second = asyncio.run(serve())
    assert (first.name, second.name) == ("a", "b")
    assert first.pressure is None  # nobody knows whose the time of a CPU is
    assert 0 <= first.signals["c0"] <= 1


def test_what_was_seen_of_nodes_goes_to_disk_and_back():
    seen = (1.5, 0.1, 0.2, 0.3, 1.0, 0.0, 0.25)
    events = [ev.Signalled("w01", seen), ev.Pressure("w01", 0.5), ev.Signalled("w02", ())]
    assert len(events[0].counters) == len(COUNTERS)
    entry = msgspec.msgpack.decode(msgspec.msgpack.encode(encode_instant(2.5, events)))
    assert decode_instant(entry) == (2.5, events)


def test_the_numbers_of_older_events_are_as_they_were():
    assert EVENTS[:9] == (
        "NodeLost",
        "NodeJoined",
        "Pressure",
        "InstanceLost",
        "InstanceReady",
        "Finished",
        "Cancelled",
        "Arrived",
        "Ordered",
    )
