"""One function of one workflow, as INFless knows functions: its objective, its rate, and its instances."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf

from fairlead.model import Configuration, Function
from fairlead.policy.base import View
from fairlead.policy.infless.offers import Offer
from fairlead.policy.infless.shares import shares
from fairlead.policy.kit.arrivals import Arrivals
from fairlead.policy.kit.capacity import Reservation, place_of
from fairlead.policy.kit.objectives import Queue

_SETTLED_S = 0.1  # after a container has started, it is given a rate


@dataclass(eq=False)
class Booking(Reservation):
    """An instance: room on a node for as long as it lives, whether it runs or not.

    Args:
        id: Ties between equal instances go to the smaller one.
        offer: What it is good for.
        is_kept: Whether it is the first of its function, which is never deleted for lack of load.
        part: The part of its vCPUs and vGPUs that it can use on average; below 1 on an oversold node.
        ready_from: Instant at which its container is predicted to have started.
        ready_by: Instant after which a container that is not warm is taken to have been evicted.
        has_container: Whether its container has started.
        is_ready: Whether it can be given a rate: its container has started, or should have long ago.
        is_busy: Whether it runs a batch.
        rate_rps: The part of its function's rate that it is given now.
        dropped_at: Since when it has been given none; infinity while it is given some.
        tag: For fair sharing: when, on the clock of its service, its share is used up.
    """

    id: int
    offer: Offer
    is_kept: bool = False
    part: float = 1.0
    ready_from: float = inf
    ready_by: float = inf
    has_container: bool = False
    is_ready: bool = False
    is_busy: bool = False
    rate_rps: float = 0.0
    dropped_at: float = inf
    tag: float = 0.0

    def expect(self, now: float, cold_s: float, *, is_started: bool) -> None:
        """Note when its container will have started."""
        self.has_container = is_started
        self.ready_from = now if is_started else now + cold_s
        self.ready_by = now + 1.2 * cold_s + 1.0

    @property
    def most_rps(self) -> float:
        """The greatest rate that it can serve."""
        return self.offer.high_rps * self.part

    @property
    def is_spare(self) -> bool:
        """Whether it can be deleted: it is given nothing and does nothing."""
        return self.dropped_at < inf and not (self.is_kept or self.is_busy)


class Service:
    """A queue with what it may run on.

    Args:
        queue: Its workflow and function.
        function: The function.
        slo_s: Its part of the workflow's objective.
    """

    def __init__(self, queue: Queue, function: Function, slo_s: float) -> None:
        self.queue = queue
        self.function = function
        self.slo_s = slo_s
        self.offers: Mapping[str, Sequence[Offer]] = {}  # by kind of node
        self.sizes: Mapping[tuple[float, float], Sequence[Configuration]] = {}
        self.bookings: list[Booking] = []
        self.free: dict[int, Booking] = {}  # by id: those that run nothing
        self.arrivals = Arrivals()
        self.rate_rps = 0.0  # what instances are scaled by
        self.refused = 0.0  # share of what comes that exceeds the rates of all instances
        self.blocked_at = -1  # version of the capacity at which nothing more fitted
        self._may_wait = inf  # how many are worked off in half of the time that the objective leaves for waiting
        self._most_waiting = inf  # beyond this many, whatever comes is refused
        self._changes_at = inf  # when a container that starts now begins to count for these two
        self._owed = 0.0  # refusals that are due; below 1
        self._clock = 0.0

    def measure(self, view: View, window_s: float) -> None:
        """Take the rate at which invocations came over a sliding window.

        What waits counts once more, as if it had to be worked off within a window: an instance that is good for just
        what comes would never be through with what piled up while it started.
        """
        self.rate_rps = self.arrivals.measure(view.now, window_s) + view.waiting(*self.queue) / window_s

    def share(self, now: float) -> None:
        """Divide the rate among the instances whose containers have started, or should have long ago."""
        for booking in self.bookings:
            if now > booking.ready_from + _SETTLED_S:
                booking.is_ready |= booking.has_container or now >= booking.ready_by
        ready = [booking for booking in self.bookings if booking.is_ready]
        rates = shares([(min(b.offer.low_rps, b.most_rps), b.most_rps) for b in ready], self.rate_rps)
        for booking, rate_rps in zip(ready, rates, strict=True):
            booking.rate_rps = rate_rps
            booking.dropped_at = inf if rate_rps > 0 else min(now, booking.dropped_at)

    def set_refused(self, now: float, excess: float) -> None:
        """Work out what share of arrivals exceeds the instances that are ready, or will be before it is due.

        A share of at most `excess` is not refused, nor is anything without an objective. Whatever the rate, at most one
        batch waits for each instance, or what can be worked off in the time that the objective leaves for waiting.
        """
        if self.slo_s == inf:
            return
        in_time_at = [b.ready_from - (self.slo_s - b.offer.latency_s) for b in self.bookings]
        soon = [b for b, at in zip(self.bookings, in_time_at, strict=True) if b.is_ready or at <= now]
        self._changes_at = min((at for at in in_time_at if at > now), default=inf)
        most_rps, come_rps = sum(booking.most_rps for booking in soon), self.arrivals.rate_rps
        self.refused = 1 - most_rps / come_rps if most_rps < (1 - excess) * come_rps else 0.0
        can_wait = most_rps * (self.slo_s - min((b.offer.latency_s for b in soon), default=0.0))
        self._may_wait = can_wait / 2
        self._most_waiting = max(can_wait, sum(booking.configuration.batch for booking in self.bookings))

    def refuses(self, now: float, waiting: int, excess: float) -> bool:
        """Whether the next request is refused, if this many wait before it.

        It is if the queue is full, or if it is one of the excess, in even intervals, and too many wait already.
        """
        if now >= self._changes_at:
            self.set_refused(now, excess)
        if waiting <= self._may_wait:
            return False
        if waiting >= self._most_waiting:
            return True
        self._owed += self.refused
        if self._owed < 1:
            return False
        self._owed -= 1
        return True

    @property
    def busy(self) -> float:
        """The share of its time for which each of its instances would have to run to serve its rate, in [0, 1]."""
        most_rps = sum(booking.offer.high_rps for booking in self.bookings)
        return min(1.0, self.rate_rps / most_rps) if most_rps else 0.0

    @property
    def unserved_rps(self) -> float:
        """What comes beyond the greatest rates of all its instances, those that still start included."""
        return self.rate_rps - sum(booking.most_rps for booking in self.bookings)

    def renew(
        self, offers: Mapping[str, Sequence[Offer]], sizes: Mapping[tuple[float, float], Sequence[Configuration]]
    ) -> None:
        """Take over corrected profiles; an instance whose size no longer keeps the objective stays as it is."""
        self.offers, self.sizes, self.blocked_at = offers, sizes, -1
        known = {offer.configuration: offer for found in offers.values() for offer in found}
        for booking in self.bookings:
            booking.offer = known.get(booking.configuration, booking.offer)

    def pick(self, view: View, full: Set[str]) -> Booking | None:
        """A free instance with a warm container: of those that are given a rate, the one least ahead of its share.

        Only if none of these is free, one that is given nothing. A container that has started, or should have long ago,
        and is not warm was evicted, and starts again with what it is given, if nothing else is free. Nodes in `full`
        are left out.
        """
        best: Booking | None = None
        best_key = (3, 0.0, 0)
        now = view.now
        for booking in self.free.values():
            if now < booking.ready_from < inf or booking.node in full:
                continue
            key = (0 if booking.rate_rps > 0 else 1, max(booking.tag, self._clock), booking.id)
            where = (self.function.name, booking.configuration, booking.node, booking.device)
            if key < best_key and not view.is_warm(*where):
                key = (2 if self._is_evicted(view, booking) else 3, *key[1:])
            if key < best_key and view.fits(*where):
                best, best_key = booking, key
        return best

    def _is_evicted(self, view: View, booking: Booking) -> bool:
        """Whether an instance that is not warm has no container that will be."""
        if view.now >= booking.ready_by or booking.ready_by == inf:
            return True
        there = (each for each in view.instances(self.function.name) if place_of(each) == booking.place)
        return booking.has_container and all(each.is_ready for each in there)

    def wanted_nodes(self, now: float) -> set[str]:
        """Where an oversold instance waits for room while the function runs nowhere."""
        if len(self.free) < len(self.bookings):
            return set()
        return {b.node for b in self.free.values() if b.part < 1 and not now < b.ready_from < inf}

    def begin(self, now: float, booking: Booking, batch: int) -> None:
        """Note that an instance has started a batch of this size."""
        del self.free[booking.id]
        booking.is_ready = booking.is_busy = True
        booking.ready_from = min(booking.ready_from, now)
        booking.ready_by = min(booking.ready_by, now)
        self._clock = max(booking.tag, self._clock)
        booking.tag = self._clock + batch / (booking.rate_rps or booking.offer.high_rps)

    def end(self, booking: Booking) -> None:
        """Note that the batch of an instance has ended."""
        self.free[booking.id] = booking
        booking.is_busy = False

    def filled(self, configuration: Configuration, count: int) -> Configuration:
        """The smallest batch of the same vCPUs and vGPUs that holds `count` invocations."""
        sizes = self.sizes[configuration.vcpus, configuration.vgpus]
        return next((each for each in sizes if each.batch >= count), configuration)
