"""One policy for all workflows and clusters.

It unites what the papers contribute. Configurations are planned over the whole rest of a workflow under the time that
is left (ESG). A request is admitted by predicted finish, before any work is spent on it (UCB/EECS-2022-88, 4;
Clockwork). Runs go where their instance or weights are (KaaS). Instances are started before they are needed. What is
believed is corrected by what is observed, node by node (Darly). What is scarce has a price.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, isfinite

import numpy as np

from fairlead.model import Invocation, Record, Request
from fairlead.policy.base import Action, Plan, Policy, Reject, Site, Start, View, Wake
from fairlead.policy.fairlead.admission import Admission, Run
from fairlead.policy.fairlead.ground import Ground
from fairlead.policy.fairlead.growth import Growth
from fairlead.policy.fairlead.ingredients import check_ingredients
from fairlead.policy.fairlead.lines import Line, Waiting
from fairlead.policy.fairlead.menu import Menu, Supply
from fairlead.policy.fairlead.outlook import Flow, Outlook, Step, reply_s
from fairlead.policy.fairlead.reasons import Started, over_budget, too_expensive, too_late
from fairlead.policy.fairlead.roster import Roster
from fairlead.policy.fairlead.sizes import choose_sizes, holds_slices
from fairlead.policy.fairlead.warming import Warming

_MOST_WORTH = 1.3  # what finishing a request may cost under scarcity, in terms of a new one of its workflow
_NEARLY_ALL = 1.1  # planned load up to which nearly all requests can be answered
_MARGIN = 1.15  # what an answer is taken to be worth under scarcity, in costs of a new request

_Head = tuple[bool, float, float, tuple[str, str], int]  # of a line: in the order in which lines are served


@dataclass
class Fairlead(Policy):
    """Answer as many requests as possible in time, at the least cost, on whatever cluster there is.

    Args:
        without: Mechanisms to leave out, for experiments that show what each is worth. The experiment
            `fairlead-ablation` lists them.
    """

    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._without = check_ingredients(self.without)
        self._fills = "filling" not in self._without
        self._by_laxity = "laxity" not in self._without
        self._drops_by_value = "value" not in self._without
        self._overtakes = "overtaking" not in self._without
        self._passes_over = "passing-over" not in self._without
        self._learns_waits = "waits" not in self._without

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._supply = Supply(site.cluster)
        self._menus = {
            name: Menu(function, site.profiles[name], site.cluster, self._supply)
            for name, function in site.functions.items()
        }
        self._holds_slices = holds_slices(site)
        if "sizes" not in self._without:
            choose_sizes(site, self._menus, self._supply)
        self._outlook = Outlook(site, self._menus, self._supply, self._without)
        self._admission = Admission(self._outlook, self._without)
        self._roster = Roster()
        self._ground = Ground(site.cluster.nodes, self._supply, self._roster, self._without)
        self._warming = Warming(
            self._outlook, self._ground, self._roster, self._without, holds_slices=self._holds_slices
        )
        self._growth = Growth(site, self._outlook, self._warming)
        self._waiting = Waiting()
        self._lines = {
            (name, step.name): Line((name, step.name), step, self._waiting)
            for name, flow in self._outlook.flows.items()
            for step in flow.steps.values()
            if len(step.menu)
        }
        if "sharing" not in self._without:
            by_function: dict[str, list[Line]] = {}
            for line in self._lines.values():
                by_function.setdefault(line.menu.name, []).append(line)
            for lines in by_function.values():
                for line in lines:
                    line.join(lines)
        self._runs: dict[int, Run] = {}  # by invocation
        self._ready: Sequence[Invocation] = ()  # since the last decision
        self._bills_cold = site.cluster.price.bill_cold_start
        self._epoch = 0
        self._woken = -inf
        self._refreshed = 0.0
        self._sampled = -inf

    def reply_s(self, given_s: float) -> float:
        """What is kept of the time that a request is given, for its answer to leave.

        The live runtime, which measures how long that takes, takes what it takes longer off deadlines.
        """
        return reply_s(given_s)

    def decide(self, view: View) -> Iterator[Action]:
        now = view.now
        self._ground.look_again()
        self._follow(view)
        if self._growth.is_on:
            self._growth.follow(view)
        if self._outlook.refresh(view):
            self._admission.adapt(now - self._refreshed)
            self._refreshed = now
            self._epoch += 1
        elif self._outlook.learn_assumed(view):
            self._epoch += 1
        fresh = view.fresh
        if fresh:
            yield from self._admit(view, fresh)
        if self._ready:
            self._line_up(view)
        if self._waiting.number:
            yield from self._dispatch(view)
        if self._warming.is_asked(now):
            yield from self._warming.provide(view)
        if self._growth.is_on:
            yield from self._growth.adjust(view)
        yield from self._look_again(view)

    # --- what happened ---------------------------------------------------------------------------------------------

    def _follow(self, view: View) -> None:
        changes = view.changes
        if changes.ended or changes.started or changes.stopped or changes.nodes or view.freed:
            self._epoch += 1
        if changes.nodes:
            self._ground.follow(changes.nodes)
        if changes.started or changes.stopped:
            self._roster.follow(changes)
            self._warming.learn(changes.started)
        for record in changes.ended:
            self._ended(record)
        for closed in changes.closed:
            self._admission.close(closed.request.id, is_wasted=False)
        self._ready = changes.ready

    def _ended(self, record: Record) -> None:
        if record.outcome == "done":
            self._admission.done(record)
        run = self._runs.pop(record.invocation, None)
        if run is None or not run.is_open:
            return
        run.is_open = False
        self._admission.end(run)
        self._ground.use(run.node, max(0.0, self._ground.busy.get(run.node, 0.0) - run.part))
        if record.outcome == "done":
            took_s = record.end - record.start - record.cold_s - record.transfer_s
            run.menu.ended(took_s, record.batch_size, is_cold=record.cold_s > 0)
            self._ground.observe(run.node, run.menu, run.others, took_s / max(run.expected_s, 1e-9))

    def _step(self, invocation: Invocation) -> Step:
        return self._outlook.flows[invocation.workflow].steps[invocation.stage]

    # --- admission -------------------------------------------------------------------------------------------------

    def _admit(self, view: View, fresh: Sequence[Request]) -> Iterator[Action]:
        now = view.now
        soonest: dict[str, float | None] = {}  # by workflow
        for request in fresh:
            name = request.workflow
            flow = self._outlook.flows[name]
            if self._outlook.arrive(request, now):
                self._admission.sort_again(flow)
            start, joins = now, False
            if request.deadline < inf:
                if name not in soonest:
                    soonest[name] = self._free_at(view, flow)
                if (free := soonest[name]) is not None:
                    ahead_s, joins = self._ahead(flow, free, request.deadline - free)
                    start = free + ahead_s
            refusal = self._admission.admit(request, now, start, joins=joins)
            if refusal is not None:
                yield Reject(request.id, refusal.reason, refusal.retry_after_s)
            elif request.deadline < inf:
                finish = min(request.deadline, now + flow.planned_s)
                yield Plan(request.id, flow.tell()[1], finish, self._admission.notes(request.id))

    def _free_at(self, view: View, flow: Flow) -> float | None:
        """When the first stage of a new request can have a place at the earliest; None if there may be one now.

        The cluster is full, or the nodes that have room left have none for this function. The second counts while runs
        of a function with batches go on, and of no other workflow: requests may join the next batch, or be too late for
        it. Where others run, a place may come from any of them, and requests are judged by the window alone.
        """
        now, menu = view.now, flow.first[0].menu
        admission = self._admission
        is_closed = self._ground.is_full or (
            menu.most > 1
            and admission.soonest_of(menu.name) is not None
            and admission.is_alone(flow.workflow.name)
            and self._ground.is_closed_to(view, menu)
        )
        return max(now, admission.soonest(now)) if is_closed else None

    def _line_up(self, view: View) -> None:
        """Put what became ready into its lines, unless it was refused."""
        for invocation in self._ready:
            line = self._lines.get((invocation.workflow, invocation.stage))
            if line is not None and view.is_waiting(invocation):
                line.add(invocation, invocation.deadline - line.step.rest_s - line.step.reply_s)

    def _ahead(self, flow: Flow, start: float, left_s: float) -> tuple[float, bool]:
        """How long full batches take that are ahead of a new request in its first line, and if it joins one after them.

        Those that a full batch which starts at the instant `start` would answer too late take no place in it.
        """
        line = self._lines.get((flow.workflow.name, flow.first[0].name))
        if line is None or not line.size:
            return 0.0, False
        menu = line.menu
        options, _ = line.step.ranked(left_s, menu.most)
        option = options[0] if options else line.step.option
        batches, others = divmod(line.waiting - line.late_for(start + menu.uppers_s[option]), menu.most)
        return batches * menu.means_s[option] / self._ground.slots(menu, option), others > 0

    # --- dispatch --------------------------------------------------------------------------------------------------

    def _dispatch(self, view: View) -> Iterator[Action]:
        """Serve lines by laxity: by how long the first can still wait and then run as it is best run.

        Those whose batch can still fill come after all others, so that what is short serves full batches.
        """
        now = view.now
        is_sampled = now < self._sampled + self._outlook.period_s / 16
        if is_sampled and self._ground.is_full:
            return
        heads: list[_Head] = []
        for line in self._waiting.lines():
            if line.size:
                if not self._is_clean(view, line, now):
                    yield from self._clean(view, line)
                self._enlist(view, line, heads)
        while heads and not (is_sampled and self._ground.is_full):
            *_, name, head = heappop(heads)
            line = self._lines[name]
            has_started = not line.size or line.first().id != head  # it went with a batch of another line
            if not has_started:
                for action in self._serve(view, line):
                    has_started |= type(action) is Start
                    yield action
            if has_started and line.size:
                if not self._is_clean(view, line, now):
                    yield from self._clean(view, line)
                self._enlist(view, line, heads)

    def _enlist(self, view: View, line: Line, heads: list[_Head]) -> None:
        """Put a line among those to be served, unless nothing can be started for its first."""
        if line.size and not line.is_stuck(self._epoch) and not line.is_held(view.now):
            head = line.first()
            can_fill, laxity_s = self._urgency(view.now, line, head)
            if line.menu.function.buffers and not can_fill:
                can_fill = self._can_wait(view, line, head, laxity_s)
            heappush(heads, (can_fill, laxity_s, head.ready, line.name, head.id))

    def _urgency(self, now: float, line: Line, head: Invocation) -> tuple[bool, float]:
        """Whether a line can let others go first, since the plan has time for its batch to fill; and its laxity."""
        step, left_s = line.step, head.deadline - now
        if not self._by_laxity:
            return False, left_s
        waiting = line.waiting
        options, _ = step.ranked(left_s, waiting)
        can_fill = bool(options) and self._fills and waiting < step.planned_batch(left_s)
        if self._is_rescued(step) and left_s < inf and (limit := _MOST_WORTH * self._fresh_cost(step)) < inf:
            return can_fill, left_s - step.last_call_s(limit)  # how long until it would be dropped
        run_s = line.menu.uppers_s[options[0]] if options else line.menu.fastest_s
        return can_fill, line.first_key() - now - run_s

    def _can_wait(self, view: View, line: Line, head: Invocation, laxity_s: float) -> bool:
        """Whether a kernel would have to be loaded, and has time for one run of another that is loaded already."""
        menu, option = line.menu, line.step.option
        if not menu.cold_s + menu.uppers_s[option] < laxity_s < inf:
            return False
        left_s = head.deadline - view.now - line.step.rest_s
        return self._ground.find(view, menu, option, is_warm=True, evicts=True, left_s=left_s) is None

    def _is_rescued(self, step: Step) -> bool:
        """Whether a line comes before it would be dropped: while nearly all can be answered, or if it is starved."""
        outlook = self._outlook
        return outlook.is_short and (outlook.load < _NEARLY_ALL or self._admission.is_starved(step.workflow))

    def _is_clean(self, view: View, line: Line, now: float) -> bool:
        """Whether the first of a line still waits, and can be in time."""
        return line.first_key() - now >= line.menu.fastest_s - 1e-9 and view.is_waiting(line.first())

    def _clean(self, view: View, line: Line) -> Iterator[Action]:
        """Forget what left, and drop what cannot be in time any more."""
        now = view.now
        while line.size:
            head, key = line.first(), line.first_key()
            if not view.is_waiting(head):
                line.discard(head)
            elif key - now < line.menu.fastest_s - 1e-9:
                line.discard(head)
                least_s = line.menu.fastest_s + line.step.rest_s
                yield from self._drop(view, head, too_late(head.stage, least_s, head.deadline - now))
            else:
                return

    def _drop(self, view: View, invocation: Invocation, reason: str) -> Iterator[Action]:
        lacks_instance = self._warming.is_starting(invocation.function)
        self._admission.close(invocation.request, is_wasted=not lacks_instance)
        yield Reject(invocation.request, reason)

    def _serve(self, view: View, line: Line) -> Iterator[Action]:
        """Start the first in line, with as many after it as go with it; at most one batch."""
        menu, step, now = line.menu, line.step, view.now
        while line.size:
            head = line.first()
            if not view.is_waiting(head):
                line.discard(head)
                continue
            left_s = head.deadline - now
            if self._outlook.is_short and left_s < inf and self._costs_too_much(step, left_s):
                line.discard(head)
                cost, fresh = step.least_cost(left_s), self._fresh_cost(step)
                yield from self._drop(view, head, too_expensive(head.stage, cost, fresh, _MOST_WORTH, left_s))
                continue
            spend = self._spendable(view, head, step)
            if spend < inf and (least := self._least_usd(line, left_s)) > spend * (1 + 1e-9):
                line.discard(head)
                money = view.request(head.request).budget_usd, view.spent_usd(head.request)
                yield from self._drop(view, head, over_budget(head.stage, least, spend, *money))
                continue
            break
        else:
            return
        skipped, is_rushed = 0, False
        options, costs = step.ranked(left_s, line.waiting)
        if left_s < inf and line.size > 1 and self._outlook.is_scarce and len(menu.batches) > 1:
            skipped, options, costs = self._pass_over(line, step, now, options, costs)
        if not options and step.after and line.size > 1 and self._outlook.is_losing and self._passes_over:
            skipped, options, costs = self._pass_late(line, step, now)
            head = line.at(skipped)
        if not options:
            options, costs = _quickest(menu, left_s - step.rest_s)
            is_rushed = True
        if not options:
            line.stick(self._epoch)
            return
        until = self._fills_until(line, left_s, costs[0], now) if self._holds(line, left_s) and not skipped else now
        if until > now:
            line.hold(until)
            return
        if step.keeps and not self._admission.leaves_room(step, menu.held_by[options[0]]):
            line.stick(self._epoch, is_kept=True)
            return
        found = None
        if not self._ground.is_closed(menu, is_warm=menu.cold_s > 0, evicts=not self._holds_slices):
            found = self._find(view, line, options, head, spend)
            if found is None:
                found = yield from self._find_cold(view, line, options, line.first_key() - now, spend)
            if found is None and line.size > 1 and self._overtakes and self._outlook.is_scarce:
                overtaking = self._find_later(view, line)
                if overtaking is not None:
                    option, node, skipped = overtaking
                    yield from self._start(view, line, option, node, skipped, option, is_rushed=False)
                    return
        if found is None:
            if menu.cold_s > 0:
                self._warming.missed[menu.name] = options[0]
            self._note_full(view, menu, options[0])
            line.stick(self._epoch)
            return
        yield from self._start(view, line, options[found[0]], found[1], skipped, options[0], is_rushed=is_rushed)

    def _holds(self, line: Line, left_s: float) -> bool:
        """Whether a batch may wait for more: not where a resource is short and nothing else would use it meanwhile."""
        if not self._fills or left_s == inf:
            return False
        return not self._outlook.is_short or self._waiting.number > line.waiting

    def _fills_until(self, line: Line, left_s: float, cost: float, now: float) -> float:
        """Until when to wait for others, if a fuller batch is cheaper and still in time; else now.

        If none has come for twice the mean time between two, there may be none to wait for.
        """
        gap_s = 1 / max(self._outlook.rates[line.menu.name], 1e-9)
        most, waiting = line.newest + 2 * gap_s, line.waiting
        for size in line.menu.batches if most > now else ():
            wait_s = (size - waiting) * gap_s
            if 0 < wait_s < left_s:
                costs = line.step.ranked(left_s - wait_s, int(size))[1]
                if costs and costs[0] < cost:
                    return min(now + wait_s, most)
        return now

    def _note_full(self, view: View, menu: Menu, option: int) -> None:
        """If it is room that is missing, and not an instance: learn how much of the cluster can be in use at a time."""
        if "capacity" in self._without or self._holds_slices or view.now < self._sampled + self._outlook.period_s / 16:
            return  # what idle instances keep is room that can be made
        if self._ground.find(view, menu, option, is_warm=False, evicts=True, left_s=inf) is None:
            self._sampled = view.now
            runs, starts = self._admission.held, self._warming.held()
            self._supply.observe_full((runs[0] + starts[0], runs[1] + starts[1]), menu.held_by[option])

    def _fresh_cost(self, step: Step) -> float:
        """What a new request costs, per run of this stage if it is the first."""
        return self._outlook.flows[step.workflow].fresh_cost_at(step)

    def _costs_too_much(self, step: Step, left_s: float) -> bool:
        fresh = self._fresh_cost(step)
        return self._drops_by_value and isfinite(fresh) and step.least_cost(left_s) > _MOST_WORTH * fresh

    def _least_usd(self, line: Line, left_s: float) -> float:
        """What the cheapest option that is in time costs per member."""
        menu = line.menu
        options = line.step.ranked(left_s, line.waiting)[0] or _quickest(menu, left_s - line.step.rest_s)[0]
        return min((menu.usd_each[one] / min(menu.members[one], line.waiting) for one in options), default=inf)

    def _spendable(self, view: View, head: Invocation, step: Step) -> float:
        """What a run may cost per member for the request to stay within its budget."""
        if step.usd_limit == inf:
            return inf
        request = view.request(head.request)
        return max(request.budget_usd - view.spent_usd(head.request), 0.0) / max(step.visits, 1.0) - step.usd_after

    def _find(
        self, view: View, line: Line, options: list[int], head: Invocation, spend: float
    ) -> tuple[int, str] | None:
        """The first option for which there is a warm instance and room, and where."""
        menu, waiting, ground = line.menu, line.waiting, self._ground
        is_warm, evicts, spend = menu.cold_s > 0, not self._holds_slices, spend * (1 + 1e-9)
        failed: list[int] = []
        left_s = head.deadline - view.now - line.step.rest_s
        for rank, option in enumerate(options):
            size = menu.size_of[option]
            if size in failed or menu.usd_each[option] / min(menu.members[option], waiting) > spend:
                continue
            node = ground.find(view, menu, option, is_warm=is_warm, evicts=evicts, left_s=left_s, head=head)
            if node is not None:
                return rank, node
            failed.append(size)
        return None

    def _find_later(self, view: View, line: Line) -> tuple[int, str, int] | None:
        """What can be run now for others, while nothing can for the first in line: option, node, how many to pass over.

        The first can be so late that only the fastest configuration is in time. Those behind it have more choice.
        """
        step, now = line.step, view.now
        last = line.at(line.size - 1)
        options, _ = step.ranked(last.deadline - now, 1)
        found = self._find(view, line, options, last, inf)
        if found is None:
            return None
        option, node = options[found[0]], found[1]
        limit = _MOST_WORTH * self._fresh_cost(step) if self._outlook.is_short else inf
        low, high = 1, line.size - 1
        while low < high:  # the first for which this is good enough: those behind have more time
            middle = (low + high) // 2
            if step.cost_with(option, line.at(middle).deadline - now) <= limit:
                high = middle
            else:
                low = middle + 1
        member = line.at(low)
        is_affordable = line.menu.usd_each[option] <= self._spendable(view, member, step) * (1 + 1e-9)
        is_worth_it = step.cost_with(option, member.deadline - now) <= limit
        return (option, node, low) if is_affordable and is_worth_it else None

    def _find_cold(
        self, view: View, line: Line, options: list[int], left_s: float, spend: float
    ) -> Generator[Action, None, tuple[int, str] | None]:
        """The first option that is in time after a cold start, and where; idle instances worth less may have to go."""
        menu, waiting, first = line.menu, line.waiting, None
        left_after_s, ground = left_s - menu.cold_s, self._ground
        for rank, option in enumerate(options[:12]):
            if left_after_s < menu.uppers_s[option]:
                continue
            if spend < inf:
                usd = menu.usd_each[option] + (menu.cold_s * float(menu.usd_per_s[option]) if self._bills_cold else 0.0)
                if usd / min(menu.members[option], waiting) > spend * (1 + 1e-9):
                    continue
            node = ground.find(view, menu, option, is_warm=False, evicts=False, left_s=left_after_s, head=line.first())
            if node is not None:
                return rank, node
            first = rank if first is None else first
        if first is None or menu.cold_s <= 0:
            return None
        node = self._ground.find(view, menu, options[first], is_warm=False, evicts=True, left_s=left_s - menu.cold_s)
        by_worth = not self._holds_slices and not menu.function.buffers and "worth" not in self._without
        if node is not None and by_worth:
            late = self._warming.left_over(view, menu, options[first], waiting, left_s)
            node = yield from self._warming.make_way(
                view, menu, options[first], late, lambda name: self._ground.allows(menu, name)
            )
            self._ground.look_again()
        return None if node is None else (first, node)

    def _pass_over(
        self, line: Line, step: Step, now: float, options: list[int], costs: list[float]
    ) -> tuple[int, list[int], list[float]]:
        """Whether to pass over the most urgent, which would make batches small: how many, and the options then."""
        menu = line.menu
        worth = _MARGIN * self._outlook.flows[step.workflow].fresh_cost
        if not self._passes_over or not isfinite(worth) or line.first_key() - now >= menu.slowest_s:
            return 0, options, costs
        members = min(line.waiting, menu.most)
        best = max(
            (min(menu.members[one], members) * (worth - cost) for one, cost in zip(options[:8], costs, strict=False)),
            default=-inf,
        )
        loss = max(0.0, worth - step.least_cost(line.first().deadline - now))
        gains, skipped = step.gains(worth, np.array(line.keys(64)), now, line.size)
        gains = gains - skipped * loss
        option = int(gains.argmax())
        if gains[option] <= best:
            return 0, options, costs
        return int(skipped[option]), [option], [0.0]

    def _pass_late(self, line: Line, step: Step, now: float) -> tuple[int, list[int], list[float]]:
        """Pass over those at the front that are late by the plan, for the first that is not: how many, and its options.

        While requests are lost, what is rushed through this stage is mostly dropped in a later one.
        """
        low, high = 1, line.size
        while low < high:  # those behind have more time
            middle = (low + high) // 2
            if step.ranked(line.at(middle).deadline - now, 1)[0]:
                high = middle
            else:
                low = middle + 1
        if low == line.size:
            return 0, [], []
        return low, *step.ranked(line.at(low).deadline - now, line.waiting - low)

    def _start(
        self, view: View, line: Line, option: int, node: str, skipped: int, first: int, *, is_rushed: bool
    ) -> Iterator[Action]:
        menu, ground, now, waiting = line.menu, self._ground, view.now, line.waiting
        better = menu.told[first] if first != option else None
        configuration = menu.options[option][0]
        batch = line.take(view, configuration.batch, skipped, now + menu.uppers_s[option])
        if not batch:
            return
        if len(batch) < configuration.batch:
            option = menu.smallest_for(option, len(batch))
            configuration = menu.options[option][0]
        yield Start(tuple(batch), configuration, node)  # before the books, which the instance need not wait for
        part, others = ground.part(node, menu, option), ground.busy.get(node, 0.0)
        ground.use(node, others + part)
        expected_s, end, head = menu.means_s[option], now + menu.uppers_s[option], batch[0]
        run = Run(menu, node, part, others, expected_s, menu.held_by[option], end, head.deadline, line.step)
        self._admission.begin(run)
        (cpu, gpu), members, number = menu.uses[option], menu.members[option], len(batch)
        cost = self._step(head).run_cost_of(option) / number
        requests = [invocation.request for invocation in batch]
        self._admission.started(requests, cost, (cpu * members / number, gpu * members / number))
        held_until = min(line.held_until, now)
        for invocation in batch:
            self._runs[invocation.id] = run
            if self._learns_waits:
                since = max(invocation.ready, held_until)  # what was held back did not wait for a place
                waited_s = min(now - since, 0.25 * self._step(invocation).slo_s)
                menu.wait_s += 0.02 * (waited_s - menu.wait_s)
        menu.started(option)
        if not self._admission.is_noted(requests):
            return
        told, kind = menu.told[option]
        note = Started(
            menu.name,
            told,
            kind,
            expected_s,
            head.deadline - now,
            waiting,
            others,
            ground.pace.get(node, 1.0),
            self._outlook.told_prices,
            better,
            is_rushed,
            skipped,
            ground.slowest(kind, node),
            line.was_kept_waiting(head),
        )
        self._admission.note(requests, note)

    # --- when to look again ----------------------------------------------------------------------------------------

    def _look_again(self, view: View) -> Iterator[Action]:
        """Ask to be called when the first in a line becomes hopeless, or an instance is expected to be ready."""
        now, at = view.now, self._warming.wake
        if self._growth.is_on:  # also while nothing arrives
            at = min(at, max(self._outlook.due, now + 1e-4))
        for line in self._waiting.lines():
            if line.size and (key := line.first_key()) < inf:
                at = min(at, max(key - line.menu.fastest_s + 1e-6, now + 1e-4))
                if line.held_until > now:
                    at = min(at, line.held_until)
        if now < at < inf and not now < self._woken <= at:
            self._woken = at
            yield Wake(float(at))


def _quickest(menu: Menu, left_s: float) -> tuple[list[int], list[float]]:
    """The options that are in time by their mean, though not by a safe time."""
    able = np.flatnonzero(menu.mean_s <= max(left_s, 1.05 * menu.fastest_s))
    order = able[np.argsort(menu.mean_s[able], kind="stable")][:4]
    return order.tolist(), menu.mean_s[order].tolist()
