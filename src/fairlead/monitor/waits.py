"""How long threads waited for a CPU, of the time in which they wanted one."""

from collections.abc import Iterable
from pathlib import Path

from fairlead.monitor.files import read, run_and_wait_s

MOST_THREADS = 64  # read per sample: each costs some ten microseconds


class Waits:
    """Follows the threads of a node or an instance; new ones count from when they are first seen."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = str(proc)
        self._seen: dict[int, tuple[float, float]] = {}

    def share(self, threads: Iterable[int]) -> float | None:
        """Wait / (run + wait) since the last call; None while nothing wanted to run."""
        found: dict[int, tuple[float, float]] = {}
        ran = waited = 0.0
        for thread in list(threads)[:MOST_THREADS]:
            times = run_and_wait_s(read(f"{self._proc}/{thread}/schedstat"))
            if times is None:  # it has ended
                continue
            found[thread] = times
            before = self._seen.get(thread)
            if before is not None:
                ran += max(0.0, times[0] - before[0])
                waited += max(0.0, times[1] - before[1])
        self._seen = found
        return waited / (ran + waited) if ran + waited > 0 else None
