"""Batches by deadline: the cheapest per invocation that breaks no deadline which a smaller one would keep.

A member's budget is the time to its deadline, less the longest path of later stages at the fastest. A batch is
predicted to end after its configuration's believed time on the node where it would run, and a cold start where no
instance is warm there.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from math import inf
from typing import NamedTuple

from fairlead.model import Configuration, Invocation, Record
from fairlead.policy.base import Order, Site, Start, View
from fairlead.policy.kit.batching.gathering import Gathering, Step, Urgency
from fairlead.policy.kit.remaining import fastest_s, longest_after

SMOOTHING = 0.125  # weight of the newest gap between arrivals

_MOST_PASSED_OVER = 256  # who waits beyond is not looked at, so that a decision takes no longer


class Option(NamedTuple):
    """A way to run a batch now: how long from now to its end, and what the run costs."""

    configuration: Configuration
    node: str
    seconds: float
    cost_usd: float


class Candidate(NamedTuple):
    """One that waits, and how long from now its batch may take at most."""

    invocation: Invocation
    budget_s: float


class Choice(NamedTuple):
    """A batch and a way to run it."""

    members: tuple[Candidate, ...]
    option: Option

    @property
    def price(self) -> tuple[float, float]:
        """What one invocation costs; where nothing costs money, the time it takes up."""
        count = len(self.members)
        return self.option.cost_usd / count, self.option.seconds / count


class Deadline:
    """Chooses the batch by its members' deadlines, and waits for more members only while that can only help.

    It waits while all of this holds: another member is expected, by the smoothed gap between arrivals; the batch with
    it would cost less per invocation; and it would still end within every member's share of its time for this stage.
    Later stages keep theirs. Where a workflow has no objective, nothing says how long a wait may be: it never waits.

    Under overload the most urgent can only be saved in small batches, one after the other, while the queue behind
    them grows late. So those whom only a smaller batch would save are passed over for a larger one without them, where
    that keeps more deadlines than serving both in the other order.
    """

    def __init__(self, site: Site, headroom: float = 0.1, urgency: Urgency = "oldest") -> None:
        self._gathering = Gathering(site, urgency)
        self._planned = 1 - headroom
        self._late_last = urgency == "deadline"
        self._kinds = {node.name: node.kind for node in site.cluster.nodes}
        self._fastest_s = {name: fastest_s(profile) for name, profile in site.profiles.items()}
        self._rest_s = {
            (workflow.name, stage): rest_s
            for workflow in site.workflows.values()
            for stage, rest_s in longest_after(workflow, self._fastest_s).items()
        }
        self._newest: dict[str, float] = {}  # by function: when the newest that was started had become ready
        self._gap_s: dict[str, float] = {}

    def next(self, view: View, head: Invocation, order: Order = "warm-first") -> Step:
        if self._gathering.is_held(view, head):
            return Step(None, is_held=True)
        function = head.function
        sizes = self._gathering.sizes[function]
        offers = {size: self._options(view, function, some, order) for size, some in sizes.items()}
        if not any(offers.values()):
            return Step(None, is_full=True)
        candidates = self._candidates(view, head, offers)
        choice = best_choice(candidates, offers)
        if len(choice.members) == len(candidates) < max(sizes):
            until = self._worth_waiting(view, choice, offers)
            if until is not None:
                return self._gathering.wait(view, head, until)
        members = tuple(candidate.invocation for candidate in choice.members)
        self._note(function, members)
        return Step(Start(members, choice.option.configuration, choice.option.node))

    def observe(self, record: Record) -> None:
        """The times that it believes are the controller's, which follow what finished; there is nothing to add."""

    def _candidates(self, view: View, head: Invocation, offers: Mapping[int, list[Option]]) -> list[Candidate]:
        """As many as fill the largest batch, not counting those that would have to be passed over for it.

        By deadline, those who are late in any case come last, or they would take the seats of those who are not.
        """
        largest, all_s = max(offers), [option.seconds for options in offers.values() for option in options]
        least_s, most_s = min(all_s), max(all_s)
        found: list[Candidate] = []
        count = 0
        for invocation in islice(self._gathering.line(view, head), largest + _MOST_PASSED_OVER):
            budget_s = self._budget_s(view, invocation)
            found.append(Candidate(invocation, budget_s))
            count += budget_s >= most_s or (budget_s < least_s and not self._late_last)
            if count == largest:
                break
        if self._late_last:
            found.sort(key=lambda candidate: candidate.budget_s < least_s)
        return found

    def _budget_s(self, view: View, member: Invocation) -> float:
        return (view.slack_s(member) - self._rest_s[member.workflow, member.stage]) * self._planned

    def _options(
        self, view: View, function: str, configurations: Sequence[Configuration], order: Order
    ) -> list[Option]:
        """Those of these configurations that fit now, and where."""
        profile = view.profile(function)
        found = []
        for configuration in configurations:
            node = view.place(function, configuration, order)
            if node is not None:
                kind = self._kind(view, node)
                seconds = profile.latency_s(configuration, kind)
                if not view.is_warm(function, configuration, node):
                    seconds += profile.cold_start_s(kind)
                found.append(Option(configuration, node, seconds, profile.cost_usd(configuration, kind)))
        return found

    def _worth_waiting(self, view: View, now: Choice, offers: Mapping[int, list[Option]]) -> float | None:
        """Until when to wait for one more member; None to start now."""
        members = [candidate.invocation for candidate in now.members]
        function, more = members[0].function, len(members) + 1
        if function not in self._gap_s:
            return None
        newest = max(self._newest[function], *(member.ready for member in members))
        expected = newest + self._gap_s[function]
        latest_end = min(self._latest_end(member) for member in members)
        if expected <= view.now or latest_end == inf:
            return None  # an overdue one may never come
        size = next(size for size in offers if size >= more)
        for option in offers[size]:
            price = option.cost_usd / more, option.seconds / more
            if price < now.price and expected + option.seconds / self._planned <= latest_end:
                return expected
        return None

    def _latest_end(self, member: Invocation) -> float:
        """When a member should have left this stage, if all time from here on is shared as the fastest times are."""
        own_s = self._fastest_s[member.function]
        path_s = own_s + self._rest_s[member.workflow, member.stage]
        share = own_s / path_s if path_s > 0 else 1.0
        return member.ready + (member.deadline - member.ready) * share if share > 0 else member.ready

    def _note(self, function: str, members: Sequence[Invocation]) -> None:
        """Learn how often the function is called, from those that are being started."""
        for ready in sorted(member.ready for member in members):
            newest = self._newest.get(function)
            self._newest[function] = ready if newest is None else max(newest, ready)
            if newest is not None:
                gap_s = max(0.0, ready - newest)
                before_s = self._gap_s.setdefault(function, gap_s)
                self._gap_s[function] = before_s + SMOOTHING * (gap_s - before_s)

    def _kind(self, view: View, node: str) -> str:
        if node not in self._kinds:  # it joined during the run
            self._kinds |= {node.name: node.kind for node in view.nodes}
        return self._kinds[node]


