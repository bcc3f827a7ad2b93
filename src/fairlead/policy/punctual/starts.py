"""Who runs next; and who can no longer be in time.

Whoever is urgent is served in turn by workflow, then who can wait, then who has no deadline. Under overload batches
stay full: who would be late in one is given up, not saved by a small batch, unless nobody else waits.
"""

from collections.abc import Callable, Iterator
from math import inf

from fairlead.model import Invocation
from fairlead.policy.base import Action, Reject, Start, View, Warm
from fairlead.policy.punctual.batch import Choice, Member, Way, choose, spared, split
from fairlead.policy.punctual.flow import Flow, Open
from fairlead.policy.punctual.room import Room, Run
from fairlead.policy.punctual.work import Queue, Work

_STARVED_S = 1.0  # nobody overtakes a function that could not be started for so long, or for ten of its runs
_GATHERING = 8  # for so many full batches' time do those without a deadline wait for company
_LEAST_COLD_S = 1e-4  # a start that takes no longer is none

_OWED, _URGENT, _PATIENT, _BEST_EFFORT = range(4)

Drop = Callable[[int, float], Reject | None]
Rank = tuple[int, float, float, int]


class Starts:
    """Fills what is free.

    Args:
        flows: The workflows.
        kinds: Of nodes, by name.
        margin_s: Time that an answer needs besides waiting and running.
        best_effort_share: Share of the time that those without a deadline get while others wait.
        drop: Gives up an admitted request, which might be served so much later; None if it is closed already.
    """

    def __init__(
        self, flows: dict[str, Flow], kinds: dict[str, str], margin_s: float, best_effort_share: float, drop: Drop
    ) -> None:
        self._flows = flows
        self._kinds = kinds
        self._margin_s = margin_s
        self._share = best_effort_share
        self._drop = drop
        self._order = 0
        self._last: tuple[Run, tuple[Invocation, ...]] | None = None
        self.wake = inf  # when somebody who waits for company should go alone
        self.open: dict[int, Open] = {}
        self.queued: set[int] = set()  # ids of the invocations in all queues
        self.active: dict[str, Work] = {}  # functions for which something waits
        self.runs: dict[int, Run] = {}  # by invocation

    def add(self, work: Work, invocation: Invocation, view: View) -> None:
        """Let an invocation wait."""
        key = (invocation.workflow, invocation.deadline < inf)
        queue = work.queues.get(key)
        if queue is None:
            queue = work.queues[key] = Queue(*key, work)
            work.room.welcome(invocation.workflow)
            self.active[work.name] = work
        self.queued.add(invocation.id)
        for gone in queue.add(invocation, view):
            self.queued.discard(gone.id)
            self._left(gone, view)

    def stand_by(self, work: Work, invocation: Invocation) -> None:
        """Let an invocation wait for a seat that stays empty."""
        work.standby.add((invocation.deadline, invocation.id, invocation))
        self.queued.add(invocation.id)
        self.active[work.name] = work

    def forget(self, request: int) -> None:
        """A request is no longer open."""
        state = self.open.pop(request, None)
        if state is not None:
            state.close()

    def recover(self, view: View) -> None:
        """Take back the last start if it was not carried out, as when an operator has just scaled the function."""
        if self._last is None:
            return
        run, batch = self._last
        self._last = None
        if view.is_waiting(batch[0]):
            run.work.room.end(run)
            run.work.running -= 1
            for invocation in batch:
                del self.runs[invocation.id]
                self.add(run.work, invocation, view)

    def decide(self, view: View) -> Iterator[Action]:
        """Start what can start, and warm what is worth it."""
        self.wake = inf
        full: set[Work] = set()
        held: set[Room] = set()
        while True:
            best: tuple[Rank, Queue] | None = None
            for work in list(self.active.values()):
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
            actions = [] if queue.work.room in held else self._next(view, queue.work, kind)
            if not actions or isinstance(actions[-1], Warm):
                full.add(queue.work)
            yield from actions

    def sweep(self, view: View) -> Iterator[Action]:
        """Give up those at the head of a queue who cannot be in time any more, though nothing can start."""
        now = view.now
        for work in list(self.active.values()):
            for queue in list(work.queues.values()):
                while queue.items and queue.items[0][0] < now + work.fastest_s:
                    invocation = queue.items[0][2]
                    if self._budget_s(invocation, now) >= work.fastest_s:
                        break
                    self._take(queue)
                    if not view.is_waiting(invocation):
                        self._left(invocation, view)
                    elif (refusal := self._drop(invocation.request, work.fastest_s)) is not None:
                        yield refusal

    def call(self, view: View, work: Work) -> Iterator[Action]:
        """Give the seats that are left in the next batch to those who stand by; refuse whom none will be left for."""
        ladder, now = work.main, view.now
        pace, seats, count = ladder.pace, work.seats, work.waiting
        for _, id, invocation in list(reversed(work.standby)):  # the least urgent has the best chance
            budget_s = self._budget_s(invocation, now)
            is_seated = count < seats and pace.mean_s(ladder.rung(count + 1)) <= budget_s
            is_waiting = view.is_waiting(invocation)
            if is_waiting and not is_seated and pace.mean_s(ladder.top) + work.fastest_s <= budget_s:
                continue  # the batch after this one may have a seat
            work.standby.remove((invocation.deadline, id, invocation))
            self.queued.discard(id)
            if not is_waiting:
                self._left(invocation, view)
            elif is_seated:
                count += 1
                self.open[invocation.request].book()
                self.add(work, invocation, view)
            elif (refusal := self._drop(invocation.request, pace.mean_s(ladder.top))) is not None:
                yield refusal
        if not work.standby and not work.queues:
            self.active.pop(work.name, None)

    def awaken(self, work: Work, view: View) -> Warm | None:
        """An instance of a function to start ahead of need, if there is room for one and none starts yet."""
        if not work.warms or work.starts_until > view.now:
            return None
        configuration = work.main.configurations[0]
        node = view.place(work.name, configuration)
        if node is None or view.is_warm(work.name, configuration, node):
            return None
        cold_s = work.cold_s.get(self._kind(view, node), 0.0)
        if cold_s <= _LEAST_COLD_S:
            return None
        work.starts_until = view.now + cold_s
        if not all(instance.is_ready for instance in view.instances(work.name)):
            return None  # one does, and takes longer than expected
        return Warm(work.name, configuration, node)

    # --- whose turn it is --------------------------------------------------------------------------------------

    def _rank(self, queue: Queue, now: float) -> Rank | None:
        """The least goes first; None says that it may not go yet."""
        work, room = queue.work, queue.work.room
        deadline, id, invocation = queue.items[0]
        turn = room.turn(queue.workflow)
        if not queue.is_urgent:
            if room.credit_s >= work.unit_s:
                return _OWED, turn, invocation.ready, id
            return None if self._is_gathering(queue, now) else (_BEST_EFFORT, turn, invocation.ready, id)
        if len(room.pending) > 1:
            need_s = len(room.pending) * len(queue.items) * work.unit_s + work.main.pace.upper_s(work.main.top)
            rest_s = self._flows[queue.workflow].by_name[invocation.stage].rest_s
            if deadline - now - rest_s > 3 * need_s:
                return _PATIENT, turn, deadline, id
        return _URGENT, turn, deadline, id

    def _is_gathering(self, queue: Queue, now: float) -> bool:
        """Whether those without a deadline had better wait: for company, or to go along with those who have one.

        A batch of few takes nearly as long as a full one, and whoever is urgent would have to wait for it.
        """
        work, ladder = queue.work, queue.work.main
        if not work.room.callers or ladder.top == 0:
            return False
        until = queue.items[0][2].ready + _GATHERING * ladder.pace.mean_s(ladder.top)
        if len(queue.items) >= work.seats or until <= now:
            return False
        self.wake = min(self.wake, until)
        return True

    def _is_starved(self, work: Work, now: float) -> bool:
        """Whether a function for which something waits has not been started for long, while others run."""
        if not work.room.runs or work.running or not work.queues:
            return False
        since: float = max(work.last_start, min(queue.items[0][2].ready for queue in work.queues.values()))
        return now - since > max(_STARVED_S, 10 * work.fastest_s)

    # --- the next batch ----------------------------------------------------------------------------------------

    def _next(self, view: View, work: Work, kind: int) -> list[Action]:
        """Whom to give up and the batch to start; without a batch it ends in a Warm, or in nothing, if none can be."""
        actions: list[Action] = []
        ways = self._ways(view, work)
        if not ways:
            return actions
        most = max(way.ladder.sizes[way.ladder.top] for way in ways)
        members: list[Member] = []
        while True:
            actions += self._gather(view, work, most, kind, members)
            if not members:
                return actions
            choice = choose(ways, members)
            if choice.way.cold_s > 0 and work.warms and choice.mean_s > members[-1].budget_s:
                self._put_back(members)  # nobody would be in time: let an instance start without them
                warm = self.awaken(work, view)
                return actions if warm is None else [*actions, warm]
            modest_s = [m.budget_s for m in members[: choice.size] if self.open[m.invocation.request].is_modest]
            if modest_s:
                choice = spared(choice, min(modest_s))
            late = [member for member in members[: choice.size] if member.budget_s < choice.mean_s]
            if not late:
                break
            if not work.waiting and (smaller := split(choice.way, members)) is not None:
                choice = smaller
                break
            for member in late:
                refusal = self._drop(member.invocation.request, choice.mean_s)
                if refusal is not None:
                    actions.append(refusal)
            members[:] = [member for member in members if member.invocation.request in self.open]
        if choice.way.cold_s > 0 and self._frees_sooner(work, len(members), choice.way.cold_s, view.now):
            self._put_back(members)
            return actions
        self._put_back(members[choice.size :])
        return [*actions, self._start(view, work, choice, members[: choice.size], kind)]

    def _ways(self, view: View, work: Work) -> list[Way]:
        found = []
        for ladder in work.ladders:
            configuration = ladder.configurations[0]
            node = view.place(work.name, configuration)
            if node is not None:
                kind = self._kind(view, node)
                cold_s = work.cold_s.get(kind, 0.0)
                if cold_s <= _LEAST_COLD_S or view.is_warm(work.name, configuration, node):
                    cold_s = 0.0
                if kind in ladder.paces:
                    found.append(Way(ladder, node, ladder.paces[kind], cold_s))
        return found

    def _gather(self, view: View, work: Work, most: int, kind: int, members: list[Member]) -> list[Action]:
        """Take up to so many of those whose turn it is; gives the refusals of those who cannot be in time any more.

        Those without a deadline go along where that makes nobody late.
        """
        now, queues, room = view.now, work.queues, work.room
        actions: list[Action] = []
        turns = {queue.workflow: room.turn(queue.workflow) for queue in queues.values()}
        while len(members) < most and queues:
            if len(queues) == 1:
                queue = next(iter(queues.values()))
            elif kind == _OWED:
                queue = min(queues.values(), key=lambda q: (q.is_urgent, turns[q.workflow], q.items[0][1]))
            else:
                queue = min(queues.values(), key=lambda q: (not q.is_urgent, turns[q.workflow], q.items[0][:2]))
            if kind == _OWED and queue.is_urgent:
                break
            if not queue.is_urgent and members:
                longest_s = work.main.pace.upper_s(min(work.main.rung(len(members) + 1), work.main.top))
                if longest_s > min(members)[0]:
                    break
            invocation = self._take(queue)
            if not view.is_waiting(invocation):
                self._left(invocation, view)
                continue
            if invocation.request not in self.open:  # given up a moment ago
                continue
            turns[queue.workflow] += work.unit_s
            budget_s = self._budget_s(invocation, now)
            if budget_s >= work.fastest_s:
                members.append(Member(budget_s, invocation.id, invocation, queue))
                continue
            refusal = self._drop(invocation.request, work.fastest_s)
            if refusal is not None:
                actions.append(refusal)
                members[:] = [member for member in members if member.invocation.request in self.open]
        members.sort()
        return actions

    def _frees_sooner(self, work: Work, count: int, cold_s: float, now: float) -> bool:
        """Whether enough warm instances are free before a cold one is ready."""
        if not work.running:
            return False
        soon = sum([run.end < now + cold_s for run in work.room.runs if run.work is work])
        return work.waiting + count <= soon * work.seats

    def _start(self, view: View, work: Work, choice: Choice, members: list[Member], kind: int) -> Start:
        (way, rung, _), now, room = choice, view.now, work.room
        run_s = way.pace.mean_s(rung)
        share = 1 / max(1, way.ladder.capacity)
        self._order += 1
        run = Run(work, way.pace, rung, now + choice.mean_s, run_s * (way.pace.spread - 1), share, self._order)
        room.begin(run)
        work.running += 1
        work.last_start = now
        work.instances += way.cold_s > 0
        cost_s = run_s * share
        for member in members:
            invocation = member.invocation
            self.runs[invocation.id] = run
            state = self.open[invocation.request]
            state.started(state.flow.by_name[invocation.stage])
            room.serve(invocation.workflow, cost_s / len(members))
        if members[0].queue.is_urgent:
            room.credit_s = min(room.credit_s + self._share * cost_s, 10 * cost_s)
        elif kind == _OWED:
            room.credit_s -= cost_s
        batch = tuple([member.invocation for member in members])
        self._last = run, batch
        return Start(batch, way.ladder.configurations[rung], way.node)

    # --- queues ------------------------------------------------------------------------------------------------

    def _take(self, queue: Queue) -> Invocation:
        invocation: Invocation = queue.items.pop(0)[2]
        self.queued.discard(invocation.id)
        if not queue.items:
            work = queue.work
            del work.queues[queue.key]
            if not work.queues and not work.standby:
                del self.active[work.name]
        return invocation

    def _put_back(self, members: list[Member]) -> None:
        for member in members:
            queue, work = member.queue, member.queue.work
            work.queues[queue.key] = queue
            self.active[work.name] = work
            queue.items.add((member.invocation.deadline, member.id, member.invocation))
            self.queued.add(member.id)

    def _left(self, invocation: Invocation, view: View) -> None:
        """One no longer waits: its client gave up, or another copy was first."""
        if not view.is_open(invocation.request):
            self.forget(invocation.request)

    def _budget_s(self, invocation: Invocation, now: float) -> float:
        """How long from now a batch may take for this one to be in time; infinity for those who go in any case."""
        state = self.open.get(invocation.request)
        if state is None:  # it was given up, and this is what is left of it
            return -inf
        if state.is_probe:
            return inf
        return invocation.deadline - now - self._margin_s - state.flow.by_name[invocation.stage].rest_s

    def _kind(self, view: View, node: str) -> str:
        if node not in self._kinds:  # it joined during the run
            self._kinds.update((node.name, node.kind) for node in view.nodes)
        return self._kinds[node]
