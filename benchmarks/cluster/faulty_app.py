"""The app of the cluster's fault and growth benchmarks: one function that sleeps, and what a cluster can do of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from agent_processes import Watched

SLO_S, SLEEP_S = 0.5, 0.05
CODE = f"""
@app.function
def work(key):
    time.sleep({SLEEP_S})
    return [key, os.getpid()]

app.workflow("work", work, slo="{SLO_S}s", example="x")
app.workflow("task", work, slo="60s", example="x")
"""
USERS = 32


def prepare() -> None:
    """Have agents and instances, which raylets start, find this source."""
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2] / "src")


def capacity_rps(made: Watched, duration_s: float = 6.0) -> float:
    """Answers per second that a closed loop gets."""
    url = f"http://127.0.0.1:{made.served.port}"
    plan = ["--workflow", "work", "--users", str(USERS), "--warm-up", "2s", "--duration", f"{duration_s + 2:g}s"]
    command = [sys.executable, "-m", "fairlead", "load", url, *plan, "--quiet", "--json", "-"]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(found.stdout)["goodput_rps"])
