"""Keeps CPUs busy with nothing, without any library: `burn.py WORKERS SHARE`.

With a share below 1 each worker works for that part of every ten milliseconds by the clock, which is all that can be
done where no control group limits it. Ends with its parent.
"""

import ctypes
import os
import signal
import sys
import time

_PERIOD_S = 0.01
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def burn(share: float) -> None:
    """Work until killed."""
    while True:
        began = time.monotonic()
        while time.monotonic() - began < share * _PERIOD_S or share >= 1:
            for _ in range(1000):
                pass
        time.sleep(max(0.0, began + _PERIOD_S - time.monotonic()))


def main() -> None:
    """Fork the workers, and wait for the signal that ends all."""
    workers, share = int(sys.argv[1]), float(sys.argv[2])
    parent = os.getpid()
    for _ in range(workers - 1):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(0)
            break
    burn(share)


if __name__ == "__main__":
    main()
