"""The journal on a bad disk: full, full at the start, or with a damaged file."""

import asyncio
import os

import pytest
from small_disks import fill, mounted

from fairlead.engine.live.journal import Accept, Final, Journal, JournalFullError

RESULT = bytes(20_000)


def ask(size=10_000, **fields) -> Accept:
    return Accept(workflow="a.w", body=bytes(size), **fields)


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "disk", "4m") as folder:
        yield folder


async def accept_until_full(journal: Journal) -> list[str]:
    ids = []
    for _ in range(1000):
        try:
            ids.append((await journal.accept(ask())).id)
        except JournalFullError:
            return ids
    raise AssertionError("a disk of 4 MB held 10 MB")


def test_a_full_disk_refuses_new_requests_keeps_the_old_and_recovers_by_itself(small_disk):
    path, filler = small_disk / "journal.sqlite", small_disk / "filler"

    async def run():
        journal = Journal(path)
        await journal.open()
        filler.write_bytes(bytes(2 * 2**20))
        ids = await accept_until_full(journal)
        assert len(ids) > 10
        with pytest.raises(JournalFullError, match="not accepted"):
            await journal.accept(ask())
        assert journal.stats().fault
        assert journal.stats().errors >= 1
        states = [(await journal.get(id)).state for id in ids]
        assert states == ["accepted"] * len(ids)  # all can be read
        assert await journal.resume(ids[0]) == bytes(10_000)
        for id in ids:
            journal.finish(id, Final(state="completed", result=RESULT))
        await asyncio.sleep(0.5)
        stats = journal.stats()
        assert stats.unwritten > 0  # they need more room than there is; they wait
        assert stats.open == stats.unwritten
        filler.unlink()
        async with asyncio.timeout(60):
            entries = [await journal.wait(id, 60) for id in ids]
        assert {(entry.state, entry.result) for entry in entries} == {("completed", RESULT)}
        assert (await journal.accept(ask(100))).is_new
        assert journal.stats().fault is None
        assert await journal.close() == 0
        return ids

    async def reopen():
        journal = Journal(path)
        pending = await journal.open()
        states = {(await journal.get(id)).state for id in ids}
        await journal.close()
        return states, len(pending), journal.stats().finished

    ids = asyncio.run(run())
    assert asyncio.run(reopen()) == ({"completed"}, 1, len(ids))  # and nothing that was refused


def test_endings_of_the_moment_at_which_the_disk_becomes_full_are_not_lost(small_disk):
    path, filler = small_disk / "journal.sqlite", small_disk / "filler"

    async def run():
        journal = Journal(path)
        await journal.open()
        ids = [(await journal.accept(ask(10))).id for _ in range(20)]
        fill(filler)
        assert journal.stats().fault is None
        for id in ids:
            journal.finish(id, Final(state="completed", result=RESULT))
        async with asyncio.timeout(60):
            while not journal.stats().fault:
                await asyncio.sleep(0.01)
        assert {(await journal.get(id)).state for id in ids} == {"accepted"}  # nothing is shown that is not on disk
        filler.unlink()
        async with asyncio.timeout(60):
            states = [(await journal.wait(id, 60)).state for id in ids]
        await journal.close()
        return states, journal.stats()

    states, stats = asyncio.run(run())
    assert states == ["completed"] * 20
    assert (stats.open, stats.finished, stats.unwritten, stats.ignored) == (0, 20, 0, 0)


def test_an_ending_that_the_disk_does_not_take_is_not_settled_until_it_is_there(small_disk):
    path, filler = small_disk / "journal.sqlite", small_disk / "filler"

    async def run():
        journal = Journal(path)
        await journal.open()
        first, second = [(await journal.accept(ask(10))).id for _ in range(2)]
        fill(filler)
        journal.finish(first, Final(state="completed", result=bytes(5 * 2**20)))
        with pytest.raises(JournalFullError, match="cannot be written: database or disk is full"):
            await journal.settled(first, timeout_s=30)
        with pytest.raises(JournalFullError, match=r"has not reached the disk within 0\.1 s"):
            await journal.settled(first, timeout_s=0.1)
        assert (await journal.settled(second)).state == "accepted"  # nothing is on its way
        await journal.close(timeout_s=0)

    asyncio.run(run())


