"""Apps that share the nodes of one gateway, on virtual time: what each gets, and that nothing is promised twice."""

import asyncio

import numpy as np
import pytest

from fairlead.app import App
from fairlead.engine.live.host import Options
from fairlead.model import Node
from fairlead.testing.virtual import Traits, VirtualWorld, run, sleep
from fairlead.testing.virtual.checks import CheckedProvider
from fairlead.workload import PolicyChoice

STAGES_S = (0.025, 0.075)
CAPACITY_RPS = 20.0  # of a node of two vCPUs
QUIET = Traits(delay_s=(0.0001, 0.0002), overhead_s=(0.0, 0.0), start_s=(0.1, 0.2), end_s=(0.002, 0.02))


def app_of(name, *workflows, memory_gb=0.5, vcpus=1):
    def make():
        app = App(name)
        for workflow in workflows:

            def look(value):
                sleep(STAGES_S[0])
                return value

            def work(value):
                sleep(STAGES_S[1])
                return value

            look.__name__, work.__name__ = f"look_{workflow}", f"work_{workflow}"
            stages = [app.function(memory_gb=memory_gb, vcpus=vcpus)(each) for each in (look, work)]
            app.workflow(workflow, stages[0] >> stages[1], slo="1s", example=1)
        return app

    return make


def node(vcpus=2.0, memory_gb=8.0):
    return Node(name="n0", kind="node", vcpus=vcpus, memory_gb=memory_gb)


async def load(world, workflow, rate_rps, seconds, seed, begin_s=0.0):
    """How many requests of an open loop were answered in time, per second."""
    rng = np.random.default_rng(seed)
    at = begin_s + np.cumsum(rng.exponential(1 / rate_rps, int(2 * rate_rps * seconds)))
    loop = asyncio.get_running_loop()
    began = loop.time()
    in_time = 0

    async def one(instant):
        nonlocal in_time
        await asyncio.sleep(max(0.0, began + instant - loop.time()))
        answer = await world.send("POST", f"/v1/workflows/{workflow}", {"input": 1})
        in_time += answer.status == 200 and loop.time() - began - instant <= 1.0

    await asyncio.gather(*(one(float(each)) for each in at if each < begin_s + seconds))
    return in_time / seconds


def serve(tmp_path, apps, body, *, on=None, policy=None, **options):
    """Run `body(world)` against a gateway with these apps; nothing may have been promised twice."""

    async def main():
        choice = None if policy is None else PolicyChoice(name=policy)
        world = VirtualWorld(
            tmp_path,
            apps,
            [on or node()],
            traits=QUIET,
            provider=CheckedProvider,
            options=Options(policy=choice, **options),
            settings={"max_open": 5000},
        )
        await world.start()
        result = await body(world)
        await world.stop()
        assert world.cluster.violations == []
        assert world.faults == []
        return result

    return run(main(), limit_s=10_000)


def goodput(tmp_path, apps, rates, seconds=15.0, **options):
    """What each workflow gets of these offered rates."""

    async def body(world):
        loads = [load(world, name, rate, seconds, seed) for seed, (name, rate) in enumerate(rates.items())]
        return await asyncio.gather(*loads)

    return serve(tmp_path, apps, body, **options)


def test_two_apps_at_three_times_the_capacity_each_get_nearly_half(tmp_path):
    (alone,) = goodput(tmp_path / "alone", {"one": app_of("one", "first")}, {"first": 3 * CAPACITY_RPS})
    rates = dict.fromkeys(("first", "second"), 3 * CAPACITY_RPS)
    apps = {"one": app_of("one", "first"), "two": app_of("two", "second")}
    each = goodput(tmp_path / "two", apps, rates)
    assert min(each) >= 0.45 * alone


def test_an_app_gets_what_the_other_does_not_want(tmp_path):
    apps = {"one": app_of("one", "first"), "two": app_of("two", "second")}
    busy, light = goodput(tmp_path, apps, {"first": 3 * CAPACITY_RPS, "second": 2.0})
    assert light >= 1.8
    assert busy >= 0.75 * (CAPACITY_RPS - 2.0)


def test_weights_say_what_each_gets(tmp_path):
    apps = {"one": app_of("one", "first"), "two": app_of("two", "second")}
    rates = dict.fromkeys(("first", "second"), 6 * CAPACITY_RPS)
    on = node(vcpus=8.0)
    one, two = goodput(tmp_path, apps, rates, seconds=6.0, on=on, weights={"one": 3.0})
    assert one / two == pytest.approx(3.0, rel=0.15)


def test_three_apps_take_turns_on_a_node_of_one_vcpu(tmp_path):
    names = ("first", "second", "third")
    apps = {name: app_of(name, name) for name in names}
    each = goodput(tmp_path, apps, dict.fromkeys(names, 20.0), on=node(vcpus=1.0), seconds=30.0)
    assert sum(each) >= 0.6 * CAPACITY_RPS / 2
    assert min(each) >= 0.25 * sum(each)


