"""Fuzzes a served app at connection level, and checks that it stays well.

    python tests/live/fuzzing.py --requests 1000000            serves an app itself, in a folder of its own
    python tests/live/fuzzing.py --url http://127.0.0.1:8080   attacks `fairlead serve tests/live/fuzz_app.py`
    python tests/live/fuzzing.py --replay violation-0.json     sends one recorded connection again and shows the answers

Every case depends on `--seed` and its number only. A case that shows a fault is left in `--out` for `--replay`, and the
exit code is 1. What is checked: each whole request is answered at most once and in order; no 500, 502 or 504; each 503
has Retry-After; what is data is never executed; the connection behind a refusal is closed or works; the log has no
traceback; the gateway's memory stays within `--memory-mb`; a health check every 50 ms is quick throughout.
"""

import argparse
import base64
import json
import os
import select
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from fuzz_cases import Fuzz
from fuzz_links import ANSWER_LIMIT_S, Link, ViolationError
from fuzz_outcome import Limits, Outcome, Watcher
from fuzz_parts import Case, Do
from serving import OWN_FAULTS, TOKEN, Serving

APP = Path(__file__).with_name("fuzz_app.py")
LOG_FAULTS = ("Traceback", *OWN_FAULTS)
OPTIONS = ("--policy", "fifo", "--max-body-mb", "2")
KEPT = 20  # violations that are written to files


class Runner:
    """Plays cases on many connections at once, in one thread."""

    def __init__(
        self,
        fuzz: Fuzz,
        address: tuple[str, int],
        outcome: Outcome,
        out: Path,
        links: int,
        idle: int,
        answer_limit_s: float,
    ) -> None:
        self._fuzz, self._address, self._outcome, self._out = fuzz, address, outcome, out
        self._poll = select.epoll()
        self._links: dict[int, Link] = {}
        self._pausing: set[Link] = set()
        self._most_links, self._idle, self._answer_limit_s = links, idle, answer_limit_s
        self._number = 0
        self._numbers: dict[Link, int] = {}

    def run(self, requests: int, tell: Callable[[str], None] = lambda line: None) -> None:
        outcome, began = self._outcome, time.monotonic()
        resting = [socket.create_connection(self._address, timeout=60) for _ in range(self._idle)]
        next_line, next_sweep = began + 10, began
        while outcome.requests < requests or self._links:
            while outcome.requests < requests and len(self._links) < self._most_links:
                self._take(Link(self._address, outcome.statuses, self._answer_limit_s))
            for fd, events in self._poll.poll(0.002 if self._pausing else 0.05):
                link = self._links.get(fd)
                if link is not None:
                    self._step(link, events, requests)
            now = time.monotonic()
            for link in [link for link in self._pausing if link.pause_until <= now]:
                self._pausing.discard(link)
                if not link.is_gone:
                    link.pause_until = 0.0
                    self._go(link, link.play, requests)
            if now >= next_sweep:
                next_sweep = now + 0.25
                for link in [link for link in self._links.values() if link.until < now and not link.pause_until]:
                    self._go(link, lambda link=link: link.expire() or False, requests)
            if now >= next_line:
                next_line = now + 10
                tell(
                    f"{outcome.requests:,} requests, {outcome.worst_check_s * 1e3:.0f} ms worst health check, "
                    f"{outcome.peak_mb:.0f} MB, {outcome.violations.total()} violations"
                )
        for connection in resting:
            connection.close()
        outcome.seconds = time.monotonic() - began
        outcome.answers = outcome.statuses.total()

    def _take(self, link: Link) -> None:
        """Give a connection the next case."""
        case = self._fuzz.case(self._number)
        self._outcome.requests += max(1, len(case.ids))
        self._outcome.cases[case.name] += 1
        link.begin(case)
        self._numbers[link] = self._number
        self._number += 1
        fd = link.socket.fileno()
        if fd not in self._links:
            self._links[fd] = link
            self._poll.register(fd, select.EPOLLIN | select.EPOLLOUT)
        self._go(link, link.play, 0)

    def _step(self, link: Link, events: int, requests: int) -> None:
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            self._go(link, link.read, requests)
        elif events & select.EPOLLOUT and link.wants_to_write:
            self._go(link, link.play, requests)

    def _go(self, link: Link, act: Callable[[], bool], requests: int) -> None:
        fd = link.socket.fileno()
        try:
            goes_on = act()
        except ViolationError as error:
            self._record(link, str(error))
            link.close()
            goes_on = False
        if goes_on:
            if link.pause_until:
                self._pausing.add(link)
            reads = 0 if link.case.is_deaf else select.EPOLLIN
            self._poll.modify(fd, reads | (select.EPOLLOUT if link.wants_to_write else 0))
            return
        if link.is_gone:
            self._links.pop(fd, None)
        elif self._outcome.requests < requests and not link.case.is_poisoned and self._number % 8:
            self._take(link)
            return
        else:
            self._poll.unregister(fd)
            self._links.pop(fd, None)
            link.close()
        self._pausing.discard(link)
        self._numbers.pop(link, None)

    def _record(self, link: Link, what: str) -> None:
        key = (link.case.name, what.partition(":")[0])
        self._outcome.violations[key] += 1
        if self._outcome.violations[key] > 1 or len(self._outcome.files) >= KEPT:
            return
        file = self._out / f"violation-{len(self._outcome.files)}.json"
        file.write_text(json.dumps(to_plain(self._outcome.seed, self._numbers[link], link, what), indent=1))
        self._outcome.files.append(file)