def test_endings_that_find_no_room_until_the_close_are_pending_again(small_disk):
    path, filler = small_disk / "journal.sqlite", small_disk / "filler"

    async def run():
        journal = Journal(path)
        await journal.open()
        filler.write_bytes(bytes(2 * 2**20))
        ids = await accept_until_full(journal)
        for id in ids:
            journal.finish(id, Final(state="completed", result=RESULT))
        left = await journal.close(timeout_s=0.3)
        return ids, left

    async def reopen():
        journal = Journal(path)
        pending = await journal.open()
        await journal.close()
        return [entry.id for entry in pending], journal.notices

    ids, left = asyncio.run(run())
    filler.unlink()
    pending, notices = asyncio.run(reopen())
    assert left > 0
    assert len(pending) == left
    assert set(pending) <= set(ids)
    assert notices == ()


def test_a_journal_that_cannot_be_opened_for_want_of_space_is_not_taken_for_a_damaged_one(small_disk):
    path, filler = small_disk / "journal.sqlite", small_disk / "filler"

    async def first():
        journal = Journal(path)
        await journal.open()
        accepted = await journal.accept(ask(100))
        await journal.close()
        return accepted.id

    async def again():
        journal = Journal(path)
        pending = await journal.open()
        await journal.close()
        return [entry.id for entry in pending]

    id = asyncio.run(first())
    fill(filler)
    with pytest.raises(JournalFullError, match="disk full"):
        asyncio.run(again())
    filler.unlink()
    assert asyncio.run(again()) == [id]
    assert not list(small_disk.glob("*damaged*"))


def damage_middle(path):
    """Garbage over a tenth of the pages, from the middle on."""
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:
        file.seek(pages // 2 * 4096)
        file.write(os.urandom(max(pages // 10, 2) * 4096))


def damage_head(path):
    with path.open("r+b") as file:
        file.write(b"not a database, and never was one" * 4)


def damage_end(path):
    os.truncate(path, path.stat().st_size // 4096 // 2 * 4096 + 100)


@pytest.mark.parametrize("damage", [damage_middle, damage_head, damage_end])
def test_a_damaged_file_is_moved_aside_and_what_can_be_read_is_kept(tmp_path, damage):
    path = tmp_path / "journal.sqlite"

    async def fill_in():
        journal = Journal(path)
        await journal.open()
        ids = [(await journal.accept(ask(2000, key=f"k{i}"))).id for i in range(200)]
        for id in ids[:50]:
            journal.finish(id, Final(state="completed", result=b"\x01"))
        await journal.close()
        return ids

    async def reopen():
        journal = Journal(path)
        pending = await journal.open()
        bodies = [await journal.resume(entry.id) for entry in pending]
        accepted = await journal.accept(ask(10))
        await journal.close()
        return [entry.id for entry in pending], bodies, accepted, journal.notices

    ids = asyncio.run(fill_in())
    damage(path)
    pending, bodies, accepted, notices = asyncio.run(reopen())
    assert accepted.is_new
    assert len(notices) == 1
    assert "was damaged" in notices[0]
    (aside,) = (file for file in tmp_path.glob("journal.sqlite.damaged-*") if not file.name.endswith(("-wal", "-shm")))
    assert aside.name in notices[0]
    assert set(pending) <= set(ids[50:])
    assert bodies == [bytes(2000)] * len(pending)
    if damage is damage_middle:
        assert len(pending) > 20  # a part of the file was sound
    again, *_, notices = asyncio.run(reopen())
    assert notices == ()  # once
    assert set(again) == {*pending, accepted.id}


def test_a_damaged_file_waits_for_room_to_be_copied(small_disk, tmp_path):
    path, filler = small_disk / "journal.sqlite", small_disk / "filler"

    async def fill_in():
        journal = Journal(tmp_path / "elsewhere.sqlite")
        await journal.open()
        for _ in range(200):
            await journal.accept(ask(2000))
        await journal.close()

    async def reopen():
        journal = Journal(path)
        pending = await journal.open()
        await journal.close()
        return len(pending), len(journal.notices)

    asyncio.run(fill_in())
    path.write_bytes((tmp_path / "elsewhere.sqlite").read_bytes())
    damage_middle(path)
    filler.write_bytes(bytes(4 * 2**20 - path.stat().st_size - 300_000))
    for _ in range(2):
        with pytest.raises(JournalFullError, match="disk full"):
            asyncio.run(reopen())
    filler.unlink()
    kept, notices = asyncio.run(reopen())
    assert kept > 20
    assert notices == 1


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"hello"])
def test_a_file_without_anything_in_it_becomes_a_journal(tmp_path, content):
    path = tmp_path / "journal.sqlite"
    path.write_bytes(content)

    async def use():
        journal = Journal(path)
        assert await journal.open() == ()
        accepted = await journal.accept(ask(10))
        await journal.close()
        return accepted

    assert asyncio.run(use()).is_new
