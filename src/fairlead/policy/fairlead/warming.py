"""Instances that are started before they are needed, and which ones make way when memory is short.

An instance is worth what it saves: requests per second that would come late if it had to be started for them. It is
started ahead where the plan has fewer than it needs, and may drive out idle instances that are worth less.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from math import ceil, exp, inf, sqrt

from fairlead.model import Instance
from fairlead.policy.base import Action, Counts, Retire, View, Warm
from fairlead.policy.fairlead.ground import Ground
from fairlead.policy.fairlead.menu import Menu, Pair, Supply
from fairlead.policy.fairlead.outlook import LASTING_S, Outlook, chance_above, headcount
from fairlead.policy.fairlead.roster import Roster

_LOOK_S = 0.5
_STARTING = 0.5  # share of a resource that planned starts may take at a time
_MISSED = 0.03  # the same for starts beyond the plan
_DEVIATIONS = 2.0
_RETRY = 0.003  # of a cold start, before an instance that was missed is tried again
_HORIZON = 4.0  # cold starts over which the requests that wait for an instance are spread to give its worth
_IMPATIENT = 2.0  # runs of its function for which a request can wait, up to which it is taken to wait for none
_WORTH_MORE = 1.5  # times the worth of what it drives out


class Warming:
    """Decides which instances to start ahead, and where."""

    def __init__(
        self,
        outlook: Outlook,
        ground: Ground,
        roster: Roster,
        without: frozenset[str] = frozenset(),
        *,
        holds_slices: bool,
    ) -> None:
        self._outlook = outlook
        self._ground = ground
        self._without = without
        self._menus: Mapping[str, Menu] = outlook.menus
        self._supply: Supply = outlook.supply
        self._holds_slices = holds_slices
        self._roster = roster
        self.missed: dict[str, int] = {}  # by function: the option that its first in line wanted
        self._margin = (-1, 0.0)  # standard deviations of instances that fit, and for which version of the model
        self._counted: tuple[int, dict[tuple[str, float], int]] = (-1, {})  # instances wanted, by the same version
        self._worths: tuple[int, dict[str, float]] = (-1, {})
        self._plans: tuple[int, dict[str, list[tuple[float, int]]]] = (-1, {})
        self._retry: dict[str, float] = {}  # by function: when to try again what found no room
        self._due = 0.0
        self._counts: dict[str, tuple[Counts, ...]] = {}  # by function, since the last action
        self._idle: dict[str, tuple[Instance, ...]] = {}  # by node, likewise
        self.wake = inf

    def learn(self, started: Iterable[Instance]) -> None:
        """Take in how long these instances took to start."""
        for one in started:
            kind = self._ground.kind(one.node)
            if kind is not None:
                self._menus[one.function].was_started(kind, one.start_s)

    def is_starting(self, function: str) -> bool:
        """Whether an instance of a function is being started ahead of need."""
        return self._roster.under_way(function) > 0

    def is_asked(self, now: float) -> bool:
        """Whether there is anything to look at now: what was missed, or whether the plan has what it needs."""
        self.wake = inf  # until something is started
        return bool(self.missed) or now >= self._due

    def provide(self, view: View) -> Iterator[Action]:
        """Start what was missed, and what the plan needs."""
        self._look_again()
        if "warming" in self._without:
            self.missed.clear()
        for function, option in self.missed.items():
            if view.now >= self._retry.get(function, -inf):
                menu = self._menus[function]
                self._retry[function] = view.now + _RETRY * menu.cold_s
                yield from self._after_miss(view, menu, option)
        self.missed.clear()
        is_planned = not self._without & {"warming", "planned-instances"}
        if view.now < self._due or not self._outlook.rates or not is_planned:
            return
        self._due = view.now + _LOOK_S
        lacking = []
        for (function, share), (busy, option) in self._outlook.busy.items():
            if busy > 0 and self._menus[function].cold_s > 0 and view.scaled(function) is None:
                there, wanted = self._there(view, function, share), self._wanted(function, share)
                lacking += [((there + i) / wanted, -share, function, option) for i in range(min(wanted - there, 8))]
        for _, _, function, option in sorted(lacking):  # first what has the smallest part of what it needs
            yield from self._start(view, self._menus[function], option, _STARTING)

    def _there(self, view: View, function: str, share: float) -> int:
        return sum([one.ready + one.starting for one in self._count(view, function) if one.vgpus == share])

    def _count(self, view: View, function: str) -> tuple[Counts, ...]:
        found = self._counts.get(function)
        if found is None:
            found = self._counts[function] = view.counts(function)
        return found

    def _idle_on(self, view: View, node: str) -> tuple[Instance, ...]:
        found = self._idle.get(node)
        if found is None:
            found = self._idle[node] = view.idle(node)
        return found

    def _look_again(self) -> None:
        """Forget what was there: an action has changed it."""
        self._counts.clear()
        self._idle.clear()

    def _wanted(self, function: str, share: float) -> int:
        if self._counted[0] != self._outlook.version:
            self._counted = self._outlook.version, {}
        found = self._counted[1].get((function, share))
        if found is None:
            found = self._counted[1][function, share] = self._count_wanted(function, share)
        return found

    def _count_wanted(self, function: str, share: float) -> int:
        busy, option = self._outlook.busy.get((function, share), (0.0, 0))
        if not self._holds_slices:
            return max(1, min(headcount(busy, _DEVIATIONS), self._supply.slots(self._menus[function].held_by[option])))
        if self._margin[0] != self._outlook.version:
            self._margin = self._outlook.version, self._affordable_deviations()
        return max(1, ceil(busy + self._margin[1] * sqrt(busy)))

    def _affordable_deviations(self) -> float:
        """The largest margin with which the planned instances fit side by side."""
        amounts = self._supply.amounts
        for deviations in (4.0, 3.5, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5):
            held = sum(
                self._menus[function].holding[option] * ceil(busy + deviations * sqrt(busy))
                for (function, _), (busy, option) in self._outlook.busy.items()
                if busy > 0
            )
            if not isinstance(held, int) and (held <= 0.97 * amounts + 1e-9).all():
                return deviations
        return 0.0

    def held(self) -> Pair:
        """What instances take that are being started ahead of need."""
        return self._roster.held()

    def _after_miss(self, view: View, menu: Menu, option: int) -> Iterator[Action]:
        share = menu.vgpus_each[option]
        if view.scaled(menu.name) is not None:
            return
        wanted = self._wanted(menu.name, share)
        if self._ground.is_blocked(menu, option):
            return
        if self._roster.under_way(menu.name, share) >= (1 if self._holds_slices else 4):
            return
        there = self._there(view, menu.name, share)
        if self._holds_slices and there >= wanted:
            return
        yield from self._start(view, menu, option, _STARTING if there < wanted or not there else _MISSED)

    def _start(self, view: View, menu: Menu, option: int, most: float) -> Iterator[Action]:
        configuration, _ = menu.options[option]
        holding, amounts, taken = menu.held_by[option], self._supply.amounts_pair, self.held()
        if any(holding[i] > 0 and taken[i] > 0 and taken[i] + holding[i] > most * amounts[i] for i in (0, 1)):
            return
        if self._ground.is_blocked(menu, option):
            return
        node = view.place(menu.name, configuration, "fresh", evicts=False)
        if node is not None and self._is_in_the_way(view, menu, option, node):
            node = self._out_of_the_way(view, menu, option)
            if node is None:
                return
        elif node is None and "worth" in self._without and not self._holds_slices:
            node = view.place(menu.name, configuration, "fresh", evicts=True)
        elif node is None and view.place(menu.name, configuration, "fresh") is not None:
            make_room = self._free_slice if self._holds_slices else self._free_memory
            node = yield from make_room(view, menu, option)
        if node is None:
            return
        yield Warm(menu.name, configuration, node)
        self.begun(view, menu, option, node)
        self._look_again()

    def _is_in_the_way(self, view: View, menu: Menu, option: int, node: str) -> bool:
        """Whether a start on a node is worth less than what it keeps instances that are warm there from answering.

        Without an instance of the function none of its requests is answered, so the first start is never in the way.
        A start is worth the share of the time in which the new instance is used beside those that are there, by
        requests that could not wait for one of these, as long as the load lasts. Until it is ready it takes away what
        functions that have instances nowhere else need. How long that will be is known badly, so no other start is
        added to one that takes room from warm instances, and none keeps a function from running at all, unless the
        function of the start is always short of instances.
        """
        held, share = menu.held_by[option], menu.vgpus_each[option]
        if not any(one.ready + one.starting for one in self._count(view, menu.name)):
            return False
        capacity, starts = self._ground.capacity(node), self._roster.held(node)
        needs, largest = self._needs(node)
        blocked, stops = 0.0, False
        for i in (0, 1):
            if held[i] > 0 and needs[i] > 0:
                left = capacity[i] - starts[i] - held[i] + 1e-9
                blocked = max(blocked, min(1.0, (needs[i] - left) / held[i]))
                stops |= largest[i] > left
        if blocked <= 0:
            return False
        there = self._there(view, menu.name, share)
        busy = self._outlook.busy.get((menu.name, share), (0.0, 0))[0] / max(1.0, self._outlook.load)
        if any(starts) or (stops and busy <= there):
            return True
        used = chance_above(there, busy) * self._chance_of_lateness(menu, option, there)
        return used * min(menu.function.keep_alive_s, LASTING_S) <= blocked * menu.cold_s

    def _chance_of_lateness(self, menu: Menu, option: int, there: int) -> float:
        """The probability that a run which finds all instances of its function busy waits longer than it can.

        By the tail of an M/M/c queue. As instances are busy, batches fill: so they are counted as full. Of an overload
        only what the cluster can do counts. Runs that cannot wait for two others are taken to be late.
        """
        free = there - self._outlook.filled[menu.name] / max(1.0, self._outlook.load)
        runs = self._outlook.spare_s[menu.name] / menu.means_s[option]  # that it can wait for
        return exp(-free * max(0.0, runs - _IMPATIENT)) if free > 0 else 1.0

    def _needs(self, node: str) -> tuple[Pair, Pair]:
        """What functions that have instances only on this node need, with room for a whole run; and their largest run.

        That is what they use on average; before arrivals are counted, one run of each.
        """
        use, rest, largest = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
        for function in self._roster.only_on(node):
            menu = self._menus[function]
            if menu.function.idle_holds == "slice":
                continue  # its instances keep their room, so nothing can be started in it
            for busy, option in self._planned(function):
                for i, held in enumerate(menu.held_by[option]):
                    use[i] += busy * held
                    rest[i] = max(rest[i], (1 - min(1.0, busy)) * held)
                    largest[i] = max(largest[i], held)
        return (use[0] + rest[0], use[1] + rest[1]), (largest[0], largest[1])

    def _planned(self, function: str) -> list[tuple[float, int]]:
        """The options that the plan has for a function which is asked for, and how many instances each keeps busy."""
        if self._plans[0] != self._outlook.version:
            self._plans = self._outlook.version, {}
            for (name, _), (busy, option) in self._outlook.busy.items():
                busy = busy if self._outlook.is_counted else 1.0
                if busy > 0:
                    self._plans[1].setdefault(name, []).append((busy, option))
        return self._plans[1].get(function, [])

    def _out_of_the_way(self, view: View, menu: Menu, option: int) -> str | None:
        configuration, kind = menu.options[option]
        for node in view.nodes:
            has_room = view.fits(menu.name, configuration, node.name, evicts=False, is_fresh=True)
            if node.kind == kind and has_room and not self._is_in_the_way(view, menu, option, node.name):
                return node.name
        return None

    def begun(self, view: View, menu: Menu, option: int, node: str) -> None:
        """Note the newest instance of a function, which is being started ahead of need."""
        self._roster.begin(view.instances(menu.name)[-1].id, menu, option, node)
        self.wake = min(self.wake, view.now + menu.cold_s + 1e-6)

    def _spare(self, view: View, function: str) -> int:
        """Instances of a function beyond those that are wanted."""
        return sum(
            max(0, one.ready + one.starting - self._wanted(function, one.vgpus)) for one in self._count(view, function)
        )

    def worth(self, function: str) -> float:
        """Requests per second that an instance saves from being late, per GB that it keeps."""
        if self._worths[0] != self._outlook.version:
            self._worths = self._outlook.version, {}
        found = self._worths[1].get(function)
        if found is None:
            found = self._worths[1][function] = self._rate(function) / self._memory_gb(self._menus[function])
        return found

    def _worth_of(self, function: str, number: int) -> float:
        """The same for the n-th instance: a request needs it that finds n - 1 others busy."""
        if number <= 1:
            return self.worth(function)
        busy = sum(each for each, _ in self._planned(function))
        return self.worth(function) * chance_above(number - 2, busy)

    def _all(self, view: View, function: str) -> int:
        return sum([one.ready + one.starting for one in self._count(view, function)])

    @staticmethod
    def _memory_gb(menu: Menu) -> float:
        return max(menu.function.memory_gb + menu.function.footprint_gb, 1e-3)

    def _rate(self, function: str) -> float:
        total = 0.0
        for flow in self._outlook.flows.values():
            for step in flow.backwards:
                if step.menu.name == function:
                    spare_s = step.slo_s - flow.fastest_s
                    lost = 1.0 if step.menu.cold_s > spare_s else 0.3 * step.menu.cold_s / max(spare_s, 1e-9)
                    total += max(flow.rate, flow.slow_rate) * step.visits * lost
        return total

    def _free_slice(self, view: View, menu: Menu, option: int) -> Generator[Action, None, str | None]:
        """Stop idle instances of functions that have more than they need, until one of this function fits."""
        configuration, kind = menu.options[option]
        places = [
            (node.name, idle)
            for node in view.nodes
            if node.kind == kind
            and (idle := self._idle_on(view, node.name))
            and view.fits(menu.name, configuration, node.name, is_fresh=True)
        ]
        if not places:
            return None
        sizes = {(one.function, one.vgpus) for _, idle in places for one in idle}
        spare = {size: self._there(view, *size) - self._wanted(*size) for size in sizes}
        needed = max(menu.held_by[option])
        for node, idle in places:
            by_device: dict[int, list[Instance]] = {}
            for one in idle:
                if spare[one.function, one.vgpus] > 0:
                    by_device.setdefault(one.device, []).append(one)
            for victims in by_device.values():
                freed = sum(self._supply.part(kind, one.vgpus) or one.vcpus for one in victims)
                if freed < min(needed, 1.0):
                    continue
                for one in victims:
                    if view.fits(menu.name, configuration, node, evicts=False, is_fresh=True):
                        break
                    if spare[one.function, one.vgpus] > 0:
                        spare[one.function, one.vgpus] -= 1
                        yield Retire(one.id)
                        self._look_again()
                if view.fits(menu.name, configuration, node, evicts=False, is_fresh=True):
                    return node
        share = menu.vgpus_each[option]
        part = self._there(view, menu.name, share) / self._wanted(menu.name, share)
        for node, _ in places:  # slices lie across each other: what has a larger part of what it needs makes way
            if view.fits(menu.name, configuration, node, is_fresh=True):
                parts = [
                    self._there(view, one.function, one.vgpus) / self._wanted(one.function, one.vgpus)
                    for one in self._idle_on(view, node)
                ]
                if parts and min(parts) > part:
                    return node
        return None

    def left_over(self, view: View, menu: Menu, option: int, waiting: int, left_s: float) -> float:
        """How many waiting requests the instances that are there cannot serve within the time left.

        Without a deadline that cannot be told, and all of them count: what nothing ends must not wait for ever.
        """
        if left_s == inf:
            return waiting
        runs = self._all(view, menu.name) * left_s / menu.uppers_s[option]
        return max(0.0, waiting - runs * menu.members[option])

    def make_way(
        self, view: View, menu: Menu, option: int, waiting: float, allows: Callable[[str], bool]
    ) -> Generator[Action, None, str | None]:
        """Room for an instance that so many requests need, where what has to go is worth less; the node, or None."""
        self._look_again()
        gain = waiting / (_HORIZON * menu.cold_s) / self._memory_gb(menu)
        return (yield from self._free_memory(view, menu, option, gain, allows))

    def _free_memory(
        self,
        view: View,
        menu: Menu,
        option: int,
        gain: float = 0.0,
        allows: Callable[[str], bool] = lambda node: True,
    ) -> Generator[Action, None, str | None]:
        """Stop idle instances that are worth less than one of this function would be; gives the node, or None."""
        configuration, kind = menu.options[option]
        worth = (self._worth_of(menu.name, self._all(view, menu.name) + 1) + gain) / _WORTH_MORE
        needed = configuration.memory_gb or menu.function.memory_gb
        spare: dict[str, int] = {}
        best: tuple[float, str, list[int]] | None = None
        for node in view.nodes:
            if node.kind != kind or not allows(node.name):
                continue
            if not view.fits(menu.name, configuration, node.name, is_fresh=True):
                continue  # it is not memory that is missing
            left = dict(spare)
            going: dict[str, int] = {}
            values = []
            for one in self._idle_on(view, node.name):
                name = one.function
                if name not in left:
                    left[name] = spare[name] = self._spare(view, name)
                left[name] -= 1
                number = self._all(view, name) - going.get(name, 0)
                going[name] = going.get(name, 0) + 1
                values.append((0.0 if left[name] >= 0 else self._worth_of(name, number), one.id, one))
            victims, loss, freed = [], 0.0, 0.0
            for value, _, one in sorted(values, key=lambda item: item[:2]):
                if freed >= needed or value >= worth or one.function == menu.name:
                    break
                victims.append(one.id)
                loss += value * one.memory_gb
                freed += one.memory_gb
            if freed >= needed and (best is None or loss < best[0]):
                best = loss, node.name, victims
        if best is None:
            return None
        for victim in best[2]:
            yield Retire(victim)
        self._look_again()
        return best[1] if view.fits(menu.name, configuration, best[1], is_fresh=True) else None