def best_choice(candidates: Sequence[Candidate], offers: Mapping[int, Sequence[Option]]) -> Choice:
    """The batch to start now.

    Args:
        candidates: Who waits, in order of precedence; at least one.
        offers: By batch size, ascending: the options of that size; at least one in all.
    """
    careful: Choice | None = None
    larger: Choice | None = None  # one without those whom it would make late
    quickest_s = inf  # of all smaller batches
    for size, options in offers.items():
        first = tuple(candidates[:size])
        choice = _in_time(first, options, quickest_s)
        if choice is not None and (careful is None or choice.price <= careful.price):
            careful = choice
        if quickest_s < inf and options:
            fastest = min(options, key=lambda option: option.seconds)
            others = (c for c in candidates if c.budget_s < quickest_s or c.budget_s >= fastest.seconds)
            without = Choice(tuple(islice(others, size)), fastest)
            if without.members and (larger is None or without.price <= larger.price):
                larger = without
        quickest_s = min([quickest_s, *(option.seconds for option in options)])
        if size >= len(candidates) and careful is not None:
            break
    assert careful is not None, "the smallest batch for which there is room is never refused"
    if larger is None or larger.price >= careful.price:
        return careful
    return larger if _kept(larger, careful) > _kept(careful, larger) else careful


def _in_time(members: tuple[Candidate, ...], options: Sequence[Option], quickest_s: float) -> Choice | None:
    """The cheapest way that keeps every deadline which a smaller batch, taking `quickest_s`, would keep.

    None if there is no option, or none that does. The smallest batch (infinity: nothing is quicker) is never refused:
    where it is late in any case, it takes the fastest option.
    """
    is_smallest = quickest_s == inf
    at_stake = [member.budget_s for member in members if is_smallest or member.budget_s >= quickest_s]
    in_time = [option for option in options if option.seconds <= min(at_stake, default=-inf)]
    if in_time:
        return Choice(members, min(in_time, key=lambda option: option.cost_usd))
    if options and (is_smallest or not at_stake):
        return Choice(members, min(options, key=lambda option: option.seconds))
    return None


def _kept(first: Choice, second: Choice) -> int:
    """How many deadlines are kept when one batch runs, and then, on the same instance, who of the other is left."""
    started = {candidate.invocation for candidate in first.members}
    later_s = first.option.seconds + second.option.seconds
    return sum(c.budget_s >= first.option.seconds for c in first.members) + sum(
        c.budget_s >= later_s for c in second.members if c.invocation not in started
    )
