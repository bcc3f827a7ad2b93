"""How much others used this machine meanwhile, for the record."""

import os
from pathlib import Path
from time import monotonic


class OthersMeter:
    """How much of the CPUs others use from now on: everything but this process and those of its children that ended."""

    def __init__(self) -> None:
        self._began = monotonic()
        self._busy_s = _busy_s()
        self._own_s = _own_s()

    def share(self) -> float | None:
        """In [0, 1], of all CPUs; None where the kernel does not tell."""
        busy_s, elapsed_s = _busy_s(), monotonic() - self._began
        if busy_s is None or self._busy_s is None or elapsed_s <= 0:
            return None
        others_s = busy_s - self._busy_s - (_own_s() - self._own_s)
        return min(1.0, max(0.0, others_s / elapsed_s / (os.cpu_count() or 1)))


def _busy_s() -> float | None:
    """CPU time that was used since boot by anybody, other guests of the same host included."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _waiting, irq, soft_irq, steal = map(int, first)
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
