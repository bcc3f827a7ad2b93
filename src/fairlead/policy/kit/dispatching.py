"""ESG_Dispatch, for every policy that gives a queue a ranked list of configurations. Mechanics, not a policy.

Queues are per workflow and function. Each call visits them in turn, from one further than the last. The head of a queue
has a ranked list; the first configuration that finds a warm container is started with as many as its batch holds. A
queue for which nothing fits is looked at again at every later instant, and after so many of them may take the minimum
configuration.

A cold start is not waited for while something else may come sooner: where it would cost the deadline, and a container
of the function runs or starts already, one more is started in the background, and the queue waits for what comes first.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from fairlead.model import Configuration, Invocation
from fairlead.policy.base import Action, Plan, Searched, Start, View, Wake, Warm
from fairlead.policy.kit.locality import Locality

Queue = tuple[str, str]


@dataclass(frozen=True)
class Ranked:
    """What to try for the head of a queue, best first.

    `steps` is what that took to find; `plans` are promises to record. `again` ranks anew among configurations that are
    warm somewhere, for a policy that would rather take another than wait.
    """

    configurations: Sequence[Configuration]
    steps: int = 0
    plans: tuple[Plan, ...] = ()
    again: "Callable[[View], Ranked] | None" = None


Rank = Callable[[View, Invocation, int], Ranked]
"""Ranks for the head of a queue in which so many wait."""

_COLD_SHARE = 0.5  # of the time left: a cold start of at most this may be waited for


class Dispatcher:
    """Visits queues and starts what fits. `least` gives the minimum configuration of a function.

    `sizes` gives the smallest configuration of each GPU share. With it, nothing is ranked while no container of the
    function is warm where there is room. Without `prepares`, nothing is started in the background: the policy itself
    sees to what will be missing. Where functions share vCPUs (`is_crowded`), no cold start is waited for while a
    container of the function is busy, however long its run takes.
    """

    def __init__(
        self,
        locality: Locality,
        rounds: int,
        least: Callable[[str], Configuration],
        sizes: Callable[[str], Sequence[Configuration]] | None = None,
        *,
        prepares: bool = True,
        is_crowded: bool = False,
    ) -> None:
        self._locality = locality
        self._rounds = rounds
        self._least = least
        self._sizes = sizes
        self._prepares = prepares
        self._is_crowded = is_crowded
        self._blocked: set[str] = set()  # functions of which nothing is warm where there is room, in this call
        self._wanted: dict[Queue, Sequence[Configuration]] = {}  # what was ranked last
        self._turn = 0
        self._failures: dict[Queue, int] = {}
        self._tried: dict[Queue, tuple[float, int, int]] = {}  # instant, head and length at the last failure
        self._cold: dict[str, float] = {}  # declared, and asked for at every attempt
        self._wake = 0.0  # the instant for which a call was asked for
        self._busy_until: dict[str, float] = {}  # when the last that was started of a function is expected to end
        self._starting_until: dict[str, float] = {}  # when the last that starts in the background will be ready
        self._warming: dict[tuple[str, float], float] = {}  # until when a size of a function starts in the background

    def serve(self, view: View, rank: Rank) -> Iterator[Action]:
        """Start what waits, as far as it fits. Asked twice about the same state, it has nothing to add."""
        queues = view.queues()
        if not queues:
            return
        now = view.now
        self._blocked.clear()
        first = self._turn % len(queues)
        self._turn += 1
        for queue in (*queues[first:], *queues[:first]):
            while (head := view.oldest(*queue)) is not None:
                count = view.waiting(*queue)
                attempt = (now, head.id, count)
                if self._tried.get(queue) == attempt:
                    break
                if self._is_pointless(view, queue, head):
                    self._tried[queue] = attempt
                    yield from self._prepare(view, head, self._wanted[queue])
                    break
                found = yield from self._find(view, queue, head, rank(view, head, count))
                if found is None:
                    self._tried[queue] = attempt
                    yield from self._prepare(view, head, self._wanted[queue])
                    break
                self._failures.pop(queue, None)
                yield self._start(view, queue, *found)

    def _find(
        self, view: View, queue: Queue, head: Invocation, ranked: Ranked
    ) -> Generator[Action, None, tuple[Configuration, str] | None]:
        """Yield what a ranking has to tell; give the configuration and the node to start on, or None."""
        self._wanted[queue] = ranked.configurations
        if ranked.steps:
            yield Searched(ranked.steps)
        yield from ranked.plans
        found = self._locality.find_warm(view, head, ranked.configurations)
        if found is None and ranked.again is not None:
            other = ranked.again(view)
            if other.steps:
                yield Searched(other.steps)
            found = self._locality.find_warm(view, head, other.configurations)
        if found is None:
            found = self._after_failure(view, queue, head)
        if found is None and self._may_be_cold(view, head):
            found = self._locality.find_cold(view, head, ranked.configurations)
        return found

    def _is_pointless(self, view: View, queue: Queue, head: Invocation) -> bool:
        """Whether nothing can be started, whatever the ranking says."""
        function = head.function
        if self._sizes is None or queue not in self._wanted or not self._cold_s(view, function):
            return False
        if function not in self._blocked:
            for configuration in self._sizes(function):
                if view.place(function, configuration, "warm") is not None:
                    return False
            self._blocked.add(function)
        return not self._may_be_cold(view, head)

    def _start(self, view: View, queue: Queue, configuration: Configuration, node: str) -> Start:
        function = queue[1]
        profile = view.profile(function)
        end = view.now + profile.latency_s(configuration)
        if not view.is_warm(function, configuration, node):
            end += self._cold_s(view, function)
        self._busy_until[function] = max(end, self._busy_until.get(function, 0.0))
        return Start(tuple(islice(view.by_ready(*queue), configuration.batch)), configuration, node)

    def _after_failure(self, view: View, queue: Queue, head: Invocation) -> tuple[Configuration, str] | None:
        """The minimum configuration, once a queue has failed often enough; an instant counts once."""
        failures = self._failures.get(queue, 0)
        if queue not in self._tried or self._tried[queue][0] != view.now:
            self._failures[queue] = failures = failures + 1
        if failures < self._rounds:
            return None
        return self._locality.find_warm(view, head, [self._least(head.function)])

    def _may_be_cold(self, view: View, head: Invocation) -> bool:
        """Whether to wait for a cold start: if it costs little, or nothing of the function runs or starts."""
        if self._cold_s(view, head.function) <= _COLD_SHARE * (head.deadline - view.now):
            return True
        if self._hope(head.function) > view.now:
            return False
        # A run may take longer than expected. Where vCPUs are short, what has not ended is still hoped for.
        return not self._is_crowded or all(instance.is_idle for instance in view.instances(head.function))

    def _cold_s(self, view: View, function: str) -> float:
        found = self._cold.get(function)
        if found is None:
            found = self._cold[function] = view.profile(function).cold_start_s()
        return found

    def _hope(self, function: str) -> float:
        """Until when something of a function runs or starts, as far as is known."""
        return max(self._busy_until.get(function, 0.0), self._starting_until.get(function, 0.0))

    def _prepare(self, view: View, head: Invocation, ranked: Sequence[Configuration]) -> tuple[Action, ...]:
        """Start what is missing in the background, one of a size at a time, and look again when hope ends."""
        function, now = head.function, view.now
        hope = self._hope(function)
        if hope <= now:  # it is not a container that is missing, but room
            return ()
        actions: list[Action] = []
        if self._prepares and ranked and self._warming.get((function, ranked[0].vgpus), 0.0) <= now:
            node = view.place(function, ranked[0], "fresh")
            if node is not None and not view.is_warm(function, ranked[0], node):
                until = now + self._cold_s(view, function)
                self._warming[function, ranked[0].vgpus] = self._starting_until[function] = until
                hope = max(hope, until)
                actions.append(Warm(function, ranked[0], node))
        if self._wake <= now:
            self._wake = hope
            actions.append(Wake(hope))
        return tuple(actions)
