"""Parameters bound to earlier outputs, over real processes and in the simulator: the same file gives both."""

import asyncio

import numpy as np
from runtimes import run, served

from fairlead.app.describe import describe
from fairlead.app.scenario import scenario_of
from fairlead.engine import simulate
from fairlead.report import summarise

SOURCE = """
from fairlead import INPUT
import numpy as np

@app.function(batch=(1, 2, 4))
def decode(names): return [np.full(200_000, len(name), np.uint8) for name in names]  # large: it lies in shared memory

@app.function()
def detect(image): return [int(image[0]), int(image[0]) + 1]

@app.function(batch=(1, 2, 4), cache=100)
def crop(boxes, images=None, names=None):
    if images is None:
        return [f"{box}" for box in boxes]
    return [f"{name}:{box}/{image.size}" for box, image, name in zip(boxes, images, names, strict=True)]

@app.function()
def gather(crops, image, *, question): return [question, *crops, int(image.sum())]

app.workflow(
    "main",
    decode >> detect >> each(crop.using(images=decode, names=INPUT)) >> gather.using(image=decode, question=INPUT),
    slo="2s",
    example="abc",
)
app.workflow("plain", detect >> each(crop))
"""


def expected(name):
    size = len(name)
    return [name, *(f"{name}:{size + i}/200000" for i in range(2)), size * 200_000 % 2**64]


def test_served_they_are_given_to_whole_batches_and_nothing_is_left_behind(tmp_path):
    async def test():
        async with served(tmp_path, SOURCE) as app:
            names = ["a" * size for size in range(1, 13)]
            wanted = [expected(name) for name in names]
            # `crop` also runs where nothing is bound: both kinds may meet in one batch.
            plain = [app.answer("plain", np.full(4, 7)) for _ in range(6)]
            found = await asyncio.gather(*(app.answer("main", name) for name in names), *plain)
            assert found == [*wanted, *[["7", "8"]] * 6]
            assert await app.answer("main", "aaa") == expected("aaa")
            assert list(app.store.folder.iterdir()) == []

    run(test)


def test_simulated_the_graph_is_that_of_the_plain_chain(tmp_path):
    file = tmp_path / "app.py"
    head = "from fairlead.app import App, each, fork, switch\napp = App('test')\n"
    file.write_text(head + SOURCE, encoding="utf-8")
    manifest = describe(file)
    scenario = scenario_of(manifest, duration_s=5.0)
    stages = scenario.workflows["main"].stages
    assert [(stage.name, stage.after) for stage in stages] == [
        ("decode", ()),
        ("detect", ("decode",)),
        ("crop", ("detect",)),
        ("gather", ("crop",)),
    ]
    summary = summarise(simulate(scenario, "earliest-deadline"))
    assert summary.completed == summary.requests > 50
