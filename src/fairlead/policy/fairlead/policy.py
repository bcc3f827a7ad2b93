"""One policy for all workflows and clusters.

It unites what the papers contribute. Configurations are planned over the whole rest of a workflow under the time that
is left (ESG). A request is admitted by predicted finish, before any work is spent on it (UCB/EECS-2022-88, 4;
Clockwork). Runs go where their instance or weights are (KaaS). Instances are started before they are needed. What is
believed is corrected by what is observed, node by node (Darly). What is scarce has a price.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

import numpy as np

from fairlead.model import Invocation, Record
from fairlead.policy.base import Action, Plan, Policy, Reject, Site, Start, View, Wake
from fairlead.policy.fairlead.admission import Admission, Run
from fairlead.policy.fairlead.ground import Ground
from fairlead.policy.fairlead.growth import Growth
from fairlead.policy.fairlead.lines import Line
from fairlead.policy.fairlead.menu import Menu, Supply
from fairlead.policy.fairlead.outlook import Outlook, Step
from fairlead.policy.fairlead.sizes import choose_sizes, holds_slices
from fairlead.policy.fairlead.warming import Warming

_MOST_WORTH = 1.3  # what finishing a request may cost under scarcity, in terms of a new one of its workflow
_MARGIN = 1.15  # what an answer is taken to be worth under scarcity, in costs of a new request


@dataclass
class Fairlead(Policy):
    """Answer as many requests as possible in time, at the least cost, on whatever cluster there is."""

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._supply = Supply(site.cluster)
        self._menus = {
            name: Menu(function, site.profiles[name], site.cluster, self._supply)
            for name, function in site.functions.items()
        }
        self._holds_slices = holds_slices(site)
        choose_sizes(site, self._menus, self._supply)
        self._outlook = Outlook(site, self._menus, self._supply)
        self._admission = Admission(self._outlook)
        self._ground = Ground(site.cluster.nodes, self._supply)
        self._warming = Warming(self._outlook, holds_slices=self._holds_slices)
        self._growth = Growth(site, self._outlook, self._warming)
        self._lines = {
            (name, step.name): Line(step)
            for name, flow in self._outlook.flows.items()
            for step in flow.steps.values()
            if len(step.menu)
        }
        for line in self._lines.values():
            line.siblings = [one for one in self._lines.values() if one.menu is line.menu and one is not line]
        self._runs: dict[int, Run] = {}  # by invocation
        self._bills_cold = site.cluster.price.bill_cold_start
        self._epoch = 0
        self._woken = -inf
        self._refreshed = 0.0
        self._sampled = -inf

    def decide(self, view: View) -> Iterator[Action]:
        self._follow(view)
        if self._growth.is_on:
            self._growth.follow(view)
        if self._outlook.refresh(view):
            self._admission.adapt(view.now - self._refreshed)
            self._refreshed = view.now
            self._epoch += 1
        yield from self._admit(view)
        yield from self._dispatch(view)
        yield from self._warming.provide(view)
        if self._growth.is_on:
            yield from self._growth.adjust(view)
        yield from self._look_again(view)

    # --- what happened ---------------------------------------------------------------------------------------------

    def _follow(self, view: View) -> None:
        changes = view.changes
        if changes.ended or changes.started or changes.stopped or changes.nodes:
            self._epoch += 1
        if changes.nodes:
            self._ground.follow(changes.nodes)
        for record in changes.ended:
            self._ended(record)
        for closed in changes.closed:
            self._admission.close(closed.request.id, is_wasted=False)
        for invocation in changes.ready:
            line = self._lines.get((invocation.workflow, invocation.stage))
            if line is not None and view.is_waiting(invocation):
                line.add(invocation, invocation.deadline - line.step.rest_s)

    def _ended(self, record: Record) -> None:
        if record.outcome == "done":
            self._admission.done(record)
        run = self._runs.pop(record.invocation, None)
        if run is None or not run.is_open:
            return
        run.is_open = False
        self._admission.held = self._admission.held - run.held
        self._admission.running.discard(run)
        self._ground.busy[run.node] = max(0.0, self._ground.busy.get(run.node, 0.0) - run.part)
        if record.outcome == "done":
            took_s = record.end - record.start - record.cold_s - record.transfer_s
            run.menu.ended(took_s, record.batch_size)
            self._ground.observe(run.node, run.menu, run.others, took_s / max(run.expected_s, 1e-9))

    def _step(self, invocation: Invocation) -> Step:
        return self._outlook.flows[invocation.workflow].steps[invocation.stage]

    # --- admission -------------------------------------------------------------------------------------------------

    def _admit(self, view: View) -> Iterator[Action]:
        for request in view.fresh:
            self._outlook.flows[request.workflow].arrived += 1
            refusal = self._admission.admit(request, view.now)
            if refusal is not None:
                yield Reject(request.id, refusal.reason, refusal.retry_after_s)
            elif request.deadline < inf:
                flow = self._outlook.flows[request.workflow]
                yield Plan(request.id, flow.plan, min(request.deadline, view.now + flow.planned_s))

    # --- dispatch --------------------------------------------------------------------------------------------------

    def _dispatch(self, view: View) -> Iterator[Action]:
        """Serve lines by laxity: by how long the first can still wait and then run as it is best run."""
        heads: list[tuple[float, float, tuple[str, str], int]] = []
        for name in self._lines:
            yield from self._enlist(view, name, heads)
        while heads:
            _, _, name, head = heappop(heads)
            line = self._lines[name]
            if not line or line.first().id != head:  # it went with a batch of another line
                yield from self._enlist(view, name, heads)
                continue
            has_started = False
            for action in self._serve(view, line):
                has_started |= isinstance(action, Start)
                yield action
            if has_started:
                yield from self._enlist(view, name, heads)

    def _enlist(
        self, view: View, name: tuple[str, str], heads: list[tuple[float, float, tuple[str, str], int]]
    ) -> Iterator[Action]:
        """Put a line among those to be served, unless nothing can be started for its first."""
        line = self._lines[name]
        if line:
            yield from self._clean(view, line)
            if line and not line.is_stuck(self._epoch):
                head = line.first()
                heappush(heads, (self._laxity_s(view, line), head.ready, name, head.id))

    def _laxity_s(self, view: View, line: Line) -> float:
        options, _ = line.step.ranked(line.first().deadline - view.now, line.waiting)
        run_s = line.menu.upper_s[options[0]] if options else line.menu.fastest_s
        return line.first_key() - view.now - float(run_s)

    def _clean(self, view: View, line: Line) -> Iterator[Action]:
        """Forget what left, and drop what cannot be in time any more."""
        now = view.now
        while line:
            head, key = line.first(), line.first_key()
            if not view.is_waiting(head):
                line.discard(head)
            elif key - now < line.menu.fastest_s - 1e-9:
                line.discard(head)
                yield from self._drop(view, head, "it can no longer be answered in time")
            else:
                return

    def _drop(self, view: View, invocation: Invocation, reason: str) -> Iterator[Action]:
        lacks_instance = self._warming.is_starting(invocation.function, view.now)
        self._admission.close(invocation.request, is_wasted=not lacks_instance)
        yield Reject(invocation.request, reason)

    def _serve(self, view: View, line: Line) -> Iterator[Action]:
        """Start the first in line, with as many after it as go with it; at most one batch."""
        menu, step, now = line.menu, line.step, view.now
        while line:
            head = line.first()
            if not view.is_waiting(head):
                line.discard(head)
                continue
            left_s = head.deadline - now
            if self._outlook.is_scarce and left_s < inf and self._costs_too_much(step, left_s):
                line.discard(head)
                yield from self._drop(view, head, "finishing it would take what several new requests need")
                continue
            spend = self._spendable(view, head, step)
            if spend < inf and not self._is_affordable(line, head, left_s, spend):
                line.discard(head)
                yield from self._drop(view, head, "it can no longer be answered within its budget")
                continue
            break
        else:
            return
        skipped = 0
        options, costs = step.ranked(left_s, line.waiting)
        if len(line) > 1 and self._outlook.is_scarce and len(menu.batches) > 1:
            skipped, options, costs = self._pass_over(line, step, now, options, costs)
        if not options:
            options, costs = _quickest(menu, left_s - step.rest_s)
        if not options:
            line.stick(self._epoch)
            return
        if step.kept.any() and not self._admission.leaves_room(step, menu.holding[options[0]]):
            line.stick(self._epoch)
            return
        found = self._find(view, line, options, head, spend)
        if found is None:
            found = yield from self._find_cold(view, line, options, line.first_key() - now, spend)
        if found is None:
            if menu.cold_s > 0:
                self._warming.missed[menu.name] = options[0]
            self._note_full(view, menu, options[0])
            line.stick(self._epoch)
            return
        yield from self._start(view, line, options[found[0]], found[1], skipped)

    def _note_full(self, view: View, menu: Menu, option: int) -> None:
        """If it is room that is missing, and not an instance: learn how much of the cluster can be in use at a time."""
        if self._holds_slices or view.now < self._sampled + self._outlook.period_s / 16:
            return  # what idle instances keep is room that can be made
        if self._ground.find(view, menu, option, is_warm=False, evicts=True, left_s=inf) is None:
            self._sampled = view.now
            self._supply.observe_full(self._admission.held + self._warming.held(view.now), menu.holding[option])

    def _costs_too_much(self, step: Step, left_s: float) -> bool:
        flow = self._outlook.flows[step.workflow]
        fresh = (
            flow.fresh_cost / max(sum(one.visits for one in flow.first), 1e-12) if step.is_first else flow.fresh_cost
        )
        return bool(np.isfinite(fresh)) and step.least_cost(left_s) > _MOST_WORTH * fresh

    def _is_affordable(self, line: Line, head: Invocation, left_s: float, spend: float) -> bool:
        """Whether an option that is in time costs no more than this per member."""
        menu = line.menu
        options = line.step.ranked(left_s, line.waiting)[0] or _quickest(menu, left_s - line.step.rest_s)[0]
        return any(menu.usd[one] / min(menu.batch[one], line.waiting) <= spend * (1 + 1e-9) for one in options)

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
        failed: set[tuple[float, float, str]] = set()
        menu, waiting = line.menu, line.waiting
        left_s = head.deadline - view.now - line.step.rest_s
        for rank, option in enumerate(options):
            configuration, kind = menu.options[option]
            key = (configuration.vcpus, configuration.vgpus, kind)
            if key in failed or menu.usd[option] / min(menu.batch[option], waiting) > spend * (1 + 1e-9):
                continue
            is_warm = menu.cold_s > 0
            node = self._ground.find(view, menu, option, is_warm=is_warm, evicts=not self._holds_slices, left_s=left_s)
            if node is not None:
                return rank, node
            failed.add(key)
        return None

    def _find_cold(
        self, view: View, line: Line, options: list[int], left_s: float, spend: float
    ) -> Generator[Action, None, tuple[int, str] | None]:
        """The first option that is in time after a cold start, and where; idle instances worth less may have to go."""
        menu, waiting, first = line.menu, line.waiting, None
        for rank, option in enumerate(options[:12]):
            usd = menu.usd[option] + (menu.cold_s * menu.usd_per_s[option] if self._bills_cold else 0.0)
            is_affordable = usd / min(menu.batch[option], waiting) <= spend * (1 + 1e-9)
            if left_s - menu.cold_s < menu.upper_s[option] or not is_affordable:
                continue
            node = self._ground.find(view, menu, option, is_warm=False, evicts=False, left_s=left_s - menu.cold_s)
            if node is not None:
                return rank, node
            first = rank if first is None else first
        if first is None or menu.cold_s <= 0:
            return None
        node = self._ground.find(view, menu, options[first], is_warm=False, evicts=True, left_s=left_s - menu.cold_s)
        if node is not None and not self._holds_slices and not menu.function.buffers:
            node = yield from self._warming.make_way(
                view, menu, options[first], waiting, lambda name: self._ground.allows(menu, name)
            )
        return None if node is None else (first, node)

    def _pass_over(
        self, line: Line, step: Step, now: float, options: list[int], costs: list[float]
    ) -> tuple[int, list[int], list[float]]:
        """Whether to pass over the most urgent, which would make batches small: how many, and the options then."""
        menu = line.menu
        keys = line.keys(64)
        worth = _MARGIN * self._outlook.flows[step.workflow].fresh_cost
        if not np.isfinite(worth):
            return 0, options, costs
        members = min(line.waiting, int(menu.batches[-1]))
        best = max(
            (
                min(float(menu.batch[one]), members) * (worth - cost)
                for one, cost in zip(options[:8], costs, strict=False)
            ),
            default=-inf,
        )
        loss = max(0.0, worth - step.least_cost(line.first().deadline - now))
        gains, skipped = step.gains(worth, np.array(keys), now, len(line))
        gains = gains - skipped * loss
        option = int(gains.argmax())
        if gains[option] <= best:
            return 0, options, costs
        return int(skipped[option]), [option], [0.0]

    def _start(self, view: View, line: Line, option: int, node: str, skipped: int) -> Iterator[Action]:
        menu, now = line.menu, view.now
        configuration = menu.options[option][0]
        batch = line.take(view, configuration.batch, skipped, now + float(menu.upper_s[option]))
        if not batch:
            return
        if len(batch) < configuration.batch:
            option = menu.smallest_for(option, len(batch))
            configuration = menu.options[option][0]
        part, others = self._ground.part(node, menu, option), self._ground.busy.get(node, 0.0)
        self._ground.busy[node] = others + part
        expected_s = float(menu.mean_s[option])
        run = Run(
            menu, node, part, others, expected_s, menu.holding[option], now + expected_s, batch[0].deadline, line.step
        )
        self._admission.running.add(run)
        self._admission.held = self._admission.held + run.held
        cost = float(self._step(batch[0]).run_cost[option]) / len(batch)
        used = menu.use[option] * menu.batch[option] / len(batch)
        for invocation in batch:
            self._runs[invocation.id] = run
            self._admission.started(invocation.request, cost, used)
            waited_s = min(now - invocation.ready, 0.25 * self._step(invocation).slo_s)
            menu.wait_s += 0.02 * (waited_s - menu.wait_s)
        menu.started(option)
        yield Start(tuple(batch), configuration, node)

    # --- when to look again ----------------------------------------------------------------------------------------

    def _look_again(self, view: View) -> Iterator[Action]:
        """Ask to be called when the first in a line becomes hopeless, or an instance is expected to be ready."""
        now, at = view.now, self._warming.wake
        if self._growth.is_on:  # also while nothing arrives
            at = min(at, max(self._outlook.due, now + 1e-4))
        for line in self._lines.values():
            if line and line.first_key() < inf:
                at = min(at, max(line.first_key() - line.menu.fastest_s + 1e-6, now + 1e-4))
        if now < at < inf and not now < self._woken <= at:
            self._woken = at
            yield Wake(at)


def _quickest(menu: Menu, left_s: float) -> tuple[list[int], list[float]]:
    """The options that are in time by their mean, though not by a safe time."""
    able = np.flatnonzero(menu.mean_s <= max(left_s, 1.05 * menu.fastest_s))
    order = able[np.argsort(menu.mean_s[able], kind="stable")][:4]
    return order.tolist(), menu.mean_s[order].tolist()
