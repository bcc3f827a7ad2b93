"""The program that retrains agents beside the scaler: started by name, given a file, and read when it has ended.

For live runs, as it depends on the clock. Whatever the program does, the scaler neither waits for it nor fails with it:
one that ends badly, stands still or takes too long is ended, and tried again after a while.
"""

import subprocess
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fairlead.policy.simppo.network import Activation, Array

PROGRAM = (sys.executable, "-m", "fairlead.learn.simppo.online")
LIMIT_S = 120.0
"""How long the program may take."""

FIRST_WAIT_S, LONGEST_WAIT_S = 5.0, 300.0
"""Before it is tried again after a failure; twice as long each time until it succeeds."""

_WEIGHTS, _STEPS = "weights.", "steps."


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to learn: by the settings of which preset, with what networks."""

    preset: str
    activation: Activation
    is_shared: bool
    seed: int


def write_task(
    path: Path,
    task: Task,
    weights: Mapping[str, Array],
    steps: Mapping[str, NDArray[np.generic]],
    only: NDArray[np.bool_],
) -> None:
    """Write what the program needs: safetensors, in which nothing is run."""
    arrays = {_WEIGHTS + name: np.ascontiguousarray(array) for name, array in weights.items()}
    arrays |= {_STEPS + name: np.ascontiguousarray(array) for name, array in steps.items()}
    save_file({**arrays, "only": only}, path, metadata={"task": msgspec.json.encode(task).decode()})


def read_task(path: Path) -> tuple[Task, dict[str, Array], dict[str, NDArray[np.generic]], NDArray[np.bool_]]:
    """What `write_task` wrote."""
    with safe_open(path, framework="np") as file:
        task = msgspec.json.decode((file.metadata() or {}).get("task", ""), type=Task)
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    weights = {name.removeprefix(_WEIGHTS): array for name, array in arrays.items() if name.startswith(_WEIGHTS)}
    steps = {name.removeprefix(_STEPS): array for name, array in arrays.items() if name.startswith(_STEPS)}
    return task, weights, steps, arrays["only"]


def write_weights(path: Path, weights: Mapping[str, Array]) -> None:
    """Write what was learnt, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    save_file({name: np.ascontiguousarray(array) for name, array in weights.items()}, partial)
    partial.replace(path)


def read_weights(path: Path, like: Mapping[str, Array]) -> dict[str, Array] | None:
    """What was learnt; None unless it has the names and shapes of `like`, and is finite."""
    try:
        with safe_open(path, framework="np") as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError):
        return None
    is_alike = found.keys() == like.keys() and all(
        found[name].shape == like[name].shape and found[name].dtype == like[name].dtype for name in like
    )
    return found if is_alike and all(np.isfinite(array).all() for array in found.values()) else None


class Trainer:
    """Runs the program, one task at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._like: Mapping[str, Array] = {}
        self._since, self._not_before, self._wait_s = 0.0, 0.0, FIRST_WAIT_S
        self.failures = 0

    @property
    def pid(self) -> int | None:
        """The process id of the program; None while it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def is_free(self) -> bool:
        """Whether it would take a task now."""
        return self._process is None and monotonic() >= self._not_before

    def start(
        self,
        task: Task,
        weights: Mapping[str, Array],
        steps: Mapping[str, NDArray[np.generic]],
        only: NDArray[np.bool_],
    ) -> None:
        """Give it a task."""
        assert self._process is None
        self._folder = TemporaryDirectory(prefix="fairlead-simppo-")
        folder = Path(self._folder.name)
        self._like, self._since = weights, monotonic()
        try:
            write_task(folder / "task.safetensors", task, weights, steps, only)
            self._process = subprocess.Popen(
                (*PROGRAM, str(folder / "task.safetensors"), str(folder / "learnt.safetensors")),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            self._end_it = weakref.finalize(self, _end, self._process)
        except OSError:  # no room on the disk, or for a process
            self._fail()

    def poll(self) -> dict[str, Array] | None:
        """What was learnt, once, if the program has ended well since the last call."""
        if self._process is None or self._folder is None:
            return None
        code = self._process.poll()
        if code is None:
            if monotonic() - self._since > LIMIT_S:
                self._fail()
            return None
        learnt = read_weights(Path(self._folder.name) / "learnt.safetensors", self._like) if code == 0 else None
        if learnt is None:
            self._fail()
        else:
            self._wait_s = FIRST_WAIT_S
            self.close()
        return learnt

    def _fail(self) -> None:
        self.failures += 1
        self._not_before = monotonic() + self._wait_s
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
        self.close()

    def close(self) -> None:
        """End the program, if it runs, and remove its files."""
        if self._process is not None:
            self._end_it()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    process.wait()
