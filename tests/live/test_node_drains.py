"""Nodes that an operator drains, on virtual time and with real agents: no request is lost, and it can be undone."""

import asyncio
import os
import subprocess
import sys
import time

import pytest
from agent_processes import Load, answered_twice, cluster
from serving import wait_for

from fairlead.app import App
from fairlead.engine.live.host import Options
from fairlead.model import Node
from fairlead.testing.virtual import Traits, VirtualWorld, run, sleep
from fairlead.testing.virtual.checks import CheckedProvider
from fairlead.workload import PolicyChoice

QUIET = Traits(delay_s=(0.0001, 0.0002), overhead_s=(0.0, 0.0), start_s=(1.0, 1.5), end_s=(0.01, 0.05))
WORK_S = 0.2


def app_of(name, work_s=WORK_S, warm=1):
    def make():
        app = App(name)

        @app.function(memory_gb=0.5, vcpus=1, warm=warm)
        def work(value):
            sleep(work_s)
            return value

        app.workflow(name, work, slo="10s")
        return app

    return make


NODES = [Node(name=name, kind="node", vcpus=4, memory_gb=8) for name in ("n0", "n1")]


def serve(folder, apps, body, policy="fifo", nodes=NODES, scaler=None):
    """Run `body(world)`; nothing may have been promised twice, and nothing may have gone wrong."""

    async def main():
        options = Options(
            policy=PolicyChoice(name=policy),
            scaler=scaler and PolicyChoice(name=scaler, parameters={"replicas": 2}),
        )
        world = VirtualWorld(folder, apps, nodes, traits=QUIET, provider=CheckedProvider, options=options)
        await world.start()
        result = await body(world)
        await world.stop()
        assert world.cluster.violations == []
        assert world.faults == []
        return result

    return run(main(), limit_s=10_000)


async def states(world):
    answer = await world.send("GET", "/v1/nodes")
    return {node["name"]: node["state"] for node in answer.json()["nodes"]}


async def until(world, wanted, limit_s=60.0):
    async with asyncio.timeout(limit_s):
        while await states(world) != wanted:
            await asyncio.sleep(0.01)


def on(world, node):
    return set(world.cluster.nodes[node].instances)


async def offer(world, workflow, rate_rps, seconds):
    """Statuses of requests at a steady rate, and the longest time to an answer."""
    loop = asyncio.get_running_loop()

    async def one(number):
        await asyncio.sleep(number / rate_rps)
        began = loop.time()
        answer = await world.send("POST", f"/v1/workflows/{workflow}", {"input": number})
        return answer.status, loop.time() - began

    found = await asyncio.gather(*(one(number) for number in range(int(rate_rps * seconds))))
    return [status for status, _ in found], max(took_s for _, took_s in found)


@pytest.mark.parametrize("policy", ["fairlead", "fifo", "earliest-deadline", "least-loaded"])
@pytest.mark.parametrize("names", [("shop",), ("shop", "mail")], ids=["one-app", "two-apps"])
def test_a_node_is_drained_under_load_and_no_request_is_lost(tmp_path, policy, names):
    async def body(world):
        loads = asyncio.gather(*(offer(world, name, 8, 12) for name in names))
        await asyncio.sleep(5)
        answer = await world.send("POST", "/v1/nodes/n0/drain")
        assert (answer.status, answer.json()) == (202, {"node": "n0", "state": "moving"})
        await until(world, {"n0": "draining", "n1": "up"})
        there = on(world, "n0")
        await until(world, {"n1": "up"})
        assert on(world, "n0") <= there  # nothing was started there meanwhile
        assert not on(world, "n0")
        for statuses, _ in await loads:
            assert set(statuses) == {200}
        status = (await world.send("GET", "/v1/status")).json()
        assert [[node["name"] for node in app["nodes"]] for app in status["apps"]] == [["n1"]] * len(names)

    serve(tmp_path, {name: app_of(name) for name in names}, body, policy)


def test_instances_are_ready_elsewhere_before_the_node_stops_working(tmp_path):
    async def body(world):
        (key,) = on(world, "n0") | on(world, "n1")  # the one that is kept warm
        home = "n0" if on(world, "n0") else "n1"
        other = {"n0": "n1", "n1": "n0"}[home]
        await world.send("POST", f"/v1/nodes/{home}/drain")
        statuses, longest_s = await offer(world, "shop", 2, 6)
        assert set(statuses) == {200}
        assert longest_s < WORK_S + 0.1  # no request waited for the start of an instance, which takes a second
        await until(world, {other: "up"})
        assert on(world, other)
        assert key not in on(world, other)

    serve(tmp_path, {"shop": app_of("shop")}, body)


def test_running_work_ends_before_the_node_leaves(tmp_path):
    async def body(world):
        sent = [asyncio.ensure_future(world.send("POST", "/v1/workflows/shop", {"input": n})) for n in range(8)]
        await asyncio.sleep(5)
        assert on(world, "n0")
        assert on(world, "n1")
        await world.send("POST", "/v1/nodes/n0/drain")
        await asyncio.sleep(10)
        assert (await states(world))["n0"] == "draining"
        assert [answer.status for answer in await asyncio.gather(*sent)] == [200] * 8
        await until(world, {"n1": "up"})

    serve(tmp_path, {"shop": app_of("shop", work_s=30.0, warm=4)}, body)


