"""When a request that arrives now would be answered: the work ahead of it, and its own path through the workflow."""

from math import inf, sqrt
from typing import NamedTuple

from fairlead.policy.punctual.flow import Flow
from fairlead.policy.punctual.work import Room, Work

_MOST_COUNT = 1e9  # a batch forecast to be larger, as before a room that is never free, counts as this large


class Forecast(NamedTuple):
    """A predicted finish."""

    wait_s: float  # until the first stage starts
    finish: float  # expected
    deviation_s: float  # how much later it may be at the percentile that is planned for
    companions: float = 0.0  # invocations that will be in its first batch

    @property
    def safe(self) -> float:
        """The instant to promise."""
        return self.finish + self.deviation_s


class _Ahead(NamedTuple):
    """What a request finds at its first stage."""

    batches: int  # full ones, which start before its own
    companions: int  # invocations that are in its own batch already
    behind: int  # less urgent invocations of its workflow


def forecast(
    flow: Flow, deadline: float, now: float, is_modest: bool = False, *, is_alone: bool = False, is_quick: bool = False
) -> Forecast:
    """Predict the finish of a request that arrives now.

    All more urgent requests of its own workflow are ahead of it; of other workflows only what their turns let overtake
    it. Invocations in its own batch do not delay it. Each later stage starts when the stages before it are done and its
    room is through with what is ahead, whichever is later. Deviations are taken to be independent.

    Args:
        flow: Its workflow.
        deadline: When it is due.
        now: When it arrives.
        is_modest: Whether only requests of its own workflow join its first batch, which is kept small for it.
        is_alone: Whether no request that arrives later joins its first batch.
        is_quick: Whether its stages run on the quickest ladder instead of the main one.
    """
    entry = flow.steps[0].work
    ahead = _ahead(entry, flow, deadline, is_modest)
    ends: list[tuple[float, float]] = []  # of each stage: when it ends, and the variance of that
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
            at, variance = now + slot_s, deviation_s**2
            gap_s = (flow if is_modest else work).gap.seconds
            count = there.companions + 1 + (0.0 if is_alone or slot_s <= 0 else slot_s / max(gap_s, 1e-9))
            wait_s, joined = max(wait_s, slot_s), max(joined, count)
        else:
            at, variance = max(ends[place] for place in step.after)
            if room is not entry.room:  # in the same room, what is ahead has been waited for
                if room not in backlogs:
                    busy_s = sum([max(0.0, run.end - now) * run.share for run in room.runs])
                    backlogs[room] = busy_s + _others(room, flow, None, ahead)
                at = max(at, now + backlogs[room])
            at += _cold_s(work, now)
            count = ahead.companions + 1 if wait_s <= 0 else work.main.seats
        ladder = work.quickest if is_quick else work.main
        run_s = ladder.pace.mean_s(ladder.rung(int(min(count, _MOST_COUNT)))) * step.rounds()
        ends.append((at + run_s, variance + (run_s * (ladder.pace.spread - 1)) ** 2))
    finish, variance = max(ends)
    return Forecast(wait_s, finish, sqrt(variance), joined)


def _ahead(work: Work, flow: Flow, deadline: float, is_modest: bool) -> _Ahead:
    own = work.queues.get((flow.name, True))
    before = 0 if own is None else own.before(deadline)
    behind = 0 if own is None else len(own) - before
    others = [min(len(queue), before + 1) for queue in work.queues.values() if queue.is_urgent and queue is not own]
    batches, companions = divmod(before + sum(others), work.main.seats)
    return _Ahead(batches, min(companions, before) if is_modest else companions, behind)


def _slot(work: Work, batches: int, now: float) -> tuple[float, float]:
    """The time until an instance is free once `batches` others have started, and by how much it may be longer."""
    main, room, runs = work.main, work.room, work.room.runs
    slots, capacity = work.slots_now(), main.capacity
    free = int((1 - room.used) * capacity + 1e-6)
    if slots < capacity:  # only warm instances count
        free = min(free, slots - work.running)
        runs = [run for run in runs if run.work is work]
    cold_s = _cold_s(work, now)
    if batches < free:
        return cold_s, 0.0
    run_s = main.pace.mean_s(main.top)
    own_s = run_s * (main.pace.spread - 1)
    if free > 0 or not runs:  # batches that start now are ahead, and their ends count too
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
    """The time until there is an instance at all."""
    if work.instances or work.running:
        return 0.0
    if work.starts_until > now:
        return work.starts_until - now
    # An instance that should have become ready within the last second may not be counted yet.
    return 0.0 if work.starts_until > now - 1 else min(work.cold_s.values())


def _others(room: Room, flow: Flow, entered: Work | None, ahead: _Ahead) -> float:
    """How long a room is busy with what goes before a request, apart from what waits at its first stage."""
    own_s = 0.0
    others_s: dict[str, float] = {}
    for (workflow, work), count in room.pending.items():
        if work is entered:
            continue
        if workflow == flow.name:
            own_s += count * work.unit_s
        else:
            others_s[workflow] = others_s.get(workflow, 0.0) + count * work.unit_s
    if not own_s and not others_s:
        return 0.0
    # What companions and less urgent requests still need is not in the way: it runs along or later.
    each_s = flow.rooms.get(room, 0.0)
    if entered is not None:
        each_s -= sum(step.visits * step.work.unit_s for step in flow.steps if step.work is entered)
    own_s = max(0.0, own_s - (ahead.companions + ahead.behind) * each_s)
    return flow.stretch * (own_s + sum([min(seconds, own_s + each_s) for seconds in others_s.values()]))
