"""Asynchronous requests under faults, with a checker of what their clients saw.

    python tests/live/history.py --requests 10000 [--faults 30] [--seed 0] [--json FILE]

Users accept, cancel, look up and read requests, while processes are killed and frozen, the disk and the shared memory
are full for a while, and the app file is broken. At the end, nothing may be lost, doubled or resurrected; the exit code
is 1 if something is. The full disks need the right to mount; without it they are left out, and the output says so.
"""

import argparse
import json
import random  # noqa: TID251 - always seeded
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from histories import FINAL, GONE, UNKNOWN, Execution, History, Kind, Operation, Rules, check, summary
from nemesis import DISKS, FAULTS, Nemesis, World, leave_small_disk, make_small_disks
from serving import journal_rows, write_app

APP = """
@app.function(batch=8, vcpus=0.5)
def prepare(items):
    time.sleep(0.002 + max(item["wait_s"] for item in items))
    return [{"key": item["key"], "data": bytes(item["size"])} for item in items]

@app.function(batch=8, vcpus=0.5)
def note(items):
    with open(Path(__file__).with_name("ran.txt"), "a") as file:
        file.write("".join(f"{item['key']} {time.monotonic()}\\n" for item in items))
    time.sleep(0.002)
    return [f"{item['key'].upper()}:{len(item['data'])}" for item in items]

app.workflow("note", prepare >> note)
"""
USERS = 8
LARGE = 100_000  # bytes: beyond what travels in a channel, so it goes through shared memory
EXCUSES = ("SIGKILL",)  # a request may fail if three instances that ran it were killed
BETWEEN_S = 0.02  # of a user, so that faults do not come too late on a quick machine


@dataclass
class Sent:
    """One request of a user: what it sends, and the right output."""

    key: str
    size: int
    wait_s: float
    is_cancelled: bool

    @property
    def right(self) -> str:
        return f"{self.key.upper()}:{self.size}"


