"""Admission by predicted finish: what is admitted is due, and must fit into what the cluster can do until then."""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from fairlead.model import Record, Request
from fairlead.policy.fairlead.menu import Menu, Reals
from fairlead.policy.fairlead.outlook import Flow, Outlook, Step

_BINS = 16  # per objective: how finely admitted work is told apart by its deadline
_LEAST_WINDOW, _MOST_WINDOW = 0.1, 2.0
_LOSING = 0.02  # share of requests that is dropped from which on batches are filled at the cost of the most urgent
_WASTE = 0.05  # share of the work that may be wasted on requests that are given up
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
    held: Reals
    end: float
    deadline: float
    step: Step
    is_open: bool = True


class _Open:
    """An admitted request: the planned use that is still ahead, and where it is counted."""

    __slots__ = ("bin", "flow", "left", "spent")

    def __init__(self, flow: Flow, bin: int, left: Reals) -> None:
        self.flow, self.bin, self.left, self.spent = flow, bin, left, 0.0


class _Bin:
    """Work of one workflow that is due at about the same time, and of how many requests."""

    __slots__ = ("requests", "work")

    def __init__(self, size: int) -> None:
        self.work: Reals = np.zeros(size)
        self.requests = 0


class Admission:
    """Keeps account of the work that is promised, by workflow and deadline, and of work that was wasted."""

    def __init__(self, outlook: Outlook, without: frozenset[str] = frozenset()) -> None:
        self._outlook = outlook
        self._without = without
        self.running: set[Run] = set()
        self.held: Reals = np.zeros(2)  # by runs
        self._open: dict[int, _Open] = {}
        self._tokens: dict[str, tuple[float, float]] = {}  # by workflow: when they were counted, and how many
        self._work: dict[str, dict[int, _Bin]] = {name: {} for name in outlook.flows}
        self._total: Reals = np.zeros(len(outlook.supply.amounts))
        self.window = 1.0  # share of what the cluster can do until a deadline that may be promised
        self._wasted = self._worked = 0.0
        self._closed = self._dropped = 0.0  # requests, with exponential forgetting
        self._used: Reals = np.zeros(len(outlook.supply.amounts))

    def admit(self, request: Request, now: float) -> Refusal | None:
        """Count a request as promised, or say why that cannot be."""
        flow = self._outlook.flows[request.workflow]
        if not flow.can_run:
            return Refusal("no node can run all of its functions")
        left_s = request.deadline - now
        if left_s < flow.fastest_s:
            takes, due = f"it takes at least {flow.fastest_s:.3g} s", f"it is due in {left_s:.3g} s"
            return Refusal(f"it cannot be answered in time: {takes}, and {due}")
        refusal = self._refusal(request, flow, left_s, now) if left_s < inf else None
        if refusal is None and left_s < inf:  # work without a deadline goes last, so it is in the way of nothing
            at = int(request.deadline / flow.first[0].slo_s * _BINS)
            self._open[request.id] = _Open(flow, at, flow.use)
            self._add(flow, at, flow.use, 1)
        return refusal

    def _refusal(self, request: Request, flow: Flow, left_s: float, now: float) -> Refusal | None:
        need = flow.use
        matters = need > 0
        room = min(1.0, self.window * flow.backlog) * self._outlook.supply.usable * left_s
        if "window" not in self._without and ((self._total + need > room) & matters).any():
            ahead = self._ahead(request.deadline)
            if ahead.any():
                ahead = ahead + need
                if flow.is_flexible:  # where one resource is short, the other can do its work
                    prices = self._outlook.supply.usd_per_s * self._outlook.prices
                    over = float(prices @ ahead) / max(float(prices @ room), 1e-12)
                else:
                    over = float((ahead[matters] / np.maximum(room[matters], 1e-12)).max())
                if over > 1:
                    what = "what was admitted before it takes all that the cluster can do"
                    return Refusal(f"{what} in the {left_s:.3g} s until it is due", min((over - 1) * left_s, 60.0))
        is_busy = ((self.held > _CALM * self._outlook.supply.usable) & matters).any()
        if flow.share < 1 and is_busy:
            return self._beyond_share(flow, now)
        return None

    def _beyond_share(self, flow: Flow, now: float) -> Refusal | None:
        """In an overload that others share, a workflow gets no more requests per second than its share of what fits."""
        per_s = flow.share * flow.rate
        name = flow.workflow.name
        since, tokens = self._tokens.get(name, (now, 1.0))
        tokens = min(tokens + (now - since) * per_s, 1.0 + 0.5 * per_s * flow.first[0].slo_s)
        if tokens < 1:
            self._tokens[name] = now, tokens
            what = "its workflow has had its share of a cluster that cannot serve all requests"
            return Refusal(what, (1 - tokens) / max(per_s, 1e-9))
        self._tokens[name] = now, tokens - 1
        return None

    def leaves_room(self, step: Step, needed: Reals) -> bool:
        """Whether a run of this stage leaves what is kept for requests that cannot wait until it ends.

        Their own runs use what is kept. At least one run of other workflows is allowed at a time.
        """
        others = (run.held for run in self.running if run.step.workflow not in step.kept_for)
        held = sum(others, np.zeros(2))
        limit = self._outlook.supply.usable - step.kept
        return not held.any() or not ((held + 0.5 * needed > limit) & (needed > 0)).any()

    def _ahead(self, deadline: float) -> Reals:
        """Promised work that is due before this instant."""
        total: Reals = np.zeros(len(self._total))
        for name, bins in self._work.items():
            last = int(deadline / self._outlook.flows[name].first[0].slo_s * _BINS)
            for at, bin in bins.items():
                if at <= last:
                    total = total + bin.work
        return total

    def _add(self, flow: Flow, at: int, work: Reals, requests: int = 0) -> None:
        bins = self._work[flow.workflow.name]
        bin = bins.get(at)
        if bin is None:
            bin = bins[at] = _Bin(len(work))
        bin.work = bin.work + work
        bin.requests += requests
        if not bin.requests:
            del bins[at]
        self._total = np.maximum(self._total + work, 0.0)

    def started(self, request: int, cost: float, used: Reals) -> None:
        """Note work that is spent on a request."""
        found = self._open.get(request)
        if found is not None:
            found.spent += cost
        self._worked += cost
        self._used = self._used + used

    def done(self, record: Record) -> None:
        """Take one finished run off what is ahead of its request."""
        found = self._open.get(record.request)
        if found is not None:
            step = found.flow.steps[record.stage]
            left = np.maximum(found.left - step.menu.use[step.option], 0.0)
            self._add(found.flow, found.bin, left - found.left)
            found.left = left

    def close(self, request: int, *, is_wasted: bool) -> None:
        """Forget a request; what was spent on one that was given up was wasted."""
        found = self._open.pop(request, None)
        if found is not None:
            self._add(found.flow, found.bin, -found.left, -1)
            self._closed = 0.99 * self._closed + 1
            self._dropped = 0.99 * self._dropped + is_wasted
            self._outlook.is_losing = self._dropped > _LOSING * self._closed
            if is_wasted:
                self._wasted += found.spent

    def adapt(self, passed_s: float) -> None:
        """Admit fewer requests while work is wasted in a full cluster, and more again when it is not."""
        amounts = self._outlook.supply.usable
        there = amounts > 0
        if self._worked > 0 and there.any() and "adaptation" not in self._without:
            is_full = bool((self._used[there] / (amounts[there] * max(passed_s, 1e-9))).max() > _FULL)
            if is_full and self._wasted > _WASTE * self._worked:
                self.window = max(_LEAST_WINDOW, 0.85 * self.window)
            else:
                most = 1.0 if self._outlook.load > 1 else _MOST_WINDOW
                self.window = min(most, self.window + (0.03 if is_full else 0.1))
        self._wasted = self._worked = 0.0
        self._used = np.zeros(len(amounts))
