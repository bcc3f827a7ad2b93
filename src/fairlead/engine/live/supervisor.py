"""The supervisor: holds the listening sockets, and keeps a gateway alive behind them.

While a gateway starts again, connections wait in the sockets' queues instead of being refused. The supervisor does
nothing else, so that there is little in it that can fail; should it die, its gateway ends with it, and the next
`fairlead serve` goes on from the journal.
"""

import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from select import select
from time import monotonic

import msgspec

from fairlead.app.secrets import take_secrets
from fairlead.engine.live.logs.folder import LOGS, LogFolder
from fairlead.engine.live.logs.printing import Printing
from fairlead.engine.live.order import ServeOrder
from fairlead.errors import ConfigError, Fault

CANNOT_START = 3
"""The exit code of a gateway that says why it cannot serve at all: starting it again would not help."""

_ORDERS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL)  # what a gateway is sent at the first, second, third stop
_STOPPED = (0, *(-sign for sign in _ORDERS), -signal.SIGINT)
_FIRST_DELAY_S, _MOST_DELAY_S = 0.05, 5.0
_STABLE_S = 10.0  # a gateway that lived so long was well; so was one that served and was killed by somebody
_BACKLOG = 4096
_PR_SET_CHILD_SUBREAPER = 36


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; ConfigError says why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError, UnicodeError) as error:
        listening.close()
        why = error.strerror if isinstance(error, OSError) else str(error)
        is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        todo = "Another server is there; choose another with --port" if is_taken else "Check --host and --port"
        what = f"cannot listen on port {port}: {why}. {todo}."
        raise ConfigError(host, [Fault("", what)]) from error
    listening.listen(_BACKLOG)
    return listening


class Supervisor:
    """Runs gateways one after the other until it is told to stop, or one says that it cannot start.

    Told once, it lets the gateway finish what is open; told twice, that is given up; a third time, the gateway is
    killed. What a dead gateway leaves running, such as processes that a function started, comes to the supervisor as
    the next of kin, and is ended.

    Args:
        listening: The socket to serve on.
        order: What the gateway is told; the supervisor fills in its own part.
        say: Gets a line when something happened.
        agents: The socket at which agents dial in; None where instances run on this machine.
        shows: Gets each line that a function writes; None to show none.
    """

    def __init__(
        self,
        listening: socket.socket,
        order: ServeOrder,
        say: Callable[[str], None],
        agents: socket.socket | None = None,
        shows: Callable[[str], None] | None = None,
    ) -> None:
        self._shows = shows
        self._listening = listening
        self._agents = agents
        self._order = order
        self._tell = say
        self._stops = 0  # how often it was told to stop
        self._kin: set[int] = set()  # children of this process that are not ours to end
        self._gateway: subprocess.Popen[bytes] | None = None
        self._wake, self._woken = os.pipe()
        self._secrets: dict[str, str] = {}

    def run(self) -> int:
        """Supervise; gives the exit code of the last gateway."""
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._kin = set(_children())
        self._secrets = take_secrets()  # functions can read the environment of every process of their user
        handlers = {signal.SIGTERM: self._stop, signal.SIGINT: self._stop, signal.SIGCHLD: self._reap}
        before = {sign: signal.signal(sign, handler) for sign, handler in handlers.items()}
        try:
            folder = LogFolder(Path(self._order.state) / LOGS)
            with nullcontext() if self._shows is None else Printing(folder, self._shows):
                return self._supervise()
        finally:
            for sign, handler in before.items():
                signal.signal(sign, handler)
            os.close(self._wake)
            os.close(self._woken)

    def _supervise(self) -> int:
        failures = 0
        is_restart = False
        while True:
            began = monotonic()
            code = self._run_gateway(is_restart)
            self._end_orphans()
            is_stable = monotonic() - began > _STABLE_S or (code < 0 and self._has_served())
            if self._stops or code == CANNOT_START:
                return 0 if self._stops and code in _STOPPED else code
            if code > 0 and not (is_restart or is_stable or self._has_served()):
                self._say(f"the gateway ended with code {code} as soon as it was started, and would again")
                return code
            is_restart |= is_stable or self._has_served()  # otherwise what is asked for was never served
            failures = 0 if is_stable else failures + 1
            delay_s = min(_MOST_DELAY_S, _FIRST_DELAY_S * 2 ** (failures - 1)) if failures > 1 else 0.0
            how = f"code {code}" if code >= 0 else signal.Signals(-code).name
            self._say(f"the gateway ended with {how}; starting another{f' in {delay_s:g} s' if delay_s else ''}")
            if delay_s and self._sleep(delay_s):
                return 0

    def _run_gateway(self, is_restart: bool) -> int:
        descriptor = self._listening.fileno()
        agents = -1 if self._agents is None else self._agents.fileno()
        order = msgspec.structs.replace(
            self._order, listen_fd=descriptor, agents_fd=agents, supervisor=os.getpid(), is_restart=is_restart
        )
        text = msgspec.json.encode(order).decode()
        self._gateway = subprocess.Popen(
            [sys.executable, "-m", "fairlead.engine.live.process", text],
            pass_fds=(descriptor,) if agents < 0 else (descriptor, agents),
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self._secrets},
        )
        if self._stops:  # the signal came in between
            self._gateway.terminate()
        return self._gateway.wait()

    def _stop(self, sign: int, _: object) -> None:
        self._stops += 1
        os.write(self._woken, b"x")
        gateway = self._gateway
        if gateway is not None and gateway.poll() is None:
            gateway.send_signal(_ORDERS[min(self._stops, len(_ORDERS)) - 1])

    def _has_served(self) -> bool:
        """Whether the last gateway came so far as to leave its address."""
        assert self._gateway is not None
        try:
            found = msgspec.json.decode((Path(self._order.state) / "gateway.json").read_bytes(), type=dict[str, object])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return False
        return found.get("pid") == self._gateway.pid

    def _reap(self, sign: int, _: object) -> None:
        """Take note of the end of processes that came to us from a living gateway."""
        gateway = self._gateway
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in self._kin or (gateway is not None and ended.si_pid == gateway.pid):
                    return  # somebody waits for it, and then looks after the others
                os.waitpid(ended.si_pid, 0)

    def _say(self, line: str) -> None:
        with suppress(OSError):  # a log on a full disk, or whose reader is gone, is no reason to end
            self._tell(line)

    def _end_orphans(self) -> None:
        """End what a gateway left behind."""
        while orphans := set(_children()) - self._kin:
            for pid in orphans:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            for pid in orphans:
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _sleep(self, delay_s: float) -> bool:
        """Wait a little; True if it was ended by a signal."""
        return bool(select([self._wake], [], [], delay_s)[0]) or self._stops > 0


def _children() -> list[int]:
    """The children of this process, adopted ones too; none where the kernel does not tell."""
    found: list[int] = []
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, file.read_text().split())
    return found
