"""Fused and competing stages of an app on real processes."""

import asyncio
from collections import Counter

from runtimes import run, served, until

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
    from pathlib import Path
    folder = Path(os.environ["FOLDER"])

    def wait_for(name):
        while not (folder / name).exists():
            time.sleep(0.01)

    @app.function(vcpus=0.5)
    def hurry(x):
        try:
            (folder / "first").touch(exist_ok=False)
        except FileExistsError:
            return x + 1
        wait_for("go")
        return x + 100

    @app.function(vcpus=0.5)
    def wait(x):
        wait_for("end")
        return x

    @app.function(vcpus=0.5)
    def both(found): return found

    app.workflow("main", fork(hurry, wait) >> both, compete={hurry: 2})
"""


def test_the_first_copy_wins_and_the_other_is_discarded_when_its_process_has_run_it(tmp_path, monkeypatch):
    monkeypatch.setenv("FOLDER", str(tmp_path))

    async def test():
        async with served(tmp_path, COMPETING) as app:
            rows = app.runtime.controller.books._invocations = []

            def has(outcome):
                return any((row[2], row[-1]) == ("hurry", outcome) for row in rows)

            _, ending = app.begin("main", 3)
            await until(lambda: has("done"))
            instances = {instance.id for instance in app.runtime.controller.pool.of("hurry")}
            (tmp_path / "go").touch()  # the copy that came first gives its answer, second
            await until(lambda: has("discarded"))
            (tmp_path / "end").touch()
            assert app.store.read((await asyncio.wait_for(ending, 60)).value) == [4, 3]
            assert {instance.id for instance in app.runtime.controller.pool.of("hurry")} >= instances
            assert await app.answer("main", 4) == [5, 4]

    run(test)
