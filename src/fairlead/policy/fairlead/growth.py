"""Room and growth: how many nodes the cluster has, where the scenario lets nodes come and go (UCB/EECS-2022-88, 4.4).

A node helps only after the time that it takes to come and to start instances, the *lead time*. So the need is that of
the arrival rates forecast for then, with the error that such forecasts have had. It is planned at the price at which a
node pays for itself. A node is asked for when the need exceeds what there is, and given back when the others would have
been enough for a whole lead time.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, exp, log, sqrt
from typing import NamedTuple

import numpy as np

from fairlead.model import Node
from fairlead.policy.base import Action, Grow, NodeChange, Shrink, Site, View, Warm
from fairlead.policy.fairlead.menu import Reals
from fairlead.policy.fairlead.outlook import Flow, Outlook, headcount
from fairlead.policy.fairlead.warming import Warming

_MEMORY = 2.0  # lead times over which the rate is fitted by a line
_LATE = 0.01  # share of requests that may find too little room, as the room is planned
_DEVIATIONS = 2.33  # of a normal distribution, beyond which lies this share
_FOLLOW = 0.5  # weight of the newest node in the time that nodes take to come
_FIRST_S = 5.0  # of arrivals that are seen before the first decision
_LOST = 3.0  # lead times after which a node that was asked for is not expected any more


class Forecast:
    """The arrival rate of one workflow: a line through the recent past, and how wrong such lines have been.

    The line is a least-squares fit in which a second counts less by a factor of e for every `_MEMORY` times `lead_s`
    that it is old. Its error is measured against a shorter average, less the variance that counting causes.
    """

    def __init__(self, lead_s: float) -> None:
        self._memory_s = _MEMORY * lead_s
        self._window_s = lead_s / 2
        self._recent = 0.0  # rate over about half a lead time
        self._weight = self._time = self._time2 = self._rate = self._product = 0.0  # sums; the time of now is 0
        self._due: deque[tuple[float, float]] = deque()  # forecasts, with their instants
        self._error2 = self._errors = 0.0
        self.arrived = 0  # since the last observation
        self.rate = 0.0

    def observe(self, now: float, passed_s: float, lead_s: float) -> None:
        """Take in what arrived in the last `passed_s` seconds; forecast the rate in `lead_s` seconds."""
        fade = exp(-passed_s / self._memory_s)
        weight = 1 - exp(-passed_s / self._window_s) if self._weight else 1.0
        self._recent += weight * (self.arrived / passed_s - self._recent)
        self._time2 = fade * (self._time2 - 2 * passed_s * self._time + passed_s**2 * self._weight)
        self._time = fade * (self._time - passed_s * self._weight)
        self._product = fade * (self._product - passed_s * self._rate)
        self._weight, self._rate = fade * self._weight + passed_s, fade * self._rate + self.arrived
        self._time -= passed_s * passed_s / 2
        self._time2 += passed_s * passed_s**2 / 3
        self._product -= self.arrived * passed_s / 2
        self.arrived = 0
        self._error2, self._errors = fade * self._error2, fade * self._errors
        while self._due and self._due[0][0] <= now:
            _, forecast = self._due.popleft()
            self._error2 += (self._recent - forecast) ** 2 - self._recent / (2 * self._window_s)
            self._errors += 1
        self.rate = self._at(lead_s)
        self._due.append((now + lead_s, self.rate))

    def _at(self, ahead_s: float) -> float:
        """The forecast for this many seconds from now: on the line, or the mean while there is too little data."""
        spread = self._weight * self._time2 - self._time**2
        mean = self._rate / self._weight
        if self._weight < self._memory_s / 2 or spread <= 0:
            return mean
        slope = (self._weight * self._product - self._time * self._rate) / spread
        return max(0.0, mean + slope * (ahead_s - self._time / self._weight))

    def upper(self, tolerance: float) -> float:
        """The forecast plus what its error may be, beyond a share of the rate that does no harm until it is noticed."""
        error2 = self._error2 / self._errors if self._errors else self.rate / self._memory_s
        return self.rate + max(0.0, _DEVIATIONS * sqrt(max(error2, 0.0)) - tolerance * self.rate)


class Growth:
    """Asks for nodes and gives them back, within the bounds of the site; idle where it has none."""

    def __init__(self, site: Site, outlook: Outlook, warming: Warming) -> None:
        self._outlook, self._warming = outlook, warming
        self._bounds = site.growth
        self._names = {kind: {node.name for node in site.cluster.nodes if node.kind == kind} for kind in site.growth}
        self._known = {node.name for node in site.cluster.nodes}
        self._draining: dict[str, set[str]] = {kind: set() for kind in site.growth}
        self._asked: dict[str, deque[float]] = {kind: deque() for kind in site.growth}
        kinds = site.cluster.kinds
        self._adds = {kind: _amounts(kinds[kind]) for kind in site.growth}
        self._usd_per_s = {
            kind: bounds.node_usd_per_hour(kinds[kind], site.cluster.price) / 3600
            for kind, bounds in site.growth.items()
        }
        self._provision_s = {
            kind: site.provision_s if bounds.provision_s is None else bounds.provision_s
            for kind, bounds in site.growth.items()
        }
        self._cold_s = max((menu.cold_s for menu in outlook.menus.values() if len(menu)), default=0.0)
        self._break_even = self._break_even_prices()
        self._forecasts = {name: Forecast(self._lead_s) for name in outlook.flows}
        self._needs: deque[tuple[float, Reals]] = deque()  # of the last lead time
        self._began: float | None = None
        self._observed = self._version = 0.0
        self._bare: dict[str, tuple[Node, float]] = {}  # nodes that have just come, until when they are furnished

    @property
    def is_on(self) -> bool:
        """Whether nodes may come and go at all."""
        return bool(self._bounds)

    @property
    def _lead_s(self) -> float:
        """Time from asking for a node until it answers requests; that of the slowest kind, and at least one period."""
        return max([self._outlook.period_s, *(own + self._cold_s for own in self._provision_s.values())])

    def follow(self, view: View) -> None:
        """Take in arrivals and nodes. For use before admission: requests that are refused are a need, too."""
        for request in view.fresh:
            self._forecasts[request.workflow].arrived += 1
        for change in view.changes.nodes:
            self._follow_node(change, view.now)

    def adjust(self, view: View) -> Iterator[Action]:
        """Furnish nodes that have come; once per refresh of the model, grow or shrink."""
        for name in list(self._bare):
            yield from self._furnish(view, name)
        if self._version == self._outlook.version or view.now < min(_FIRST_S, self._lead_s / 2):
            return
        self._version = self._outlook.version
        need = self._need(view)
        yield from self._grow(view.now, need)
        yield from self._shrink(view.now, need)

    # --- what happened ---------------------------------------------------------------------------------------------

    def _follow_node(self, change: NodeChange, now: float) -> None:
        node = change.node
        if node.kind not in self._bounds:
            return
        names, draining = self._names[node.kind], self._draining[node.kind]
        if change.what == "lost":
            names.discard(node.name)
            draining.discard(node.name)
        elif change.is_draining and node.name in names:
            names.discard(node.name)
            draining.add(node.name)
        elif change.what == "joined":
            names.add(node.name)
            self._bare[node.name] = node, now + 2 * self._cold_s
            asked = self._asked[node.kind]
            if node.name not in self._known and asked:
                took_s = now - asked.popleft()
                self._provision_s[node.kind] += _FOLLOW * (took_s - self._provision_s[node.kind])
            self._known.add(node.name)

    def _coming(self, kind: str, now: float) -> int:
        asked = self._asked[kind]
        while asked and asked[0] < now - _LOST * self._lead_s:
            asked.popleft()
        return len(asked)

    # --- what is needed --------------------------------------------------------------------------------------------

    def _break_even_prices(self) -> Reals:
        """Times the price list, what a resource must be worth for a node that brings it to pay for itself."""
        prices: Reals = np.full(2, np.inf)
        for kind, adds in self._adds.items():
            listed = float(self._outlook.supply.usd_per_s @ adds)
            ratio = max(1.0, self._usd_per_s[kind] / listed)
            prices = np.where(adds > 0, np.minimum(prices, ratio), prices)
        return prices

    def _need(self, view: View) -> Reals:
        """Resources that are needed a lead time from now, with room for chance."""
        now, outlook = view.now, self._outlook
        passed_s = now - self._observed
        self._observed = now
        flows = {name: flow for name, flow in outlook.flows.items() if flow.can_run}
        prices = np.where(np.isfinite(self._break_even), self._break_even, outlook.prices)
        is_planned_so = np.allclose(prices, outlook.prices, rtol=0.02)
        demands = []
        for name, flow in flows.items():
            forecast = self._forecasts[name]
            if passed_s > 0:
                forecast.observe(now, passed_s, self._lead_s)
            if not is_planned_so:
                flow.tabulate(outlook.supply.usd_per_s * (prices - 1), outlook.rates)
            demands.append(_demand(flow, forecast.upper(_slack_s(flow) / self._lead_s)))
            if not is_planned_so:
                flow.tabulate(outlook.supply.usd_per_s * (outlook.prices - 1), outlook.rates)
        return _with_room(demands) + self._backlog(view) / self._lead_s

    def _backlog(self, view: View) -> Reals:
        """Work that waits, in resource-seconds."""
        total: Reals = np.zeros(2)
        for workflow, function in view.queues():
            menu = self._outlook.menus[function]
            if len(menu):
                step = next(one for one in self._outlook.flows[workflow].backwards if one.menu is menu)
                total = total + view.waiting(workflow, function) * menu.use[step.option]
        return total

    def _carries(self, nodes: Mapping[str, int]) -> Reals:
        """What can be planned for with this number of nodes of each kind that comes and goes, beside the others."""
        supply = self._outlook.supply
        changed = sum(((nodes[kind] - len(self._names[kind])) * adds for kind, adds in self._adds.items()), np.zeros(2))
        return supply.attainable * (supply.amounts + changed)

    # --- decisions -------------------------------------------------------------------------------------------------

    def _grow(self, now: float, need: Reals) -> Iterator[Action]:
        for kind, bounds in self._bounds.items():
            while len(self._names[kind]) + self._coming(kind, now) < bounds.least and self._may_grow(kind, now):
                yield Grow(kind)
                self._asked[kind].append(now)
        while True:
            nodes = {kind: len(names) + self._coming(kind, now) for kind, names in self._names.items()}
            short = np.maximum(need - self._carries(nodes), 0.0)
            gains = {
                kind: float(self._outlook.supply.usd_per_s @ np.minimum(adds, short))
                / max(self._usd_per_s[kind], 1e-12)
                for kind, adds in self._adds.items()
                if self._may_grow(kind, now)
            }
            kind = max(gains, key=gains.__getitem__, default="")
            if not kind or gains[kind] <= 0:
                return
            yield Grow(kind)
            self._asked[kind].append(now)

    def _may_grow(self, kind: str, now: float) -> bool:
        there = len(self._names[kind]) + len(self._draining[kind]) + self._coming(kind, now)
        return there < self._bounds[kind].most

    def _shrink(self, now: float, need: Reals) -> Iterator[Action]:
        """Give back the nodes without which all needs of the last lead time would have been met."""
        if self._began is None:
            self._began = now
        self._needs.append((now, need))
        while self._needs[0][0] < now - self._lead_s:
            self._needs.popleft()
        if now < self._began + self._lead_s or any(self._coming(kind, now) for kind in self._bounds):
            return
        most = np.max([one for _, one in self._needs], axis=0)
        nodes = {kind: len(names) for kind, names in self._names.items()}
        for kind in sorted(self._bounds, key=lambda kind: -self._usd_per_s[kind]):
            while nodes[kind] > self._bounds[kind].least:
                nodes[kind] -= 1
                if (most > self._carries(nodes)).any():
                    nodes[kind] += 1
                    break
                yield Shrink(kind)

    # --- new nodes -------------------------------------------------------------------------------------------------

    def _furnish(self, view: View, name: str) -> Iterator[Action]:
        """Start on a new node its part of the instances that the plan needs, as far as there is room."""
        node, until = self._bare[name]
        if view.now > until or name not in self._names[node.kind]:
            del self._bare[name]
            return
        adds, amounts = _amounts(node), self._outlook.supply.amounts
        for (function, share), (busy, option) in self._outlook.busy.items():
            menu = self._outlook.menus[function]
            configuration, kind = menu.options[option]
            holding = menu.holding[option]
            held = holding > 0
            if kind != node.kind or not busy or menu.cold_s <= 0 or view.scaled(function) is not None:
                continue
            part = float((adds[held] / np.maximum(amounts[held], 1e-9)).min())
            slots = int((adds[held] / holding[held] + 1e-9).min())
            there = sum(one.node == name and one.vgpus == share for one in view.instances(function))
            for _ in range(min(ceil(part * headcount(busy, _DEVIATIONS)), slots) - there):
                if not view.fits(function, configuration, name, evicts=False, is_fresh=True):
                    break
                yield Warm(function, configuration, name)
                self._warming.begun(view, menu, option, name)


class _Demand(NamedTuple):
    """What the requests of a workflow use on average, its variance, and the work of a run per second of slack."""

    use: Reals
    variance: Reals
    per_slack: Reals


def _slack_s(flow: Flow) -> float:
    """How long a request can wait: one that has waited is run faster than planned."""
    return max(flow.workflow.slo.latency_s - (flow.planned_s + flow.fastest_s) / 2, 1e-9)


def _demand(flow: Flow, rate: float) -> _Demand:
    use, variance, square = np.zeros(2), np.zeros(2), np.zeros(2)
    for step in flow.backwards:
        menu, option = step.menu, step.option
        runs = rate * step.visits / float(menu.batch[option])
        work = menu.holding[option] * menu.mean_s[option]
        use = use + runs * work
        variance = variance + runs * work * menu.holding[option]
        square = square + runs * work * work
    return _Demand(use, variance, np.divide(square, use, out=np.zeros(2), where=use > 0) / _slack_s(flow))


def _with_room(demands: Sequence[_Demand]) -> Reals:
    """The capacity with which all but a share `_LATE` of the runs begin in time.

    In a queue that is seldom empty, the share that waits longer than the slack S falls with the spare capacity c as
    exp(-2 c S / w), where w is the work of a run (its mean square over its mean). With little slack, runs must find
    room at once: then it is the number of busy vCPUs that has a standard deviation.
    """
    use = sum((one.use for one in demands), np.zeros(2))
    variance = sum((one.variance for one in demands), np.zeros(2))
    share = [np.divide(one.use, use, out=np.zeros(2), where=use > 0) for one in demands]
    per_slack = sum((part * one.per_slack for part, one in zip(share, demands, strict=True)), np.zeros(2))
    return use + np.minimum(_DEVIATIONS * np.sqrt(variance), -log(_LATE) / 2 * per_slack)


def _amounts(node: Node) -> Reals:
    """What a node adds to the two resources, at its speed."""
    return node.speed * np.array([node.vcpus, sum(device.vgpus for device in node.devices)])
