"""The gateway on virtual time: what it does with requests over seconds, restarts and changes of the clock.

Requests go to the endpoints' handlers, past HTTP; host, runtime, journal and runner are those that serve for real.
"""

import asyncio
from dataclasses import replace
from itertools import count

import pytest

from fairlead.app import App
from fairlead.engine.live.host import Options
from fairlead.model import Node
from fairlead.testing.virtual import LifeEndedError, Traits, VirtualWorld, run, sleep
from fairlead.workload import PolicyChoice

NODE = Node(name="n", kind="n", vcpus=64, memory_gb=64)  # room for a second generation beside the first
TOKEN = "a-token-for-operators"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
PLAIN = {}  # no headers
QUIET = Traits(start_s=(0.1, 0.1))


def shop(seconds=0.0, name="work", app_name="shop", ran=None, **options):
    """Makes an app with one function that takes some time and gives back its input."""

    def make():
        app = App(app_name)

        def work(value):
            if ran is not None:
                ran.append(value)
            sleep(seconds)
            return value

        app.workflow(name, app.function(name=name, **options)(work))
        return app

    return make


async def world_of(tmp_path, make=None, *, settings=None, **options):
    """A world whose gateway serves one app, and is open."""
    policy = Options(policy=PolicyChoice(name="fifo"))
    options = {"options": policy, "traits": QUIET, "settings": settings or {}, **options}
    world = VirtualWorld(tmp_path, {"shop": make or shop()}, [NODE], **options)
    await world.start()
    return world


async def accept(world, value, workflow="work", headers=PLAIN, **more):
    answer = await world.send("POST", f"/v1/workflows/{workflow}/async", {"input": value, **more}, headers)
    assert answer.status in (200, 202), answer.body
    return answer.json()["status_url"]


async def state(world, url, headers=PLAIN):
    return (await world.send("GET", url, headers=headers)).json()


async def final(world, url, headers=PLAIN):
    while True:
        found = await state(world, url, headers)
        if found["state"] != "accepted":
            return found
        await asyncio.sleep(0.1)


async def output(world, url, headers=PLAIN):
    return (await world.send("GET", f"{url}/result", headers=headers)).json()["output"]


def test_only_so_many_run_at_once_and_the_others_wait_their_turn(tmp_path):
    ran = []

    async def test():
        world = await world_of(tmp_path, shop(0.2, ran=ran), settings={"max_async": 2})
        urls = [await accept(world, number) for number in range(7)]
        assert len(ran) <= 2
        assert (await world.send("DELETE", urls[6])).status == 202
        assert (await final(world, urls[6]))["state"] == "cancelled"
        assert [(await final(world, url))["state"] for url in urls[:6]] == ["completed"] * 6
        assert sorted(ran) == list(range(6))
        await world.stop()

    run(test(), limit_s=1000)


def test_what_is_open_at_the_end_is_run_by_the_next_gateway(tmp_path):
    ran = []

    async def test():
        world = await world_of(tmp_path, shop(60.0, ran=ran, run_limit_s=None), settings={"drain_limit_s": 0.2})
        urls = [await accept(world, number) for number in range(5)]
        while len(ran) < 5:
            await asyncio.sleep(0.1)
        await world.stop()
        await world.start()
        states = [await final(world, url) for url in urls]
        assert [found["state"] for found in states] == ["completed"] * 5
        assert [found["attempts"] for found in states] == [2] * 5
        assert [await output(world, url) for url in urls] == [0, 1, 2, 3, 4]
        assert len(ran) == 10
        await world.stop()

    run(test(), limit_s=1000)


@pytest.mark.parametrize("jump_s", [40 * 86_400, -40 * 86_400], ids=["forward", "backward"])
def test_a_jump_of_the_wall_clock_drops_no_request_with_a_deadline(tmp_path, jump_s):
    async def test():
        world = await world_of(tmp_path, shop(0.5), settings={"max_async": 1})
        urls = [await accept(world, number, deadline_ms=3_600_000) for number in range(2)]
        world.jump(jump_s)
        assert [(await final(world, url))["state"] for url in urls] == ["completed"] * 2
        await world.stop()

    run(test(), limit_s=1000)


@pytest.mark.parametrize("jump_s", [40 * 86_400, -40 * 86_400], ids=["forward", "backward"])
def test_a_jump_of_the_wall_clock_between_two_gateways_gives_no_request_more_time_than_it_asked_for(tmp_path, jump_s):
    async def test():
        world = await world_of(tmp_path, shop(30.0, run_limit_s=None))
        url = await accept(world, 1, deadline_ms=20_000)
        await asyncio.sleep(1)
        world.crash()
        world.jump(jump_s)
        await world.start()
        found = await final(world, url)
        late = {"completed": False}.get(found["state"], True)
        assert late == (jump_s > 0)  # the clock says that its time is over; back in time, it has its 20 s again
        await world.stop()

    run(test(), limit_s=1000)


def test_a_full_journal_acknowledges_nothing(tmp_path):
    async def test():
        world = await world_of(tmp_path, shop(60.0, run_limit_s=None), max_open=2, settings={"drain_limit_s": 0.1})
        kept = [await accept(world, number) for number in range(2)]
        refused = await world.send("POST", "/v1/workflows/work/async", {"input": 3})
        assert (refused.status, refused.json()["error"]["code"]) == (507, "journal_full")
        assert (await world.send("DELETE", kept[0])).status == 202
        await accept(world, 3)
        await world.stop()

    run(test(), limit_s=1000)


