"""Admission by predicted finish: what is admitted is due, and must fit into what the cluster can do until then."""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from fairlead.model import Record, Request
from fairlead.policy.fairlead.menu import Menu, Pair
from fairlead.policy.fairlead.outlook import FLOOR, Flow, Outlook, Step
from fairlead.policy.fairlead.reasons import Admitted, Started, beyond_share, no_room, too_busy

_BINS = 16  # per objective: how finely admitted work is told apart by its deadline
_LEAST_WINDOW, _MOST_WINDOW = 0.1, 2.0
_LOSING = 0.02  # share of requests that is dropped from which on batches are filled at the cost of the most urgent
_WASTE = 0.05  # share of the work that may be wasted on requests that are given up
_COSTLY = 0.12  # what a request that has to wait may cost more than one that starts at once, over the load
_CALM = 0.7  # use of a resource up to which no request is refused for the sake of others
_FULL = 0.6  # use of a resource from which on waste is taken for a lack of room


class Refusal(NamedTuple):
    """Why a request is not admitted, and after how many seconds another one might be."""

    reason: str
    retry_after_s: float | None = None


@dataclass(eq=False, slots=True)
class Run:
    """A batch that runs: what was expected of it, what it takes, and the first deadline that it serves."""

    menu: Menu
    node: str
    part: float
    others: float
    expected_s: float
    held: Pair
    end: float
    deadline: float
    step: Step
    is_open: bool = True


_Ends = list[tuple[float, int, Run]]  # of runs, a heap; those that are over leave when they are first


def _forget_ended(ends: _Ends) -> None:
    while ends and not ends[0][2].is_open:
        heappop(ends)


class _Open:
    """An admitted request: the planned use that is still ahead, and where it is counted."""

    __slots__ = ("bin", "deadline", "flow", "left", "notes", "spent")

    def __init__(self, flow: Flow, deadline: float, left: Pair) -> None:
        self.flow, self.deadline, self.left, self.spent = flow, deadline, left, 0.0
        self.bin = _bin(flow, deadline)
        self.notes: list[Admitted | Started] = []


class _Bin:
    """Work of one workflow that is due at about the same time, and of how many requests."""

    __slots__ = ("cpu", "gpu", "requests")

    def __init__(self) -> None:
        self.cpu = self.gpu = 0.0
        self.requests = 0


def _bin(flow: Flow, deadline: float) -> int:
    return int(deadline / flow.slo_s * _BINS)


def _exceeds(total: float, need: float, room: float) -> bool:
    """Whether what is needed of a resource is beyond the room, if any is needed."""
    return need > 0 and total + need > room


