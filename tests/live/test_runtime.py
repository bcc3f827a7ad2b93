"""The runtime over real processes: every way of composing, large values, failures, limits, cancelling, scaling."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from runtimes import run, served, until

from fairlead.engine.live.limits import make_limiter
from fairlead.errors import ConfigError
from fairlead.policy.base import Move, Scale

COMPOSED = """
    @app.function()
    def double(x): return 2 * x

    @app.function(batch=(1, 2, 4))
    def negate(xs): return [-x for x in xs]

    @app.function()
    def numbers(n): return list(range(n))

    @app.function()
    def total(xs): return sum(xs)

    @app.function()
    def blob(n): return b"x" * n

    @app.function()
    def size(data): return len(data)

    app.workflow("chain", double >> negate)
    app.workflow("fork", double >> fork(negate, double) >> total)
    app.workflow("each", numbers >> each(double >> negate) >> total)
    app.workflow("open-each", numbers >> each(double))
    app.workflow("input-each", each(double) >> total)
    app.workflow("switch", double >> switch(lambda x: "big" if x > 10 else "small", {"big": negate, "small": None}))
    app.workflow("large", blob >> size)
"""


def test_every_composition_gives_what_plain_python_would(tmp_path):
    async def test():
        async with served(tmp_path, COMPOSED) as app:
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


def test_an_input_that_is_no_list_is_refused_where_a_map_needs_one(tmp_path):
    async def test():
        async with served(tmp_path, COMPOSED) as app:
            with pytest.raises(ValueError, match="must be a list; got int"):
                app.begin("input-each", 5)

    run(test)


FAILING = """
    import os, sys, time

    @app.function(run_limit_s=2)
    def odd(what):
        if what == "raise": raise ValueError("as asked")
        if what == "exit": sys.exit(3)
        if what == "die": os.kill(os.getpid(), 9)
        if what == "hang": time.sleep(60)
        if what == "print": os.write(1, b"\\xff\\x00" * 100_000)
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
        ("raise", "ValueError: as asked (app.py, line "),
        ("exit", "exited with code 3"),
        ("die", "ended by SIGKILL"),
        ("hang", "ran longer than 2 s"),
        ("unsendable", "a value of type object cannot be passed on"),
    ],
)
def test_a_function_that_misbehaves_fails_its_request_and_the_next_is_served(tmp_path, what, reason):
    async def test():
        async with served(tmp_path, FAILING) as app:
            ending = await app.call("odd", what)
            assert ending.outcome == "failed"
            assert reason in ending.reason
            assert await app.answer("odd", "fine") == "fine"

    run(test)


def test_garbage_on_the_output_harms_nobody(tmp_path):
    async def test():
        async with served(tmp_path, FAILING) as app:
            assert await app.answer("odd", "print") == "print"

    run(test)


def test_the_wrong_number_of_results_is_a_failure_that_says_so(tmp_path):
    async def test():
        async with served(tmp_path, FAILING) as app:
            ending = await app.call("count", 1)
            assert ending.reason.startswith("ValueError: wrong-count was called with 1 and returned 0 results.")

    run(test)


def test_an_exception_in_the_place_of_an_output_fails_that_one_only(tmp_path):
    async def test():
        async with served(tmp_path, FAILING, "fifo", batching="deadline") as app:
            endings = await asyncio.gather(*(app.call("some", x) for x in (1, -2, 3, 4)))
            assert [ending.outcome for ending in endings] == ["completed", "failed", "completed", "completed"]
            assert endings[1].reason == "ValueError: not -2"

    run(test)


def test_a_killed_instance_loses_nothing_and_is_replaced(tmp_path):
    source = """
        import time
        @app.function(warm=1)
        def slow(x):
            time.sleep(0.3)
            return x
        app.workflow("slow", slow)
    """

    async def test():
        async with served(tmp_path, source) as app:
            _, future = app.begin("slow", 5)
            await until(lambda: app.runtime.tally.functions()[0].busy == 1)
            (pid,) = app.pids("slow")
            os.kill(pid, signal.SIGKILL)
            ending = await asyncio.wait_for(future, 60)
            assert ending.outcome == "completed"
            assert app.store.read(ending.value) == 5
            await until(lambda: pid not in app.pids("slow") and app.runtime.tally.functions()[0].idle == 1)
            (second,) = app.pids("slow")
            os.kill(second, signal.SIGKILL)  # idle now: the pool refills
            await until(lambda: app.pids("slow") not in ([], [second]))
            assert any("ended by SIGKILL" in line for line in app.log)

    run(test)


def test_a_setup_that_raises_keeps_the_app_from_being_served(tmp_path):
    source = """
        def load(): raise RuntimeError("no model here")
        @app.function(setup=load)
        def classify(model, x): return x
        app.workflow("main", classify)
    """

    async def test():
        with pytest.raises(ConfigError, match="no model here"):
            async with served(tmp_path, source):
                pass

    run(test)


def test_setup_runs_once_per_instance_and_its_result_comes_first(tmp_path):
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
        async with served(tmp_path, source) as app:
            assert [await app.answer("main", x) for x in (1, 2)] == [[1, 1], [1, 2]]

    run(test)


