"""A function's prediction cache, served on virtual time: what hits, what does not, what is kept and what is let go."""

import asyncio
from math import nan

import pytest
from runtimes import until
from virtual_runtimes import run, served

from fairlead.app import App

COUNTED = """
    @app.function(cache={cache})
    def name(x):
        calls.append(x)
        sleep(0.1)
        return [x, "named"]

    @app.function()
    def plain(x):
        return x

    app.workflow("one", name, slo=1)
    app.workflow("two", name >> plain, slo=1)
    app.workflow("late", plain >> name, slo=1)
"""


def counted(cache=100, source=COUNTED, **more):
    calls = []
    return calls, served(source.replace("{cache}", str(cache)), names={"calls": calls}, warms_up=False, **more)


def status(app, function="name"):
    return app.runtime.caches()[function]


@pytest.mark.parametrize("policy", ["fairlead", "fifo", "dag-admission", "clockwork"])
def test_an_equal_input_is_answered_without_a_run(policy):
    async def test():
        calls, serving = counted(policy=policy)
        async with serving as app:
            first = await app.answer("one", {"a": 1})
            ending = await app.call("one", {"a": 1})
            assert (app.store.read(ending.value), ending.latency_s, ending.cost_usd) == (first, 0.0, 0.0)
            assert await app.answer("two", {"a": 1}) == await app.answer("late", {"a": 1}) == first
            assert calls == [{"a": 1}]  # one answer, in every workflow that uses the function
            found = status(app)
            assert (found.hits, found.misses, found.entries, found.hit_rate) == (3, 1, 1, 0.75)
            assert app.runtime.policy_errors == app.runtime.open_requests == 0

    run(test)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (1, 1.0),
        (0.0, -0.0),
        (True, 1),
        ("\u00e9", "e\u0301"),
        ("1", 1),
        ([], {}),
        (b"x", "x"),
        (None, False),
    ],
    ids=repr,
)
def test_what_has_other_bytes_is_another_input(one, other):
    async def test():
        calls, serving = counted()
        async with serving as app:
            await app.answer("one", one)
            await app.answer("one", other)
            assert len(calls) == 2

    run(test)


@pytest.mark.parametrize("value", [nan, None, "", 0, "\U0001f600" * 3, [[], {}], {"k": [1, {"n": None}]}], ids=repr)
def test_odd_values_are_found_again(value):
    async def test():
        calls, serving = counted()
        async with serving as app:
            await app.answer("one", value)
            await app.answer("one", value)
            assert len(calls) == 1

    run(test)


def test_errors_are_never_kept():
    source = """
        @app.function(cache=10, batch=(1, 2, 4))
        def check(xs):
            calls.extend(xs)
            return [ValueError("no") if x < 0 and len(calls) < 4 else x for x in xs]

        app.workflow("one", check)
    """

    async def test():
        calls, serving = counted(source=source)
        async with serving as app:
            assert (await app.call("one", -1)).outcome == "failed"
            assert (await app.call("one", -1)).outcome == "failed"
            assert status(app, "check").entries == 0
            calls += [0, 0]
            assert await app.answer("one", -1) == await app.answer("one", -1) == -1
            assert calls == [-1, -1, 0, 0, -1]

    run(test)


def test_a_function_that_changes_its_input_and_its_answer_changes_nothing_that_is_kept():
    source = """
        kept = []

        @app.function(cache=10)
        def grow(xs):
            calls.append(1)
            xs.append(len(calls))
            kept.append(xs)
            for each in kept: each.append("changed later")
            return xs

        app.workflow("one", grow)
    """

    async def test():
        _calls, serving = counted(source=source)
        async with serving as app:
            first = await app.answer("one", [7])
            await app.answer("one", [8])
            assert await app.answer("one", [7]) == first == [7, 1, "changed later"]

    run(test)


def test_inputs_that_wait_for_an_equal_one_are_answered_with_it():
    async def test():
        calls, serving = counted()
        async with serving as app:  # two vCPUs: two run at once, the others wait
            answers = await asyncio.gather(*(app.answer("one", 5) for _ in range(6)))
            assert answers == [[5, "named"]] * 6
            assert len(calls) == 2
            found = status(app)
            assert (found.hits, found.misses, found.joined) == (0, 6, 4)
            assert app.runtime._predictions._alike == app.runtime._predictions._keys == {}

    run(test)


def test_the_least_recently_used_answer_goes_first():
    async def test():
        calls, serving = counted(cache=2)
        async with serving as app:
            for value in (1, 2, 1, 3, 1, 2):
                await app.answer("one", value)
            assert calls == [1, 2, 3, 2]  # 3 took the place of 2, since 1 had been asked for again
            assert (status(app).evictions, status(app).entries) == (2, 2)

    run(test)


def test_bytes_are_bounded_too_and_an_answer_beyond_them_is_not_kept():
    source = """
        @app.function(cache="100KB")
        def blob(n):
            calls.append(n)
            return b"x" * n

        app.workflow("one", blob)
    """

    async def test():
        calls, serving = counted(source=source)
        async with serving as app:
            for size in (30_000, 40_000, 50_000, 200_000, 200_000):
                await app.answer("one", size)
            found = status(app, "blob")
            assert (found.entries, found.evictions, found.skipped) == (2, 1, 2)
            assert 90_000 < found.bytes <= found.max_bytes == 100 * 1024
            await app.answer("one", 50_000)
            assert calls == [30_000, 40_000, 50_000, 200_000, 200_000]

    run(test)


