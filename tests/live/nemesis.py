"""Faults for a served app, one after the other: kills, freezes, a full disk, full shared memory, a broken app file."""

import ctypes
import os
import random  # noqa: TID251 - always seeded
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPException
from math import inf
from pathlib import Path
from time import sleep

from serving import Serving, kill, wait_for
from small_disks import fill

SHARED = Path("/dev/shm")
DISK_MB, SHARED_MB = 48, 24
_CLONE_NEWNS = 0x00020000
RECOVERY_S = 120.0


def make_small_disks(state: Path) -> bool:
    """Give this process and its children a small shared memory and a small disk of their own, both real.

    False where that is not allowed. Must be called before any thread is started.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        return False
    state.mkdir(parents=True, exist_ok=True)
    commands = [["mount", "--make-rprivate", "/"]]
    for folder, size in ((SHARED, SHARED_MB), (state, DISK_MB)):
        commands.append(["mount", "-t", "tmpfs", "-o", f"size={size}m", "fairlead-test", str(folder)])
    try:
        return all(not subprocess.run(command, capture_output=True, check=False).returncode for command in commands)
    except FileNotFoundError:  # there is no mount command
        return False


def leave_small_disk(state: Path) -> None:
    """Unmount the disk, so that its folder can be removed."""
    subprocess.run(["umount", "-l", str(state)], capture_output=True, check=False)


class World:
    """The app that is served: another `fairlead serve` on the same state folder after its supervisor was killed."""

    def __init__(self, app: Path, state: Path, *options: str) -> None:
        self.app, self.state, self._options = app, state, options
        self.served = self._serve()

    def _serve(self) -> Serving:
        return Serving(self.app, self.state, *self._options).wait_until_serving()

    def restart(self) -> None:
        self.served.end()
        self.served = self._serve()

    def wait_until_well(self) -> None:
        """Until a gateway serves; if none does for a while, it is killed so that the next one tries."""
        for _ in range(4):
            with suppress(AssertionError):
                wait_for(lambda: self.served.serving_gateway is not None and self.is_ready(), RECOVERY_S / 4)
                return
            if self.served.process.poll() is not None:
                self.restart()
            elif self.served.gateway is not None:
                kill(self.served.gateway)
        raise AssertionError(f"it does not serve again: {self.served.err[-3000:]}")

    def is_ready(self) -> bool:
        try:
            return self.served.ask("GET", "/readyz", timeout_s=10).status == 200
        except (OSError, ValueError, HTTPException):
            return False


class Nemesis(threading.Thread):
    """Commits faults, each when the clients have come to the next milestone, and waits until the app is well again.

    Args:
        progress: How many requests have been acknowledged.
        milestones: At which of these counts the next fault comes.
        faults: Names, in order; repeated if there are more milestones.
    """

    def __init__(
        self,
        world: World,
        progress: Callable[[], int],
        milestones: Sequence[int],
        faults: Sequence[str],
        say: Callable[[str], None] = lambda line: None,
        length_s: float = 1.0,
    ) -> None:
        super().__init__()
        self.committed: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._world, self._progress, self._milestones, self._faults = world, progress, milestones, faults
        self._say, self._length_s = say, length_s
        self._rng = random.Random(0)
        self._stop_now = threading.Event()
        self._number = 0  # of the fault to come

    @property
    def allowed(self) -> float:
        """How many requests may have been acknowledged: those up to the fault that is still to come after this one."""
        at = self._number + 1
        return self._milestones[at] if at < len(self._milestones) and self.is_alive() else inf

    def run(self) -> None:
        try:
            for number, milestone in enumerate(self._milestones):
                while self._progress() < milestone:
                    if self._stop_now.wait(0.01):
                        return
                name = self._faults[number % len(self._faults)]
                self._say(f"{self._progress():,} acknowledged: {name}")
                FAULTS[name](self)
                self.committed[name] += 1
                self._world.wait_until_well()
                self._number += 1
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """End after the present fault."""
        self._stop_now.set()
        self.join()
        if self.error is not None:
            raise self.error

    @property
    def _served(self) -> Serving:
        return self._world.served

    def kill_instance(self) -> None:
        if instances := self._served.instances:
            kill(self._rng.choice(instances))

    def kill_gateway(self) -> None:
        if (gateway := self._served.serving_gateway) is not None:
            kill(gateway)

    def kill_everything(self) -> None:
        """The supervisor, and with it all the rest; then `fairlead serve` again."""
        kill(self._served.process.pid)
        self._served.process.wait(20)
        self._world.restart()

    def freeze_gateway(self) -> None:
        self._freeze(self._served.gateway)

    def freeze_instance(self) -> None:
        self._freeze(self._rng.choice(self._served.instances or [None]))

    def freeze_supervisor(self) -> None:
        """And kill the gateway meanwhile: there is no other until the supervisor goes on."""
        os.kill(self._served.process.pid, signal.SIGSTOP)
        try:
            self.kill_gateway()
            sleep(self._length_s)
        finally:
            os.kill(self._served.process.pid, signal.SIGCONT)

    def _freeze(self, pid: int | None) -> None:
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            sleep(self._length_s)
            os.kill(pid, signal.SIGCONT)

    def fill_disk(self) -> None:
        self._fill(self._world.state / "filler")

    def fill_disk_and_kill(self) -> None:
        self._fill(self._world.state / "filler", self.kill_gateway)

    def fill_shared_memory(self) -> None:
        self._fill(SHARED / "filler")

    def _fill(self, filler: Path, meanwhile: Callable[[], None] = lambda: None) -> None:
        try:
            fill(filler)
            meanwhile()
            for _ in range(10):
                sleep(self._length_s / 10)
                fill(filler)  # what became free meanwhile
        finally:
            filler.unlink(missing_ok=True)

    def break_app(self) -> None:
        """A syntax error is saved, the gateway dies, and the file is repaired later."""
        good = self._world.app.read_text()
        try:
            self._world.app.write_text(good + "\ndef broken(:\n")
            self.kill_gateway()
            sleep(2 * self._length_s)
        finally:
            self._world.app.write_text(good)
        self.kill_gateway()


FAULTS: dict[str, Callable[[Nemesis], None]] = {
    "kill an instance": Nemesis.kill_instance,
    "kill the gateway": Nemesis.kill_gateway,
    "freeze the gateway": Nemesis.freeze_gateway,
    "break the app file": Nemesis.break_app,
    "fill the shared memory": Nemesis.fill_shared_memory,
    "fill the disk": Nemesis.fill_disk,
    "freeze an instance": Nemesis.freeze_instance,
    "kill everything": Nemesis.kill_everything,
    "fill the disk and kill the gateway": Nemesis.fill_disk_and_kill,
    "freeze the supervisor and kill the gateway": Nemesis.freeze_supervisor,
}
DISKS = ("fill the shared memory", "fill the disk", "fill the disk and kill the gateway")
