"""Which batch starts next; and which requests can no longer be in time.

Urgent invocations are served in turn by workflow, then those that can wait, then those without a deadline. Under
overload batches stay full: a request that would be late in a full batch is dropped, not saved by a small batch, unless
nothing else waits.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from math import inf

from fairlead.model import Invocation
from fairlead.policy.base import Action, Reject, Start, View, Warm
from fairlead.policy.punctual.batch import Choice, Member, Way, choose, spared, split
from fairlead.policy.punctual.flow import Open
from fairlead.policy.punctual.work import Queue, Room, Run, Work

TOO_LATE = "its deadline cannot be met any more"

_STARVED_S = 1.0  # after this time without a start, or ten of its runs, a function is overtaken by no other
_GATHERING = 8  # invocations without a deadline wait for company during this many full batches
_LEAST_COLD_S = 1e-4  # a shorter cold start counts as none
_LEAST_RETRY_S, _MOST_RETRY_S = 0.001, 60.0

_OWED, _URGENT, _PATIENT, _BEST_EFFORT = range(4)

Rank = tuple[int, float, float, int]


class Starts:
    """Holds what waits, and fills free capacity with it.

    Args:
        works: The functions, by name.
        kinds: The kind of each node, by its name.
        margin_s: Time that an answer needs besides waiting and running.
        best_effort_share: Share of the time that invocations without a deadline get while others wait.
    """

    def __init__(
        self, works: Mapping[str, Work], kinds: dict[str, str], margin_s: float, best_effort_share: float
    ) -> None:
        self.kinds = kinds
        self.wake = inf  # when an invocation that waits for company should go alone
        self.open: dict[int, Open] = {}  # by request
        self.runs: dict[int, Run] = {}  # by invocation
        self._works = works
        self._margin_s = margin_s
        self._share = best_effort_share
        self._active: dict[Work, None] = {}  # every function for which something waits, and maybe more

    # --- what waits --------------------------------------------------------------------------------------------

    def works(self) -> list[Work]:
        """The functions for which something waits."""
        self._active = {work: None for work in self._active if work.queues or work.standby}
        return list(self._active)

    def enter(self, request: int, state: Open, view: View, queue: Queue | None = None) -> None:
        """Admit a request, and let what is ready of it wait."""
        self.open[request] = state
        for invocation in view.waiting_of(request):
            self.add(invocation, queue)

    def add(self, invocation: Invocation, queue: Queue | None = None) -> None:
        """Let an invocation of an open request wait, in this queue or in the one where it belongs."""
        if queue is None:
            queue = self._works[invocation.function].queue_of(invocation)
        queue.add(invocation)
        self.open[invocation.request].waits.append((queue, invocation))
        self._active[queue.work] = None

    def close(self, request: int, end: float) -> None:
        """Forget a request that ended, if it is known; it kept its promise if it did so by the deadline."""
        state = self.open.pop(request, None)
        if state is not None:
            if state.deadline < inf:
                state.flow.answered(end <= state.deadline)
            state.close()

    def drop(self, request: int, late_s: float) -> Reject:
        """Give up an open request that might have been in time with `late_s` less ahead of it."""
        self.close(request, inf)
        return Reject(request, TOO_LATE, retry_after_s(late_s))

    def sweep(self, view: View) -> Iterator[Action]:
        """Drop the requests at the heads of queues that cannot be in time any more, though nothing can start."""
        now = view.now
        for work in self.works():
            for queue in list(work.queues.values()):
                while queue and (head := queue.at(0)).deadline < now + work.fastest_s:
                    if self._budget_s(head, now) >= work.fastest_s:
                        break
                    if view.is_waiting(head):
                        yield self.drop(head.request, work.fastest_s)
                    else:  # another copy was first
                        queue.remove(head)

    def call(self, view: View, work: Work) -> Iterator[Action]:
        """Give the seats that are left in the next batch to requests on standby; refuse those that will get none."""
        ladder, now, count = work.main, view.now, work.waiting
        for invocation in reversed(list(work.standby.items.values())):  # the least urgent has the best chance
            budget_s = self._budget_s(invocation, now)
            if count < ladder.seats and ladder.pace.mean_s(ladder.rung(count + 1)) <= budget_s:
                count += 1
                work.standby.remove(invocation)
                self.open[invocation.request].book()
                self.add(invocation)
            elif ladder.pace.mean_s(ladder.top) + work.fastest_s > budget_s:  # nor is there time for the next batch
                yield self.drop(invocation.request, ladder.pace.mean_s(ladder.top))

    # --- whose turn it is --------------------------------------------------------------------------------------

    def decide(self, view: View) -> Iterator[Action]:
        """Start what can start, and warm what is worth it."""
        self.wake = inf
        full: set[Work] = set()
        held: set[Room] = set()
        while True:
            best: tuple[Rank, Queue] | None = None
            for work in self.works():
                if work in full:
                    continue
                if all(view.place(work.name, ladder.configurations[0]) is None for ladder in work.ladders):
                    full.add(work)
                    if self._is_starved(work, view.now):
                        held.add(work.room)
                    continue
                if work.standby:
                    yield from self.call(view, work)
                for queue in work.queues.values():
                    rank = self._rank(queue, view.now)
                    if rank is not None and (best is None or rank < best[0]):
                        best = rank, queue
            if best is None:
                return
            (kind, *_), queue = best
            if queue.work.room in held or not (yield from self._next(view, queue.work, kind)):
                full.add(queue.work)

    def _rank(self, queue: Queue, now: float) -> Rank | None:
        """The smallest goes first; None if the queue has to wait."""
        work, room, head = queue.work, queue.work.room, queue.at(0)
        turn = room.turns[queue.workflow]
        if not queue.is_urgent:
            if room.credit_s >= work.unit_s:
                return _OWED, turn, head.ready, head.id
            return None if self._is_gathering(queue, now) else (_BEST_EFFORT, turn, head.ready, head.id)
        if len(room.pending) > 1:
            need_s = len(room.pending) * len(queue) * work.unit_s + work.main.pace.upper_s(work.main.top)
            if head.deadline - now - self._rest_s(head) > 3 * need_s:
                return _PATIENT, turn, head.deadline, head.id
        return _URGENT, turn, head.deadline, head.id

    def _is_gathering(self, queue: Queue, now: float) -> bool:
        """Whether invocations without a deadline wait: for company, or to go along with urgent ones.

        A small batch takes nearly as long as a full one, and urgent invocations would have to wait for it.
        """
        work, ladder = queue.work, queue.work.main
        if not work.room.callers or ladder.top == 0:
            return False
        until = queue.at(0).ready + _GATHERING * ladder.pace.mean_s(ladder.top)
        if len(queue) >= ladder.seats or until <= now:
            return False
        self.wake = min(self.wake, until)
        return True

    def _is_starved(self, work: Work, now: float) -> bool:
        """Whether invocations of a function have waited for long without any start of it, while others run."""
        if not work.room.runs or work.running or not work.queues:
            return False
        since = max(work.last_start, min(queue.at(0).ready for queue in work.queues.values()))
        return now - since > max(_STARVED_S, 10 * work.fastest_s)

    # --- the next batch ----------------------------------------------------------------------------------------

    def _next(self, view: View, work: Work, kind: int) -> Generator[Action, None, bool]:
        """Drop what is too late and start a batch, or warm an instance; whether to look at this function again."""
        ways = self._ways(view, work)
        if not ways:
            return False
        most = max(way.ladder.seats for way in ways)
        members: list[Member] = []
        known = len(self.open)
        while True:
            yield from self._gather(view, work, most, kind, members)
            if not members:
                break
            choice = choose(ways, members)
            if choice.way.cold_s > 0 and work.warms and choice.mean_s > members[-1].budget_s:
                warm = self.awaken(work, view)  # all would be late: let an instance start without them
                if warm is not None:
                    yield warm
                    return False
                break
            modest_s = [m.budget_s for m in members[: choice.size] if self.open[m.invocation.request].is_modest]
            if modest_s:
                choice = spared(choice, min(modest_s))
            late = [member for member in members[: choice.size] if member.budget_s < choice.mean_s]
            if late and work.waiting == len(members) and (smaller := split(choice.way, members)) is not None:
                choice, late = smaller, []
            if not late:
                if choice.way.cold_s > 0 and self._frees_sooner(work, choice.way.cold_s, view.now):
                    break
                yield from self._start(view.now, work, choice, members[: choice.size], kind)
                return True
            for request in dict.fromkeys(member.invocation.request for member in late):
                yield self.drop(request, choice.mean_s)
            members[:] = [member for member in members if member.invocation.request in self.open]
        return len(self.open) < known

    def _ways(self, view: View, work: Work) -> list[Way]:
        found = []
        for ladder in work.ladders:
            configuration = ladder.configurations[0]
            node = view.place(work.name, configuration)
            if node is not None and (kind := self.kinds[node]) in ladder.paces:
                cold_s = work.cold_s.get(kind, 0.0)
                if cold_s <= _LEAST_COLD_S or view.is_warm(work.name, configuration, node):
                    cold_s = 0.0
                found.append(Way(ladder, node, ladder.paces[kind], cold_s))
        return found

    def _gather(self, view: View, work: Work, most: int, kind: int, members: list[Member]) -> Iterator[Action]:
        """Find up to `most` members whose turn it is, and drop the requests that are too late already.

        Members stay in their queues. Invocations without a deadline go along where that makes no member late.
        """
        now, main = view.now, work.main
        turns = {queue.workflow: work.room.turns[queue.workflow] for queue in work.queues.values()}
        seen = Counter(member.queue for member in members)  # how many of each queue are members
        while len(members) < most:
            left = [q for q in work.queues.values() if seen[q] < len(q) and not (kind == _OWED and q.is_urgent)]
            if not left:
                break
            queue = min(left, key=lambda q: (not q.is_urgent, turns[q.workflow], q.items.peekitem(seen[q])[0]))
            if not queue.is_urgent and members:
                longest_s = main.pace.upper_s(main.rung(len(members) + 1))
                if longest_s > min(members).budget_s:
                    break
            invocation = queue.at(seen[queue])
            if not view.is_waiting(invocation):  # another copy was first
                queue.remove(invocation)
                continue
            turns[queue.workflow] += work.unit_s
            budget_s = self._budget_s(invocation, now)
            if budget_s >= work.fastest_s:
                members.append(Member(budget_s, invocation.id, invocation, queue))
                seen[queue] += 1
                continue
            yield self.drop(invocation.request, work.fastest_s)
            members[:] = [member for member in members if member.invocation.request in self.open]
            seen = Counter(member.queue for member in members)
        members.sort()
        if work.waiting == len(members) and not work.standby:  # all of it was looked at: other functions go first
            self._active[work] = self._active.pop(work)

    def _frees_sooner(self, work: Work, cold_s: float, now: float) -> bool:
        """Whether warm instances for all that waits are free before a cold one is ready."""
        if not work.running:
            return False
        soon = sum([run.end < now + cold_s for run in work.room.runs if run.work is work])
        return work.waiting <= soon * work.main.seats

    def _start(self, now: float, work: Work, choice: Choice, members: list[Member], kind: int) -> Iterator[Action]:
        (way, rung, _), room = choice, work.room
        yield Start(tuple([member.invocation for member in members]), way.ladder.configurations[rung], way.node)
        # Reached only if the batch was started: the controller ends the call of a policy whose action it refuses.
        run_s = way.pace.mean_s(rung)
        share = 1 / max(1, way.ladder.capacity)
        run = Run(work, way.pace, rung, now + choice.mean_s, run_s * (way.pace.spread - 1), share)
        room.begin(run)
        work.last_start = now
        work.instances += way.cold_s > 0
        cost_s = run_s * share
        for _, id, invocation, queue in members:
            queue.remove(invocation)
            self.runs[id] = run
            self.open[invocation.request].started(invocation.stage)
            room.serve(invocation.workflow, cost_s / len(members))
        if members[0].queue.is_urgent:
            room.credit_s = min(room.credit_s + self._share * cost_s, 10 * cost_s)
        elif kind == _OWED:
            room.credit_s -= cost_s

    def awaken(self, work: Work, view: View) -> Warm | None:
        """An instance of a function to start ahead of need, if there is room for one and none starts yet."""
        if not work.warms or work.starts_until > view.now:
            return None
        configuration = work.main.configurations[0]
        node = view.place(work.name, configuration)
        if node is None or view.is_warm(work.name, configuration, node):
            return None
        cold_s = work.cold_s.get(self.kinds[node], 0.0)
        if cold_s <= _LEAST_COLD_S:
            return None
        work.starts_until = view.now + cold_s
        if any(counts.starting for counts in view.counts(work.name)):
            return None  # one takes longer than expected
        return Warm(work.name, configuration, node)

    def _rest_s(self, invocation: Invocation) -> float:
        return self.open[invocation.request].flow.by_name[invocation.stage].rest_s

    def _budget_s(self, invocation: Invocation, now: float) -> float:
        """How long from now a batch may take for this invocation to be in time; infinite for a probe."""
        if self.open[invocation.request].is_probe:
            return inf
        return invocation.deadline - now - self._margin_s - self._rest_s(invocation)


def retry_after_s(seconds: float) -> float:
    """A time to tell a client that is refused, within sensible bounds."""
    return min(max(seconds, _LEAST_RETRY_S), _MOST_RETRY_S)