def test_one_whose_workflow_is_not_served_waits_until_it_is(tmp_path):
    async def test():
        ran = []
        world = await world_of(tmp_path, shop(60.0, ran=ran, run_limit_s=None), settings={"drain_limit_s": 0.1})
        urls = [await accept(world, number) for number in range(40)]
        while len(ran) < 32:  # as many as a runner begins with
            await asyncio.sleep(0.1)
        await world.deploy("shop", shop(name="else_"))
        await world.stop()
        await world.start()
        await asyncio.sleep(5)
        assert {(await state(world, url))["state"] for url in urls} == {"accepted"}
        await world.deploy("shop", shop(0.01))
        states = [await final(world, url) for url in urls]
        assert {found["state"] for found in states} == {"completed"}
        assert sorted(found["attempts"] for found in states) == [1] * 8 + [2] * 32  # waiting is not an attempt
        await world.stop()

    run(test(), limit_s=1000)


def test_removing_an_app_ends_what_waits_for_it(tmp_path):
    async def test():
        settings = {"drain_limit_s": 0.1, "token": TOKEN, "allow_deploy": True}
        world = await world_of(tmp_path, shop(60.0, run_limit_s=None), settings=settings)
        await world.deploy("other", shop(app_name="other", name="echo"))
        urls = [await accept(world, number, headers=OPERATOR) for number in range(3)]
        await world.deploy("shop", shop(name="else_"))  # so that they have to wait for another generation
        await world.stop()
        await world.start()
        assert (await world.send("DELETE", urls[0], headers=OPERATOR)).status == 202
        assert (await world.send("DELETE", "/v1/apps/shop", headers=OPERATOR)).status == 200
        states = [await state(world, url, OPERATOR) for url in urls]
        assert [found["state"] for found in states] == ["cancelled", "failed", "failed"]
        assert states[1]["reason"] == "the app 'shop' was removed before the request could run"
        assert (await world.send("DELETE", "/v1/apps/shop", headers=OPERATOR)).status == 404
        await world.stop()

    run(test(), limit_s=1000)


def test_removing_a_served_app_ends_those_that_wait_for_their_turn(tmp_path):
    ran = []

    async def test():
        settings = {"max_async": 1, "token": TOKEN, "allow_deploy": True}
        world = await world_of(tmp_path, shop(1.0, ran=ran), settings=settings)
        urls = [await accept(world, number, headers=OPERATOR) for number in range(3)]
        while not ran:
            await asyncio.sleep(0.1)
        assert (await world.send("DELETE", "/v1/apps/shop", headers=OPERATOR)).status == 200
        assert [(await final(world, url, OPERATOR))["state"] for url in urls] == ["completed", "failed", "failed"]
        assert ran == [0]
        await world.stop()

    run(test(), limit_s=1000)


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.29, 0.31, 0.5])
def test_an_acknowledged_cancel_survives_a_crash_at_any_time_after(tmp_path, seconds):
    async def test():
        world = await world_of(tmp_path, shop(600.0, run_limit_s=None), settings={"max_async": 1}, commit_s=(0.3, 0.3))
        urls = [await accept(world, number) for number in range(3)]  # one runs, the others wait
        for url in urls[:2]:
            assert (await world.send("DELETE", url)).status == 202
        await asyncio.sleep(seconds)
        world.crash()
        await world.start()
        assert [(await state(world, url))["state"] for url in urls] == ["cancelled", "cancelled", "accepted"]
        world.crash()

    run(test(), limit_s=1000)


def test_a_request_that_was_not_acknowledged_may_be_sent_again_with_its_key_and_runs_once(tmp_path):
    ran = []

    async def test():
        world = await world_of(tmp_path, shop(0.1, ran=ran))
        gateway = world.gateway
        answers = []
        for crash_at in count(1):  # crash one step later each time, until the acknowledgement comes
            gateway.life.dies_after = gateway.life.steps + crash_at
            try:
                answers.append(await accept(world, 7, headers={"Idempotency-Key": "order-1"}))
                break
            except LifeEndedError:
                gateway = await world.start()
        gateway.life.dies_after = None
        assert crash_at > 2
        assert (await final(world, answers[0]))["state"] == "completed"
        await asyncio.sleep(5)
        await world.stop()
        assert len(set(ran)) == 1

    run(test(), limit_s=1000)


def test_a_synchronous_caller_that_leaves_cancels_its_request(tmp_path):
    async def test():
        world = await world_of(tmp_path, shop(10.0))
        call = asyncio.ensure_future(world.send("POST", "/v1/workflows/work", {"input": 1}))
        await asyncio.sleep(1)
        assert world.gateway.intake.inbox.total == 1
        call.cancel()
        await asyncio.sleep(0.1)
        assert world.gateway.intake.inbox.total == 0
        await world.stop()

    run(test(), limit_s=1000)


def test_an_hour_of_idleness_changes_nothing(tmp_path):
    async def test():
        world = await world_of(tmp_path, shop(keep_alive_s=60), options=replace(Options(), warms_up=False))
        await asyncio.sleep(3600)
        answer = await world.send("POST", "/v1/workflows/work", {"input": 5})
        assert answer.json()["output"] == 5
        assert world.faults == []
        await world.stop()
        assert world.cluster.instances() == {}

    run(test(), limit_s=5000)
