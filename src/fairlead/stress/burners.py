"""What does the pressing: stress-ng, or a busy loop of our own where that is asked for."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir

from fairlead.errors import FairleadError
from fairlead.stress.pressure import Pressure

BURNERS = ("stress-ng", "python")

_BURN = Path(__file__).with_name("burn.py")


class MissingBurnerError(FairleadError):
    """The program that makes pressure is not there, or cannot make this kind."""


def command(
    burner: str,
    pressure: Pressure,
    workers: int,
    *,
    is_limited: bool,
    which: Callable[[str], str | None] = shutil.which,
) -> list[str]:
    """What to run for this pressure. Where no group limits it, each worker keeps to the share by itself.

    Raises `MissingBurnerError` with what mends it.
    """
    load = 1.0 if is_limited else pressure.share
    if burner == "python":
        if pressure.kinds != ("cpu",):
            raise MissingBurnerError(
                f"The python burner presses on the CPU only, not on {', '.join(pressure.kinds)}. "
                "Use --burner stress-ng."
            )
        return [sys.executable, "-I", "-S", str(_BURN), str(workers), f"{load:g}"]
    program = which("stress-ng")
    if program is None:
        raise MissingBurnerError(
            "stress-ng is not installed. Install it with: apt-get install stress-ng. "
            "For pressure on the CPU alone, --burner python does without."
        )
    found = [program, "--quiet", "--temp-path", gettempdir()]
    for kind in pressure.kinds:
        if kind == "cpu":
            found += ["--cpu", str(workers), "--cpu-method", "matrixprod", "--cpu-load", f"{100 * load:.0f}"]
        elif kind == "cache":
            found += ["--cache", str(workers), "--cache-level", "3"]
        else:
            found += ["--memrate", str(workers), "--memrate-bytes", "64m"]
    return found
