"""The journal under kill -9: what was acknowledged is there, once; what was seen to end has ended."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fairlead.engine.live.journal import Accept, Final, Journal

ROUNDS = 8

# Eight loops accept as fast as they can and end every other request. A line is printed only after the answer.
CHILD = """
import asyncio, os, sys
from pathlib import Path
from fairlead.engine.live.journal import Accept, Final, Journal

async def main(path, name):
    journal = Journal(path)
    for pending in await journal.open():
        body = await journal.resume(pending.id)
        os.write(1, f"R {pending.id} {body.decode()}\\n".encode())
    async def loop(number):
        for i in range(1_000_000):
            text = f"{name}-{number}-{i}"
            accepted = await journal.accept(Accept(workflow="a.w", body=text.encode(), key=text))
            os.write(1, f"A {accepted.id} {text}\\n".encode())
            if i % 2:
                journal.finish(accepted.id, Final(state="completed", result=text.encode()))
                journal.finish(accepted.id, Final(state="failed"))
                entry = await journal.wait(accepted.id, 60)
                os.write(1, f"F {accepted.id} {entry.result.decode()}\\n".encode())
    await asyncio.gather(*(loop(n) for n in range(8)))

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


def run_and_kill(path: Path, name: str, after_s: float) -> list[list[str]]:
    """Start a writer, let it work for a moment after its first acknowledgement, kill it: the lines that it printed."""
    with subprocess.Popen([sys.executable, "-c", CHILD, str(path), name], stdout=subprocess.PIPE) as child:
        try:
            first = b""
            while not first.startswith(b"A"):
                first = child.stdout.readline()
                assert first, "the writer ended by itself"
            out = [first]
            timer = subprocess.Popen(["sleep", str(after_s)])
            os.set_blocking(child.stdout.fileno(), False)
            while timer.poll() is None:
                out.append(child.stdout.read(65536) or b"")  # a full pipe would stop it between its writes
        finally:
            os.kill(child.pid, signal.SIGKILL)
        os.set_blocking(child.stdout.fileno(), True)
        out.append(child.stdout.read())
    lines = b"".join(out).decode().split("\n")[:-1]  # the last may be cut off
    return [line.split() for line in lines]


def test_acknowledged_requests_survive_kills_at_any_moment(tmp_path):
    path, rng = tmp_path / "journal.sqlite", np.random.default_rng(1)
    accepted: dict[str, str] = {}
    finished: dict[str, str] = {}
    for round in range(ROUNDS):
        for kind, id, text in run_and_kill(path, f"r{round}", float(rng.uniform(0.0, 0.3))):
            if kind == "A":
                assert id not in accepted
                accepted[id] = text
            elif kind == "F":
                finished[id] = text
            else:
                assert accepted.get(id, text) == text  # one that was never acknowledged may be there too
                assert id not in finished

    async def check():
        journal = Journal(path)
        pending = await journal.open()
        assert journal.notices == ()
        open = [entry.id for entry in pending]
        assert len(set(open)) == len(open)
        for id, text in accepted.items():
            entry = await journal.get(id)
            assert entry is not None, f"lost: {id}"
            assert (id in open) == (entry.state == "accepted")
            again = await journal.accept(Accept(workflow="a.w", body=text.encode(), key=text))
            assert (again.id, again.is_new) == (id, False)
        for id, text in finished.items():
            entry = await journal.get(id)
            assert (entry.state, entry.result) == ("completed", text.encode())
        for id in open:  # what is done again ends once
            journal.finish(id, Final(state="completed", result=b"again"))
            journal.finish(id, Final(state="completed", result=b"and again"))
        await journal.close()
        again = Journal(path)
        assert await again.open() == ()
        results = {(await again.get(id)).result for id in open}
        await again.close()
        return results

    assert asyncio.run(check()) <= {b"again"}
    assert len(accepted) > ROUNDS  # kills came while there was something to lose
    assert finished


@pytest.mark.parametrize("cut", [1, 100, 4096, 20_000])
def test_a_log_that_lost_its_end_is_read_up_to_there(tmp_path, cut):
    """As after a power failure on a disk that did not sync: a shorter journal, never a damaged one."""
    path = tmp_path / "journal.sqlite"

    async def fill():
        journal = Journal(path)
        await journal.open()
        ids = [(await journal.accept(Accept(workflow="a.w", body=bytes(500)))).id for _ in range(40)]
        copy = tmp_path / "copy"
        copy.mkdir()
        for suffix in ("", "-wal"):  # as the disk is at this moment, without the index in shared memory
            name = f"{path.name}{suffix}"
            (copy / name).write_bytes((tmp_path / name).read_bytes())
        await journal.close()
        return ids, copy / path.name

    async def read(copy):
        journal = Journal(copy)
        pending = await journal.open()
        await journal.close()
        return [entry.id for entry in pending], journal.notices

    ids, copy = asyncio.run(fill())
    log = copy.with_name(f"{copy.name}-wal")
    os.truncate(log, log.stat().st_size - cut)
    kept, notices = asyncio.run(read(copy))
    assert notices == ()
    assert kept == ids[: len(kept)]
    assert 0 < len(kept) < 40