# --- files ---------------------------------------------------------------------------------------------------------


def to_plain(seed: int, number: int, link: Link, what: str) -> dict[str, object]:
    case: Case = link.case
    steps = [
        {"send": base64.b64encode(step).decode()}
        if isinstance(step, bytes)
        else {"pause_s": step}
        if isinstance(step, float)
        else {"do": step.value}
        for step in case.steps
    ]
    return {
        "seed": seed,
        "case": number,
        "mutation": case.name,
        "violation": what,
        "sent_begins": b"".join(step for step in case.steps if isinstance(step, bytes))[:2000].decode("latin-1"),
        "received_begins": bytes(link.received[:2000]).decode("latin-1"),
        "steps": steps,
    }


def replay(file: Path, address: tuple[str, int], wait_s: float = 3.0) -> bytes:
    """Send a recorded connection again; all that is answered within a while."""
    with socket.create_connection(address, timeout=wait_s) as connection:
        for step in json.loads(file.read_text())["steps"]:
            if "send" in step:
                with suppress(ConnectionError):
                    connection.sendall(base64.b64decode(step["send"]))
            elif "pause_s" in step:
                time.sleep(max(0.02, step["pause_s"]))
            elif step["do"] == Do.HALF_CLOSE.value:
                connection.shutdown(socket.SHUT_WR)
            else:
                return b""
        received = b""
        with suppress(OSError):
            while data := connection.recv(1 << 16):
                received += data
        return received


# --- the whole -----------------------------------------------------------------------------------------------------


def fuzz(
    address: tuple[str, int],
    token: str | None,
    *,
    requests: int,
    seed: int,
    out: Path,
    pid: Callable[[], int | None] = lambda: None,
    links: int = 48,
    idle: int = 20,
    flood_mb: int = 4,
    answer_limit_s: float = ANSWER_LIMIT_S,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Attack the gateway at this address."""
    connection = HTTPConnection(*address, timeout=60)
    connection.request("GET", "/openapi.json", headers={} if token is None else {"authorization": f"Bearer {token}"})
    document = json.loads(connection.getresponse().read())
    connection.close()
    outcome = Outcome(seed)
    watcher = Watcher(address, pid, outcome)
    watcher.start()
    try:
        cases = Fuzz(seed, token, document, size=flood_mb)
        Runner(cases, address, outcome, out, links, idle, answer_limit_s).run(requests, tell)
    finally:
        watcher.stop()
    return outcome


@contextmanager
def fuzzed_app(folder: Path) -> Iterator[tuple[Serving, Callable[[Outcome], None]]]:
    """The app for it, served; and what looks into its log and its folder afterwards."""
    app = folder / "app.py"
    shutil.copy(APP, app)
    served = Serving(app, folder / "state", *OPTIONS, token=TOKEN)

    def look(outcome: Outcome) -> None:
        lines = served.own_err.splitlines()
        outcome.log_faults = [line for line in lines if any(sign in line for sign in LOG_FAULTS)]
        marked = folder / "marked.txt"
        outcome.marked = marked.stat().st_size if marked.exists() else 0

    try:
        yield served.wait_until_serving(), look
    finally:
        served.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--url", default=None, help="a gateway that serves tests/live/fuzz_app.py; FAIRLEAD_TOKEN is its token"
    )
    parser.add_argument("--pid", type=int, default=None, help="process id of that gateway, to look at its memory")
    parser.add_argument("--links", type=int, default=48, help="connections at once")
    parser.add_argument("--idle", type=int, default=100, help="connections that say nothing")
    parser.add_argument("--flood-mb", type=int, default=16, help="size of the largest floods")
    parser.add_argument("--answer-limit", type=float, default=ANSWER_LIMIT_S, metavar="SECONDS")
    parser.add_argument("--health-limit", type=float, default=0.5, metavar="SECONDS")
    parser.add_argument("--memory-mb", type=float, default=400.0, help="what the gateway may take at most")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the cases that showed a fault")
    parser.add_argument("--replay", type=Path, default=None, metavar="FILE")
    options = parser.parse_args()
    limits = Limits(options.health_limit, options.memory_mb)
    options.out.mkdir(parents=True, exist_ok=True)

    def attack(address: tuple[str, int], token: str | None, pid: Callable[[], int | None]) -> Outcome:
        if options.replay is not None:
            print(replay(options.replay, address).decode("latin-1"))  # noqa: T201
            return Outcome(0)
        return fuzz(
            address,
            token,
            requests=options.requests,
            seed=options.seed,
            out=options.out,
            pid=pid,
            links=options.links,
            idle=options.idle,
            flood_mb=options.flood_mb,
            answer_limit_s=options.answer_limit,
            tell=lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201
        )

    if options.url is not None:
        parts = urlsplit(options.url)
        address = (parts.hostname or "127.0.0.1", parts.port or 80)
        outcome = attack(address, os.environ.get("FAIRLEAD_TOKEN"), lambda: options.pid)
    else:
        with tempfile.TemporaryDirectory(prefix="fl-fuzz-") as folder:
            with fuzzed_app(Path(folder)) as (served, look):
                outcome = attack(("127.0.0.1", served.port), TOKEN, lambda: served.gateway)
            look(outcome)
            shutil.copy(Path(folder) / "state.err", options.out / "server.log")
    if options.replay is not None:
        return 0
    print(outcome.table(limits))  # noqa: T201
    return 1 if outcome.faults(limits) else 0


if __name__ == "__main__":
    sys.exit(main())