@pytest.mark.parametrize("names", [("shop",), ("shop", "mail")], ids=["one-app", "two-apps"])
@pytest.mark.parametrize("wait_s", [0.02, 6.0], ids=["moving", "draining"])
def test_a_drain_can_be_undone(tmp_path, names, wait_s):
    async def body(world):
        sent = [asyncio.ensure_future(world.send("POST", f"/v1/workflows/{names[0]}", {"input": n})) for n in range(8)]
        await asyncio.sleep(5)
        await world.send("POST", "/v1/nodes/n0/drain")
        await asyncio.sleep(wait_s)
        assert (await states(world))["n0"] == ("moving" if wait_s < 1 else "draining")
        answer = await world.send("DELETE", "/v1/nodes/n0/drain")
        assert (answer.status, answer.json()["state"]) == (200, "up")
        assert [answer.status for answer in await asyncio.gather(*sent)] == [200] * 8
        statuses = await asyncio.gather(*(offer(world, name, 0.3, 60) for name in names))
        assert all(set(found) == {200} for found, _ in statuses)
        assert on(world, "n0")  # it is used again
        again = await world.send("DELETE", "/v1/nodes/n0/drain")
        assert (again.status, again.json()["error"]["code"]) == (409, "not_drained")

    serve(tmp_path, {name: app_of(name, work_s=15.0 if name == "shop" else 0.3, warm=4) for name in names}, body)


def test_replicas_of_a_scaler_move_too(tmp_path):
    async def body(world):
        await asyncio.sleep(30)
        home = "n0" if on(world, "n0") else "n1"
        other = {"n0": "n1", "n1": "n0"}[home]
        await world.send("POST", f"/v1/nodes/{home}/drain")
        statuses, longest_s = await offer(world, "shop", 2, 6)
        assert set(statuses) == {200}
        assert longest_s < 2 * WORK_S
        await until(world, {other: "up"})
        assert len(on(world, other)) == 2

    serve(tmp_path, {"shop": app_of("shop")}, body, scaler="static-replicas")


def test_what_cannot_be_drained_is_refused(tmp_path):
    async def body(world):
        unknown = await world.send("POST", "/v1/nodes/n9/drain")
        assert (unknown.status, unknown.json()["error"]["code"]) == (404, "unknown_node")
        await world.send("POST", "/v1/nodes/n0/drain")
        again = await world.send("POST", "/v1/nodes/n0/drain")
        assert again.status == 202
        last = await world.send("POST", "/v1/nodes/n1/drain")
        assert (last.status, last.json()["error"]["code"]) == (409, "not_drained")
        assert "add another" in last.json()["error"]["message"]

    serve(tmp_path, {"shop": app_of("shop")}, body)


def test_a_node_that_is_lost_while_it_is_drained_comes_back_as_usual(tmp_path):
    async def body(world):
        await world.send("POST", "/v1/nodes/n0/drain")
        world.cluster.lose("n0", 5.0)
        await until(world, {"n1": "up"})
        await until(world, {"n0": "up", "n1": "up"})
        statuses, _ = await offer(world, "shop", 8, 5)
        assert set(statuses) == {200}

    serve(tmp_path, {"shop": app_of("shop")}, body)


def test_an_agent_ends_when_its_node_was_drained(tmp_path):
    with cluster(tmp_path, ("a", "b")) as made:
        load = Load(made, rate=4, async_rate=8)
        command = [sys.executable, "-m", "fairlead.cli", "nodes", "--state", str(tmp_path / "state")]

        def nodes(*options):
            done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, env=os.environ)
            return done.returncode, done.stdout + done.stderr

        with load.running():
            time.sleep(1.0)
            code, text = nodes("--drain", "a")
            assert code == 0, text
            assert "a " in text
            wait_for(lambda: made.agents["a"].process.poll() is not None, why=lambda: nodes()[1])
            assert made.agents["a"].process.returncode == 0
            assert "has drained node a" in made.agents["a"].log
            wait_for(lambda: made.nodes == {"b"})
            code, text = nodes("--undo", "a")
            assert code != 0
            assert "No node named 'a'" in text
            time.sleep(0.5)
        ends = load.ends()
        assert len(load.accepted) > 5
        assert [id for id in load.accepted if ends.get(id) != "completed"] == []
        assert all(is_in_time for _, is_in_time in load.sent) or len(load.sent) > 5
        made.served.stop()
        assert answered_twice(tmp_path / "state", load.accepted) == []


def test_a_node_that_joins_while_an_app_is_described_is_known_to_it(tmp_path):
    """It comes after the nodes that the deployment begins with were read, and before the deployment hears of nodes."""

    async def body(world):
        host = world.gateway.host
        describe, late = host._scenario, Node(name="n2", kind="node", vcpus=4, memory_gb=8)

        def describe_slowly(source):
            found = describe(source)
            if late not in host._shared.inventory.nodes:
                host._shared.node_joined(late)
            return found

        host._scenario = describe_slowly
        await world.deploy("mail", app_of("mail", warm=0))
        apps = (await world.send("GET", "/v1/status")).json()["apps"]
        assert {app["name"]: [node["name"] for node in app["nodes"]] for app in apps} == {
            name: ["n0", "n1", "n2"] for name in ("shop", "mail")
        }

    serve(tmp_path, {"shop": app_of("shop")}, body)
