"""Compiles the engine with bounds checks, where the agreement test looks for it; run as a program, before the tests.

The test would do it as well, but in the middle of the tests: here another core can do something else meanwhile.
"""

import os
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "numba-boundscheck"
"""Apart from the user's own machine code, which has no bounds checks."""

CHECKED = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(FOLDER)}
"""The environment of a process whose compiled code has them: numba reads it when it is first loaded."""


def main() -> None:
    os.environ.update(CHECKED)
    from fairlead.cli.compiling import load_engine  # noqa: PLC0415 - after the environment is set

    seconds = load_engine(is_quiet=True)
    sys.stdout.write(f"The compiled engine with bounds checks is there, after {seconds:.1f} s.\n")


if __name__ == "__main__":
    main()
