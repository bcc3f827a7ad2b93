"""The journal: what is kept, what ends, what is refused, and what is forgotten."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest

from fairlead.engine.live.journal import (
    ID_PATTERN,
    Accept,
    Accepted,
    Entry,
    Final,
    Journal,
    JournalFullError,
    KeyConflictError,
    Pending,
)
from fairlead.engine.live.journal.entries import FinalOp
from fairlead.engine.live.journal.store import connect
from fairlead.errors import ConfigError

DONE = Final(state="completed", result=b"\xa2ok", cost_usd=0.25)


def ask(body=b"\x01", **fields) -> Accept:
    return Accept(workflow="shop.order", body=body, **fields)


def with_journal(path, work: Callable[[Journal, tuple[Pending, ...]], Awaitable[object]], **limits) -> object:
    """Open a journal, do something with it, close it."""

    async def run() -> object:
        journal = Journal(path, **limits)
        pending = await journal.open(lock_wait_s=0)
        try:
            return await work(journal, pending)
        finally:
            await journal.close()

    return asyncio.run(run())


async def ended(journal: Journal, id: str) -> Entry:
    """The entry, once its end is on disk."""
    entry = await journal.wait(id, 10)
    assert entry is not None
    assert entry.is_final
    return entry


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "journal.sqlite"


def test_an_accepted_request_is_pending_after_a_restart_with_all_that_was_said_of_it(path):
    async def first(journal, pending):
        assert pending == ()
        asked = ask(b"\xa3abc", deadline=float("inf"), budget_usd=0.5, request_id="r-1", traceparent="00-ab-cd-01")
        return await journal.accept(asked)

    async def second(journal, pending):
        return pending, await journal.resume(pending[0].id)

    accepted = with_journal(path, first)
    (pending,), body = with_journal(path, second)
    assert accepted == Accepted(pending.id, True)
    assert ID_PATTERN.fullmatch(accepted.id)
    assert (pending.workflow, pending.deadline, pending.budget_usd) == ("shop.order", float("inf"), 0.5)
    assert (pending.request_id, pending.traceparent, pending.attempts) == ("r-1", "00-ab-cd-01", 0)
    assert body == b"\xa3abc"


def test_the_first_ending_is_final_and_later_ones_are_counted(path):
    async def work(journal, _):
        id = (await journal.accept(ask())).id
        journal.finish(id, DONE)
        journal.finish(id, Final(state="failed", reason="too late"))  # while the first is on its way
        await ended(journal, id)
        journal.finish(id, Final(state="cancelled"))  # and when it is on disk
        other = (await journal.accept(ask())).id  # written after it, so both are through
        return await journal.get(id), await journal.resume(id), journal.stats(), other

    entry, body, stats, _ = with_journal(path, work)
    assert (entry.state, entry.result, entry.reason, entry.cost_usd) == ("completed", b"\xa2ok", None, 0.25)
    assert entry.finished_at >= entry.accepted_at
    assert body is None
    assert (stats.ignored, stats.open, stats.finished) == (2, 1, 1)


def test_pending_requests_come_oldest_first(path):
    async def first(journal, _):
        return [(await journal.accept(ask())).id for _ in range(5)]

    async def second(_, pending):
        return [entry.id for entry in pending]

    assert with_journal(path, first) == with_journal(path, second)


def test_what_is_queued_at_the_close_is_written(path):
    async def first(journal, _):
        waiting = [asyncio.create_task(journal.accept(ask())) for _ in range(20)]
        await asyncio.sleep(0)
        ids = [accepted.id for accepted in await asyncio.gather(*waiting)]
        for id in ids:
            journal.finish(id, DONE)
        return ids

    async def second(journal, pending):
        assert pending == ()
        return [(await journal.get(id)).state for id in ids]

    ids = with_journal(path, first)
    assert with_journal(path, second) == ["completed"] * 20


def test_waiters_of_one_moment_share_a_commit(path):
    async def work(journal, _):
        await asyncio.gather(*(journal.accept(ask()) for _ in range(200)))
        return journal.stats()

    stats = with_journal(path, work)
    assert stats.operations == 200
    assert stats.commits < 100


def test_a_key_names_one_request_of_a_workflow(path):
    async def work(journal, _):
        first = await journal.accept(ask(b"a", key="k"))
        again, twin = await asyncio.gather(journal.accept(ask(b"a", key="k")), journal.accept(ask(b"a", key="k")))
        elsewhere = await journal.accept(Accept(workflow="shop.refund", body=b"b", key="k"))
        with pytest.raises(KeyConflictError, match="another input of 'shop"):
            await journal.accept(ask(b"b", key="k"))
        journal.finish(first.id, DONE)
        await ended(journal, first.id)
        return first, again, twin, elsewhere, await journal.accept(ask(b"a", key="k"))

    first, again, twin, elsewhere, afterwards = with_journal(path, work)
    assert first.is_new
    assert again == twin == afterwards == Accepted(first.id, False)
    assert elsewhere.is_new
    assert elsewhere.id != first.id


def test_two_of_one_key_in_one_commit_are_one_request(path):
    async def work(journal, _):
        return await asyncio.gather(*(journal.accept(ask(key="k")) for _ in range(10)))

    answers = with_journal(path, work)
    assert len({answer.id for answer in answers}) == 1
    assert sum(answer.is_new for answer in answers) == 1


def test_a_request_whose_client_has_gone_is_still_handed_over(path):
    async def work(journal, _):
        handed = []
        waiting = asyncio.create_task(journal.accept(ask(), then=handed.append))
        await asyncio.sleep(0)  # it is queued
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await journal.accept(ask())
        await asyncio.sleep(0)
        return waiting.cancelled(), handed, journal.stats().open

    was_cancelled, handed, open = with_journal(path, work)
    assert was_cancelled
    assert [accepted.is_new for accepted in handed] == [True]
    assert open == 2


def test_a_known_key_is_not_handed_over_again(path):
    async def work(journal, _):
        handed = []
        for _ in range(3):
            await journal.accept(ask(key="k"), then=handed.append)
        await asyncio.sleep(0)
        return handed

    assert len(with_journal(path, work)) == 1


def test_a_request_that_was_begun_too_often_ends_as_failed(path):
    async def work(journal, _):
        id = (await journal.accept(ask())).id
        bodies = []
        for _ in range(3):
            bodies.append(await journal.resume(id))
            journal.started(id)
            await journal.accept(ask())  # written after the attempt
        bodies.append(await journal.resume(id))
        return bodies, await ended(journal, id)

    bodies, entry = with_journal(path, work, max_attempts=3)
    assert bodies == [b"\x01", b"\x01", b"\x01", None]
    assert (entry.state, entry.attempts) == ("failed", 3)
    assert "3 attempts" in entry.reason


def test_too_many_open_requests_are_refused_until_one_ends(path):
    async def work(journal, _):
        ids = [(await journal.accept(ask())).id for _ in range(3)]
        with pytest.raises(JournalFullError, match="3 requests are open"):
            await journal.accept(ask())
        journal.finish(ids[0], DONE)
        await ended(journal, ids[0])
        return await journal.accept(ask())

    assert with_journal(path, work, max_open=3).is_new


def test_inputs_beyond_the_size_limit_are_refused_and_smaller_ones_are_not(path):
    async def work(journal, _):
        await journal.accept(ask(bytes(500_000)))
        with pytest.raises(JournalFullError, match="this input has 500,000"):
            await journal.accept(ask(bytes(500_000)))
        return await journal.accept(ask(bytes(1000)))

    assert with_journal(path, work, max_bytes=1_000_000).is_new


def test_an_unknown_id_is_nothing_whatever_it_looks_like(path):
    async def work(journal, _):
        odd = ("", "x", "0" * 32, "0" * 31, "0" * 33, "../../etc/passwd", "é" * 32, "0" * 31 + "\n", "' OR 1=1 --")
        return [await journal.get(id) for id in odd], await journal.resume("0" * 32), await journal.wait("1" * 32, 5)

    assert with_journal(path, work) == ([None] * 9, None, None)


def test_waiting_returns_at_the_end_or_when_the_time_is_over(path):
    async def work(journal, _):
        id = (await journal.accept(ask())).id
        early = await journal.wait(id, 0.01)
        asyncio.get_running_loop().call_later(0.05, journal.finish, id, DONE)
        return early, await journal.wait(id, 30)

    early, late = with_journal(path, work)
    assert (early.state, late.state) == ("accepted", "completed")


@pytest.fixture
def often(monkeypatch):
    """An idle journal looks for what is too old every tenth of a second, not every second."""
    monkeypatch.setattr("fairlead.engine.live.journal.writer._TICK_S", 0.1)


@pytest.mark.usefixtures("often")
def test_old_requests_are_forgotten_with_their_keys_and_open_ones_never(path):
    now = [1000.0]

    async def work(journal, _):
        old = (await journal.accept(ask(key="k"))).id
        open = (await journal.accept(ask())).id
        journal.finish(old, DONE)
        await ended(journal, old)
        now[0] += 59
        await asyncio.sleep(0.5)  # the journal looks several times
        kept = await journal.get(old)
        now[0] += 2
        for _ in range(300):
            if await journal.get(old) is None:
                break
            await asyncio.sleep(0.1)
        return kept, await journal.get(old), await journal.get(open), await journal.accept(ask(b"new", key="k"))

    kept, gone, open, again = with_journal(path, work, retention_s=60, elapsed=lambda: now[0])
    assert kept is not None
    assert gone is None
    assert open.state == "accepted"
    assert again.is_new


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("jump_s", [40 * 86_400.0, -40 * 86_400.0], ids=["forward", "backward"])
def test_a_jump_of_the_wall_clock_forgets_nothing_neither_at_once_nor_after_a_restart(path, jump_s):
    wall, elapsed = [1_700_000_000.0], [5000.0]
    clocks = {"retention_s": 60, "clock": lambda: wall[0], "elapsed": lambda: elapsed[0]}

    async def first(journal, _):
        kept = [(await journal.accept(ask(key="k", callback_url="http://a/b"))).id]
        journal.finish(kept[0], DONE)
        await ended(journal, kept[0])
        wall[0] += jump_s
        kept.append((await journal.accept(ask())).id)
        journal.finish(kept[1], DONE)
        await ended(journal, kept[1])
        await looked(journal)
        return kept

    async def looked(journal):
        """The journal has had time to look for what is too old."""
        await asyncio.sleep(0.5)

    async def second(journal, _):
        await looked(journal)
        found = [(await journal.get(id)).state for id in kept]
        again = await journal.accept(ask(key="k"))
        elapsed[0] += 59
        await looked(journal)
        young = await journal.get(kept[0])
        elapsed[0] += 2
        while await journal.get(kept[0]) is not None:
            await asyncio.sleep(0.05)
        return found, again, young, await journal.get(kept[1])

    kept = with_journal(path, first, **clocks)
    elapsed[0] = 7.0  # another process: its clock begins elsewhere, and nothing has run for days
    wall[0] += 3 * 86_400
    found, again, young, gone = with_journal(path, second, **clocks)
    assert found == ["completed", "completed"]
    assert again == Accepted(kept[0], False)
    assert young.delivery == "pending"
    assert gone is None


def test_a_key_outlives_its_request_for_the_whole_retention_time(path):
    elapsed = [0.0]

    async def work(journal, _):
        asked = [ask(b"%d" % i, key=f"k{i}") for i in range(700)]
        ids = [kept.id for kept in await asyncio.gather(*map(journal.accept, asked))]
        for id in ids:
            journal.finish(id, DONE)
        await ended(journal, ids[-1])
        while journal.stats().finished > 10:
            await asyncio.sleep(0.05)
        stats = journal.stats()
        again = await asyncio.gather(*map(journal.accept, asked))
        with pytest.raises(KeyConflictError, match=ids[0]):
            await journal.accept(ask(b"other", key="k0"))
        elapsed[0] += 61
        while journal.stats().finished + journal.stats().keys:
            await asyncio.sleep(0.05)
        return ids, stats, again, await journal.accept(asked[0])

    limits = {"keep_finished": 10, "retention_s": 60, "elapsed": lambda: elapsed[0]}
    ids, stats, again, afterwards = with_journal(path, work, **limits)
    assert (stats.finished, stats.keys, stats.pruned) == (10, 690, 690)
    assert again == [Accepted(id, False) for id in ids]
    assert afterwards.is_new


def test_keys_without_their_request_are_bounded_by_their_number(path):
    async def work(journal, _):
        asked = [ask(key=f"k{i}") for i in range(60)]
        ids = [(await journal.accept(each)).id for each in asked]
        for id in ids:
            journal.finish(id, DONE)
        await ended(journal, ids[-1])
        while journal.stats().finished > 10 or journal.stats().keys > 20:
            await asyncio.sleep(0.05)
        return journal.stats(), await journal.accept(asked[0]), await journal.accept(asked[-1])

    stats, oldest, newest = with_journal(path, work, keep_finished=10, keep_keys=20)
    assert (stats.finished, stats.keys) == (10, 20)
    assert oldest.is_new
    assert not newest.is_new


def test_a_journal_of_the_format_before_is_read_with_all_that_is_in_it(path):
    async def first(journal, _):
        ids = [(await journal.accept(ask(key=f"k{i}"))).id for i in range(2)]
        journal.finish(ids[0], DONE)
        return ids

    async def second(journal, pending):
        again = await journal.accept(ask(key="k0"))
        return (await journal.get(ids[0])).state, [entry.id for entry in pending], again

    ids = with_journal(path, first)
    with closing(connect(path)) as connection:  # as the version before this one made it
        connection.executescript(
            "DROP TABLE keys; DROP TABLE clock; DROP INDEX requests_by_end; ALTER TABLE requests DROP COLUMN ended_on;"
            "CREATE INDEX requests_by_end ON requests (finished_at) WHERE finished_at IS NOT NULL;"
            "PRAGMA user_version = 1;"
        )
    for _ in range(2):
        assert with_journal(path, second) == ("completed", [ids[1]], Accepted(ids[0], False))


@pytest.mark.parametrize(
    ("final", "state", "reason"),
    [
        (Final(state="failed", reason="bad \ud800 text"), "failed", "bad \\ud800 text"),
        (Final(state="completed", result=b"1", ran_as="a-\udfff"), "completed", None),
        (Final(state="completed", cost_usd=float("nan")), "failed", "The request was completed, but how it ended"),
        (Final(state="completed", result=["no", "bytes"]), "failed", "cannot be stored"),
    ],
    ids=["surrogate-in-the-reason", "surrogate-in-the-name", "cost-is-nan", "result-is-a-list"],
)
def test_an_ending_that_cannot_be_stored_ends_its_request_and_holds_up_no_other(path, final, state, reason):
    async def work(journal, _):
        ids = [(await journal.accept(ask())).id for _ in range(4)]
        journal.finish(ids[0], DONE)
        if isinstance(final.result, list):  # past the check of its size
            journal._unwritten[ids[1]] = 0
            journal._writer.put(FinalOp(ids[1], final, 1.0))
        else:
            journal.finish(ids[1], final)
        journal.finish(ids[2], DONE)
        late = asyncio.create_task(journal.accept(ask()))
        entries = [await ended(journal, id) for id in ids[:3]]
        assert (await late).is_new
        journal.finish(ids[3], DONE)
        await ended(journal, ids[3])
        return entries, journal.stats()

    entries, stats = with_journal(path, work)
    assert [entry.state for entry in entries] == ["completed", state, "completed"]
    assert reason is None or reason in entries[1].reason
    assert (stats.fault, stats.unwritten) == (None, 0)


def test_a_note_of_a_delivery_that_cannot_be_stored_holds_up_no_other(path):
    async def work(journal, _):
        id = (await journal.accept(ask(callback_url="http://a/b"))).id
        journal.finish(id, DONE)
        await ended(journal, id)
        journal.delivery_failed(id, "\ud800", is_final=True)
        await journal.accept(ask())
        return await journal.get(id)

    assert with_journal(path, work).delivery_note == "\\ud800"


def test_an_undelivered_callback_keeps_its_request_from_being_pruned_by_count(path):
    async def work(journal, _):
        asked = [ask(callback_url="http://a/b" if i == 0 else None) for i in range(700)]
        ids = [kept.id for kept in await asyncio.gather(*map(journal.accept, asked))]
        for id in ids:
            journal.finish(id, DONE)
        await ended(journal, ids[-1])
        for _ in range(300):
            if journal.stats().finished <= 11:
                break
            await asyncio.sleep(0.1)
        return journal.stats(), await journal.get(ids[0]), await journal.get(ids[1]), await journal.get(ids[-1])

    stats, undelivered, pruned, newest = with_journal(path, work, keep_finished=10)
    assert (stats.finished, stats.undelivered, stats.pruned) == (11, 1, 689)
    assert undelivered.delivery == "pending"
    assert pruned is None
    assert newest.is_final


@pytest.mark.slow
def test_the_file_levels_off_under_a_stream_of_requests(path):
    async def work(journal, _):
        sizes = []

        async def stream(count: int) -> None:
            for _ in range(count):
                id = (await journal.accept(ask(bytes(200)))).id
                journal.finish(id, Final(state="completed", result=bytes(100)))

        for _ in range(5):
            await asyncio.gather(*(stream(40) for _ in range(250)))
            sizes.append(journal.stats().bytes)
        for _ in range(300):
            if journal.stats().finished <= 1000:
                break
            await asyncio.sleep(0.1)
        return sizes, journal.stats()

    sizes, stats = with_journal(path, work, keep_finished=1000)
    assert (stats.open, stats.finished, stats.pruned) == (0, 1000, 49_000)
    assert sizes[-1] < 1.5 * sizes[1] + 2**20, sizes
    assert sizes[-1] < 32 * 2**20, sizes  # 50,000 such requests would take more than that in the file alone


def test_a_file_that_was_large_gives_its_space_back(path):
    async def work(journal, _):
        ids = [kept.id for kept in await asyncio.gather(*(journal.accept(ask(bytes(100_000))) for _ in range(200)))]
        large = sum(file.stat().st_size for file in path.parent.iterdir())  # the metric follows after the answers
        for id in ids:
            journal.finish(id, DONE)
        for _ in range(1200):
            if path.stat().st_size < 8 * 2**20:
                break
            await asyncio.sleep(0.1)
        return large

    assert with_journal(path, work) > 15 * 2**20
    assert path.stat().st_size < 8 * 2**20


def test_only_its_owner_can_read_the_journal(path):
    async def work(journal, _):
        await journal.accept(ask())
        return [stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()]

    assert set(with_journal(path, work)) == {0o600}


def test_a_second_process_is_refused_and_takes_over_when_the_first_is_killed(path):
    script = (
        "import asyncio, sys; from pathlib import Path; from fairlead.engine.live.journal import Accept, Journal\n"
        "async def main():\n"
        "    journal = Journal(Path(sys.argv[1])); await journal.open()\n"
        "    print((await journal.accept(Accept(workflow='shop.order', body=b'x'))).id, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )

    async def nothing(_, pending):
        return [entry.id for entry in pending]

    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as other:
        try:
            id = other.stdout.readline().strip()
            with pytest.raises(ConfigError, match=f"in use by process {other.pid}"):
                with_journal(path, nothing)
        finally:
            os.kill(other.pid, signal.SIGKILL)
    assert with_journal(path, nothing) == [id]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("PRAGMA user_version = 3", "has format 3"),
        ("PRAGMA application_id = 7", "database of another program"),
    ],
)
def test_a_file_that_is_not_ours_to_read_is_refused_and_left_alone(path, sql, message):
    async def nothing(_, pending):
        return pending

    with_journal(path, nothing)
    with closing(connect(path)) as connection:
        connection.execute(sql)
    with pytest.raises(ConfigError, match=message):
        with_journal(path, nothing)
    assert sorted(file.name for file in path.parent.iterdir()) == ["journal.sqlite", "journal.sqlite.lock"]


def test_a_closed_journal_refuses_instead_of_hanging(path):
    async def run():
        journal = Journal(path)
        await journal.open()
        await journal.close()
        assert await journal.close() == 0
        with pytest.raises(JournalFullError, match="closed"):
            await journal.accept(ask())
        with pytest.raises(JournalFullError, match="closed"):
            await journal.get("0" * 32)
        return journal.stats().open

    assert asyncio.run(run()) == 0


@pytest.mark.parametrize(
    "fields",
    [{"key": ""}, {"key": "k" * 2049}, {"request_id": "a\r\nb"}, {"traceparent": "é"}, {"deadline": float("nan")}],
)
def test_a_request_that_could_not_be_passed_on_is_not_made(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        ask(**fields)
