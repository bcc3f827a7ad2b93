"""Runs the command line as people do: in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import fairlead

SOURCE = Path(fairlead.__file__).parents[1]


def run_cli(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`fairlead args`, with what it printed; extra keywords are environment variables."""
    given = {key: value for key, value in os.environ.items() if key not in ("FAIRLEAD_TRACEBACK", "COLUMNS")}
    given |= {"PYTHONPATH": str(SOURCE), **environment}
    return subprocess.run(
        [sys.executable, "-m", "fairlead", *args],
        cwd=cwd,
        env=given,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
