"""The model of the load: what finishing a request costs from every stage on, at prices that follow what is scarce.

For each stage a table over the time left has the least cost of all that is still ahead (dynamic programming over the
workflow, last stage first). Cost is counted in resource-seconds times prices. A resource that the planned use of all
expected requests would exhaust becomes more expensive, so plans move to configurations and kinds of nodes that spare
it.
"""

from bisect import bisect_right
from collections.abc import Mapping
from math import ceil, exp, inf, isfinite, lgamma, log, sqrt

import numpy as np
from numpy.typing import NDArray

from fairlead.model import Request, Stage, Workflow
from fairlead.policy.base import Site, View
from fairlead.policy.fairlead.menu import Menu, Pair, Reals, Supply
from fairlead.policy.fairlead.reasons import Planned
from fairlead.policy.fairlead.sizes import followers
from fairlead.policy.kit.expected import expected_counts

GRID = 160  # parts into which an objective is divided
_NO_OBJECTIVE_S = 60.0
_HEADROOM = 0.03  # share of the time left that stays unplanned
_REPLY_S = 0.002  # until an answer that is there has reached its client
_MOST_REPLY = 0.03  # of the objective, at most
_TARGET = 0.85  # planned use of a resource beyond which its price rises
_MOST_PRICE = 200.0
_ROUNDS = 4  # of price changes per refresh
_LEARNS = 25  # how often assumed times are corrected between two refreshes
_GATHERING = 0.7  # part of the time until a batch is full that its first member is planned to wait
_PATIENCE = 2.0  # times the mean wait of a stage that is set aside for it
_MOST_WAIT = 0.05  # of the objective, at most
FLOOR = 0.65  # of an equal share of what can be answered that every workflow gets in overload
_WINDOW_S = 8.0  # over which arrival rates are averaged
LASTING_S = 60.0  # the same for rates that are expected to last
_GIVEN = 0.05  # weight of the newest request in the mean of what requests are given
_OFF = 1.25  # how far that may be from what the tables are for
_KEPT = 1.0  # times the expected use of requests that cannot wait, which longer runs leave free
_MOST_RANKED = 48
_ENTRIES = np.arange(GRID + 1)  # of a table


def reply_s(given_s: float) -> float:
    """Time that is kept of `given_s` seconds for the answer to leave."""
    return min(_REPLY_S, _MOST_REPLY * given_s)


