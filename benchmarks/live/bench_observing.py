"""What logs, traces and the access log cost a request, and what a function that prints without end does to others.

`python benchmarks/live/bench_observing.py overhead --baseline CHECKOUT [--rounds 40]`

Servers of the no-op are up at once and are asked in turn, 200 requests each, round by round: the baseline, another
process of the baseline (what of a ratio is chance), this checkout as it is, with a line of access log per request, and
with spans of every request sent to a receiver of this program. Shown are the medians over the rounds of each round's
p50, and of the ratios to the baseline in the same round, with their quartiles.

`python benchmarks/live/bench_observing.py capacity --baseline CHECKOUT [--rounds 40]`

What 32 users that never pause get from the batched stage (8 + 2n ms, one instance), the baseline and this checkout in
turn, 5 s each. A batch of eight is 0.5 % of that.

`python benchmarks/live/bench_observing.py flood [--seconds 60] [--how print|pipe]`

One function writes 67 MB a second (4 GB in a minute), by `print` or past Python to its pipe, while another app function
is called one at a time. In turns with it the same function burns as much CPU time as its flood took, in slices of the
same length, and writes nothing: what calls take longer beside the flood than beside the burning is due to the logs.
Shown are the p50 and p99 of those calls, the ratios of p50 in the same turn with their quartiles, the bytes that were
written and dropped, the greatest size of the logs on disk, and the CPU time of the gateway.
"""

import argparse
import json
import re
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median, quantiles
from time import monotonic, perf_counter, sleep

from bench_cpu import Client, cpu_s
from compare import BASELINE, NEW, versions
from processes import adopt_orphans, serving
from rows import BODY, USERS
from systems import BATCHED, HERE, NOOP, fairlead_command

from fairlead.load import Closed, Plan, run_load

SHARE = 200  # requests of a round
LOOP_S = 5.0
TURNS = 8  # of quiet, flood and burning
FLOOD_APP = """
import os, time
from fairlead.app import App

app = App("flooded")
RATE = 4e9 / 60  # bytes a second

@app.function()
def noop(x):
    return x

@app.function()
def flood(how):
    line, sent, began = "x" * 99, 0, time.monotonic()
    block = "\\n".join([line] * 100)
    raw = (block + "\\n").encode()
    seconds, cpu_s = how["seconds"], time.process_time()
    while (passed := time.monotonic() - began) < seconds:
        if how["how"] == "burn":
            if time.process_time() - cpu_s > passed * how["share"]:
                time.sleep(0.001)
            else:
                block.encode()
            continue
        if sent > passed * RATE:
            time.sleep(0.001)
            continue
        if how["how"] == "pipe":
            sent += os.write(1, raw)
        else:
            print(block)
            sent += len(raw)
    return {"bytes": sent, "share": (time.process_time() - cpu_s) / seconds}

app.workflow("noop", noop)
app.workflow("flood", flood)
"""


