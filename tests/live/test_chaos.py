"""Asynchronous requests while something is killed every second: each that was acknowledged ends exactly once."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from itertools import cycle
from math import inf
from pathlib import Path

import numpy as np
import pytest
from serving import Serving, journal_rows, kill, serving, wait_for, write_app

APP = """
@app.function(batch=8, vcpus=0.5)
def prepare(keys):
    time.sleep(0.002)
    return keys

@app.function(batch=8, vcpus=0.5)
def note(keys):
    time.sleep(0.002)
    with open(Path(__file__).with_name("done.txt"), "a") as file:
        file.write("".join(key + "\\n" for key in keys))
    return [key.upper() for key in keys]

app.workflow("note", prepare >> note)
"""
USERS = 8
PAUSE_S = 0.04  # of a user after each request: on a quick machine the kills must not come too late


class Killer(threading.Thread):
    """Kills something every so often: an instance and the gateway in turn, an instance if the gateway only starts."""

    def __init__(self, world: Serving, every_s: float, at_most: float) -> None:
        super().__init__()
        self.kills: Counter[str] = Counter()
        self._world, self._every_s, self._at_most = world, every_s, at_most
        self._rng = np.random.default_rng(0)
        self._stop_now = threading.Event()

    def run(self) -> None:
        for is_gateways_turn in cycle((False, True)):
            if self._stop_now.wait(self._every_s) or self.kills.total() >= self._at_most:
                return
            instances, gateway = self._world.instances, self._world.serving_gateway
            if is_gateways_turn and gateway is not None:  # one that only starts would never come to serve
                kill(gateway)
                self.kills["gateway"] += 1
            elif instances:
                kill(int(self._rng.choice(instances)))
                self.kills["instance"] += 1

    def stop(self) -> None:
        self._stop_now.set()
        self.join()


def send_all(world: Serving, keys: list[str]) -> dict[str, str]:
    """Every key as a request; one that breaks off is sent again under the same idempotency key. Ids by key."""
    acknowledged: dict[str, str] = {}

    def user(mine: list[str]) -> None:
        connection = world.connect(60)
        for key in mine:
            while key not in acknowledged:
                try:
                    reply = world.send("note", key, key=key, connection=connection)
                    assert reply.status in (200, 202), reply
                    acknowledged[key] = reply.json["id"]
                    time.sleep(PAUSE_S)
                except (OSError, HTTPException):
                    connection.close()
                    connection = world.connect(60)
        connection.close()

    with ThreadPoolExecutor(USERS) as pool:
        for done in [pool.submit(user, keys[n::USERS]) for n in range(USERS)]:
            done.result()
    return acknowledged


def endure(folder: Path, count: int, every_s: float, limit_s: float, kills_at_most: float = inf) -> str:
    """Send, kill, wait for every end, and check them all; gives the figures in one line."""
    app = write_app(folder / "app.py", APP)
    keys = [f"k{n}" for n in range(count)]
    with serving(app, folder / "state", "--policy", "fifo") as world:
        began = time.monotonic()
        killer = Killer(world, every_s, kills_at_most)
        killer.start()
        try:
            ids = send_all(world, keys)
            sent_s = time.monotonic() - began
            last = list(ids.values())[-USERS:]
            for id in last:  # the rest is looked up in the journal: asking for each would take longer than the work
                wait_for(lambda id=id: has_ended(world, id), limit_s)
        finally:
            killer.stop()
        wait_for(lambda: open_requests(world) == 0, limit_s, why=lambda: f"{open_requests(world)} are stuck")
        took_s = time.monotonic() - began
        assert world.stop() == 0
    rows = journal_rows(folder / "state")
    ends = Counter(state for _, state, *_ in rows)
    assert len(set(ids.values())) == count
    assert {id for id, *_ in rows} == set(ids.values()), "none lost, and none that was never acknowledged"
    assert all(end is not None for _, _, _, end, _ in rows), "none stuck"
    failed = {reason for _, state, _, _, reason in rows if state == "failed"}
    assert set(ends) <= {"completed", "failed"}, ends
    assert ends["failed"] <= 0.02 * count, failed  # three times on an instance that was killed: it may happen
    ran = Counter((folder / "done.txt").read_text().split())
    completed = {id for id, state, *_ in rows if state == "completed"}
    assert {key for key, id in ids.items() if id in completed} <= set(ran), "what is completed was done"
    assert set(ran) <= set(keys)
    again = sum(ran.values()) - len(ran)
    attempts = max(attempts for _, _, attempts, *_ in rows)
    return (
        f"{count:,} requests, {dict(killer.kills)} kills: accepted in {sent_s:.1f} s, all ended after {took_s:.1f} s, "
        f"{dict(ends)}, {again} executions more than once, at most {attempts} attempts"
    )


def has_ended(world: Serving, id: str) -> bool:
    try:
        return world.state_of(id)["finished_at"] is not None
    except (OSError, HTTPException):
        return False


def open_requests(world: Serving) -> int:
    """As the journal's own gauge has it."""
    try:
        text = world.ask("GET", "/metrics").body.decode()
    except (OSError, HTTPException):
        return -1
    return int(float(next(line.split()[-1] for line in text.splitlines() if line.startswith("fairlead_journal_open"))))


def test_every_acknowledged_request_ends_exactly_once_with_a_kill_every_second(tmp_path, capsys):
    figures = endure(tmp_path, 800, 1.0, 120, kills_at_most=8)
    with capsys.disabled():
        print(f"\n{figures}")  # noqa: T201 - a figure worth seeing, in every log


@pytest.mark.slow
def test_ten_thousand_requests_end_exactly_once_with_a_kill_every_second(tmp_path, capsys):
    figures = endure(tmp_path, 10_000, 1.0, 600)
    with capsys.disabled():
        print(f"\n{figures}")  # noqa: T201
