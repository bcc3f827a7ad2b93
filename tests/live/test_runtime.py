"""The runtime on virtual time: every way of composing, failures, retries, limits, cancelling, scaling, draining."""

import asyncio
from itertools import pairwise

import pytest
from runtimes import COMPOSED, until
from virtual_runtimes import QUIET, run, served

from fairlead.errors import ConfigError
from fairlead.model import Node
from fairlead.testing.virtual import Traits


@pytest.mark.parametrize("policy", ["fifo", "fairlead", "earliest-deadline"])
def test_every_composition_gives_what_plain_python_would(policy):
    async def test():
        async with served(COMPOSED, policy) as app:
            assert await app.answer("chain", 3) == -6
            assert await app.answer("fork", 3) == -6 + 12
            assert await app.answer("each", 4) == -(0 + 2 + 4 + 6)
            assert await app.answer("each", 0) == 0
            assert await app.answer("open-each", 3) == [0, 2, 4]
            assert await app.answer("input-each", [1, 2, 3]) == 12
            assert await app.answer("switch", 3) == 6
            assert await app.answer("switch", 6) == -12
            assert await app.answer("large", 1_000_000) == 1_000_000
            assert list(app.store.folder.iterdir()) == []
            together = await asyncio.gather(*(app.answer("chain", n) for n in range(40)))
            assert together == [-2 * n for n in range(40)]
            rows = app.runtime.controller.books.recorder  # records are off
            assert [rows.requests, rows.invocations, rows.instances] == [[], [], []]

    run(test)


def test_an_input_that_is_no_list_is_refused_where_a_map_needs_one():
    async def test():
        async with served(COMPOSED) as app:
            with pytest.raises(ValueError, match="must be a list; got int"):
                app.begin("input-each", 5)

    run(test)


FAILING = """
    @app.function(run_limit_s=2)
    def odd(what):
        if what == "raise": raise ValueError("as asked")
        if what == "exit": raise SystemExit(3)
        if what == "die": die("it was ended by SIGKILL")
        if what == "hang": sleep(60)
        if what == "unsendable": return object()
        return what

    @app.function(batch=(1, 2, 4, 8), name="wrong-count")
    def wrong_count(xs): return xs[:-1]

    @app.function(batch=(1, 2, 4, 8))
    def some(xs): return [ValueError(f"not {x}") if x < 0 else x for x in xs]

    app.workflow("odd", odd)
    app.workflow("count", wrong_count)
    app.workflow("some", some)
"""


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("raise", "ValueError: as asked (app.py, line 4)"),
        ("exit", "it ended with exit code 3"),
        ("die", "it was ended by SIGKILL"),
        ("hang", "ran longer than 2 s"),
        ("unsendable", "a value of type object cannot be passed on"),
    ],
)
def test_a_function_that_misbehaves_fails_its_request_and_the_next_is_served(what, reason):
    async def test():
        async with served(FAILING) as app:
            ending = await app.call("odd", what)
            assert ending.outcome == "failed"
            assert reason in ending.reason
            assert await app.answer("odd", "fine") == "fine"

    run(test)


def test_the_wrong_number_of_results_is_a_failure_that_says_so():
    async def test():
        async with served(FAILING) as app:
            ending = await app.call("count", 1)
            assert ending.reason.startswith("ValueError: wrong-count was called with 1 and returned 0 results.")

    run(test)


def test_an_exception_in_the_place_of_an_output_fails_that_one_only():
    async def test():
        async with served(FAILING, "fifo", batching="deadline") as app:
            endings = await asyncio.gather(*(app.call("some", x) for x in (1, -2, 3, 4)))
            assert [ending.outcome for ending in endings] == ["completed", "failed", "completed", "completed"]
            assert endings[1].reason == "ValueError: not -2"

    run(test)


SLOW = """
    @app.function(warm=1, retries={retries})
    def slow(x):
        sleep(0.3)
        return x
    app.workflow("slow", slow)
"""


