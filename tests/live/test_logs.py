"""Lines of functions on disk: bounded, in order, found by what they carry; and what an instance may write."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest
from typer.testing import CliRunner

from fairlead.app import App
from fairlead.app.current import About, ContextError, Run, context, contexts, entered
from fairlead.cli import app
from fairlead.engine.live.calling import call
from fairlead.engine.live.gateway.logs import Followers
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.logs import allowance
from fairlead.engine.live.logs.allowance import Allowance
from fairlead.engine.live.logs.folder import START, LogFolder, Tail
from fairlead.engine.live.logs.lines import MOST_TEXT, Line, Wanted, pack, unpack
from fairlead.engine.live.logs.shared import Present, shared_memory
from fairlead.engine.live.logs.writer import LineWriter, Owner
from fairlead.errors import plain

SMALL = 1 << 20


def line(text, *, function="f", request=None, run=None, t=0.0):
    named = {} if run is None else {"run": run}
    about = {"app": "a", "instance": "1.0", "node": "n", "stream": "stdout", "level": None}
    return pack(Line(t=t or time.time(), function=function, request=request, text=text, **about, **named))


def texts(lines):
    return [unpack(data).text for data in lines]


def size_of(folder):
    return sum(size for _, size in folder.sizes())


def test_the_folder_stays_below_its_limit_and_keeps_the_newest(tmp_path):
    folder = LogFolder(tmp_path / "logs", SMALL)
    for number in range(30_000):
        folder.append(line(f"{number} {'x' * 100}"))
    assert SMALL / 2 < size_of(folder) <= SMALL
    found = texts(folder.last(Wanted(), 10_000))
    numbers = [int(text.split()[0]) for text in found]
    assert numbers == list(range(numbers[0], 30_000))
    assert os.stat(folder.path).st_mode & 0o077 == 0


def test_processes_that_append_at_once_mix_no_lines_and_lose_none(tmp_path):
    code = """
import sys
from pathlib import Path
from fairlead.engine.live.logs.folder import LogFolder
folder = LogFolder(Path(sys.argv[1]), 8 << 20)
for number in range(2000):
    folder.append(b'{"t":0,"app":"a","function":"f","instance":"%b","node":"n","request":null,"stream":"stdout",'
                  b'"level":null,"text":"%d %b"}\\n' % (sys.argv[2].encode(), number, b"x" * 200))
