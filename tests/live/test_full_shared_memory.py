"""Shared memory that is full for a moment fails no request and leaves nothing behind."""

import asyncio

import pytest
from runtimes import run, served
from small_disks import fill, mounted

from fairlead.engine.live.store import Store

APP = """
    @app.function(batch=(1, 2, 4))
    def same(xs): return xs

    @app.function()
    def halves(x): return [x[: len(x) // 2], x[len(x) // 2 :]]

    app.workflow("twice", same >> same)
    app.workflow("split", halves >> each(same))
"""


@pytest.mark.parametrize("room", ["some", "none in memory", "none at all"])
def test_requests_complete_where_shared_memory_is_full(tmp_path, room):
    async def test():
        with mounted(tmp_path / "memory", "2m") as memory, mounted(tmp_path / "disk", "64m") as disk:
            store = Store.make(disk, memory)
            if room != "some":
                fill(memory / "filler")
            if room == "none at all":
                fill(disk / "filler")
            async with served(tmp_path, APP, store=store) as app:
                texts = [f"{n}" * 800_000 for n in range(8)]
                assert await asyncio.gather(*(app.answer("twice", text) for text in texts)) == texts
                halves = await asyncio.gather(*(app.answer("split", text) for text in texts))
                assert halves == [[text[:400_000], text[400_000:]] for text in texts]
                assert app.log == []
            left = {path.name for folder in (memory, disk) for path in folder.iterdir()}
            assert left <= {"filler"}

    run(test)


def test_answers_of_a_full_shared_memory_are_freed_when_they_are_released(tmp_path):
    async def test():
        with mounted(tmp_path / "memory", "2m") as memory, mounted(tmp_path / "disk", "64m") as disk:
            store = Store.make(disk, memory)
            async with served(tmp_path, APP, store=store) as app:
                fill(memory / "filler")
                endings = await asyncio.gather(*(app.call("twice", "x" * 800_000) for _ in range(4)))
                assert [ending.outcome for ending in endings] == ["completed"] * 4
                for ending in endings:
                    store.drop(ending.value)
                assert [*store.folder.iterdir(), *store.spill.iterdir()] == []

    run(test)