class Sink:
    """Takes traces, and counts the requests that bring them."""

    def __init__(self) -> None:
        sink = self
        self.count = 0

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                sink.count += 1
                self.send_response(200)
                self.end_headers()

            def log_message(self, *about: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()


def times_s(client: Client, count: int) -> list[float]:
    """The latency of each of a number of calls, one at a time."""
    found = []
    for _ in range(count):
        began = perf_counter()
        client.call()
        found.append(perf_counter() - began)
    return found


def overhead(baseline: Path, rounds: int) -> None:
    adopt_orphans()
    new, old = versions(baseline)
    sink = Sink()
    chosen = [
        ("baseline", old, ()),
        ("baseline again", old, ()),
        ("this", new, ()),
        ("access log", new, ("--access-log", "text")),
        ("spans", new, ("--otel", sink.url)),
    ]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-bench-", ignore_cleanup_errors=True)))
        clients = {}
        for name, system, options in chosen:
            command = [*fairlead_command(NOOP)(folder / name.replace(" ", "-")), *options]
            url = stack.enter_context(serving(command, folder / f"{name}.log", system.environment))
            clients[name] = Client(url, system.paths[NOOP])
            times_s(clients[name], 1000)
        found: dict[str, list[float]] = {name: [] for name in clients}
        for number in range(rounds):
            first = number % len(clients)  # none is asked twice in a row, which would find its memory in the caches
            for name in [*clients][first:] + [*clients][:first]:
                found[name].append(median(times_s(clients[name], SHARE)))
    for name, p50s in found.items():
        low, middle, high = quantiles([a / b for a, b in zip(p50s, found["baseline"], strict=True)], n=4)
        print(f"{name}: p50 {median(p50s) * 1e3:.3f} ms; ratio {middle:.3f} ({low:.3f} to {high:.3f})")
    print(f"the receiver got {sink.count} exports")


def capacity(baseline: Path, rounds: int) -> None:
    adopt_orphans()
    plan = Plan(arrivals=Closed(USERS), duration_s=LOOP_S + 0.5, warm_up_s=0.5, body=BODY)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-bench-", ignore_cleanup_errors=True)))
        urls = {}
        for system in versions(baseline):
            command = fairlead_command(BATCHED)(folder / system.name)
            url = stack.enter_context(serving(command, folder / f"{system.name}.log", system.environment))
            urls[system.name] = f"{url.rstrip('/')}{system.paths[BATCHED]}"
            run_load(urls[system.name], plan)
        found: dict[str, list[float]] = {name: [] for name in urls}
        for number in range(rounds):
            for name in list(urls) if number % 2 == 0 else list(urls)[::-1]:
                found[name].append(run_load(urls[name], plan).answered_rps)
    low, middle, high = quantiles([a / b for a, b in zip(found[NEW], found[BASELINE], strict=True)], n=4)
    rates = ", ".join(f"{name} {median(rates):.1f}/s" for name, rates in found.items())
    print(f"{rates}; ratio {middle:.3f} ({low:.3f} to {high:.3f})")


def flood(seconds: float, how: str) -> None:
    adopt_orphans()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-bench-", ignore_cleanup_errors=True)))
        app, state = folder / "app.py", folder / "state"
        app.write_text(FLOOD_APP)
        command = [sys.executable, "-m", "fairlead.cli", "serve", str(app), "--port", "0", "--state", str(state)]
        environment = {"PYTHONPATH": str(HERE.parents[1] / "src")}
        url = stack.enter_context(serving([*command, "--quiet"], folder / "log", environment))
        gateway = json.loads((state / "gateway.json").read_bytes())["pid"]
        client = Client(url, "/v1/workflows/noop")
        times_s(client, 1000)
        times: dict[str, list[list[float]]] = {"quiet": [], "burning": [], "flood": []}
        largest, written, shares, used = 0, 0, [], {"burning": 0.0, "flood": 0.0}
        part_s = seconds / TURNS
        for _ in range(TURNS):  # what drifts over the run hits all of a turn alike
            found: list[float] = []
            until = monotonic() + part_s / 2
            while monotonic() < until:
                found += times_s(client, 20)
                sleep(0.02)
            times["quiet"].append(found)
            for name in ("flood", "burning"):
                asked = {"how": how} if name == "flood" else {"how": "burn", "share": shares[-1]}
                with ThreadPoolExecutor(1) as threads:
                    answer = threads.submit(_flood, url, part_s, asked)
                    found, before = [], cpu_s(gateway)
                    while not answer.done():
                        found += times_s(client, 20)
                        largest = max(largest, sum(file.stat().st_size for file in (state / "logs").glob("*")))
                        sleep(0.02)
                    used[name] += cpu_s(gateway) - before
                    times[name].append(found)
                    if name == "flood":
                        written += answer.result()["bytes"]
                        shares.append(answer.result()["share"])
        sleep(1.5)  # the last notice
        told = b"".join(file.read_bytes() for file in sorted((state / "logs").glob("*"))).decode()
        kept = told.count('xxxxx"')
        dropped = sum(float(size) for size in re.findall(r"lines dropped \(([\d.e+]+) MB\)", told))
    for name, turns in times.items():
        every = [each for turn in turns for each in turn]
        print(
            f"{name}: p50 {median(every) * 1e3:.3f} ms, p99 {quantiles(every, n=100)[98] * 1e3:.2f} ms of {len(every)}"
        )
    for name, other in (("burning", "quiet"), ("flood", "quiet"), ("flood", "burning")):
        ratios = [median(a) / median(b) for a, b in zip(times[name], times[other], strict=True)]
        low, middle, high = quantiles(ratios, n=4)
        print(f"p50, {name} : {other}: {middle:.3f} ({low:.3f} to {high:.3f}) of {len(ratios)} turns")
    print(
        f"{written / 1e9:.2f} GB written by {how} in {seconds:g} s, with {median(shares):.0%} of a core; {kept} lines "
        f"kept, {dropped / 1e3:.2f} GB dropped; on disk at most {largest / 2**20:.1f} MB"
    )
    beside = {name: f"{busy_s / seconds:.1%} of a core beside the {name}" for name, busy_s in used.items()}
    print(f"the gateway used, calls included, {beside['flood']} and {beside['burning']}")


def _flood(url: str, seconds: float, how: dict[str, object]) -> dict[str, float]:
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    connection = HTTPConnection(host, int(port), timeout=seconds + 120)
    body = json.dumps({"input": {**how, "seconds": seconds}})
    connection.request("POST", "/v1/workflows/flood", body, {"content-type": "application/json"})
    found: dict[str, float] = json.loads(connection.getresponse().read())["output"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "capacity", "flood"))
    parser.add_argument("--baseline", type=Path, metavar="CHECKOUT", help="the Fairlead to compare with")
    parser.add_argument("--rounds", type=int, default=40, metavar="N")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S")
    parser.add_argument("--how", choices=("print", "pipe"), default="print")
    options = parser.parse_args()
    if options.what == "flood":
        flood(options.seconds, options.how)
    elif options.baseline is None:
        parser.error(f"{options.what} needs --baseline CHECKOUT")
    elif options.what == "capacity":
        capacity(options.baseline, options.rounds)
    else:
        overhead(options.baseline, options.rounds)


if __name__ == "__main__":
    main()
