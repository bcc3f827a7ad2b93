"""Callers that wait get an answer, whatever holds their request up; and what is held at zero says so."""

import asyncio
from math import inf

import pytest
from runtimes import until
from serving import serving, write_app
from virtual_runtimes import run, served

from fairlead.engine.live.deadlines import Deadlines
from fairlead.errors import HeldAtZeroError

CHAIN = """
    @app.function()
    def first(x):
        sleep(x)
        return x

    @app.function()
    def second(x):
        return x

    app.node("n", vcpus=4)
    app.workflow("main", first >> second, slo="300ms")
    app.workflow("short", second)
"""


async def at_zero(app, function):
    app.runtime.scale(function, 0)
    await until(lambda: function in app.runtime.controller.holds.at_zero())


def test_a_caller_of_what_is_held_at_zero_is_refused_at_once_and_told_how_to_take_it_back():
    async def test():
        async with served(CHAIN) as app:
            await at_zero(app, "first")
            with pytest.raises(HeldAtZeroError, match="holds its function first at 0 instances") as error:
                app.begin("main", 0.0, late_limit_s=30.0)
            assert 'POST {"instances": null} to /v1/apps/test/functions/first/scale' in str(error.value)
            assert app.runtime.obstacles() == (
                "Workflow test.main cannot run: function first is held at 0 instances by an operator.",
            )
            ending = await asyncio.wait_for(app.begin("short", 1, late_limit_s=30.0)[1], 20)
            assert ending.outcome == "completed"  # it does not need what is held
            app.runtime.scale("first", None)
            await until(lambda: not app.runtime.obstacles())
            assert await app.answer("main", 0.0) == 0.0
            assert app.runtime.refused_actions == 0

    run(test)


def test_a_request_that_waits_when_the_hold_comes_ends_at_its_deadline_with_the_function_named():
    async def test():
        async with served(CHAIN) as app:
            _, future = app.begin("main", 0.3, deadline_s=0.5, late_limit_s=1000.0)
            await at_zero(app, "second")  # while the first function works
            ending = await asyncio.wait_for(future, 20)
            assert (ending.outcome, ending.end >= ending.deadline) == ("dropped", True)
            assert ending.reason == "function second is held at 0 instances by an operator"

    run(test)


def test_a_late_answer_is_waited_for_until_the_limit_and_not_longer():
    async def test():
        async with served(CHAIN) as app:
            _, patient = app.begin("main", 0.3, deadline_s=0.1, late_limit_s=1000.0)
            late = await asyncio.wait_for(patient, 20)
            assert (late.outcome, late.is_in_time) == ("completed", False)
            _, future = app.begin("main", 15.0, deadline_s=0.1, late_limit_s=0.2)
            ending = await asyncio.wait_for(future, 12)
            assert (ending.outcome, ending.reason) == ("dropped", "there was no answer within 0.2 s after it")
            assert ending.end >= ending.deadline + 0.2

    run(test)


def test_a_request_without_a_caller_waits_until_the_hold_ends_and_its_objective_counts_from_then():
    async def test():
        async with served(CHAIN) as app:
            await at_zero(app, "second")
            _, waiting = app.begin("main", 0.0)
            cancelled, gone = app.begin("main", 0.0)
            app.runtime.cancel(cancelled)
            assert (await asyncio.wait_for(gone, 20)).outcome == "cancelled"
            _, late = app.begin("main", 0.0, deadline_s=0.4)  # a deadline of its own stays what it is
            await asyncio.sleep(0.5)
            assert not waiting.done()
            app.runtime.scale("second", 1)
            endings = [await asyncio.wait_for(future, 20) for future in (waiting, late)]
            assert [ending.outcome for ending in endings] == ["completed", "dropped"]
            assert endings[0].deadline - endings[0].arrival == pytest.approx(0.3)
            await at_zero(app, "second")
            _, parked = app.begin("main", 0.0)
            app.runtime.retire()  # a new generation takes over: this one ends what it has
            await asyncio.wait_for(app.runtime.drained(), 20)
            assert parked.result().outcome == "completed"
            await at_zero(app, "second")
            _, orphan = app.begin("main", 0.0)
            app.runtime.retire(is_removed=True)  # nothing that an operator kept from running runs because of that
            assert orphan.result().outcome == "failed"
            assert orphan.result().reason.endswith("was removed before the request could run")
            await at_zero(app, "second")
            _, last = app.begin("main", 0.0)
        assert (last.result().outcome, last.result().reason) == ("cancelled", "the gateway is stopping")

    run(test)


