"""Pressure on one place, changed at will, and gone when it is closed."""

import json
import logging
import os
import select
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType

from fairlead.monitor import Place
from fairlead.stress.burners import command
from fairlead.stress.holding import Holding, StressError
from fairlead.stress.pressure import NONE, Pressure

_KEEPER = Path(__file__).with_name("keeper.py")
_START_LIMIT_S = 10.0
_STOP_LIMIT_S = 6.0
_GONE_LIMIT_S = 2.0  # a service that ends kills what is in its groups, and removes them then

_log = logging.getLogger(__name__)


class Stressor:
    """Presses on one place. Not for several threads at once.

    Args:
        place: Where.
        burner: What does it, one of `BURNERS`.
        with_groups: False keeps control groups out of it; where they cannot be made they are left out anyway, with
            a warning: the share is then kept by pausing, and is what the scheduler makes of it.
    """

    def __init__(self, place: Place, *, burner: str = "stress-ng", with_groups: bool = True) -> None:
        self.place = place
        self.pressure = NONE
        self._burner = burner
        self._with_groups = with_groups
        self._holding: Holding | None = None
        self._command: list[str] = []
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether its burner is at work."""
        return self._keeper is not None and self._keeper.poll() is None

    def ending(self) -> str:
        """Why its burner is not at work any more, where nobody here ended it."""
        assert self._keeper is not None
        code = self._keeper.wait()
        number = -code if code < 0 else code - 128
        is_killed = number in signal.valid_signals()
        if self._is_gone(_GONE_LIMIT_S if is_killed else 0.0):
            return self._gone()
        if is_killed:
            return f"The burner of node {self.place.name} was killed, by signal {number}. Start it again if need be."
        by_hand = shlex.join(each for each in self._command if each != "--quiet")
        return f"The burner of node {self.place.name} ended with exit code {code}. See why by hand: {by_hand}"

    def set(self, pressure: Pressure) -> None:
        """Press this hard from now on. Raises `FairleadError` where that cannot be done; then nothing presses."""
        if pressure.share == 0:
            self.stop()
        elif self.is_running and self._holding is not None and pressure.kinds == self.pressure.kinds:
            self._limit(self._holding, pressure)
        elif not self.is_running or pressure != self.pressure:
            self.stop()
            self._start(pressure)
        self.pressure = pressure

    def stop(self) -> None:
        """End it; returns when nothing of it is left."""
        keeper, self._keeper = self._keeper, None
        holding, self._holding = self._holding, None
        self.pressure = NONE
        if keeper is not None:
            if keeper.poll() is None:
                keeper.terminate()
                try:
                    keeper.wait(_STOP_LIMIT_S)
                except subprocess.TimeoutExpired:
                    _kill(keeper)
            for stream in (keeper.stdin, keeper.stdout):
                if stream is not None:
                    stream.close()
        if holding is not None:
            holding.remove()

    def __enter__(self) -> "Stressor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, pressure: Pressure) -> None:
        workers = len(self.place.cpus)
        command(self._burner, pressure, workers, is_limited=True)  # before any group is made: it may be missing
        if self._with_groups:
            try:
                self._holding = Holding(self.place)
            except OSError as error:
                if self.place.cgroup is not None:
                    raise self._failure(
                        f"No group can be made in that of node {self.place.name} ({error}). Run as root, or as the "
                        "user who serves."
                    ) from error
                _log.warning(
                    "Pressure is coarse, by pausing on %s: no control group can be made (%s).",
                    ", ".join(f"CPU {cpu}" for cpu in self.place.cpus),
                    error,
                )
                self._with_groups = False
        groups = [] if self._holding is None else [str(group) for group in self._holding.groups]
        self._command = command(self._burner, pressure, workers, is_limited=self._holding is not None)
        cpus = ",".join(map(str, self.place.cpus))
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER), str(os.getpid()), cpus, *groups, "--", *self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt from the keyboard is for us: we then end it
            )
            if self._holding is not None:
                self._limit(self._holding, pressure)
            self._await_start(self._keeper)
        except BaseException:
            self.stop()
            raise

    def _await_start(self, keeper: subprocess.Popen[bytes]) -> None:
        assert keeper.stdout is not None
        ready, _, _ = select.select([keeper.stdout], [], [], _START_LIMIT_S)
        said = keeper.stdout.readline().decode("utf-8", "replace").strip() if ready else "nothing"
        if said != "started":
            raise StressError(f"The burner of node {self.place.name} did not start: {said.removeprefix('failed ')}.")

    def _tell(self, what: str) -> None:
        """Give the keeper what it has to undo, should this process die."""
        assert self._keeper is not None
        assert self._keeper.stdin is not None
        os.write(self._keeper.stdin.fileno(), f"{what}\n".encode())

    def _limit(self, holding: Holding, pressure: Pressure) -> None:
        try:
            self._tell(json.dumps(holding.undo(pressure.share)))
            holding.limit(pressure.share)
        except OSError as error:
            self.stop()
            raise self._failure(f"The share of {pressure} on node {self.place.name} cannot be set: {error}.") from error

    def _failure(self, what: str) -> StressError:
        return StressError(self._gone() if self._is_gone() else what)

    def _gone(self) -> str:
        return f"Node {self.place.name} is gone: the service that had it has ended."

    def _is_gone(self, within_s: float = 0.0) -> bool:
        until = monotonic() + within_s
        while self.place.cgroup is not None and self.place.cgroup.is_dir() and monotonic() < until:
            sleep(0.01)
        return self.place.cgroup is not None and not self.place.cgroup.is_dir()


def _kill(keeper: subprocess.Popen[bytes]) -> None:
    """By force: the burner dies with it."""
    with suppress(ProcessLookupError):
        os.killpg(keeper.pid, signal.SIGKILL)
    keeper.wait()