def test_large_answers_stay_in_shared_memory_until_they_are_let_go():
    source = """
        @app.function(cache=1)
        def blob(n):
            calls.append(n)
            return b"x" * n

        @app.function()
        def size(data): return len(data)

        app.workflow("large", blob >> size)
        app.workflow("whole", blob)
    """

    async def test():
        calls, serving = counted(source=source)
        async with serving as app:
            files = lambda: [path.stat().st_nlink for path in app.store.folder.iterdir()]  # noqa: E731
            assert await app.answer("large", 300_000) == 300_000
            assert files() == [1]  # the cache's own
            assert await app.answer("large", 300_000) == 300_000
            ending = await app.call("whole", 300_000)
            assert files() == [2, 2]  # the same bytes for the caller
            assert app.store.read(ending.value) == b"x" * 300_000
            app.store.drop(ending.value)
            await app.answer("large", 400_000)
            assert files() == [1]  # another one has taken its place
            assert calls == [300_000, 400_000]
            folder = app.store.folder
            await app.runtime.close()
            assert list(folder.iterdir()) == []

    run(test)


def test_large_inputs_are_known_by_their_bytes_and_huge_ones_are_not_looked_up():
    source = """
        @app.function(cache=10)
        def size(data):
            calls.append(len(data))
            return len(data)

        @app.function()
        def same(data): return data

        app.workflow("direct", size)
        app.workflow("second", same >> size)
    """

    async def test():
        calls, serving = counted(source=source)
        async with serving as app:
            for workflow in ("direct", "second", "direct"):
                assert await app.answer(workflow, b"y" * 500_000) == 500_000
            for _ in range(2):
                assert await app.answer("direct", b"y" * 1_500_000) == 1_500_000
            assert calls == [500_000, 1_500_000, 1_500_000]
            found = status(app, "size")
            assert (found.hits, found.misses, found.skipped) == (2, 1, 2)
            assert list(app.store.folder.iterdir()) == []

    run(test)


def test_maps_forks_and_branches_go_on_from_kept_answers():
    source = """
        @app.function(cache=100)
        def numbers(n):
            calls.append("numbers")
            return list(range(n))

        @app.function(cache=100, batch=(1, 2, 4))
        def double(xs):
            calls.extend(xs)
            return [2 * x for x in xs]

        @app.function(cache=100)
        def total(xs):
            calls.append("total")
            return sum(xs)

        app.workflow("each", numbers >> each(double) >> total)
        app.workflow("input", each(double) >> total)
        app.workflow("fork", double >> fork(double, double) >> total)
        app.workflow("plain", numbers)
        app.workflow("switch", double >> switch(lambda x: "big" if x > 10 else "small", {"big": double, "small": None}))
    """

    async def test():
        calls, serving = counted(source=source)
        async with serving as app:
            for _ in range(2):
                assert await app.answer("each", 4) == 12
                assert await app.answer("each", 0) == 0
                assert await app.answer("input", [0, 1, 2, 3]) == 12
                assert await app.answer("fork", 3) == 24
                assert await app.answer("plain", 4) == [0, 1, 2, 3]  # the same function, but not as a list of items
                assert await app.answer("switch", 3) == 6
                assert await app.answer("switch", 8) == 32
                calls.append("again")
            first = calls.index("again")
            assert calls[first:] == ["again", "again"]  # nothing ran the second time

    run(test)


def test_a_request_whose_only_stage_is_kept_is_not_refused_when_nothing_is_in_time():
    async def test():
        _calls, serving = counted(policy="fairlead")
        async with serving as app:
            await app.answer("one", 1)
            assert (await app.call("one", 2, deadline_s=0.001)).outcome == "rejected"
            assert (await app.call("one", 1, deadline_s=0.001)).outcome == "completed"

    run(test)


def test_what_a_cancelled_or_lost_request_waited_for_is_forgotten():
    async def test():
        _, serving = counted(policy="fifo")
        async with serving as app:
            numbers = [app.begin("one", 9)[0] for _ in range(5)]
            await asyncio.sleep(0.05)
            for number in numbers:
                app.runtime.cancel(number)
            await until(lambda: app.runtime.open_requests == 0)
            predictions = app.runtime._predictions
            assert predictions._alike == predictions._keys == {}
            assert not predictions._due

    run(test)


def test_an_app_without_a_cache_has_none():
    async def test():
        _, serving = counted(cache=0)
        async with serving as app:
            await app.answer("one", 1)
            assert app.runtime.caches() == {}
            assert app.runtime._predictions is None
            assert not app.runtime.controller.recalling.is_due
            assert all(function.cache is None for function in app.runtime.tally.functions())

    run(test)


@pytest.mark.parametrize("cache", [-1, 1.5, True, "64", "MB", "0MB", "-1MB", "1e9GB", None, 10**12, [1], b"64MB"])
def test_bounds_that_are_none_are_refused(cache):
    with pytest.raises(ValueError, match="cache must be a number of entries"):
        App("a").function(cache=cache)


@pytest.mark.parametrize(
    ("cache", "entries", "size"),
    [(0, 0, 0), (10_000, 10_000, 64 << 20), ("64MB", 10_000_000, 64 << 20), ("1.5 kb", 10_000_000, 1536)],
)
def test_bounds_are_a_number_of_entries_or_a_size(cache, entries, size):
    spec = App("a").function(cache=cache, name="f")(abs).spec
    assert (spec.cache_entries, spec.cache_bytes) == (entries, size)
