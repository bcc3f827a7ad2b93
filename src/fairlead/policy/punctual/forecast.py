"""When a request that arrives now would be answered: what is ahead of it, and its own way through the workflow."""

from math import inf, sqrt
from typing import NamedTuple

from fairlead.policy.punctual.flow import Flow, Step
from fairlead.policy.punctual.room import Room
from fairlead.policy.punctual.work import Ladder, Work

_CROWD = 1e9  # of companions: what must wait for ever for a room counts as so many


class Forecast(NamedTuple):
    """A finish: expected, and how much later it may be at the safe percentile."""

    wait_s: float  # until its first stage starts
    finish: float
    deviation_s: float
    companions: float = 0.0  # who will be in its first batch, before it and after

    @property
    def safe(self) -> float:
        """The instant to promise."""
        return self.finish + self.deviation_s


class _Ahead(NamedTuple):
    """What is ahead of a request at its first stage."""

    batches: int  # full ones, that start before its own
    companions: int  # who is in its own batch already
    behind: int  # of its workflow, less urgent


class _End(NamedTuple):
    """When a stage ends, and the variance of that."""

    at: float
    variance: float


def forecast(
    flow: Flow,
    deadline: float,
    now: float,
    is_modest: bool = False,
    *,
    is_alone: bool = False,
    is_quick: bool = False,
) -> Forecast:
    """Predict the finish of a request that arrives now.

    Everybody more urgent in its own workflow is ahead of it; of other workflows only as much as their turns let them
    overtake. Who goes in its own batch delays nobody. Each later stage starts when the ones before are done and its
    room is through with what is ahead, whichever is later. Deviations are taken to be independent.

    Args:
        flow: Its workflow.
        deadline: When it is due.
        now: The instant.
        is_modest: Whether only requests of its own workflow join its first batch, which is kept small for it.
        is_alone: Whether nobody joins.
        is_quick: Whether its stages run in the quickest way, not in the one that does most for its price.
    """
    entry = flow.steps[0].work
    ahead = _ahead(entry, flow, deadline, is_modest)
    ends: list[_End] = []
    wait_s = joined = 0.0
    backlogs: dict[Room, float] = {}  # seconds until a room is through with what is ahead
    for step in flow.steps:
        work, room = step.work, step.work.room
        if work.unit_s == inf:
            return Forecast(inf, inf, 0.0)
        if not step.after:
            there = ahead if work is entry else _ahead(work, flow, deadline, is_modest)
            slot_s, deviation_s = _slot(work, there.batches, now)
            slot_s += _others(room, flow, work, there)
            start = _End(now + slot_s, deviation_s**2)
            gap_s = flow.gap_s if is_modest else work.gap_s
            count = there.companions + 1 + (0.0 if is_alone or slot_s <= 0 else slot_s / max(gap_s, 1e-9))
            wait_s, joined = max(wait_s, slot_s), max(joined, count)
        else:
            at, variance = max(ends[place] for place in step.after)
            if room is not entry.room:  # in the same room, what is ahead has been waited for
                if room not in backlogs:
                    backlogs[room] = _residual(room, now) + _others(room, flow, None, ahead)
                at = max(at, now + backlogs[room])
            start = _End(at + _cold_s(work, now), variance)
            count = ahead.companions + 1 if wait_s <= 0 else work.seats
        run_s, deviation_s = _run(step, step.work.quickest if is_quick else step.work.main, count)
        ends.append(_End(start.at + run_s, start.variance + deviation_s**2))
    finish, variance = max(ends)
    return Forecast(wait_s, finish, sqrt(variance), joined)


def _ahead(work: Work, flow: Flow, deadline: float, is_modest: bool) -> _Ahead:
    queues = work.queues
    own = queues.get((flow.name, True))
    before = behind = 0
    if own is not None:
        before = own.before(deadline)
        behind = len(own.items) - before
    total = before
    if len(queues) > (own is not None):
        total += sum([min(len(q.items), before + 1) for q in queues.values() if q.is_urgent and q is not own])
    batches, companions = divmod(total, work.seats)
    return _Ahead(batches, min(companions, before) if is_modest else companions, behind)


def _slot(work: Work, batches: int, now: float) -> tuple[float, float]:
    """How long until an instance is free for the next batch but so many, and by how much that may be later."""
    main, room = work.main, work.room
    slots, capacity = work.slots_now(), main.capacity
    runs = room.runs
    free = int((1 - room.used) * capacity + 1e-6)
    if slots < capacity:  # only warm instances count
        free = min(free, slots - work.running)
        runs = [run for run in runs if run.work is work]
    cold_s = _cold_s(work, now)
    if batches < free:
        return cold_s, 0.0
    run_s = main.pace.mean_s(main.top)
    own_s = run_s * (main.pace.spread - 1)
    if free > 0 or not runs:  # batches that start now are ahead, so that all of them end before
        ends = sorted([(max(0.0, run.end - now), run.deviation_s) for run in runs] + [(run_s, own_s)] * max(1, free))
        rounds, place = divmod(batches - max(0, free), len(ends))
        first_s, deviation_s = ends[place]
    else:
        rounds, place = divmod(batches - max(0, free), len(runs))
        first_s, deviation_s = max(0.0, runs[place].end - now), runs[place].deviation_s
    if rounds:
        deviation_s = sqrt(deviation_s**2 + rounds * own_s**2)
    return cold_s + first_s + rounds * run_s, deviation_s


def _cold_s(work: Work, now: float) -> float:
    """How long until there is an instance at all."""
    if work.instances or work.running:
        return 0.0
    if work.starts_until > now:
        return work.starts_until - now
    # One that should have become ready lately may not be counted yet.
    return 0.0 if work.starts_until > now - 1 else min(work.cold_s.values())


def _others(room: Room, flow: Flow, entered: Work | None, ahead: _Ahead) -> float:
    """How long the room is busy with what goes before a request, apart from what waits at its first stage."""
    pending = room.pending
    if entered is not None and len(pending) == 1 and next(iter(pending))[1] is entered:
        return 0.0  # the common case
    own_s = 0.0
    others_s: dict[str, float] = {}
    for (workflow, work), count in pending.items():
        if work is not entered:
            if workflow == flow.name:
                own_s += count * work.unit_s
            else:
                others_s[workflow] = others_s.get(workflow, 0.0) + count * work.unit_s
    # Companions go along and those behind come later: what they still need is not in the way.
    each_s = flow.rooms.get(room, 0.0)
    if entered is not None:
        each_s -= sum(step.visits * step.work.unit_s for step in flow.steps if step.work is entered)
    own_s = max(0.0, own_s - (ahead.companions + ahead.behind) * each_s)
    return flow.stretch * (own_s + sum([min(seconds, own_s + each_s) for seconds in others_s.values()]))


def _residual(room: Room, now: float) -> float:
    """How long what runs keeps the room busy."""
    return sum([max(0.0, run.end - now) * run.share for run in room.runs])


def _run(step: Step, ladder: Ladder, count: float) -> tuple[float, float]:
    """How long a stage runs in a batch of so many, and by how much it may be longer."""
    rung = min(ladder.rung(int(min(count, _CROWD))), ladder.top)
    seconds = ladder.pace.mean_s(rung) * step.rounds()
    return seconds, seconds * (ladder.pace.spread - 1)