def test_a_killed_instance_loses_nothing_and_is_replaced():
    async def test():
        async with served(SLOW.format(retries=0)) as app:
            _, future = app.begin("slow", 5)
            await until(lambda: app.runtime.tally.functions()[0].busy == 1)
            (key,) = app.keys("slow")
            app.kill(key)
            ending = await asyncio.wait_for(future, 60)
            assert ending.outcome == "completed"
            assert app.store.read(ending.value) == 5
            await until(lambda: key not in app.keys("slow") and app.runtime.tally.functions()[0].idle == 1)
            (second,) = app.keys("slow")
            app.kill(second)  # idle now: the pool refills
            await until(lambda: app.keys("slow") not in ([], [second]))
            assert any("ended by SIGKILL" in line for line in app.log)

    run(test)


def test_a_request_survives_an_instance_that_is_killed_while_it_starts():
    async def test():
        source = SLOW.format(retries=0).replace("warm=1", "warm=0")
        async with served(source) as app:
            _, future = app.begin("slow", 5)
            await until(lambda: app.keys("slow") != [])
            app.kill(app.keys("slow")[0])
            assert (await asyncio.wait_for(future, 60)).outcome == "completed"
            assert any("ended by SIGKILL" in line for line in app.log)

    run(test)


def test_a_start_that_fails_is_tried_again_later_each_time():
    async def test():
        async with served(SLOW.format(retries=0)) as app:
            loop, cluster = app.cluster.loop, app.cluster
            cluster.traits = Traits(start_s=(0.1, 0.1), start_failures=1.0)
            app.kill(app.keys("slow")[0])
            begins, seen = [], set()
            while len(begins) < 6:
                for key in set(cluster.instances()) - seen:
                    seen.add(key)
                    begins.append(loop.time())
                await asyncio.sleep(0.005)
            pauses_s = [later - earlier for earlier, later in pairwise(begins)]
            assert all(later > earlier * 1.2 for earlier, later in pairwise(pauses_s))
            cluster.traits = QUIET
            await until(lambda: app.runtime.tally.functions()[0].idle == 1)
            assert await app.answer("slow", 1) == 1

    run(test)


def test_a_setup_that_raises_keeps_the_app_from_being_served():
    source = """
        def load(): raise RuntimeError("no model here")
        @app.function(setup=load)
        def classify(model, x): return x
        app.workflow("main", classify)
    """

    async def test():
        with pytest.raises(ConfigError, match="no model here"):
            async with served(source):
                pass

    run(test)


def test_setup_runs_once_per_instance_and_its_result_comes_first():
    source = """
        calls = []
        def load():
            calls.append(1)
            return {"loads": len(calls)}
        @app.function(setup=load)
        def use(model, x): return [model["loads"], x]
        app.workflow("main", use)
    """

    async def test():
        async with served(source) as app:
            assert [await app.answer("main", x) for x in (1, 2)] == [[1, 1], [1, 2]]
            app.kill(app.keys("use")[0])  # the next instance loads for itself
            assert await app.answer("main", 3) == [1, 3]

    run(test)


def test_a_start_that_takes_too_long_is_ended_and_told():
    source = """
        @app.function(setup=lambda: sleep(5), start_limit_s=0.5)
        def late(model, x): return x
        app.workflow("main", late)
    """

    async def test():
        with pytest.raises(ConfigError, match=r"it did not start within 0\.5 s"):
            async with served(source):
                pass

    run(test)


def test_a_cancelled_request_ends_at_once_and_its_work_is_discarded():
    source = """
        @app.function()
        def slow(x):
            sleep(20)
            return x
        app.workflow("slow", slow)
    """

    async def test():
        async with served(source) as app:
            loop = app.cluster.loop
            number, future = app.begin("slow", "a" * 100_000)
            await until(lambda: app.runtime.tally.functions()[0].busy == 1)
            began = loop.time()
            app.runtime.cancel(number)
            ending = await asyncio.wait_for(future, 60)  # while the function still runs
            assert loop.time() - began < 0.1
            assert (ending.outcome, ending.value) == ("cancelled", None)
            assert await app.answer("slow", 1) == 1
            await until(lambda: not list(app.store.folder.iterdir()))
            app.runtime.cancel(number)  # no news

    run(test)


