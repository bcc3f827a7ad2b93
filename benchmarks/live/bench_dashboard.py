"""What open dashboards cost the gateway: CPU time and p50, idle and at 200 requests per second.

`python benchmarks/live/bench_dashboard.py [--dashboards 5] [--rounds 12]`
`python benchmarks/live/bench_dashboard.py --page` instead opens the page in Chromium, anew each time, and prints when
its first content was painted, when its figures were there, and how many bytes came over the wire.

Rounds with and without dashboards alternate on one gateway that serves no-ops. A dashboard here is a connection that
reads the stream of pictures as a page does; the gateway cannot tell the difference. CPU time is the kernel's account.
Shown are the medians, and of each round with dashboards over the one beside it without, with their quartiles.
"""

import argparse
import json
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from threading import Thread
from time import perf_counter, sleep

from bench_cpu import Client, cpu_s, own_version
from processes import adopt_orphans, serving
from systems import NOOP, fairlead_command

RATE_RPS = 200
ROUND_S = 3.0
SETTLE_S = 1.5


@contextmanager
def dashboards(url: str, count: int) -> Iterator[None]:
    """Opens this number of readers of the stream."""
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    links = [socket.create_connection((host, int(port))) for _ in range(count)]
    threads = [Thread(target=read, args=(link,), daemon=True) for link in links]
    for link, thread in zip(links, threads, strict=True):
        link.sendall(b"GET /v1/dashboard/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        thread.start()
    try:
        yield
    finally:
        for link, thread in zip(links, threads, strict=True):
            link.shutdown(socket.SHUT_RDWR)
            thread.join()
            link.close()


def read(link: socket.socket) -> None:
    """Read until the end."""
    while link.recv(1 << 16):
        pass


def measure(pid: int, client: Client, rate_rps: float) -> tuple[float, float]:
    """One round: the share of a core that the gateway used, and the p50 of requests at even intervals."""
    before, began = cpu_s(pid), perf_counter()
    latencies: list[float] = []
    if rate_rps:
        for number in range(int(ROUND_S * rate_rps)):
            sleep(max(0.0, began + number / rate_rps - perf_counter()))
            sent = perf_counter()
            client.call()
            latencies.append(perf_counter() - sent)
    else:
        sleep(ROUND_S)
    return (cpu_s(pid) - before) / (perf_counter() - began), median(latencies) if latencies else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dashboards", type=int, default=5, metavar="N")
    parser.add_argument("--rounds", type=int, default=12, metavar="N")
    parser.add_argument("--page", action="store_true", help="measure the page in a browser instead")
    options = parser.parse_args()
    adopt_orphans()
    system = own_version()
    with tempfile.TemporaryDirectory(prefix="fl-bench-", ignore_cleanup_errors=True) as text:
        folder = Path(text)
        command = fairlead_command(NOOP)(folder / "state")
        with serving(command, folder / "log", system.environment) as url:
            if options.page:
                paint(url, options.rounds)
            else:
                compare(url, folder / "state", system.paths[NOOP], options.dashboards, options.rounds)


def compare(url: str, state: Path, path: str, count: int, rounds: int) -> None:
    pid = json.loads((state / "gateway.json").read_bytes())["pid"]
    client = Client(url, path)
    measure(pid, client, RATE_RPS)  # warm
    for rate_rps in (0, RATE_RPS):
        found: dict[int, list[tuple[float, float]]] = {0: [], count: []}
        for number in range(rounds):
            for open_now in (0, count) if number % 2 == 0 else (count, 0):
                client.call()  # a connection without a request is soon closed
                with dashboards(url, open_now):
                    sleep(SETTLE_S)
                    found[open_now].append(measure(pid, client, rate_rps))
        for open_now, measured in found.items():
            shares, p50s = zip(*measured, strict=True)
            p50 = f", p50 {median(p50s) * 1e6:.0f} us" if rate_rps else ""
            print(f"{rate_rps}/s, {open_now} dashboards: {median(shares):.2%} of a core{p50}", flush=True)
        pairs = list(zip(found[count], found[0], strict=True))
        low, more, high = quantiles([(one[0] - other[0]) * 100 for one, other in pairs], n=4)
        print(f"{rate_rps}/s: {more:+.2f} % of a core for {count} dashboards ({low:+.2f} to {high:+.2f})", flush=True)
        if rate_rps:
            low, ratio, high = quantiles([one[1] / other[1] for one, other in pairs], n=4)
            print(f"{rate_rps}/s: p50 {ratio:.3f} times that without ({low:.3f} to {high:.3f})", flush=True)


def paint(url: str, rounds: int) -> None:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - needed for this measurement only

    painted, there, sizes = [], [], []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        )
        for _ in range(rounds):
            context = browser.new_context()  # with an empty cache
            page = context.new_page()
            page.goto(url)
            page.wait_for_selector(".figures")
            there.append(page.evaluate("performance.now()") / 1e3)
            paints = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            painted.append(page.evaluate(paints) / 1e3)
            resources = "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
            files = f"{resources}.filter(one => !one.name.includes('/v1/'))"
            sizes.append(page.evaluate(f"{files}.reduce((sum, one) => sum + one.encodedBodySize, 0)"))
            context.close()
        browser.close()
    print(f"first paint {median(painted):.3f} s (worst of {rounds}: {max(painted):.3f} s)")
    print(f"figures there {median(there):.3f} s (worst {max(there):.3f} s); {max(sizes):,} bytes of files, compressed")


if __name__ == "__main__":
    main()