"""
    folder = LogFolder(tmp_path, 8 << 20)
    tail = Tail(folder, START)
    processes = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in "123"]
    seen = []
    while any(process.poll() is None for process in processes):
        seen += tail.read().splitlines()
        time.sleep(0.01)
    deadline = time.monotonic() + 60
    while len(seen) < 6000 and time.monotonic() < deadline:
        seen += tail.read().splitlines()
    for name in "123":
        mine = [found.text for data in seen if (found := unpack(data)) is not None and found.instance == name]
        assert [int(text.split()[0]) for text in mine] == list(range(2000))
    assert tail.skipped_segments == 0
    assert len(folder.segments()) > 1
    assert len(folder.last(Wanted(instance="2"), 10_000)) == 2000


@pytest.mark.parametrize("letter", ["\u6f22", "\U0001f600", "\x01"], ids=["3-bytes", "4-bytes", "6-bytes"])
@pytest.mark.parametrize("most_bytes", [32 << 10, 64 << 10, 1 << 18])
def test_a_line_that_is_longer_than_what_is_read_at_once_holds_up_no_others(tmp_path, letter, most_bytes):
    folder = LogFolder(tmp_path / "logs")
    tail = Tail(folder, START)
    for text in ("first", letter * MOST_TEXT, "last"):
        folder.append(line(text))
    seen = b"".join(tail.read(most_bytes) for _ in range(3))
    assert texts(seen.splitlines()) == ["first", letter * MOST_TEXT, "last"]


def test_what_is_no_line_is_passed_over(tmp_path):
    folder = LogFolder(tmp_path / "logs")
    tail = Tail(folder, START)
    folder.append(line("first") + b'{"t":1,"app' + b"no line\n" + b"x" * (3 << 20) + b"\n" + line("last"))
    data = b"".join(tail.read() for _ in range(10))
    assert texts(Wanted().among(data)) == ["first", "last"]
    assert texts(folder.last(Wanted(), 10)) == ["first", "last"]


@pytest.mark.parametrize("said", [b"\xff\xff", b'[["\xff"],[]]', b"[[1],[]]", b"[" * 5000, b"{"])
def test_an_instance_that_writes_nonsense_into_shared_memory_has_no_names(said):
    descriptor = shared_memory()
    present = Present(descriptor)
    present._memory[:8] = (2).to_bytes(4, "little") + len(said).to_bytes(4, "little")
    present._memory[8 : 8 + len(said)] = said
    assert present.read() == ((), ())
    present.close()
    os.close(descriptor)


def test_an_instance_cannot_take_the_shared_memory_from_under_who_reads_it():
    descriptor = shared_memory()
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    os.close(descriptor)


def test_lines_are_found_up_to_a_number_of_bytes(tmp_path):
    folder = LogFolder(tmp_path / "logs")
    for number in range(1000):
        folder.append(line(f"{number} {'x' * 16_000}"))
    found = folder.last(Wanted(), 10_000)
    assert 7 << 20 < sum(map(len, found)) <= 8 << 20
    assert texts(found)[-1].startswith("999 ")


def test_few_clients_search_the_lines_at_once_and_the_others_come_again(tmp_path):
    folder = LogFolder(tmp_path / "logs")
    folder.append(line("one"))

    async def ask() -> list[object]:
        followers = Followers(folder, 8)
        return await asyncio.gather(*(followers.last(Wanted(), 10) for _ in range(40)), return_exceptions=True)

    answers = asyncio.run(ask())
    refused = [each for each in answers if isinstance(each, Problem)]
    assert [texts(each.splitlines()) for each in answers if isinstance(each, bytes)] == [["one"]] * 18
    assert {(each.status, each.code) for each in refused} == {(429, "too_many_followers")}


def test_lines_are_found_by_what_they_carry(tmp_path):
    folder = LogFolder(tmp_path)
    folder.append(line("one", request="a-1-1", t=1.0))
    folder.append(line("both", request=("a-1-1", "a-1-2"), t=2.0))
    folder.append(line("async", request="f00d", run="a-1-3", t=3.0))
    folder.append(line("a-1-1 in its text only", function="g", t=5.0))
    folder.append(line("late"))
    assert texts(folder.last(Wanted(request="a-1-1"), 10)) == ["one", "both"]
    assert texts(folder.last(Wanted(request="a-1-2"), 10)) == ["both"]
    assert texts(folder.last(Wanted(request="f00d"), 10)) == ["async"]
    assert texts(folder.last(Wanted(request="a-1-3"), 10)) == ["async"]
    assert texts(folder.last(Wanted(function="g"), 10)) == ["a-1-1 in its text only"]
    assert texts(folder.last(Wanted(app="b"), 10)) == []
    assert texts(folder.last(Wanted(), 2)) == ["a-1-1 in its text only", "late"]
    folder.append(b'{"t": torn by a full disk\nand more\n')
    assert texts(folder.last(Wanted(since=time.time() - 500), 10)) == ["late"]


def owner(folder, most_bytes=SMALL):
    return Owner(folder=str(folder), most_bytes=most_bytes, app="a", function="f", instance="1.0", node="n")


def test_a_record_with_what_is_no_text_is_kept(tmp_path):
    LineWriter(owner(tmp_path)).write("log", "INFO", "a file named \udcff", "a-1-1")
    assert texts(LogFolder(tmp_path).last(Wanted(request="a-1-1"), 10)) == ["a file named \\udcff"]


def test_a_writer_of_an_instance_that_has_ended_leaves_nothing(tmp_path):
    writer = LineWriter(owner(tmp_path))
    writer.close()
    left = weakref.ref(writer)
    del writer
    gc.collect()
    assert left() is None


def test_a_needle_is_found_over_the_edges_of_blocks(tmp_path):
    folder = LogFolder(tmp_path, 64 << 20)
    for number in range(3000):
        folder.append(line("x" * (number % 700), request=f"r{number % 10}"))
    assert len(folder.last(Wanted(request="r7"), 10_000)) == 300
    assert len(folder.last(Wanted(), 10_000)) == 3000


def test_a_tail_goes_on_after_lines_were_deleted_and_says_so(tmp_path):
    folder = LogFolder(tmp_path, SMALL)
    folder.append(line("first"))
    tail = Tail(folder, START)
    assert texts(tail.read().splitlines()) == ["first"]
    for number in range(20_000):
        folder.append(line(f"{number} {'x' * 100}"))
    time.sleep(0.1)  # a segment is left once nothing is appended to it any more
    found = []
    while data := tail.read():
        found += texts(data.splitlines())
    assert tail.skipped_segments > 0
    assert found[-1].startswith("19999 ")
    assert tail.behind_bytes == 0


def test_an_allowance_is_a_burst_then_a_rate_and_counts_the_rest(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(allowance, "monotonic", lambda: now[0])
    allowed = Allowance()
    for _ in range(10_000):
        if not allowed.admit(10):
            allowed.drop(1, 10)
    assert allowed.dropped_lines == 10_000 - 4 * allowance.LINES_PER_S
    assert allowed.is_used_up()
    assert f"{allowed.dropped_lines} lines dropped" in allowed.notice()
    assert allowed.notice() is None
    now[0] += 1.0
    assert sum(allowed.admit(10) for _ in range(10_000)) == allowance.LINES_PER_S
    now[0] += 100.0
    assert allowed.admit(4 * allowance.BYTES_PER_S)
    assert not allowed.admit(1000)


def test_a_writer_says_how_much_it_dropped_and_cuts_what_is_too_long(tmp_path):
    writer = LineWriter(owner(tmp_path, SMALL * 64))
    writer.write("stdout", None, "y" * (MOST_TEXT + 5))
    for number in range(6000):
        writer.write("stdout", None, str(number), "a-1-1")
    writer.close()
    first, *_, last = texts(LogFolder(tmp_path).last(Wanted(), 10_000))
    assert first.endswith("... (5 more characters)")
    assert "lines dropped" in last
    kept = len(LogFolder(tmp_path).last(Wanted(request="a-1-1"), 10_000))
    assert kept + int(last.split()[0]) == 6000


def test_a_disk_that_takes_nothing_ends_nothing(tmp_path):
    (tmp_path / "logs").write_text("a file where the folder should be")
    writer = LineWriter(owner(tmp_path / "logs"))
    writer.write("stdout", None, "lost")
    (tmp_path / "logs").unlink()
    writer.close()
    (told,) = texts(LogFolder(tmp_path / "logs").last(Wanted(), 10))
    assert told.startswith("1 lines dropped")


def test_what_an_instance_runs_is_seen_whole_or_not_at_all():
    memory = shared_memory()
    here, there = Present(memory), Present(memory)
    assert there.read() == ((), ())
    here.show([About("a"), About("b", run="c")])
    assert there.read() == (("a", "b"), ("c",))
    here.clear()
    assert there.read() == ((), ())
    over = threading.Event()

    def change():
        while not over.is_set():
            for size in (1, 40, 400):
                here.show([About(f"{size}-{n}") for n in range(size)])

    thread = threading.Thread(target=change)
    thread.start()
    for _ in range(3000):
        ids, _ = there.read()
        assert not ids or {id.split("-")[0] for id in ids} == {str(len(ids))}
    over.set()
    thread.join()
    here.show([About("x" * 100_000)])  # does not fit
    assert there.read() == ((), ())
    os.close(memory)


def test_a_terminal_is_not_controlled_by_what_a_function_prints():
    assert plain("\x1b[2Jgone\tbut\nthis") == "\ufffd[2Jgone\tbut\nthis"


# --- fairlead.context() ---------------------------------------------------------------------------------------------


def run_of(*ids, left_s=5.0):
    abouts = [About(id, left_s, 2, f"00-{'1' * 32}-{'2' * 16}-01") for id in ids]
    return Run("shop", ["w/s"] * len(ids), abouts)


def test_a_function_knows_its_request():
    app = App("shop")

    @app.function()
    def f(x):
        return context()

    first, second = call(f, [1, 2], run=run_of("a", "b"))
    assert (first.id, second.id, first.batch_ids) == ("a", "b", ("a", "b"))
    assert (first.app, first.workflow, first.stage, first.attempt) == ("shop", "w", "s", 2)
    assert 4 < first.remaining_s <= 5
    assert first.trace.startswith("00-1111")
    (endless,) = call(f, [1], run=run_of("a", left_s=None))
    assert endless.deadline == endless.remaining_s == float("inf")


def test_a_batched_function_asks_for_all_of_them():
    app = App("shop")

    @app.function(batch=8)
    def f(xs):
        with pytest.raises(ContextError, match=r"contexts\(\)"):
            context()
        return contexts()

    assert [one.id for one in call(f, [1, 2, 3], run=run_of("a", "b", "c"))] == ["a", "b", "c"]


def test_outside_of_a_run_the_error_says_what_to_do():
    for ask in (context, contexts):
        with pytest.raises(ContextError, match="no request is run here"):
            ask()
    with entered(Run("shop", ["w/s"], ())), pytest.raises(ContextError):  # a warm-up
        contexts()


@pytest.mark.parametrize("said", ["\x1b[2Jgone", "\u009b2Jgone", "\u202egone", "\U000e0001gone", "f\u00fcr \u6f22"])
def test_fairlead_logs_shows_nothing_that_controls_a_terminal(tmp_path, said):
    folder = LogFolder(tmp_path / "logs")
    folder.append(line(said))
    shown = [CliRunner().invoke(app, ["logs", "--state", str(tmp_path), *more]).output for more in ([], ["--json"])]
    assert all(text.replace("\n", "").isprintable() for text in shown)
    assert unpack(shown[1].encode()).text == said