def test_a_cancelled_request_ends_at_once_and_its_work_is_discarded(tmp_path):
    hold = tmp_path / "hold"
    source = f"""
        import os, time
        @app.function()
        def slow(x):
            while os.path.exists({str(hold)!r}): time.sleep(0.01)
            return x
        app.workflow("slow", slow)
    """

    async def test():
        async with served(tmp_path, source) as app:
            hold.touch()
            number, future = app.begin("slow", "a" * 100_000)
            await until(lambda: app.runtime.tally.functions()[0].busy == 1)
            app.runtime.cancel(number)
            ending = await asyncio.wait_for(future, 60)  # while the function still runs
            assert (ending.outcome, ending.value) == ("cancelled", None)
            hold.unlink()
            assert await app.answer("slow", 1) == 1
            await until(lambda: not list(app.store.folder.iterdir()))
            app.runtime.cancel(number)  # no news

    run(test)


def test_a_request_that_ends_while_its_instance_starts_is_not_run(tmp_path, monkeypatch):
    hold = tmp_path / "hold"
    source = f"""
        import os, time
        def load():
            while os.path.exists({str(hold)!r}): time.sleep(0.01)
        @app.function(setup=load, warm=0, batch=(1, 2))
        def note(model, xs):
            with open("ran", "a") as file: print(*xs, file=file)
            return xs
        app.workflow("note", note)
    """

    async def test():
        async with served(tmp_path, source, "fifo", batching="deadline") as app:
            hold.touch()
            (first, one), (_, two) = app.begin("note", 1), app.begin("note", 2)
            await until(lambda: app.pids("note"))
            app.runtime.cancel(first)
            hold.unlink()
            endings = [await asyncio.wait_for(future, 60) for future in (one, two)]
            assert [ending.outcome for ending in endings] == ["cancelled", "completed"]
            alone, ending = app.begin("note", 3)
            app.runtime.cancel(alone)
            assert (await asyncio.wait_for(ending, 60)).outcome == "cancelled"
            assert await app.answer("note", 4) == 4

    monkeypatch.chdir(tmp_path)
    run(test)
    assert "1" not in (tmp_path / "ran").read_text().split()


def test_a_policy_that_raises_is_replaced_and_nothing_is_lost(tmp_path, monkeypatch):
    async def test():
        async with served(tmp_path, COMPOSED, "earliest-deadline") as app:
            decisions = app.runtime.controller.decisions

            def broken(view):
                raise RuntimeError("as asked")
                yield

            decisions._decide = broken
            assert await app.answer("chain", 3) == -6
            assert app.runtime.policy_name == "fifo"
            assert any("fifo takes over" in line for line in app.log)

    run(test)


def test_scaling_by_an_operator_holds_until_it_is_given_back(tmp_path):
    source = """
        @app.function()
        def echo(x): return x
        app.node("n", vcpus=4)
        app.workflow("echo", echo)
    """

    async def test():
        async with served(tmp_path, source) as app:
            app.runtime.scale("echo", 3)
            await until(lambda: len(app.pids("echo")) == 3 and app.runtime.tally.functions()[0].idle == 3)
            assert await app.answer("echo", 1) == 1
            app.runtime.scale("echo", 1)
            await until(lambda: app.runtime.tally.functions()[0].idle == 1)
            assert await app.answer("echo", 2) == 2
            app.runtime.scale("echo", None)
            assert await app.answer("echo", 3) == 3
            assert app.runtime.refused_actions == 0

    run(test)


def test_a_function_moves_to_a_slower_node_and_is_slower_there(tmp_path):
    """Nodes of different speed are real: the same work takes several times as long in a quarter of a core."""
    source = """
        import time
        @app.function(warm=0)
        def spin(loops):
            began = time.thread_time()
            while time.thread_time() - began < loops: pass
            return loops
        app.node("fast", vcpus=1)
        app.node("slow", vcpus=1, speed=0.25)
        app.workflow("spin", spin)
    """

    async def test():
        async with served(tmp_path, source) as app:
            if make_limiter().kind == "affinity":
                pytest.skip("without control groups a node's speed is not limited")
            app.runtime.order(Scale("spin", 1))
            app.runtime.order(Move("spin", "fast"))
            nodes = app.runtime.tally.nodes
            await until(lambda: [node.instances for node in nodes()] == [1, 0])
            fast = await app.call("spin", 0.2)
            app.runtime.order(Move("spin", "slow"))
            await until(lambda: [node.instances for node in nodes()] == [0, 1])
            slow = await app.call("spin", 0.2)
            assert (fast.outcome, slow.outcome) == ("completed", "completed")
            assert slow.run_s > 0.5  # 0.2 s of work in a quarter of a core, however fast that is

    run(test)


def test_requests_that_are_open_at_the_end_are_told_also_the_newest(tmp_path):
    source = """
        import time
        @app.function()
        def slow(x):
            time.sleep(5)
            return x
        app.workflow("slow", slow)
    """

    async def test():
        async with served(tmp_path, source) as app:
            _, old = app.begin("slow", 1)
            await asyncio.sleep(0.1)
            _, new = app.begin("slow", 2)  # the controller has not heard of it when the end comes
        assert [future.result().outcome for future in (old, new)] == ["cancelled", "cancelled"]
        assert old.result().reason == "the gateway is stopping"

    run(test)


def test_nothing_is_left_when_it_is_closed(tmp_path):
    async def test():
        async with served(tmp_path, COMPOSED) as app:
            pids = [pid for name in ("double", "negate", "numbers") for pid in app.pids(name)]
            assert pids
            folder = app.store.folder
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert not folder.exists()

    run(test)
