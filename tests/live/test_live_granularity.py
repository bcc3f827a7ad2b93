"""Fused and competing stages of an app on real processes."""

import asyncio
import time
from collections import Counter

from runtimes import run, served

FUSED = """
    import os

    @app.function()
    def pair(x): return (x, 1)

    @app.function(batch=(1, 2, 4))
    def double(xs): return [[x[0] * 2, type(x).__name__, os.getpid()] for x in xs]

    @app.function()
    def check(x):
        if x[0] < 0: raise ValueError("below zero")
        return [*x, os.getpid()]

    app.workflow("plain", pair >> double >> check, example=1)
    app.workflow("fused", pair >> double >> check, fuse=True, example=1)
    app.workflow("half", pair >> double >> check, fuse=[(pair, double)], example=1)
"""


def test_a_fused_workflow_answers_the_same_in_one_run(tmp_path):
    async def test():
        async with served(tmp_path, FUSED) as app:
            batches = Counter()
            send = app.runtime._instances.run
            app.runtime._instances.run = lambda batch, *rest: (batches.update(["runs"]), send(batch, *rest))
            answers, runs = {}, {}
            for workflow in ("plain", "fused", "half"):
                batches.clear()
                answers[workflow] = await app.answer(workflow, 3)
                runs[workflow] = batches["runs"]
            # A tuple is a list after a hop; so it is inside a fused function.
            assert [answer[:2] for answer in answers.values()] == [[6, "list"]] * 3
            assert runs == {"plain": 3, "fused": 1, "half": 2}
            assert answers["fused"][2] == answers["fused"][3]
            assert answers["half"][2] != answers["half"][3]
            assert sorted(app.runtime.scenario.functions) == [
                "check",
                "double",
                "pair",
                "pair+double",
                "pair+double+check",
            ]

    run(test)


def test_the_error_of_a_fused_function_names_the_part_and_spares_the_others(tmp_path):
    async def test():
        async with served(tmp_path, FUSED, policy="fifo", batching="full") as app:
            endings = await asyncio.gather(*(app.call("fused", n) for n in (-1, 1, 2, 3)))
            assert [ending.outcome for ending in endings] == ["failed", "completed", "completed", "completed"]
            assert endings[0].reason.startswith("check: ValueError: below zero (app.py, line")

    run(test)


COMPETING = """
    import os, time
    first = os.environ["FIRST"]

    @app.function(vcpus=0.5)
    def hurry(x):
        try:
            os.close(os.open(first, os.O_CREAT | os.O_EXCL))
            time.sleep(60)
        except FileExistsError:
            return x + 1

    @app.function(vcpus=0.5)
    def double(x): return 2 * x

    app.workflow("main", hurry >> double, compete={hurry: 2})
"""


def test_the_first_copy_wins_and_the_other_is_stopped_and_paid_for(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRST", str(tmp_path / "first"))

    async def test():
        async with served(tmp_path, COMPETING) as app:
            rows = app.runtime.controller.books._invocations = []
            began = time.monotonic()
            ending = await app.call("main", 3)
            paid = [("double", "done", True), ("hurry", "done", True), ("hurry", "preempted", True)]
            assert sorted((row[2], row[-1], row[-2] > 0) for row in rows) == paid
            assert app.store.read(ending.value) == 8
            assert time.monotonic() - began < 30  # the copy that came first would have slept for 60 s
            assert not app.runtime.controller.running  # the loser left off
            # Both are up again, and the next request is served by two copies, none of which sleeps.
            assert await app.answer("main", 4) == 10

    run(test)