def test_a_request_that_ends_while_its_instance_starts_is_not_run():
    ran = []
    source = """
        @app.function(setup=lambda: sleep(1), warm=0, batch=(1, 2))
        def note(model, xs):
            ran.extend(xs)
            return xs
        app.workflow("note", note)
    """

    async def test():
        async with served(source, "fifo", names={"ran": ran}, batching="deadline") as app:
            (first, one), (_, two) = app.begin("note", 1), app.begin("note", 2)
            await until(lambda: app.keys("note"))
            app.runtime.cancel(first)
            endings = [await asyncio.wait_for(future, 60) for future in (one, two)]
            assert [ending.outcome for ending in endings] == ["cancelled", "completed"]
            alone, ending = app.begin("note", 3)
            app.runtime.cancel(alone)
            assert (await asyncio.wait_for(ending, 60)).outcome == "cancelled"
            assert await app.answer("note", 4) == 4

    run(test)
    assert 1 not in ran


def test_a_policy_that_raises_is_replaced_and_nothing_is_lost():
    async def test():
        async with served(COMPOSED, "earliest-deadline") as app:
            decisions = app.runtime.controller.decisions

            def broken(view):
                raise RuntimeError("as asked")
                yield

            decisions._decide = broken
            assert await app.answer("chain", 3) == -6
            assert app.runtime.policy_name == "fifo"
            assert any("fifo takes over" in line for line in app.log)

    run(test)


def test_scaling_by_an_operator_holds_until_it_is_given_back():
    source = """
        @app.function()
        def echo(x): return x
        app.node("n", vcpus=4)
        app.workflow("echo", echo)
    """

    async def test():
        async with served(source) as app:
            app.runtime.scale("echo", 3)
            await until(lambda: len(app.keys("echo")) == 3 and app.runtime.tally.functions()[0].idle == 3)
            assert await app.answer("echo", 1) == 1
            app.runtime.scale("echo", 1)
            await until(lambda: app.runtime.tally.functions()[0].idle == 1)
            assert await app.answer("echo", 2) == 2
            app.runtime.scale("echo", None)
            assert await app.answer("echo", 3) == 3
            assert app.runtime.refused_actions == 0

    run(test)


def test_a_slow_end_holds_its_memory_and_what_waits_for_it_starts_afterwards():
    source = """
        @app.function(memory_gb=3, warm=1, keep_alive_s=600)
        def first(x): return x
        @app.function(memory_gb=3, warm=0)
        def second(x): return x
        app.node("n", vcpus=4, memory_gb=4)
        app.workflow("first", first)
        app.workflow("second", second)
    """

    async def test():
        traits = Traits(start_s=(0.2, 0.2), end_s=(1.5, 1.5))
        async with served(source, traits=traits) as app:
            loop = app.cluster.loop
            began = loop.time()
            assert await app.answer("second", 1) == 1
            assert 1.7 <= loop.time() - began < 1.9  # 1.5 s until the other is gone, then 0.2 s to start

    run(test)


def test_requests_that_are_open_at_the_end_are_told_also_the_newest():
    source = """
        @app.function()
        def slow(x):
            sleep(5)
            return x
        app.workflow("slow", slow)
    """

    async def test():
        async with served(source) as app:
            _, old = app.begin("slow", 1)
            await asyncio.sleep(0.1)
            _, new = app.begin("slow", 2)  # the controller has not heard of it when the end comes
        assert [future.result().outcome for future in (old, new)] == ["cancelled", "cancelled"]
        assert old.result().reason == "the gateway is stopping"

    run(test)


