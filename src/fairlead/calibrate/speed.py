"""How fast the CPUs are at the moment: on a virtual machine that changes with what else its host does.

A process of its own reads the same JSON text for about a millisecond, ten times a second, and notes the CPU time that
it took. Waiting for a core is not in it, so the load that is measured beside it changes it little. It takes 1 % of one
core. Reading JSON follows the speed of gateway and functions better than counting in a loop does
(docs/design/prediction.md has figures).

This file is run as a script by `SpeedProbe`, so it imports nothing of Fairlead.
"""

import json
import subprocess
import sys
import time
from types import TracebackType

ROUNDS = 3
ITEMS = 160
EVERY_S = 0.1
_WAIT_S = 5.0


class SpeedProbe:
    """A context in which the speed is probed; afterwards `spin_s` is the mean time of one computation.

    It is None where the context was shorter than one computation takes.
    """

    def __init__(self) -> None:
        self.spin_s: float | None = None

    def __enter__(self) -> "SpeedProbe":
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            said, _ = self._process.communicate(timeout=_WAIT_S)
            self.spin_s = float(said) if said.strip() else None
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def document() -> str:
    """The text that is read."""
    return json.dumps([{"a": i, "b": [str(j) for j in range(8)], "c": {"d": i * 1.5}} for i in range(ITEMS)])


def spin(text: str) -> float:
    """CPU seconds of one computation."""
    began = time.thread_time()
    for _ in range(ROUNDS):
        json.loads(text)
    return time.thread_time() - began


def mean_of(times: list[float]) -> float:
    """The mean without the slowest twentieth: one interrupt must not speak for all."""
    kept = sorted(times)[: max(1, len(times) - len(times) // 20)]
    return sum(kept) / len(kept)


def main() -> None:
    """Probe until standard input ends, then print the mean."""
    import select  # noqa: PLC0415 - of the script alone

    times: list[float] = []
    text = document()
    spin(text)  # the first one finds nothing in the caches
    while not select.select([sys.stdin], [], [], EVERY_S)[0]:
        times.append(spin(text))
    if times:
        sys.stdout.write(f"{mean_of(times)}\n")


if __name__ == "__main__":
    main()