class Admission:
    """Keeps account of the work that is promised, by workflow and deadline, and of work that was wasted."""

    def __init__(self, outlook: Outlook, without: frozenset[str] = frozenset()) -> None:
        self._outlook = outlook
        self._without = without
        self._ends: _Ends = []
        self._ends_of: dict[str, _Ends] = {}  # by function
        self._begun = 0
        self.held: Pair = (0.0, 0.0)  # by runs
        self._held_by: dict[str, Pair] = dict.fromkeys(outlook.flows, (0.0, 0.0))
        self._open: dict[int, _Open] = {}
        self._tokens: dict[str, tuple[float, float]] = {}  # by workflow: when they were counted, and how many
        self._work: dict[str, dict[int, _Bin]] = {name: {} for name in outlook.flows}
        self._total: Pair = (0.0, 0.0)
        self.window = 1.0  # share of what the cluster can do until a deadline that may be promised
        self._wasted = self._worked = 0.0
        self._closed = self._dropped = 0.0  # requests, with exponential forgetting
        self._used: Pair = (0.0, 0.0)
        self._looked: tuple[Pair, Pair, float | None] = (self._total, self._total, None)  # for `notes`
        self._has_window = "window" not in without

    def admit(self, request: Request, now: float, start: float, *, joins: bool = False) -> Refusal | None:
        """Count a request as promised, or say why that cannot be.

        Args:
            request: The request.
            now: The instant.
            start: When a run can be started at the earliest.
            joins: Whether its first stage has a batch to run anyway with a place for it. It needs nothing more there.
        """
        flow = self._outlook.flows[request.workflow]
        if not flow.can_run:
            return Refusal("no node can run all of its functions")
        left_s = request.deadline - now
        if left_s < flow.fastest_s:
            takes, due = f"it takes at least {flow.fastest_s:.3g} s", f"it is due in {left_s:.3g} s"
            return Refusal(f"it cannot be answered in time: {takes}, and {due}")
        refusal = self._refusal(request, flow, left_s, now, start, joins) if left_s < inf else None
        if refusal is None and left_s < inf:  # work without a deadline goes last, so it is in the way of nothing
            found = self._open[request.id] = _Open(flow, request.deadline, flow.need)
            self._add(flow, found.bin, *flow.need, 1)
        return refusal

    def _refusal(
        self, request: Request, flow: Flow, left_s: float, now: float, start: float, joins: bool
    ) -> Refusal | None:
        is_pressed = start > now and self._outlook.is_short and flow.share == 1 and "busy" not in self._without
        if is_pressed and flow.is_costly(left_s - (start - now), 1 + _COSTLY / max(self._outlook.load, 1e-9)):
            return Refusal(too_busy(start - now), start - now)
        need, supply = flow.need_after if joins else flow.need, self._outlook.supply
        part, usable = min(1.0, self.window * flow.backlog), supply.usable_pair
        room = (part * usable[0] * left_s, part * usable[1] * left_s)
        total = self._total
        self._looked = total, room, None
        if self._has_window and (_exceeds(total[0], need[0], room[0]) or _exceeds(total[1], need[1], room[1])):
            before = self._ahead(request.deadline)
            self._looked = before, room, None
            if any(before):
                ahead = (before[0] + need[0], before[1] + need[1])
                over = self._over(flow, ahead, room)
                self._looked = before, room, over
                if over > 1:
                    matters = [one > 0 for one in need]
                    reason = no_room(over, ahead, room, matters, left_s, is_either=flow.is_flexible)
                    return Refusal(reason, min((over - 1) * left_s, 60.0))
        if flow.share < 1 and any(need[i] > 0 and self.held[i] > _CALM * usable[i] for i in (0, 1)):
            return self._beyond_share(flow, now)
        return None

    def _over(self, flow: Flow, ahead: Pair, room: Pair) -> float:
        """What is ahead as a share of the room, of the resource of which it takes most."""
        if flow.is_flexible:  # where one resource is short, the other can do its work
            prices = self._outlook.supply.usd_per_s * self._outlook.prices
            return float(prices @ np.array(ahead)) / max(float(prices @ np.array(room)), 1e-12)
        return max([ahead[i] / max(room[i], 1e-12) for i in (0, 1) if flow.need[i] > 0])

    def _beyond_share(self, flow: Flow, now: float) -> Refusal | None:
        """In an overload that others share, a workflow gets no more requests per second than its share of what fits."""
        per_s = flow.share * flow.rate
        name = flow.workflow.name
        since, tokens = self._tokens.get(name, (now, 1.0))
        tokens = min(tokens + (now - since) * per_s, 1.0 + 0.5 * per_s * flow.slo_s)
        if tokens < 1:
            self._tokens[name] = now, tokens
            return Refusal(beyond_share(per_s, flow.rate), (1 - tokens) / max(per_s, 1e-9))
        self._tokens[name] = now, tokens - 1
        return None

    def notes(self, request: int) -> list[Admitted | Started]:
        """Why a request that was just admitted was; what is noted on it later is added to this list."""
        found = self._open[request]
        ahead, room, share = self._looked
        flow, prices = found.flow, self._outlook.told_prices
        found.notes.append(
            Admitted(flow.planned_s, [*ahead], [*found.left], [*room], prices, flow.tell()[0], share, flow.is_flexible)
        )
        return found.notes

    def begin(self, run: Run) -> None:
        """Count what a run takes from now on."""
        self._begun += 1
        for ends in (self._ends, self._ends_of.setdefault(run.menu.name, [])):
            _forget_ended(ends)
            heappush(ends, (run.end, self._begun, run))
        self._hold(run.step.workflow, *run.held)

    def end(self, run: Run) -> None:
        """A run has given back what it took."""
        cpu, gpu = run.held
        self._hold(run.step.workflow, -cpu, -gpu)

    def soonest(self, now: float) -> float:
        """When the first of the runs is expected to end; `now` if there is none."""
        ends = self._ends
        _forget_ended(ends)
        return ends[0][0] if ends else now

    def soonest_of(self, function: str) -> float | None:
        """When the first of the runs of a function is expected to end; None if there is none."""
        ends = self._ends_of.get(function)
        if ends:
            _forget_ended(ends)
        return ends[0][0] if ends else None

    def _hold(self, workflow: str, cpu: float, gpu: float) -> None:
        held, own = self.held, self._held_by[workflow]
        self.held = held[0] + cpu, held[1] + gpu
        self._held_by[workflow] = own[0] + cpu, own[1] + gpu

    def is_alone(self, workflow: str) -> bool:
        """Whether no other workflow has runs."""
        own = self._held_by[workflow]
        return all(abs(self.held[i] - own[i]) < 1e-9 for i in (0, 1))

    def leaves_room(self, step: Step, needed: Pair) -> bool:
        """Whether a run of this stage leaves what is kept for requests that cannot wait until it ends.

        Their own runs use what is kept. At least one run of other workflows is allowed at a time.
        """
        cpu, gpu = self.held
        for workflow in step.kept_for:
            own = self._held_by[workflow]
            cpu, gpu = cpu - own[0], gpu - own[1]
        held = [one if one >= 1e-9 else 0.0 for one in (cpu, gpu)]
        usable, kept = self._outlook.supply.usable_pair, step.kept
        is_over = [needed[i] > 0 and held[i] + 0.5 * needed[i] > usable[i] - kept[i] for i in (0, 1)]
        return not any(held) or not any(is_over)

    def _ahead(self, deadline: float) -> Pair:
        """Promised work that is due before this instant."""
        cpu = gpu = 0.0
        for name, bins in self._work.items():
            last = _bin(self._outlook.flows[name], deadline)
            for at, bin in bins.items():
                if at <= last:
                    cpu, gpu = cpu + bin.cpu, gpu + bin.gpu
        return cpu, gpu

    def _add(self, flow: Flow, at: int, cpu: float, gpu: float, requests: int = 0) -> None:
        bins = self._work[flow.workflow.name]
        bin = bins.get(at)
        if bin is None:
            bin = bins[at] = _Bin()
        bin.cpu += cpu
        bin.gpu += gpu
        bin.requests += requests
        if not bin.requests:
            del bins[at]
        total = self._total
        self._total = max(0.0, total[0] + cpu), max(0.0, total[1] + gpu)

    def sort_again(self, flow: Flow) -> None:
        """Count what is open of a workflow anew: its requests have other deadlines than before."""
        bins: dict[int, _Bin] = {}
        for found in self._open.values():
            if found.flow is flow:
                found.bin = _bin(flow, found.deadline)
                bin = bins.setdefault(found.bin, _Bin())
                bin.cpu += found.left[0]
                bin.gpu += found.left[1]
                bin.requests += 1
        self._work[flow.workflow.name] = bins

    def is_noted(self, requests: Iterable[int]) -> bool:
        """Whether any of these requests was admitted with a deadline, so that what becomes of it is kept."""
        return not self._open.keys().isdisjoint(requests)

    def note(self, requests: Iterable[int], note: Started) -> None:
        """Keep why a run of admitted requests was started as it was."""
        for request in requests:
            found = self._open.get(request)
            if found is not None:
                found.notes.append(note)

    def started(self, requests: Iterable[int], cost: float, used: Pair) -> None:
        """Note work that is spent on each of these requests."""
        cpu, gpu = self._used
        for request in requests:
            found = self._open.get(request)
            if found is not None:
                found.spent += cost
            self._worked += cost
            cpu, gpu = cpu + used[0], gpu + used[1]
        self._used = cpu, gpu

    def done(self, record: Record) -> None:
        """Take one finished run off what is ahead of its request."""
        found = self._open.get(record.request)
        if found is not None:
            step = found.flow.steps[record.stage]
            use, before = step.menu.uses[step.option], found.left
            left = found.left = max(0.0, before[0] - use[0]), max(0.0, before[1] - use[1])
            self._add(found.flow, found.bin, left[0] - before[0], left[1] - before[1])

    def close(self, request: int, *, is_wasted: bool) -> None:
        """Forget a request; what was spent on one that was given up was wasted."""
        found = self._open.pop(request, None)
        if found is not None:
            self._add(found.flow, found.bin, -found.left[0], -found.left[1], -1)
            self._closed = 0.99 * self._closed + 1
            self._dropped = 0.99 * self._dropped + is_wasted
            self._outlook.is_losing = self._dropped > _LOSING * self._closed
            found.flow.closed = 0.99 * found.flow.closed + 1
            found.flow.dropped = 0.99 * found.flow.dropped + is_wasted
            if is_wasted:
                self._wasted += found.spent

    def is_starved(self, workflow: str) -> bool:
        """Whether fewer of its admitted requests are answered than the floor, a share of what all workflows get."""
        flow = self._outlook.flows[workflow]
        return (flow.closed - flow.dropped) * self._closed < FLOOR * (self._closed - self._dropped) * flow.closed

    def adapt(self, passed_s: float) -> None:
        """Admit fewer requests while work is wasted in a full cluster, and more again when it is not."""
        shares = [
            used / (amount * max(passed_s, 1e-9))
            for used, amount in zip(self._used, self._outlook.supply.usable_pair, strict=True)
            if amount > 0
        ]
        if self._worked > 0 and shares and "adaptation" not in self._without:
            is_full = max(shares) > _FULL
            if is_full and self._wasted > _WASTE * self._worked:
                self.window = max(_LEAST_WINDOW, 0.85 * self.window)
            else:
                most = 1.0 if self._outlook.load > 1 else _MOST_WINDOW
                self.window = min(most, self.window + (0.03 if is_full else 0.1))
        self._wasted = self._worked = 0.0
        self._used = (0.0, 0.0)
