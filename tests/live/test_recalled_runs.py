"""Runs with a prediction cache, recorded live on virtual time: replayed exactly, replayed otherwise, and explained."""

import asyncio
from dataclasses import replace

import pytest
from virtual_runtimes import run, served

from fairlead.engine.core import events as ev
from fairlead.replay import check_exactly, read_logged_run, replay
from fairlead.report.counted import batches
from fairlead.report.explain import in_words
from fairlead.report.story import tell
from fairlead.workload import PolicyChoice

SOURCE = """
    @app.function(cache=20, batch=(1, 2, 4))
    def look(xs):
        sleep(0.05)
        if any(x == 13 for x in xs): raise ValueError("unlucky")
        return [x % 3 for x in xs]

    @app.function(cache=20)
    def numbers(n): return list(range(n))

    @app.function()
    def total(xs): return sum(xs)

    app.workflow("one", look, slo=0.5)
    app.workflow("chain", look >> numbers, slo=0.5)
    app.workflow("each", numbers >> each(look) >> total, slo=1)
    app.workflow("pick", look >> switch(lambda x: "zero" if x == 0 else "more", {"zero": look, "more": None}), slo=0.5)
"""


def recorded(folder, policy):
    """A run in which requests come together and one after the other, with few different inputs."""

    async def test():
        async with served(SOURCE, policy, record_to=folder, warms_up=False) as app:
            for turn in range(6):
                names = ("one", "chain", "pick", "one", "pick")
                values = [(turn * 3 + place * 5) % 14 for place in range(5)]
                waits = [app.call(name, value) for name, value in zip(names, values, strict=True)]
                await asyncio.gather(*waits, app.call("each", 2 + turn % 2))
                await asyncio.sleep(0.01)

    run(test)
    return read_logged_run(folder)


@pytest.mark.parametrize(
    "policy", ["fairlead", "fifo", "earliest-deadline", "clockwork", "dag-admission", "esg", "orion", "pard"]
)
def test_a_run_with_hits_is_replayed_exactly(tmp_path, policy):
    logged = recorded(tmp_path / "run", policy)
    recalled = [event for _, events in logged.instants for event in events if isinstance(event, ev.Recalled)]
    rows = logged.recording.invocations
    cached = rows.filter(rows["outcome"] == "cached")
    assert len(recalled) == cached.height > 10
    assert (cached["batch"].unique().to_list(), cached["cost_usd"].sum()) == ([-1], 0.0)
    assert -1 not in logged.recording.instances["instance"]
    assert -1 not in batches(logged.recording)["batch"]
    assert check_exactly(logged) is None


def test_without_its_hits_the_run_would_not_be_the_same(tmp_path):
    logged = recorded(tmp_path / "run", "fifo")
    instants = tuple(
        (now, tuple(event for event in events if not isinstance(event, ev.Recalled))) for now, events in logged.instants
    )
    assert check_exactly(replace(logged, instants=instants)) is not None


def test_under_another_policy_the_same_invocations_are_answered_by_the_cache(tmp_path):
    logged = recorded(tmp_path / "run", "fifo")
    again = replay(logged, PolicyChoice(name="earliest-deadline"))
    for recording in (logged.recording, again):
        rows = recording.invocations
        hits = rows.filter(rows["outcome"] == "cached")
        found = set(hits.select("request", "stage", "item").iter_rows())
        if recording is logged.recording:
            expected = found
    assert found == expected


def test_a_request_that_was_answered_from_the_cache_says_so(tmp_path):
    async def test():
        async with served(SOURCE, "fairlead", record_to=tmp_path / "run", warms_up=False) as app:
            await app.call("chain", 4)
            await app.call("chain", 4)
            await app.call("one", 5)

    run(test)
    recording = read_logged_run(tmp_path / "run").recording
    first, second = (" ".join(in_words(tell(recording, number))) for number in (0, 1))
    assert "prediction cache" not in first
    assert second.startswith("Request 1 of chain, under fairlead: answered after 0 s, in time.")
    assert "look: answered from the prediction cache; nothing was run." in second
    assert "numbers: answered from the prediction cache; nothing was run." in second
