"""Examples run before an app is served, and nothing else hears of it."""

import asyncio

import pytest
from virtual_runtimes import run, served

from fairlead.app import App

NOTING = """
    def note(name, x):
        calls.append((name, x))

    @app.function()
    def first(x):
        note("first", x)
        return [x, x + 1]

    @app.function()
    def second(x):
        note("second", x)
        return "y" * 200_000  # so large that it is kept in shared memory

    @app.function(warm=0)
    def third(x):
        note("third", x)

    @app.function()
    def bad(x):
        note("bad", x)
        raise ValueError("not with this example")

    app.node("n", vcpus=8)
    app.workflow("main", first >> each(second) >> third, example=5)
    app.workflow("bad", bad, example=7)
    app.workflow("without", second)
"""


def test_examples_run_before_the_app_is_served_and_are_not_counted():
    calls = []

    async def test():
        async with served(NOTING, names={"calls": calls}) as app:
            assert sorted(calls[:4]) == [("bad", 7), ("first", 5), ("second", 5), ("second", 6)]
            assert set(calls[4:]) == {("first", 5), ("second", 5)}  # tried out: never measured
            assert len(calls[4:]) == sum(app.runtime.tried.values())
            assert any("bad failed on an example: ValueError: not with this example" in line for line in app.log)
            assert any("third failed on an example: it has no instance before" in line for line in app.log)
            assert [workflow.offered for workflow in app.runtime.tally.workflows(0.0, {})] == [0, 0, 0]
            assert app.runtime.controller.stale_events == 0
            assert list(app.store.folder.iterdir()) == []
            assert len(await app.answer("without", 1)) == 200_000

    run(test)


@pytest.mark.parametrize("how", ["app", "operator"])
def test_examples_need_not_run(how):
    source = NOTING + ("    app.warm_up = False\n" if how == "app" else "")
    calls = []

    async def test():
        async with served(source, names={"calls": calls}, warms_up=how == "app"):
            assert calls == []

    run(test)


def test_an_example_that_takes_too_long_or_kills_its_instance_does_not_keep_the_app_from_being_served():
    source = """
        @app.function()
        def slow(x):
            if x == "example": sleep(60)
            return x

        @app.function()
        def dies(x):
            if x == "example": die("it exited with code 3")
            return x

        app.node("n", vcpus=8)
        app.workflow("dies", dies, example="example")
        app.workflow("slow", slow, example="example")
    """

    async def test():
        async with served(source) as app:
            assert any("dies failed on an example: it exited with code 3" in line for line in app.log)
            assert any("the examples took more than 30 s" in line for line in app.log)
            assert await asyncio.wait_for(app.answer("slow", 1), 20) == 1
            assert await asyncio.wait_for(app.answer("dies", 2), 20) == 2

    run(test)


def test_the_choice_is_part_of_the_manifest():
    app = App("demo", warm_up=False)
    app.workflow("main", app.function(echo))
    assert app.manifest().warm_up is False
    with pytest.raises(ValueError, match="warm_up must be True or False; got 'no'"):
        App("demo", warm_up="no")


def echo(x):
    return x
