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
    timers.fire(800.0, expired.append)
    assert expired == [idle, busy]  # at 600 s, and at 600 s + 20,000 x 0.01 s
    assert len(expiries) == 0


def test_very_many_idle_instances_are_all_kept():
    timers = Timers()
    expiries = timers.expiries(60.0)
    for n in range(3 * MOST_OUTDATED):
        expiries.append((60.0 + n, Instance(), 0))
        timers.next()
    assert len(expiries) == 3 * MOST_OUTDATED