class Step:
    """One stage of a workflow in the model, with its table of costs."""

    def __init__(self, workflow: Workflow, stage: Stage, menu: Menu, visits: float) -> None:
        self.workflow = workflow.name
        self.name = stage.name
        self.menu = menu
        self.visits = visits  # expected runs per request
        self.is_first = not stage.after
        self.after: list[tuple[float, Step]] = []  # with the expected runs there per run here
        self.scale(workflow.slo.latency_s if workflow.slo.latency_s < inf else _NO_OBJECTIVE_S)
        self.rest_s = 0.0  # least time of all that follows, transfer included
        self.usd_limit = inf  # what one run here may cost for the workflow to stay within its budget
        self.usd_after = 0.0  # least that the stages after it cost per run here
        self.kept: Reals = np.zeros(2)  # what its runs leave free for requests that cannot wait until they end
        self.keeps = False  # whether that is anything
        self.kept_for: frozenset[str] = frozenset()  # the workflows of these requests
        self.option = 0  # planned for a request that was just admitted and is on schedule
        self.usual_cost = 0.0  # of a request that reaches this stage on schedule, per run, from here to its answer
        self._is_short = False  # whether a resource has a surcharge
        self._laid_out_for: tuple[int, float, float] | None = None
        self._forget()

    def _forget(self) -> None:
        """What is derived from the table when it is asked for."""
        self._ranks: dict[tuple[int, int], tuple[list[int], list[float]]] = {}
        self._least: list[float] = []
        self._planned_batches: list[int] = []
        self._run_costs: list[float] = []
        self._last_call: tuple[float, float] | None = None

    def scale(self, slo_s: float) -> None:
        """Have the table reach so far; it must be worked out then."""
        self.slo_s = slo_s
        self.grid_s = slo_s / GRID
        self.reply_s = reply_s(slo_s)

    def tabulate(self, surcharges: Reals, rate: float) -> None:
        """Work out the table, after those of the stages that follow."""
        menu = self.menu
        ahead: Reals = np.zeros(GRID + 1)
        rest_s = 0.0
        for runs, step in self.after:
            if not runs:  # an arm that is never taken
                continue
            wait_s = min(_PATIENCE * step.menu_wait_s, _MOST_WAIT * self.slo_s)
            shift = round(wait_s / self.grid_s)
            table = step.cost if not shift else np.concatenate([np.full(shift, inf), step.cost[:-shift]])
            ahead = ahead + runs * table
            rest_s = max(rest_s, step.rest_s + step.menu.fastest_s)
        self._is_short = bool(surcharges.any())
        self.rest_s = rest_s + self._transfer_s
        self.ahead = ahead
        self._padded: Reals = np.concatenate([[inf], ahead])
        self.run_cost: Reals = menu.usd * menu.aversion + menu.holding @ surcharges * menu.mean_s
        key = (menu.version, rate, self.grid_s)
        if key != self._laid_out_for:
            self._lay_out(rate)
            self._laid_out_for = key
        total = self._padded[self._after_run] + self.run_cost / menu.batch
        if self.usd_limit < inf:
            total[:, menu.usd / menu.batch > self.usd_limit * (1 + 1e-9)] = inf
        self.best = total.argmin(axis=1)
        self.cost: Reals = total[_ENTRIES, self.best]
        self._forget()

    def depends_on(self, rate: float) -> tuple[float, ...]:
        """What its table follows from, besides prices and the tables of the stages after it."""
        menu = self.menu
        return menu.version, menu.wait_s, self.grid_s, rate if menu.most > 1 else 0.0

    @property
    def _transfer_s(self) -> float:
        return self.menu.transfer_s if self.after else 0.0

    def _lay_out(self, rate: float) -> None:
        """What of the table depends on times and on the rate of requests, and not on prices."""
        menu = self.menu
        self.bins = np.ceil((menu.upper_s + self._transfer_s) / self.grid_s - 1e-6).astype(int)
        # Of the last stage, whether a run is in time is not rounded to the grid: by what time each option is allowed.
        self._ends_s: list[float] = (np.sort(menu.upper_s) - 1e-9).tolist()
        self._places = np.searchsorted(self._ends_s, menu.upper_s - 1e-9)
        waits_s = (menu.batch - 1) / max(rate, 1e-9) * _GATHERING
        planned = np.ceil((menu.upper_s + self._transfer_s + waits_s) / self.grid_s - 1e-6)
        left = _ENTRIES[:, None] - np.minimum(planned, GRID + 1).astype(int)[None, :]
        self._after_run = np.maximum(left, -1) + 1  # for each entry and option, where in `_padded` the rest is
        self.planned_bins = planned

    @property
    def menu_wait_s(self) -> float:
        """How long runs of this stage's function have waited for a place, on average."""
        return self.menu.wait_s

    def planned(self, after: tuple[str, ...], start: int, end: int) -> Planned:
        """The planned option, with its start and end after the arrival, counted in parts of the objective."""
        return Planned(
            self.name,
            self.menu.name,
            after,
            *self.menu.told[self.option],
            round(float(self.menu.mean_s[self.option]), 6),
            round(start * self.grid_s, 6),
            round(end * self.grid_s, 6),
        )

    def bin(self, seconds: float) -> int:
        """The entry of the table for so much time left; negative if there is none."""
        if seconds >= self.slo_s:
            return GRID
        return int(self._run_within_s(seconds) / self.grid_s + 1e-6)

    def _run_within_s(self, left_s: float) -> float:
        """What of the time that is left is planned with."""
        return (left_s - self.reply_s) * self._planned_part

    @property
    def _planned_part(self) -> float:
        """Of the time left, what is planned with: all of it where the only run of a workflow uses what is short.

        Runs are planned with a safe time already. Where there is room, batches that wait to fill keep the headroom.
        """
        return 1.0 if self._is_short and self.is_first and not self.after else 1 - _HEADROOM

    def ranked(self, left_s: float, waiting: int) -> tuple[list[int], list[float]]:
        """The options that are in time for the first of `waiting` invocations, best first, with their costs per run."""
        left = self.bin(left_s) if self.after else bisect_right(self._ends_s, self._run_within_s(left_s))
        key = (left, min(waiting, self.menu.most))
        found = self._ranks.get(key)
        if found is None:
            after = left - self.bins if self.after else left - 1 - self._places
            cost = self._ahead_from(after) + self.run_cost / np.minimum(self.menu.batch, key[1])
            order = np.argsort(cost, kind="stable")[:_MOST_RANKED]
            order = order[np.isfinite(cost[order])]
            found = self._ranks[key] = (order.tolist(), cost[order].tolist())
        return found

    def _ahead_from(self, left: NDArray[np.int_]) -> Reals:
        """Cost of the stages after this one with `left` grid steps of the objective left; infinite if negative."""
        return self._padded.take(left + 1, mode="clip")  # its first entry is infinite

    def planned_batch(self, left_s: float) -> int:
        """How many the plan would have run together with so much time left, the time until they are there included."""
        left = self.bin(left_s)
        if left < 0:
            return 1
        if not self._planned_batches:
            self._planned_batches = np.where(np.isfinite(self.cost), self.menu.batch[self.best], 1).astype(int).tolist()
        return self._planned_batches[left]

    def run_cost_of(self, option: int) -> float:
        """What a run of this option costs, in a batch of any size."""
        if not self._run_costs:
            self._run_costs = self.run_cost.tolist()
        return self._run_costs[option]

    def cost_with(self, option: int, left_s: float) -> float:
        """What finishing costs with so much time left if this option is taken, in a full batch; infinite if late."""
        after = self.bin(left_s) - int(self.bins[option])
        if after < 0:
            return inf
        return float(self.ahead[after] + self.run_cost_of(option) / self.menu.members[option])

    def least_cost(self, left_s: float) -> float:
        """What finishing costs at least with so much time left, in full batches."""
        return (self._least or self._least_costs())[max(self.bin(left_s), 0)]

    def _least_costs(self) -> list[float]:
        if not self._least:
            ahead = self._ahead_from(_ENTRIES[:, None] - self.bins[None, :])
            self._least = (ahead + self.run_cost / self.menu.batch).min(axis=1).tolist()
        return self._least

    def last_call_s(self, limit: float) -> float:
        """The least time left with which finishing costs no more than this; the objective if it always does."""
        if self._last_call is None or self._last_call[0] != limit:
            left = float(next((i for i, cost in enumerate(self._least_costs()) if cost <= limit), GRID))
            self._last_call = limit, left * self.grid_s / self._planned_part + self.reply_s
        return self._last_call[1]

    def gains(self, worth: float, keys: Reals, now: float, waiting: int) -> tuple[Reals, Reals]:
        """For each option, what it gains if all that would be late in it are passed over, and how many these are.

        Args:
            worth: What an answer is worth.
            keys: By when the first of the line must have run, rising.
            now: The instant.
            waiting: How many wait in the line.
        """
        menu = self.menu
        skipped = np.searchsorted(keys - now, menu.upper_s, side="left")
        able = (skipped > 0) & (skipped < len(keys))
        left_s = keys[np.minimum(skipped, len(keys) - 1)] + self.rest_s - now
        bins = np.minimum(left_s * self._planned_part / self.grid_s + 1e-6, GRID).astype(int)
        bins = np.where(left_s >= self.slo_s, GRID, bins) - self.bins
        ahead = self._ahead_from(np.where(able, bins, -1))
        members = np.minimum(menu.batch, waiting - skipped)
        gains: Reals = np.full(len(menu), -inf)
        known = np.isfinite(ahead)
        gains[known] = members[known] * (worth - ahead[known]) - self.run_cost[known]
        return gains, skipped.astype(float)