def test_a_drained_runtime_has_answered_everything():
    async def test():
        async with served(SLOW.format(retries=0)) as app:
            futures = [app.begin("slow", number)[1] for number in range(5)]
            await app.runtime.drained()
            assert [future.result().outcome for future in futures] == ["completed"] * 5

    run(test)


def test_a_lost_node_takes_nothing_with_it_and_is_used_again_when_it_is_back():
    source = """
        @app.function(warm=0)
        def slow(x):
            sleep(0.5)
            return x
        app.node("a", vcpus=1)
        app.node("b", vcpus=1)
        app.workflow("slow", slow)
    """

    async def test():
        async with served(source) as app:
            futures = [app.begin("slow", number)[1] for number in range(6)]
            await until(lambda: app.runtime.tally.functions()[0].busy == 2)
            app.cluster.lose("a", 5.0)
            endings = [await asyncio.wait_for(future, 60) for future in futures]
            assert [ending.outcome for ending in endings] == ["completed"] * 6
            assert [app.store.read(ending.value) for ending in endings] == list(range(6))
            assert any("node a was lost: its connection was reset" in line for line in app.log)
            await asyncio.sleep(6)
            more = [app.begin("slow", number)[1] for number in range(4)]
            await until(lambda: len(app.cluster.nodes["a"].instances) == 1)
            assert [(await future).outcome for future in more] == ["completed"] * 4

    run(test)


def test_a_frozen_node_is_given_up_its_work_done_elsewhere_and_its_late_answer_dropped():
    ran = []
    source = """
        @app.function(warm=1)
        def slow(x):
            ran.append(x)
            sleep(0.5)
            return [len(ran), x]
        app.node("a", vcpus=1)
        app.node("b", vcpus=1)
        app.workflow("slow", slow)
    """

    async def test():
        async with served(source, names={"ran": ran}) as app:
            (key,) = app.keys("slow")
            node = app.cluster.instances()[key].spec.node
            _, future = app.begin("slow", 7)
            await until(lambda: ran == [7])
            app.cluster.freeze(node, 10.0)
            ending = await asyncio.wait_for(future, 60)
            assert app.store.read(ending.value) == [2, 7]  # of the second run, not of the first
            assert 2.0 <= ending.latency_s < 4.0
            await asyncio.sleep(15)
            assert app.runtime._instances._provider.late == 1
            assert app.runtime.tally.workflows(0.0, {})[0].completed == 1

    run(test)


@pytest.mark.parametrize("policy", ["fifo", "fairlead"])
@pytest.mark.parametrize(("kind", "speed"), [("slow", 0.5), ("local", 0.5)], ids=["new-kind", "other-speed"])
def test_a_node_that_the_app_was_not_deployed_for_is_left_alone(policy, kind, speed):
    async def test():
        async with served(SLOW.format(retries=0), policy) as app:
            app.runtime.node_joined(Node(name="late", kind=kind, vcpus=4, speed=speed))
            endings = await asyncio.gather(*(app.call("slow", n) for n in range(8)))
            assert {ending.outcome for ending in endings} <= {"completed", "rejected"}
            assert "late" not in app.runtime.controller.nodes
            assert any("was not deployed for" in line for line in app.log)

    run(test)


def test_a_glance_looks_at_the_cpu_time_of_a_few_instances_at_a_time_in_turn():
    source = """
        @app.function(vcpus=1)
        def work(x): sleep(1)
        app.workflow("work", work)
    """

    async def test():
        async with served(source, nodes=(Node(name="n", kind="n", vcpus=3, memory_gb=8),)) as app:
            await asyncio.gather(*(app.call("work", None) for _ in range(3)))
            assert len(app.keys("work")) == 3
            seen = [app.runtime.cpu_s(most=1)["work"] for _ in range(4)]
            assert seen == pytest.approx([1, 2, 3, 3], abs=0.1)
            assert app.runtime.cpu_s() == pytest.approx({"work": 3}, abs=0.1)

    run(test)