@dataclass
class Users:
    """Clients that note all they do."""

    world: World
    allowed: Callable[[], float]  # how many may be acknowledged by now, so that faults come evenly
    history: History = field(default_factory=History)
    ids: dict[str, str] = field(default_factory=dict)  # by key, once acknowledged

    def run(self, requests: Sequence[Sent], seed: int) -> None:
        """All requests, shared among the users; returns when each has been acknowledged."""
        errors: list[BaseException] = []

        def user(number: int) -> None:
            try:
                self._user(requests[number::USERS], random.Random(f"{seed}/{number}"))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=user, args=(number,)) for number in range(USERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _user(self, requests: Sequence[Sent], rng: random.Random) -> None:
        link = Line(self.world)
        mine: list[Sent] = []
        for request in requests:
            while len(self.ids) >= self.allowed():
                time.sleep(0.01)
            self._accept(link, request)
            mine.append(request)
            if request.is_cancelled:
                time.sleep(rng.choice((0.0, 0.0, 0.005, 0.1)))
                self._cancel(link, request)
            other = rng.choice(mine)
            self.look(link, rng.choice(("get", "result")), other.key)
            time.sleep(BETWEEN_S * rng.random())
        link.close()

    def _accept(self, link: "Line", request: Sent) -> None:
        body = {"input": {"key": request.key, "size": request.size, "wait_s": request.wait_s}}
        until = time.monotonic() + 300
        while request.key not in self.ids:
            assert time.monotonic() < until, f"{request.key} is not accepted"
            began = time.monotonic()
            status, answer = link.ask("POST", "/v1/workflows/note/async", body, request.key)
            is_accepted = status in (200, 202)
            id = answer["id"] if is_accepted else None
            outcome = "accepted" if is_accepted else f"refused ({status})" if status else UNKNOWN
            self._note("accept", request.key, began, outcome, id)
            if id is not None:
                self.ids[request.key] = id
            elif status:
                time.sleep(0.05)  # 429, 503, 507: not now

    def _cancel(self, link: "Line", request: Sent) -> None:
        began = time.monotonic()
        status, _ = link.ask("DELETE", f"/v1/requests/{self.ids[request.key]}")
        outcome = {202: "cancelled", 0: UNKNOWN}.get(status, f"refused ({status})")
        self._note("cancel", request.key, began, outcome, self.ids[request.key])

    def look(self, link: "Line", kind: Kind, key: str) -> str:
        """The state of a request, by its state or by its result."""
        id, began = self.ids[key], time.monotonic()
        status, answer = link.ask("GET", f"/v1/requests/{id}{'/result' if kind == 'result' else ''}")
        value = reason = None
        if status == 404:
            outcome = GONE
        elif status == 200 and kind == "result":
            outcome, value = "completed", answer["output"]
        elif status in (200, 202):
            outcome, reason = answer["state"], answer["reason"]
        elif status == 409:
            outcome, reason = answer["error"]["code"], answer["error"]["reason"]
        else:
            outcome = UNKNOWN
        self._note(kind, key, began, outcome, id, value, reason)
        return outcome

    def _note(self, kind: Kind, key: str, began: float, outcome: str, id: str | None, *more: Any) -> None:
        self.history.add(Operation(kind, key, began, time.monotonic(), outcome, id, *more))

    def read_all(self, limit_s: float) -> None:
        """Wait until every acknowledged request has ended, then read its result. The checker finds what never ends."""
        link, until = Line(self.world), time.monotonic() + limit_s
        for key in self.ids:
            while (outcome := self.look(link, "get", key)) not in (*FINAL, GONE) and time.monotonic() < until:
                time.sleep(0.05)
            for _ in range(5):
                if outcome != "completed" or self.look(link, "result", key) != UNKNOWN:
                    break
        for key in self.ids:  # once more: an end stays as it is
            self.look(link, "get", key)
        link.close()


class Line:
    """A connection of one user, made anew when it breaks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._connection: HTTPConnection | None = None

    def ask(self, method: str, path: str, body: object = None, key: str | None = None) -> tuple[int, Any]:
        """Status and JSON; (0, None) if no answer came."""
        headers = {"idempotency-key": key} if key else {}
        try:
            if self._connection is None:
                self._connection = self._world.served.connect(30)
            reply = self._world.served.ask(method, path, body, headers=headers, connection=self._connection)
            return reply.status, reply.json
        except (OSError, HTTPException, ValueError):
            self.close()
            time.sleep(0.02)
            return 0, None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@dataclass
class Verdict:
    """What a run came to."""

    requests: int
    seconds: float
    faults: dict[str, int]
    operations: str
    violations: list[str]
    executions: int
    left_out: list[str]
    history: History

    @property
    def groups(self) -> Counter[str]:
        """Violations that differ in the request only, counted."""
        return Counter(re.sub(r"\bk\d+\b|[0-9a-f]{32}|\d+\.\d+ s", "...", line) for line in self.violations)

    def __str__(self) -> str:
        lines = [
            f"{self.requests:,} accepted requests in {self.seconds:.0f} s, {self.executions:,} executions",
            f"operations: {self.operations}",
            f"faults: {', '.join(f'{name}: {count}' for name, count in self.faults.items())}",
            *(f"left out, since mounting is not allowed here: {name}" for name in self.left_out),
            *(f"VIOLATION {line} ({count} times)" for line, count in self.groups.most_common(20)),
            f"{len(self.violations)} violations" if self.violations else "nothing lost, doubled or resurrected",
        ]
        return "\n".join(lines)


def endure(
    folder: Path,
    count: int,
    faults: Sequence[str],
    times: int,
    *,
    seed: int = 0,
    end_limit_s: float = 300.0,
    say: Callable[[str], None] = lambda line: None,
) -> Verdict:
    """Send, commit `times` faults meanwhile, wait for all ends, and check. Call it before any thread is started."""
    began = time.monotonic()
    state = folder / "state"
    can_mount = make_small_disks(state)
    chosen = [name for name in faults if can_mount or name not in DISKS]
    rng = random.Random(seed)
    requests = [
        Sent(f"k{n}", LARGE if rng.random() < 0.15 else 10, rng.choice((0.0,) * 9 + (0.1,)), rng.random() < 0.2)
        for n in range(count)
    ]
    app = write_app(folder / "app.py", APP)
    world = World(app, state, "--policy", "fifo")
    milestones = [count * (number + 1) // (times + 2) for number in range(times)]
    users = Users(world, lambda: nemesis.allowed)
    nemesis = Nemesis(world, lambda: len(users.ids), milestones, chosen, say)
    try:
        nemesis.start()
        try:
            users.run(requests, seed)
        finally:
            nemesis.stop()
        world.wait_until_well()
        say(f"all are accepted after {time.monotonic() - began:.0f} s; waiting for their ends")
        users.read_all(end_limit_s)
        world.served.stop(60)
    finally:
        world.served.end()
    ran = [line.split() for line in (folder / "ran.txt").read_text().splitlines()]
    executions = [Execution(key, float(at)) for key, at in ran]
    rules = Rules({request.key: request.right for request in requests}, EXCUSES)
    violations = check(users.history.operations, executions, rules)
    strangers = {id for id, *_ in journal_rows(state)} - set(users.ids.values())
    if can_mount:
        leave_small_disk(state)
    violations += [f"doubled: the journal has {id}, which no client was told of" for id in strangers]
    left_out = [name for name in faults if name not in chosen]
    took_s, told = time.monotonic() - began, summary(users.history.operations)
    return Verdict(count, took_s, dict(nemesis.committed), told, violations, len(ran), left_out, users.history)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--faults", type=int, default=30, metavar="N", help="how many faults there are")
    parser.add_argument("--only", action="append", choices=list(FAULTS), help="only this fault; repeatable")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--end-limit", type=float, default=300.0, metavar="SECONDS", help="until all must have ended")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="where to leave the history")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fl-history-", ignore_cleanup_errors=True) as folder:
        verdict = endure(
            Path(folder),
            options.requests,
            options.only or list(FAULTS),
            options.faults,
            seed=options.seed,
            end_limit_s=options.end_limit,
            say=lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201
        )
    print(verdict)  # noqa: T201
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in verdict.history.operations]))
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