class Flow:
    """One workflow in the model: its steps, its arrival rate, and what a request of it is planned to use."""

    def __init__(self, workflow: Workflow, menus: Mapping[str, Menu]) -> None:
        self.workflow = workflow
        counts = dict(zip([stage.name for stage in workflow.stages], expected_counts(workflow), strict=True))
        self.steps = {
            stage.name: Step(workflow, stage, menus[stage.function], counts[stage.name]) for stage in workflow.stages
        }
        for name, stages in followers(workflow).items():
            for stage in stages:
                runs = counts[stage.name] / max(counts[name], 1e-12) / len(stage.after)
                self.steps[name].after.append((runs, self.steps[stage.name]))
        self.backwards = [self.steps[stage.name] for stage in reversed(workflow.stages)]
        self.first = [step for step in self.backwards if step.is_first]
        self._before = {stage.name: stage.after for stage in workflow.stages}
        self.runs = sum(counts.values())  # expected per request
        self._first_runs = sum(step.visits for step in self.first)
        self.can_run = all(len(step.menu) for step in self.backwards)
        self.is_flexible = any(step.menu.vgpus.any() and not step.menu.vgpus.all() for step in self.backwards)
        self.is_due = workflow.slo.latency_s < inf  # whether its requests have deadlines
        self._given = log(self.slo_s) if self.is_due else None  # logarithm of the time that requests are given, a mean
        self.fastest_s = inf  # the least time in which a request can be answered
        self._tabulated_for: tuple[object, ...] = ()
        self.arrived = 0
        self.rate = 0.0
        self.slow_rate = 0.0
        self.use: Reals = np.zeros(0)
        self.need: Pair = (0.0, 0.0)  # the same
        self.need_after: Pair = (0.0, 0.0)  # the same, without the first stage
        self.share = 1.0  # of its requests that can be answered
        self.closed = self.dropped = 0.0  # admitted requests, with exponential forgetting
        if workflow.slo.cost_usd < inf and self.can_run:
            self._limit_costs(workflow.slo.cost_usd)

    def _limit_costs(self, budget_usd: float) -> None:
        least = {step.name: step.visits * float((step.menu.usd / step.menu.batch).min()) for step in self.backwards}
        spare_usd = budget_usd - sum(least.values())
        after = {step.name: 0.0 for step in self.backwards}
        for step in self.backwards:
            after[step.name] = sum(after[one.name] + least[one.name] for _, one in step.after)
            step.usd_after = after[step.name] / max(step.visits, 1e-12)
            step.usd_limit = (least[step.name] + spare_usd) / max(step.visits, 1e-12)

    @property
    def slo_s(self) -> float:
        """The time that a request has: the objective, or what clients give where they say something else."""
        return self.first[0].slo_s

    def arrive(self, left_s: float) -> bool:
        """Count a request that has so much time; tells whether the tables must be worked out for another time."""
        self.arrived += 1
        if not self.fastest_s <= left_s < inf:
            return False
        self.is_due = True
        self._given = log(left_s) if self._given is None else self._given + _GIVEN * (log(left_s) - self._given)
        slo_s = exp(self._given)
        if 1 / _OFF < slo_s / self.slo_s < _OFF:
            return False
        for step in self.backwards:
            step.scale(slo_s)
        return True

    def tabulate(self, surcharges: Reals, rates: Mapping[str, float]) -> None:
        """Work out the tables of all steps, and the plan of a request that starts now, unless nothing has changed."""
        key = (*surcharges.tolist(), *[step.depends_on(rates[step.menu.name]) for step in self.backwards])
        if key == self._tabulated_for:
            return
        self._tabulated_for = key
        for step in self.backwards:
            step.tabulate(surcharges, rates[step.menu.name])
        self.fastest_s = max(step.reply_s + step.rest_s + step.menu.fastest_s for step in self.first)
        start = int(GRID * (1 - _HEADROOM))
        left: dict[str, int] = {}
        cpu = gpu = 0.0
        self._spans: list[tuple[Step, int, int]] = []
        for step in reversed(self.backwards):
            at = min([left[name] for name in self._before[step.name]], default=start)
            if isfinite(step.cost[at]):
                step.option, step.usual_cost = int(step.best[at]), float(step.cost[at])
            else:
                step.option, step.usual_cost = int(step.menu.upper_s.argmin()), 0.0
            left[step.name] = max(0, at - int(min(step.planned_bins[step.option], GRID)))
            self._spans.append((step, start - at, start - left[step.name]))
            use = step.menu.uses[step.option]
            cpu, gpu = cpu + step.visits * use[0], gpu + step.visits * use[1]
        self.need = (cpu, gpu)
        first = self.first[0]
        joined = first.menu.uses[first.option]
        self.need_after = (
            max(0.0, cpu - first.visits * joined[0]),
            max(0.0, gpu - first.visits * joined[1]),
        )
        self.use = np.array(self.need)
        self._told: tuple[tuple[Planned, ...], tuple[str, ...]] | None = None
        self.backlog = self._mean_remaining(left, start)
        self.planned_s = (start - min(left.values())) * self.backwards[0].grid_s
        self.fresh_cost = sum(float(step.cost[start]) * step.visits for step in self.first)
        self._fresh_costs = (self.fresh_cost / max(self._first_runs, 1e-12), self.fresh_cost)
        self.price = sum(
            float(step.run_cost[step.option]) / step.menu.members[step.option] * step.visits for step in self.backwards
        )

    def tell(self) -> tuple[tuple[Planned, ...], tuple[str, ...]]:
        """The plan of a request that starts now, as values and as texts."""
        if self._told is None:
            planned = tuple(step.planned(self._before[step.name], at, end) for step, at, end in self._spans)
            self._told = planned, tuple(map(str, planned))
        return self._told

    def fresh_cost_at(self, step: Step) -> float:
        """What a new request costs, per run of this stage if it is the first.

        At least what the rest of a request costs that is on schedule here. An arm of a branch can cost more than a new
        request does on average over all arms: judged by that average, every request that takes the arm is dropped, and
        all of them where none takes another.
        """
        return max(self._fresh_costs[not step.is_first], step.usual_cost)

    def is_costly(self, left_s: float, times: float) -> bool:
        """Whether a request with so much time left costs more than this many times what a new one does."""
        cost = sum(step.visits * step.least_cost(left_s) for step in self.first)
        return isfinite(self.fresh_cost) and cost > times * self.fresh_cost

    def _mean_remaining(self, left: Mapping[str, int], start: int) -> float:
        """The part of its work that a request on schedule still has ahead, on average over its time in the cluster.

        By Little's law, so much work per request is under way when answers take as long as they may.
        """
        work = {step.name: step.visits * sum(step.menu.uses[step.option]) for step in self.backwards}
        whole = sum(work.values())
        area = sum(amount * (start - left[name]) for name, amount in work.items())
        return min(1.0, max(0.3, area / max(whole * max(start - min(left.values()), 1), 1e-12)))


