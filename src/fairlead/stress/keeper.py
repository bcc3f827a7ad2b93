"""Holds a burner in its groups, and ends it with whoever asked for it: `keeper.py OWNER CPUS GROUP... -- COMMAND...`.

Runs as a process of its own between the one that asks and the burner, and uses nothing but the standard library. The
burner is in its groups before it runs, and nothing of it is left (no process, no group, no limit) when it ends, when
this process is told to end, or when its owner dies however it dies. Each line of the standard input is what to undo at
the end, instead of the line before: a JSON list of files and what to write to them.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_REMOVE_LIMIT_S = 3.0


def main() -> int:
    """Keep the burner; its exit code (128 and the signal that killed it), or 0 where it was told to end."""
    split = sys.argv.index("--")
    owner, cpus, *groups = sys.argv[1:split]
    wake, ring = os.pipe()
    os.set_blocking(ring, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)  # heard through the pipe
    process, undo = None, _Undo()
    try:
        try:
            # Not a signal for the death of the parent: that one is sent when the parent's thread ends.
            handle = os.pidfd_open(int(owner))
        except ProcessLookupError:  # it died before this began
            return 0
        process = _start(sys.argv[split + 1 :], [int(cpu) for cpu in cpus.split(",")], groups)
        _say("started")
        while process.poll() is None:
            ready, _, _ = select.select([wake, handle, *undo.sources], [], [])
            undo.hear()
            if handle in ready or (wake in ready and any(number != signal.SIGCHLD for number in os.read(wake, 64))):
                return 0
        return process.returncode if process.returncode >= 0 else 128 - process.returncode
    except (OSError, subprocess.SubprocessError) as error:
        _say(f"failed {error}")
        return 1
    finally:
        if process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # it has nothing to lose, and under its limit all else is slow
            process.wait()
        undo.hear()
        undo.run()
        _remove(groups)


class _Undo:
    """What the owner wants undone, as far as it has said so."""

    def __init__(self) -> None:
        self.sources = [0]
        self._unread = b""
        self._writes: list[tuple[str, str]] = []
        os.set_blocking(0, False)

    def hear(self) -> None:
        """Take in what there is; never waits."""
        while self.sources:
            try:
                data = os.read(0, 65536)
            except BlockingIOError:
                return
            if not data:  # the owner is gone or ends; the other handle says which
                self.sources = []
            *lines, self._unread = (self._unread + data).split(b"\n")
            if lines:
                self._writes = json.loads(lines[-1])

    def run(self) -> None:
        """Undo it; what has gone since needs no undoing."""
        for path, text in self._writes:
            with suppress(OSError), open(path, "w") as file:
                file.write(text)


def _start(command: Sequence[str], cpus: Sequence[int], groups: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the burner in its groups, on these CPUs, in a process group of its own that dies with this process."""

    def begin() -> None:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        os.sched_setaffinity(0, cpus)
        for group in groups:
            with open(os.path.join(group, "cgroup.procs"), "w") as file:
                file.write("0")  # itself

    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=begin
    )


def _remove(groups: Sequence[str]) -> None:
    """Remove the groups, and kill what is still in them: a group leaves only when it is empty."""
    until = time.monotonic() + _REMOVE_LIMIT_S
    left = list(groups)
    while left and time.monotonic() < until:
        left = [group for group in left if not _is_gone(group)]
        if left:
            time.sleep(0.005)


def _is_gone(group: str) -> bool:
    try:
        os.rmdir(group)
    except FileNotFoundError:
        return True
    except OSError:
        with suppress(OSError, ValueError), open(os.path.join(group, "cgroup.procs")) as file:
            for line in file:
                if int(line) not in (0, os.getpid()):  # 0: a process outside this namespace
                    os.kill(int(line), signal.SIGKILL)
        return False
    return True


def _say(what: str) -> None:
    """Tell the one who started this, who may be gone."""
    with suppress(OSError):
        os.write(1, f"{what}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