def test_an_app_that_wakes_up_waits_for_one_batch_at_most(tmp_path):
    apps = {"one": app_of("one", "first"), "two": app_of("two", "second")}

    async def body(world):
        loop = asyncio.get_running_loop()
        busy = asyncio.ensure_future(load(world, "first", 3 * CAPACITY_RPS, 12.0, 0))
        took = []
        for _ in range(4):
            await asyncio.sleep(2.5)
            began = loop.time()
            answer = await world.send("POST", "/v1/workflows/second", {"input": 1})
            assert answer.status == 200
            took.append(loop.time() - began)
        await busy
        return took

    took = serve(tmp_path, apps, body)
    assert max(took) <= sum(STAGES_S) + max(STAGES_S) + 0.03  # its own time, and the rest of a batch of the other


def test_an_idle_cluster_needs_no_move_for_the_first_request(tmp_path):
    apps = {"one": app_of("one", "first"), "two": app_of("two", "second")}

    async def body(world):
        await asyncio.sleep(5.0)
        sharing = world.gateway.host._sharing
        moves, loop = sharing.moves, asyncio.get_running_loop()
        began = loop.time()
        await world.send("POST", "/v1/workflows/second", {"input": 1})
        return sharing.moves - moves, loop.time() - began

    moves, took_s = serve(tmp_path, apps, body)
    assert moves == 0
    assert took_s <= sum(STAGES_S) + 0.005


def test_memory_of_idle_instances_goes_to_the_app_that_needs_it(tmp_path):
    apps = {"one": app_of("one", "first", memory_gb=1.0), "two": app_of("two", "second", memory_gb=1.5)}

    async def body(world):
        one = world.gateway.host._apps["one"].runtime.controller
        first = await load(world, "first", 35.0, 5.0, 0)
        held = one.nodes["n0"].memory_held / 1024
        second = await load(world, "second", 10.0, 10.0, 1)
        return first, held, second, one.nodes["n0"].memory_held / 1024

    first, before, second, after = serve(tmp_path, apps, body, on=node(vcpus=4.0, memory_gb=8.0))
    assert (first, before) >= (28, 4)  # its instances are idle then, and take more than half of the memory
    assert second >= 8  # for which it needs 6 GB
    assert after == 2  # one instance of each of its functions


def test_a_replaced_app_shares_its_part_with_its_successor(tmp_path):
    apps = {"one": app_of("one", "first"), "two": app_of("two", "second")}

    async def body(world):
        loads = [load(world, name, CAPACITY_RPS, 12.0, seed) for seed, name in enumerate(("first", "second"))]
        running = asyncio.gather(*loads)
        for _ in range(3):
            await asyncio.sleep(2.0)
            await world.deploy("one", app_of("one", "first"))
        return await running

    each = serve(tmp_path, apps, body)
    assert min(each) >= 0.3 * CAPACITY_RPS


def test_one_app_alone_is_never_settled_after_its_start(tmp_path):
    async def body(world):
        sharing = world.gateway.host._sharing
        before = sharing.settlements
        await load(world, "first", 3 * CAPACITY_RPS, 5.0, 0)
        return sharing.settlements - before, sharing.moves

    assert serve(tmp_path, {"one": app_of("one", "first")}, body) == (0, 0)


def test_status_shows_leases_where_apps_share_a_node(tmp_path):
    apps = {"one": app_of("one", "first"), "two": app_of("two", "second")}

    async def body(world):
        return (await world.send("GET", "/v1/status")).json()

    status = serve(tmp_path, apps, body)
    leases = [app["nodes"][0]["lease_vcpus"] for app in status["apps"]]
    assert sum(leases) == 2
    assert [app["nodes"][0]["vcpus"] for app in status["apps"]] == [2, 2]


def test_instances_that_an_operator_holds_at_rest_make_way_for_another_app(tmp_path):
    """They hold both vCPUs; without work for them they are not worth another app's wait."""
    apps = {"one": app_of("one", "first"), "two": app_of("two", "second")}

    async def body(world):
        async def hold():
            for function in ("look_first", "work_first"):
                world.gateway.host.scale("one", function, 1)

        await world.gateway.life.ask(hold())
        await asyncio.sleep(5.0)
        answers = [await world.send("POST", f"/v1/workflows/{name}", {"input": 1}) for name in ("second", "first")]
        return [answer.status for answer in answers]

    assert serve(tmp_path, apps, body, policy="fifo") == [200, 200]


@pytest.mark.parametrize("policy", ["fifo", "earliest-deadline"])
def test_fifty_apps_on_a_small_node_are_all_served(tmp_path, policy):
    names = [f"app{number}" for number in range(50)]

    async def body(world):
        asked = [world.send("POST", f"/v1/workflows/{name}/async", {"input": 1}) for name in names]
        places = [(await each).json()["status_url"] + "/result" for each in asked]
        await asyncio.sleep(60.0)
        sharing = world.gateway.host._sharing
        return [(await world.send("GET", place)).status for place in places], sharing.settlements

    apps = {name: app_of(name, name, memory_gb=0.1) for name in names}
    statuses, settlements = serve(tmp_path, apps, body, policy=policy, on=node(memory_gb=16.0), warms_up=False)
    assert statuses == [200] * 50
    assert settlements <= 10_000
