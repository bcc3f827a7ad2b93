"""The virtual provider conforms to the contracts, and behaves as a network and machines that fail do."""

import asyncio
from contextlib import asynccontextmanager

import numpy as np
import pytest

from fairlead.app import App
from fairlead.engine.live.contracts import AppCode
from fairlead.engine.live.data import LocalValues
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import decode
from fairlead.engine.live.wire import Batch
from fairlead.model import Node
from fairlead.testing.backends import BACKEND_CHECKS, Heard, Opened, check_backend
from fairlead.testing.virtual import Traits, VirtualCluster, VirtualProvider, run, sleep

NODES = (Node(name="one", kind="small", vcpus=4, memory_gb=8), Node(name="two", kind="small", vcpus=4, memory_gb=8))


def app_of(file: str) -> App:
    """The functions of the conformance suite, on virtual time."""
    app = App("conformance")

    def wait(seconds):
        sleep(seconds)
        return seconds

    def fail(value):
        raise ValueError("it fails")

    def leave(value):
        raise SystemExit(3)

    def prepare():
        raise RuntimeError("it cannot start")

    def echo(value):
        return value

    def make(size):
        return "x" * size

    def broken(prepared, value):
        return value

    for code in (echo, wait, fail, leave, make):
        app.workflow(code.__name__, app.function(code))
    app.workflow("broken", app.function(setup=prepare)(broken))
    return app


class VirtualBench:
    def __init__(self, **traits) -> None:
        self._traits = Traits(**traits)

    @asynccontextmanager
    async def open(self, heard: Heard):
        store = Store.make()
        cluster = VirtualCluster(NODES, app_of, np.random.default_rng(0), self._traits, store=store)
        provider = VirtualProvider(cluster)
        inventory = await provider.open(heard)
        try:
            yield Opened(provider, LocalValues(store), AppCode("virtual"), heard, inventory)
        finally:
            await provider.close()
            store.close()

    def run(self, check) -> None:
        run(check, limit_s=1000)


@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.__name__)
def test_the_virtual_back_end_conforms(check):
    check_backend(VirtualBench(), [check])


@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.__name__)
def test_it_conforms_where_nothing_can_be_resized_and_ends_are_slow(check):
    check_backend(VirtualBench(resizes=False, slow_ends=0.5), [check])


def on_cluster(body, **traits):
    """Run `body(opened, cluster)` on an open virtual back end."""

    async def main():
        async with VirtualBench(**traits).open(Heard()) as opened:
            return await body(opened, opened.provider.cluster)

    return run(main(), limit_s=1000)


def test_a_frozen_node_is_given_up_and_its_late_answer_is_dropped():
    async def body(opened, cluster):
        key = await opened.start("wait")
        opened.run(key, 1, "wait", 1.0)
        await asyncio.sleep(0.5)
        cluster.freeze("one", 5.0)
        await opened.heard.until(lambda: opened.heard.nodes.get("one", 0) is None, "the node is lost")
        await opened.heard.until(lambda: opened.heard.nodes["one"] is not None, "the node is back")
        return opened.heard.done, opened.provider.late, cluster.instances(), cluster.nodes["one"].session

    done, late, instances, session = on_cluster(body)
    assert done == {}
    assert late == 1
    assert instances == {}
    assert session == 3  # the two nodes had the first generations


def test_a_short_cut_only_delays():
    async def body(opened, cluster):
        key = await opened.start("wait")
        opened.run(key, 1, "wait", 0.2)
        await asyncio.sleep(0.1)
        began = cluster.loop.time()
        cluster.cut("one", 1.5)
        done = await opened.answer(key, 1)
        return cluster.loop.time() - began, decode(done.results[0].value), opened.heard.nodes

    took_s, value, nodes = on_cluster(body)
    assert 1.5 <= took_s < 1.6
    assert value == 0.2
    assert nodes == {}


def test_a_long_cut_ends_what_ran_before_the_node_is_used_again():
    async def body(opened, cluster):
        key = await opened.start("wait")
        opened.run(key, 1, "wait", 100.0)
        cluster.cut("one", 4.0)
        await opened.heard.until(lambda: "one" in opened.heard.nodes, "the node is lost")
        assert key in cluster.instances()  # it cannot be told
        await opened.heard.until(lambda: opened.heard.nodes["one"] is not None, "the node is back")
        return cluster.instances(), opened.heard.exits

    assert on_cluster(body, slow_ends=1.0) == ({}, {})


def test_a_lost_node_comes_back_empty():
    async def body(opened, cluster):
        await opened.start("echo")
        cluster.lose("one", 3.0)
        await opened.heard.until(lambda: "one" in opened.heard.nodes, "the node is lost")
        lost_at = cluster.loop.time()
        await opened.heard.until(lambda: opened.heard.nodes["one"] is not None, "the node is back")
        key = await opened.start("echo")
        opened.run(key, 1, "echo", "again")
        await opened.answer(key, 1)
        return cluster.loop.time() - lost_at, sorted(cluster.instances()) == [key]

    took_s, is_only = on_cluster(body)
    assert took_s > 3.0
    assert is_only


def test_instances_that_are_kept_wait_for_the_next_gateway_and_drop_what_the_first_asked_for():
    async def body(opened, cluster):
        idle, busy = await opened.start("echo"), await opened.start("wait")
        opened.run(busy, 1, "wait", 1.0)
        await asyncio.sleep(0.1)
        opened.provider.crash()
        second, heard = VirtualProvider(cluster), Heard()
        inventory = await second.open(heard)
        await heard.until(lambda: heard.ready == {idle, busy}, "both are connected")
        heard.links[busy].run(Batch(1, ["wait/wait"], [b"\x00"]))
        await heard.until(lambda: (busy, 1) in heard.done, "the second gateway's batch is answered")
        value = decode(heard.done[busy, 1].results[0].value)
        await second.close()
        return sorted(spec.key for spec in inventory.instances) == sorted([idle, busy]), value, second.late

    is_told, value, late = on_cluster(body, keeps=True)
    assert is_told
    assert value == 0  # not 1.0, which the first gateway's batch gives
    assert late == 1


def test_instances_that_are_not_kept_end_before_the_next_gateway_has_their_node():
    async def body(opened, cluster):
        await opened.start("echo")
        opened.provider.crash()
        second, heard = VirtualProvider(cluster), Heard()
        inventory = await second.open(heard)
        ending = len(cluster.instances())
        await heard.until(lambda: "one" in heard.nodes, "the node joins")
        left = cluster.instances()
        await second.close()
        return [node.name for node in inventory.nodes], inventory.instances, ending, left

    assert on_cluster(body, slow_ends=1.0) == (["two"], (), 1, {})


def test_a_memory_that_is_promised_twice_is_noticed():
    async def body(opened, cluster):
        for spec in (opened.spec("echo", memory_gb=5.0), opened.spec("echo", memory_gb=5.0)):
            opened.provider.start(spec)
            await opened.heard.until(lambda key=spec.key: key in opened.heard.ready, "ready")
        return cluster.violations

    (violation,) = on_cluster(body)
    assert "node one has 8 GB, and instances of 10 GB exist there" in violation
