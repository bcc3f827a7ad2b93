"""Timers: expiries stay few however often an instance is used, and still come when they are due."""

from dataclasses import dataclass

from fairlead.engine.core.timers import MOST_OUTDATED, Timers


@dataclass
class Instance:
    is_idle: bool = True
    stamp: int = 0


def test_an_instance_that_idles_does_not_keep_the_outdated_expiries_of_a_busy_one():
    timers = Timers()
    expiries = timers.expiries(600.0)
    idle, busy = Instance(), Instance()
    expiries.append((600.0, idle, 0))
    for n in range(1, 20_001):
        busy.stamp = n
        expiries.append((600.0 + n * 0.01, busy, n))
        assert timers.next() == 600.0
        assert len(expiries) <= MOST_OUTDATED + 1
    expired: list[Instance] = []
    timers.fire(800.0, expired.append, lambda batch: None)
    assert expired == [idle, busy]  # at 600 s, and at 600 s + 20,000 x 0.01 s
    assert len(expiries) == 0


def test_very_many_idle_instances_are_all_kept():
    timers = Timers()
    expiries = timers.expiries(60.0)
    for n in range(3 * MOST_OUTDATED):
        expiries.append((60.0 + n, Instance(), 0))
        timers.next()
    assert len(expiries) == 3 * MOST_OUTDATED


def test_limits_of_batches_that_ended_are_forgotten():
    running = {}
    timers = Timers(running)
    for batch in range(1000):
        running[batch] = None
        timers.limit(60.0 + batch, batch)
        timers.next()
        if batch != 500:
            del running[batch]
    assert timers.next() == 560.0
    del running[500]
    assert timers.next() == float("inf")
    assert timers._limits == []


def test_a_batch_that_runs_too_long_is_told_of_once():
    timers, over = Timers({7: None}), []
    timers.limit(2.0, 7)
    timers.fire(1.9, lambda instance: None, over.append)
    assert over == []
    timers.fire(2.0, lambda instance: None, over.append)
    assert over == [7]
    assert timers.next() == float("inf")
