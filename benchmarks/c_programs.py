"""The C programs, built for this machine and called from here, so that all read the same numbers in memory."""

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from measure import Answer, UnavailableError

HERE = Path(__file__).parent / "c"
# Products and sums stay apart: fused, the last digit would not be that of the other programs.
FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-std=gnu11", "-fPIC", "-shared")


class _Found(ctypes.Structure):
    _fields_ = (
        ("cold", ctypes.c_int64),
        ("rejected", ctypes.c_int64),
        ("latency_sum_s", ctypes.c_double),
    )


class Library:
    """One C file with its constants, built into a folder."""

    def __init__(self, source: str, constants: Mapping[str, float], folder: Path) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise UnavailableError("no C compiler: install gcc for this comparison")
        target = folder / f"{source}.so"
        defines = [f"-D{name}={value!r}" for name, value in constants.items()]
        command = [compiler, *FLAGS, *defines, str(HERE / f"{source}.c"), "-o", str(target), "-lm"]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if built.returncode:
            raise UnavailableError(f"the C compiler refused {source}.c: {built.stderr.strip()[-300:]}")
        self._library = ctypes.CDLL(str(target))

    def call(self, name: str, arrivals: np.ndarray, factors: np.ndarray) -> Answer:
        """Run one of its programs on these draws."""
        found = _Found()
        doubles = ctypes.POINTER(ctypes.c_double)
        self._library[name](
            arrivals.ctypes.data_as(doubles),
            factors.ctypes.data_as(doubles),
            ctypes.c_size_t(len(arrivals)),
            ctypes.byref(found),
        )
        answered = len(arrivals) - found.rejected
        return Answer(
            cold_starts=found.cold,
            rejected=found.rejected,
            latency_mean_s=found.latency_sum_s / answered,
        )
