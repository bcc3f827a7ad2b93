"""The watchdog: a stalled loop or a dead journal thread ends the process; a process that was stopped goes on."""

import os
import signal
import subprocess
import sys

from serving import serving, wait_for, write_app

HEAD = """
import asyncio, ctypes, sys, threading, time
from pathlib import Path
from fairlead.engine.live.journal import Accept, Journal, JournalFullError
from fairlead.engine.live.watchdog import Watchdog

def kill_writer():
    (thread,) = (each for each in threading.enumerate() if each.name == "fairlead-journal")
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    thread.join()

def say(line):
    print(line, file=sys.stderr, flush=True)
"""
STALLS = """
def stand_still():
    time.sleep(600)

async def main():
    with Watchdog(1.0, lambda: None, say):
        await asyncio.sleep(0.3)
        stand_still()

asyncio.run(main())
"""
DIES = """
async def main():
    journal = Journal(Path(sys.argv[1]) / "journal.sqlite")
    await journal.open()
    with Watchdog(40.0, lambda: journal.death, say):  # looks every 2 s: time enough to refuse the next request
        await journal.accept(Accept(workflow="a.b", body=b"1"))
        await asyncio.to_thread(kill_writer)
        try:
            async with asyncio.timeout(60):
                await journal.accept(Accept(workflow="a.b", body=b"1"))
        except JournalFullError as error:
            print(error, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
LIVES = """
async def main():
    with Watchdog(1.0, lambda: None, say):
        print("up", flush=True)
        while True:
            await asyncio.sleep(0.05)
            print("tick", flush=True)

asyncio.run(main())
"""


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, "-c", HEAD + script, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


def test_a_loop_that_stands_still_ends_the_process_with_the_stacks_of_its_threads():
    done = run(STALLS)
    assert done.returncode == 70
    assert "the event loop has stood still for 1 s; the gateway starts again" in done.stderr
    assert "in stand_still" in done.stderr
    assert done.stderr.count("(most recent call first)") >= 2


def test_a_journal_whose_thread_has_died_refuses_at_once_and_ends_the_process(tmp_path):
    done = run(DIES, tmp_path)
    assert done.returncode == 70, done.stderr
    assert "The journal cannot be written: SystemExit" in done.stdout
    assert "the journal's thread has died: SystemExit" in done.stderr


def test_a_process_that_was_stopped_as_a_whole_goes_on():
    with subprocess.Popen([sys.executable, "-c", HEAD + LIVES], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "up\n"
            os.kill(child.pid, signal.SIGSTOP)
            subprocess.run(["sleep", "2"], check=True)  # two limits
            os.kill(child.pid, signal.SIGCONT)
            for _ in range(40):  # two limits again
                assert child.stdout.readline() == "tick\n"
        finally:
            child.kill()


INJECT = """
import ctypes, os, threading
if "fairlead.engine.live.process" in open("/proc/self/cmdline").read() and not os.path.exists({done!r}):
    def kill_writer():
        while not os.path.exists({now!r}):
            threading.Event().wait(0.05)
        open({done!r}, "w").close()
        for thread in threading.enumerate():
            if thread.name == "fairlead-journal":
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    threading.Thread(target=kill_writer, daemon=True).start()
"""


def test_a_gateway_whose_journal_has_died_is_replaced_and_loses_nothing(tmp_path):
    app = write_app(
        tmp_path / "app.py",
        "@app.function()\ndef echo(x):\n    while Path(__file__).with_name('hold').exists():\n"
        "        time.sleep(0.01)\n    return x\napp.workflow('echo', echo)\n",
    )
    now, done = tmp_path / "now", tmp_path / "done"
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(INJECT.format(now=str(now), done=str(done)))
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    (tmp_path / "hold").touch()
    with serving(
        app, tmp_path / "state", "--policy", "fifo", "--limit", "stall_limit_s=2", env={"PYTHONPATH": path}
    ) as world:
        ids = [world.send("echo", n).json["id"] for n in range(5)]
        before = world.gateway
        now.touch()
        wait_for(lambda: world.serving_gateway not in (None, before), 60, lambda: world.err)
        assert "the journal's thread has died: SystemExit" in world.err
        assert "the gateway ended with code 70; starting another" in world.err
        (tmp_path / "hold").unlink()
        assert {world.wait_for_end(id, 60)["state"] for id in ids} == {"completed"}
