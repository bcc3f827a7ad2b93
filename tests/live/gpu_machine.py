"""A machine with GPUs for tests: a stand-in for the C library of the driver, and the file from which it answers.

The stand-in is at the level of the C library, so that `pynvml` itself runs: its structures, versions and conversions.
A process finds it by `LD_LIBRARY_PATH`. In the tests' own process it is loaded first, and the loader then knows it by
its name. The program under test cannot tell.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

GIB = 2**30
LOST = 15  # NVML_ERROR_GPU_IS_LOST
SOURCE = Path(__file__).parent / "nvml" / "stand_in.c"
LIBRARY = "libnvidia-ml.so.1"

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for NVML takes a C compiler")


@dataclass
class FakeGpu:
    """One GPU. `slices` are MIG instances by UUID: their size. `processes` are (pid, bytes, percent, slice)."""

    uuid: str
    name: str = "A100"
    memory: int = 40 * GIB
    slices: dict[str, int] | None = None
    mode: int = 0
    health: int = 0
    mig: int | None = None
    processes: list[tuple[int, int, int, str]] = field(default_factory=list)
    xids: list[int] = field(default_factory=list)

    def lines(self) -> list[str]:
        mig = self.mig if self.mig is not None else int(self.slices is not None)
        found = [f"gpu {self.uuid} {self.name} {self.memory} {mig} {self.mode} {self.health}"]
        found += [f"proc {pid} {used} {percent}" for pid, used, percent, part in self.processes if not part]
        found += [f"xid {xid}" for xid in self.xids]
        for uuid, size in (self.slices or {}).items():
            found.append(f"slice {uuid} {size} {size * 5 * 1024}")
            found += [f"proc {pid} {used} {percent}" for pid, used, percent, part in self.processes if part == uuid]
        return found


def mig_gpu() -> FakeGpu:
    return FakeGpu("GPU-mig0", slices={"MIG-three": 3, "MIG-two": 2, "MIG-one-a": 1, "MIG-one-b": 1})


def mps_gpu() -> FakeGpu:
    return FakeGpu("GPU-mps1", name="L40S", memory=14 * GIB)


@dataclass
class Machine:
    """What the stand-in answers; `write` makes it so."""

    folder: Path
    gpus: list[FakeGpu]
    init: int = 0
    hang_s: float = 0.0

    def write(self) -> None:
        lines = [f"init {self.init}", f"hang {self.hang_s}", *(line for gpu in self.gpus for line in gpu.lines())]
        draft = self.folder / "machine.draft"
        draft.write_text("\n".join(lines) + "\n")
        draft.replace(self.folder / "machine.txt")

    @property
    def environment(self) -> dict[str, str]:
        """For a process that is to be on this machine."""
        path = f"{library().parent}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        return {"LD_LIBRARY_PATH": path, "NVML_STAND_IN": str(self.folder / "machine.txt")}

    def start_mps(self, daemon: int | None = None) -> dict[str, str]:
        """Have an MPS daemon, as far as its files go; the environment that leads there."""
        pipes = self.folder / "mps"
        pipes.mkdir(exist_ok=True)
        os.mkfifo(pipes / "control")
        (pipes / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid() if daemon is None else daemon}\n")
        return {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}


def machine(folder: Path, gpus: Sequence[FakeGpu]) -> Machine:
    made = Machine(folder, list(gpus))
    folder.mkdir(parents=True, exist_ok=True)
    made.write()
    return made


@cache
def library() -> Path:
    """The stand-in, compiled once."""
    made = Path(tempfile.mkdtemp(prefix="fairlead-nvml-")) / LIBRARY
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", f"-Wl,-soname,{LIBRARY}", "-o", str(made), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return made


@contextmanager
def on(made: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """This process is on that machine."""
    monkeypatch.setenv("NVML_STAND_IN", made.environment["NVML_STAND_IN"])
    ctypes.CDLL(str(library()))
    yield made
