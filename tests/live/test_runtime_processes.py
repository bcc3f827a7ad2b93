"""The runtime over real processes: what only they can show. `test_runtime.py` has the rest, on virtual time."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from runtimes import COMPOSED, run, served, until

from fairlead.engine.live.limits import make_limiter
from fairlead.policy.base import Move, Scale


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
        ("exit", "exited with code 3"),
        ("die", "ended by SIGKILL"),
        ("hang", "ran longer than 2 s"),
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


def test_garbage_on_the_output_does_no_harm(tmp_path):
    async def test():
        async with served(tmp_path, FAILING) as app:
            assert await app.answer("odd", "print") == "print"

    run(test)


def test_a_killed_instance_loses_nothing_and_is_replaced(tmp_path):
    source = f"""
        import time
        from pathlib import Path
        @app.function(warm=1)
        def slow(x):
            begun = Path({str(tmp_path / "begun")!r})
            if not begun.exists():
                begun.touch()
                time.sleep(50)  # until it is killed
            return x
        app.workflow("slow", slow)
    """

    async def test():
        async with served(tmp_path, source) as app:
            _, future = app.begin("slow", 5)
            await until((tmp_path / "begun").exists)
            assert app.runtime.tally.functions()[0].busy == 1
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


def test_nothing_is_left_when_it_is_closed(tmp_path):
    async def test():
        async with served(tmp_path, COMPOSED) as app:
            pids = [pid for name in ("double", "negate", "numbers") for pid in app.pids(name)]
            assert pids
            folder = app.store.folder
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert not folder.exists()

    run(test)