FLAKY = """
    def load():
        if broken: raise RuntimeError("no model here")

    @app.function(setup=load)
    def f(model, x):
        if x == "die": die("it was ended")
        return x

    app.workflow("main", f, slo="500ms")
"""


def test_a_function_that_keeps_failing_to_start_is_named_and_readiness_says_so():
    broken = []

    async def test():
        async with served(FLAKY, names={"broken": broken}) as app:
            app.runtime.scale("f", 1)  # so that requests wait for its one replica
            await until(lambda: app.runtime.tally.functions()[0].idle == 1)
            broken.append(True)
            _, died = app.begin("main", "die", late_limit_s=1000.0)
            await until(lambda: app.runtime.obstacles() != ())
            assert "function f cannot start: " in app.runtime.obstacles()[0]
            assert "no model here" in app.runtime.obstacles()[0]
            ending = await asyncio.wait_for(app.begin("main", 1, late_limit_s=1000.0)[1], 20)
            assert ending.outcome == "dropped"
            assert ending.reason.startswith("function f cannot start: ")
            await asyncio.wait_for(died, 20)
            broken.clear()
            await until(lambda: app.runtime.obstacles() == ())
            assert await app.answer("main", 2) == 2

    run(test)


def test_timers_keep_nothing_of_requests_that_have_ended():
    async def test():
        looked, requests = [], dict.fromkeys(range(3))
        deadlines = Deadlines(lambda: 0.0, requests, lambda request, last: looked.append(request) or inf)
        for request in range(100_000):
            requests[request] = None
            deadlines.add(1000.0 + request, request, inf)
            requests.pop(request)
        assert len(deadlines) <= 2000
        deadlines.close()
        assert (len(deadlines), looked) == (0, [])

    run(test)


def test_timers_look_at_each_open_request_when_it_is_due_in_order_and_again_if_told_to():
    async def test():
        loop = asyncio.get_running_loop()
        began = loop.time()
        seen = []

        def look(request, last):
            seen.append((request, last))
            return inf if len(seen) > 3 else loop.time() - began + 0.01

        requests = {1: None, 2: None}
        deadlines = Deadlines(lambda: loop.time() - began, requests, look)
        deadlines.add(0.05, 2, 7.0)
        deadlines.add(0.02, 1, 6.0)
        deadlines.add(0.03, 3, 5.0)  # it has ended
        await until(lambda: len(seen) >= 4)
        assert seen[0] == (1, 6.0)
        assert {request for request, _ in seen} <= {1, 2}
        deadlines.close()

    run(test)


def test_a_served_gateway_refuses_and_says_that_it_is_not_ready_while_a_function_is_held_at_zero(tmp_path):
    app = write_app(
        tmp_path / "app.py",
        """
        @app.function()
        def nap(seconds):
            time.sleep(seconds)

        app.workflow("main", nap)
        """,
    )
    with serving(app, tmp_path / "state", "--limit", "late_limit_s=0.5", "--no-records") as served:
        scale = "/v1/apps/demo/functions/nap/scale"
        late = served.call("main", 20.0, headers={"x-deadline-ms": "300"})
        assert (late.status, late.json["error"]["code"]) == (504, "deadline_passed")
        assert "no answer within 0.5 s" in late.message
        assert served.ask("POST", scale, {"instances": 0}).status == 200
        ready = served.ask("GET", "/readyz")
        assert (ready.status, ready.json["status"]) == (503, "blocked")
        assert "function nap is held at 0 instances by an operator" in ready.json["reasons"][0]
        refused = served.call("main", 0.0)
        assert (refused.status, refused.json["error"]["code"]) == (503, "held_at_zero")
        assert "retry-after" in refused.headers
        assert scale in refused.message
        function = served.ask("GET", "/v1/status").json["apps"][0]["functions"][0]
        assert (function["held"], function["replicas"]) == ("operator", 0)
        sent = served.send("main", 0.0)
        assert sent.status == 202
        assert served.ask("POST", scale, {"instances": None}).status == 200
        assert served.wait_for_end(sent.json["id"])["state"] == "completed"
        assert served.ask("GET", "/readyz").status == 200
        assert served.call("main", 0.0).status == 200
        assert served.stop() == 0
