"""Python bytecodes that one no-op costs the gateway, by step: the same on any machine, however busy.

`python benchmarks/live/count_bytecodes.py [--baseline CHECKOUT] [--policy NAME] [--functions 20]`

Only the gateway's main thread is counted, one request at a time. What runs in C (the event loop, the HTTP parser,
MessagePack and JSON, system calls) is not in the count.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import monotonic, sleep

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from bench_cpu import Client, own_version
from compare import versions
from processes import adopt_orphans, serving
from systems import NOOP, System, fairlead_command

REQUESTS = 100
STEPS = {
    "HTTP": tuple(
        f"engine/live/gateway/{name}.py"
        for name in ("protocol", "repeats", "exchange", "connections", "heads", "endpoints", "auth")
    ),
    "call and answer": ("engine/live/gateway/", "engine/live/values.py", "engine/live/store.py", "engine/live/host.py"),
    "link": ("engine/live/links/", "engine/live/wire.py", "engine/live/instances.py"),
    "records": ("engine/live/records.py", "engine/core/books.py", "engine/live/eventlog.py"),
    "runtime": ("engine/live/",),
    "controller": ("engine/core/",),
    "policy": ("policy/", "planning/", "profile/", "model/"),
}
COUNTER = """
import json, os, signal, sys
from collections import Counter

counted, calls = Counter(), Counter()

def inside(frame, event, _):
    if event == "opcode":
        counted[frame.f_code] += 1
    return inside

def entered(frame, event, _):
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    calls[frame.f_code] += 1
    return inside

def begin(*_):
    counted.clear()
    calls.clear()
    sys.settrace(entered)

def end(*_):
    sys.settrace(None)
    rows = [(code.co_filename, code.co_name, count, calls[code]) for code, count in counted.items()]
    with open(os.environ["FAIRLEAD_COUNTED"] + ".part", "w") as file:
        json.dump(rows, file)
    os.rename(os.environ["FAIRLEAD_COUNTED"] + ".part", os.environ["FAIRLEAD_COUNTED"])

if "fairlead.engine.live.process" in sys.orig_argv:
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
"""


def count(system: System, policy: str | None) -> list[tuple[str, str, float, float]]:
    """File, function, and bytecodes and calls per request."""
    with tempfile.TemporaryDirectory(prefix="fl-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(COUNTER)
        source = system.environment["PYTHONPATH"]
        counted = folder / "counted.json"
        environment = {"PYTHONPATH": f"{source}:{folder}", "FAIRLEAD_COUNTED": str(counted)}
        with serving(fairlead_command(NOOP, policy)(folder / "state"), folder / "log", environment) as url:
            pid = json.loads((folder / "state" / "gateway.json").read_bytes())["pid"]
            client = Client(url, system.paths[NOOP])
            for _ in range(2 * REQUESTS):
                client.call()
            os.kill(pid, signal.SIGUSR1)
            sleep(0.2)
            for _ in range(REQUESTS):
                client.call()
            os.kill(pid, signal.SIGUSR2)
            until = monotonic() + 30.0
            while not counted.exists() and monotonic() < until:
                sleep(0.05)
            rows = json.loads(counted.read_text())
    return [
        (file.removeprefix(f"{source}/fairlead/"), function, bytecodes / REQUESTS, calls / REQUESTS)
        for file, function, bytecodes, calls in rows
    ]


def step_of(file: str) -> str:
    return next((step for step, starts in STEPS.items() if file.startswith(starts)), "other")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", type=Path, metavar="CHECKOUT", help="count that Fairlead too")
    parser.add_argument("--policy", metavar="NAME", help="instead of the default one")
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="show the N most costly functions")
    options = parser.parse_args()
    adopt_orphans()
    chosen = [own_version()] if options.baseline is None else versions(options.baseline)
    for system in chosen:
        rows = count(system, options.policy)
        steps: Counter[str] = Counter()
        for file, _, bytecodes, _ in rows:
            steps[step_of(file)] += round(bytecodes)
        shares = ", ".join(f"{step} {steps[step]}" for step in (*STEPS, "other"))
        total, calls = sum(row[2] for row in rows), sum(row[3] for row in rows)
        print(f"{system.name}: {total:.0f} bytecodes in {calls:.0f} calls per request: {shares}")
        for file, function, bytecodes, each in sorted(rows, key=lambda row: -row[2])[: options.functions]:
            print(f"{bytecodes:8.1f} {each:6.2f} {file} {function}")


if __name__ == "__main__":
    main()