class Outlook:
    """All workflows in one model, refreshed as arrivals and times change."""

    def __init__(
        self, site: Site, menus: Mapping[str, Menu], supply: Supply, without: frozenset[str] = frozenset()
    ) -> None:
        self._without = without
        self._most_price = 1.0 if "prices" in without else _MOST_PRICE
        self.menus = menus
        self.supply = supply
        self.flows = {name: Flow(workflow, menus) for name, workflow in site.workflows.items()}
        self.prices: Reals = np.ones(2)  # times the base price
        self._loaded: tuple[list[float], Pair, float] = ([], (0.0, 0.0), 0.0)  # the load, and for what
        self.rates = dict.fromkeys(menus, 0.0)
        self.busy: dict[tuple[str, float], tuple[float, int]] = {}
        self.filled: dict[str, float] = {}  # by function: instances that are busy on average if all batches are full
        self.spare_s: dict[str, float] = {}  # by function: how long its runs can wait for an instance, per stage
        self._since: float | None = None
        self._is_first = True
        self.version = 0  # of the model, one more with every refresh
        self.is_losing = False  # whether requests are being dropped
        self.is_short = False  # whether a resource is short by the plan
        self.due = 0.0
        self._assumed = [menu for name, menu in menus.items() if len(menu) and site.profiles[name].is_assumed]
        self._learn_due = 0.0
        self._tabulate()

    def arrive(self, request: Request, now: float) -> bool:
        """Count a request; tells whether its workflow has other deadlines than the model was for, and now has these."""
        is_new = self.flows[request.workflow].arrive(request.deadline - now)
        if is_new:
            self._tabulate()
            self.version += 1
        return is_new

    @property
    def is_counted(self) -> bool:
        """Whether arrivals have been counted once, so that there are rates."""
        return not self._is_first

    @property
    def is_scarce(self) -> bool:
        """Whether a resource is short, by the plan or by requests that had to be dropped."""
        return self.is_losing or self.is_short

    def refresh(self, view: View) -> bool:
        """Bring the model up to date if it is time; tells whether it was."""
        now = view.now
        if self._since is None:
            self._since, self.due = now, now + min(0.2, self.period_s / 4)
            return False
        if now < self.due:
            return False
        passed_s = now - self._since
        self._follow_rates(passed_s)
        self._is_first = False
        self._since, self.due = now, now + self.period_s
        for name, menu in self.menus.items():
            if len(menu):
                menu.learn(view.profile(name), corrects="times" not in self._without)
        load = self.load
        safety = min(1.0, max(0.5, 1.0 - (load - 0.5) * 2))  # being safe is cheap where there is room
        for menu in self.menus.values():
            menu.safety += 0.3 * (safety - menu.safety)
        self._set_rates()
        self._tabulate()
        step = 1.0
        for _ in range(_ROUNDS if self.prices.max() > 1 or load > _TARGET else 1):
            over = self._use / np.maximum(_TARGET * self.supply.usable, 1e-9) - 1
            over[self.supply.usable <= 0] = -1.0
            self.prices = np.clip(self.prices * np.exp(np.clip(step * over, -0.7, 0.7)), 1.0, self._most_price)
            step *= 0.7
            if self.prices.tolist() != self.told_prices:
                self._tabulate()
        self.is_short = bool(self.prices.max() > 1.02)
        self._share_out()
        if "room" not in self._without:
            self._keep_room()
        self.version += 1
        return True

    def learn_assumed(self, view: View) -> bool:
        """Take over times that were assumed and are learned now; tells whether that changed the tables.

        Between two refreshes several requests become due, all of which an assumption may lose that is ten times too
        short or too long.
        """
        if not self._assumed or view.now < self._learn_due or "times" in self._without:
            return False
        self._learn_due = view.now + self.period_s / _LEARNS
        wrong = [menu for menu in self._assumed if menu.is_wrong(view.profile(menu.name))]
        if not wrong:
            return False
        for menu in wrong:
            menu.learn(view.profile(menu.name))
        self._tabulate()
        self.version += 1
        return True

    def _follow_rates(self, passed_s: float) -> None:
        quick, slow = 1.0, 1.0
        if not self._is_first:
            quick = float(1 - np.exp(-passed_s / min(_WINDOW_S, 4 * self.period_s)))
            slow = float(1 - np.exp(-passed_s / LASTING_S))
        for flow in self.flows.values():
            seen = flow.arrived / passed_s
            flow.arrived = 0
            flow.rate += quick * (seen - flow.rate)
            flow.slow_rate += slow * (seen - flow.slow_rate)

    def _set_rates(self) -> None:
        self.rates = dict.fromkeys(self.menus, 0.0)
        for flow in self.flows.values():
            for step in flow.backwards:
                self.rates[step.menu.name] += flow.rate * step.visits

    @property
    def load(self) -> float:
        """The planned use of the busiest resource as a share of what there is."""
        used, there = self._used, self.supply.usable_pair
        if self._loaded[0] is not used or self._loaded[1] is not there:
            shares = [use / usable for use, usable in zip(used, there, strict=True) if usable > 0]
            self._loaded = used, there, max(shares, default=0.0)
        return self._loaded[2]

    def _tabulate(self) -> None:
        self.told_prices: list[float] = self.prices.tolist()
        slos = [flow.slo_s for flow in self.flows.values() if flow.is_due]
        self.period_s = min(max(5 * min(slos, default=1.0), 0.1), 2.0)  # between two refreshes
        surcharges = self.supply.usd_per_s * (self.prices - 1)
        self._use: Reals = np.zeros(2)
        busy: dict[tuple[str, float], tuple[float, int]] = {}
        filled: dict[str, float] = {}
        spare: dict[str, float] = {}
        for flow in self.flows.values():
            if not flow.can_run:
                continue
            flow.tabulate(surcharges, self.rates)
            self._use = self._use + flow.rate * flow.use
            spare_s = max(0.0, flow.slo_s - flow.fastest_s) / flow.runs if flow.rate else inf
            for step in flow.backwards:
                menu, option = step.menu, step.option
                key = (menu.name, menu.vgpus_each[option])
                least_s = menu.means_s[option] / menu.members[option]
                runs = flow.rate * step.visits
                busy[key] = (busy.get(key, (0.0, 0))[0] + runs * max(menu.ran_s, least_s), option)
                filled[menu.name] = filled.get(menu.name, 0.0) + runs * least_s
                spare[menu.name] = min(spare.get(menu.name, inf), spare_s)
        self.busy, self.filled, self.spare_s = busy, filled, spare
        self._used: list[float] = self._use.tolist()

    def _share_out(self) -> None:
        """Where not all can be answered: to each workflow a floor, and the rest to those that need least per answer."""
        amounts = self.supply.usable
        for flow in self.flows.values():
            flow.share = 1.0
        due = [
            flow for flow in self.flows.values() if flow.can_run and flow.rate and flow.is_due
        ]  # what is never late goes last, and has no share
        use = sum((flow.rate * flow.use for flow in due), np.zeros(2))
        there = amounts > 0
        over = float((use[there] / amounts[there]).max()) if there.any() else 0.0
        if over <= 1 or len(due) <= 1 or "shares" in self._without:
            return
        floor = FLOOR / over
        left = amounts - floor * use
        for flow in sorted(due, key=lambda flow: flow.price):
            more = (1 - floor) * flow.rate * flow.use
            wanted = more > 1e-12
            part = min(1.0, float((np.maximum(left, 0)[wanted] / more[wanted]).min())) if wanted.any() else 1.0
            flow.share = floor + (1 - floor) * part
            left = left - part * more

    def _keep_room(self) -> None:
        """For each stage, what its runs must leave free: room for requests that cannot wait until such a run ends."""
        hasty = [
            (flow.slo_s - flow.fastest_s, flow, _KEPT * flow.share * flow.rate * flow.use)
            for flow in self.flows.values()
            if flow.can_run and flow.is_due and flow.rate > 0
        ]
        runs = [
            (flow, step, step.menu.means_s[step.option])
            for flow in self.flows.values()
            if flow.can_run
            for step in flow.backwards
        ]
        longest_s = max([run_s for _, _, run_s in runs], default=0.0)
        hasty = [one for one in hasty if one[0] < longest_s]  # of many workflows, few cannot wait for any run
        for flow, step, run_s in runs:
            ahead = [(one, need) for slack_s, one, need in hasty if slack_s < run_s and one is not flow]
            if ahead or step.keeps:
                step.kept = sum((need for _, need in ahead), np.zeros(2))
                step.keeps = bool(ahead)
                step.kept_for = frozenset(one.workflow.name for one, _ in ahead)


def headcount(busy: float, deviations: float) -> int:
    """Returns an instance count for `busy` busy ones on average, with a margin of `deviations` standard deviations."""
    return ceil(busy + deviations * sqrt(busy) + 0.5)


def chance_above(number: int, mean: float) -> float:
    """The probability that more than `number` instances are busy where `mean` are on average (a Poisson tail)."""
    if mean <= 0:
        return 0.0
    logs = [k * log(mean) - lgamma(k + 1) - mean for k in range(number + 1)]
    return max(0.0, 1.0 - sum(map(exp, logs)))
