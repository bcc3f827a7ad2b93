"""The journal on virtual time: it is on disk after the commit, and a crash loses what was not committed."""

import asyncio
from itertools import count

import pytest

from fairlead.engine.live.clock import Clock
from fairlead.engine.live.journal import Accept, Final, JournalFullError
from fairlead.testing.virtual.journal import VirtualJournal
from fairlead.testing.virtual.loop import BEGIN_S, Life, LifeEndedError, run


def journal_of(path, **options):
    loop, numbers = asyncio.get_running_loop(), count(1)
    clock = Clock(loop.time, lambda: 1.8e9 + loop.time())
    options = {"commit_s": lambda: 0.5, "new_id": lambda: f"{next(numbers):032x}", **options}
    return VirtualJournal(path / "journal.sqlite", loop=loop, clock=clock, **options)


def entry(number=1, **fields):
    return Accept(workflow="app.work", body=b"%d" % number, **fields)


def test_what_is_accepted_together_is_committed_together_after_the_delay(tmp_path):
    async def main():
        journal = journal_of(tmp_path)
        await journal.open()
        accepted = await asyncio.gather(journal.accept(entry(1)), journal.accept(entry(2)))
        at, commits = asyncio.get_running_loop().time(), journal.stats().commits
        await journal.close()
        return [each.id for each in accepted], at, commits

    assert run(main()) == ([f"{1:032x}", f"{2:032x}"], BEGIN_S + 0.5, 1)


def test_an_end_is_shown_once_it_is_on_disk(tmp_path):
    async def main():
        journal = journal_of(tmp_path)
        await journal.open()
        id = (await journal.accept(entry())).id
        journal.finish(id, Final(state="completed", result=b"out"))
        before = await journal.get(id)
        after = await journal.settled(id)
        await journal.close()
        return before.state, after.state, after.result

    assert run(main()) == ("accepted", "completed", b"out")


def test_what_was_queued_is_written_on_closing(tmp_path):
    async def main():
        journal = journal_of(tmp_path)
        await journal.open()
        id = (await journal.accept(entry())).id
        journal.finish(id, Final(state="completed", result=b"out"))
        assert await journal.close() == 0
        again = journal_of(tmp_path)
        pending = await again.open()
        entry_ = await again.get(id)
        await again.close()
        return pending, entry_.state

    assert run(main()) == ((), "completed")


@pytest.mark.parametrize("dies_after", range(12))
def test_after_a_crash_at_any_step_whatever_was_acknowledged_is_there(tmp_path, dies_after):
    told = []

    async def work(journal):
        await journal.open()
        for number in range(2):
            told.append((await journal.accept(entry(number))).id)

    async def main():
        loop = asyncio.get_running_loop()
        life, journal = Life(loop, "the gateway", dies_after), journal_of(tmp_path)
        life.at_end(journal.crash)
        try:
            await life.ask(work(journal))
        except LifeEndedError:
            assert life.is_over
        else:
            life.end()
        again = journal_of(tmp_path)
        pending = await again.open(lock_wait_s=0)
        await again.close()
        return [each.id for each in pending]

    found = run(main())
    assert found[: len(told)] == told
    assert len(found) <= len(told) + 1


def test_a_disk_that_refuses_for_a_time_loses_no_end(tmp_path):
    async def main():
        journal = journal_of(tmp_path)
        await journal.open()
        id = (await journal.accept(entry())).id
        apply, refuses = journal._store.apply, [3]

        def failing(group):
            if refuses[0]:
                refuses[0] -= 1
                raise OSError("no room")
            return apply(group)

        journal._store.apply = failing
        journal.finish(id, Final(state="failed", reason="why"))
        with pytest.raises(JournalFullError, match="no room"):
            await journal.settled(id)
        await asyncio.sleep(5)
        found = await journal.get(id)
        await journal.close()
        return found.state

    assert run(main()) == "failed"


def test_what_is_too_old_is_forgotten(tmp_path):
    async def main():
        journal = journal_of(tmp_path, retention_s=60)
        await journal.open()
        id = (await journal.accept(entry())).id
        journal.finish(id, Final(state="completed"))
        await asyncio.sleep(50)
        kept = await journal.get(id)
        await asyncio.sleep(15)
        forgotten = await journal.get(id)
        await journal.close()
        return kept is not None, forgotten

    assert run(main()) == (True, None)
