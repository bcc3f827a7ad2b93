"""One function of one workflow, as INFless knows functions: its objective, its rate, and its instances."""

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf

from fairlead.model import Configuration, Function
from fairlead.policy.base import View
from fairlead.policy.infless.offers import Offer
from fairlead.policy.infless.shares import shares

Queue = tuple[str, str]


class Booking:
    """Room on a node that is kept for one instance for as long as it lives, whether it runs or not.

    `rate_rps` is what it is given now; 0 while it is to be dropped, since `dropped_at` (infinity while it is not).
    """

    __slots__ = (
        "configuration",
        "device",
        "dropped_at",
        "id",
        "is_closing",
        "is_kept",
        "is_ready",
        "node",
        "offer",
        "rate_rps",
        "ready_by",
        "ready_from",
        "running",
        "tag",
    )

    def __init__(self, id: int, offer: Offer, node: str, device: int, *, is_kept: bool) -> None:
        self.id = id
        self.offer = offer
        self.configuration = offer.configuration
        self.node = node
        self.device = device
        self.ready_from = self.ready_by = inf  # its container has started then at the earliest, and at the latest
        self.is_kept = is_kept  # the first of a function is never given up for lack of load
        self.is_ready = False
        self.is_closing = False  # to make room for a function that has none
        self.running = -1  # an invocation of the batch that it runs; -1 if it is free
        self.rate_rps = 0.0
        self.dropped_at = inf
        self.tag = 0.0  # of fair sharing: when, on the service's own clock, its share has been used up

    @property
    def place(self) -> tuple[str, int, float]:
        """Where its container is, and of what share of a GPU: containers of a function in one place are alike."""
        return self.node, self.device, self.configuration.vgpus

    @property
    def on_device(self) -> int | None:
        """The device as actions name it."""
        return None if self.device < 0 else self.device

    def expect(self, now: float, cold_s: float, *, is_started: bool) -> None:
        """Note when its container will have started."""
        self.ready_from = now if is_started else now + cold_s
        self.ready_by = now + 1.2 * cold_s + 1.0

    def note(self, now: float, has_container: bool) -> None:
        """Note whether it has started. What is warm before its time is another's, which was deleted."""
        if now > self.ready_from + 0.1:
            self.is_ready |= has_container or now >= self.ready_by

    @property
    def is_spare(self) -> bool:
        """Whether it can be deleted: it is given nothing and does nothing."""
        return self.dropped_at < inf and not self.is_kept and self.running < 0


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
        self.started = 0
        self.rate_rps = 0.0
        self.blocked_at = -1  # version of the room at which nothing more fitted
        self._clock = 0.0
        self._counts: deque[tuple[float, int]] = deque()  # (instant, invocations that had come)

    def measure(self, view: View, window_s: float) -> None:
        """Take the rate at which invocations came over a sliding window; what has started or waits has come.

        What waits counts once more, as if it had to be worked off within a window: an instance that is good for just
        what comes would never be through with what piled up while it started.
        """
        now, waiting = view.now, view.waiting(*self.queue)
        count, counts = self.started + waiting, self._counts
        while len(counts) > 1 and counts[1][0] <= now - window_s:
            counts.popleft()
        if counts and now > counts[0][0]:
            self.rate_rps = max(0, count - counts[0][1]) / (now - counts[0][0]) + waiting / window_s
        counts.append((now, count))

    def share(self, now: float) -> None:
        """Divide the rate among the instances whose containers have started."""
        ready = [booking for booking in self.bookings if booking.is_ready and not booking.is_closing]
        rates = shares([(b.offer.low_rps, b.offer.high_rps) for b in ready], self.rate_rps)
        for booking, rate_rps in zip(ready, rates, strict=True):
            booking.rate_rps = rate_rps
            booking.dropped_at = inf if rate_rps > 0 else min(now, booking.dropped_at)

    @property
    def unserved_rps(self) -> float:
        """What comes beyond the greatest rates of all its instances, those that still start included."""
        return self.rate_rps - sum(booking.offer.high_rps for booking in self.bookings)

    def renew(
        self, offers: Mapping[str, Sequence[Offer]], sizes: Mapping[tuple[float, float], Sequence[Configuration]]
    ) -> None:
        """Take over what is believed now; an instance whose size keeps the objective no more stays as it is."""
        self.offers, self.sizes, self.blocked_at = offers, sizes, -1
        known = {offer.configuration: offer for found in offers.values() for offer in found}
        for booking in self.bookings:
            booking.offer = known.get(booking.configuration, booking.offer)

    def pick(self, view: View) -> Booking | None:
        """A free instance with a warm container: of those that are given a rate, the one least ahead of its share.

        Only if none of these is free, one that is to be dropped: it is there. A container that should have started
        long ago and is not warm was evicted, and starts again with what it is given, if nothing else is free.
        """
        best: Booking | None = None
        best_key = (3, 0.0, 0)
        for booking in self.bookings:
            if booking.running >= 0 or booking.is_closing or view.now < booking.ready_from:
                continue
            rank = 0 if booking.rate_rps > 0 else 1
            key = (rank, max(booking.tag, self._clock), booking.id)
            if key >= best_key:
                continue
            where = (self.function.name, booking.configuration, booking.node, booking.on_device)
            if not view.is_warm(*where):
                if view.now < booking.ready_by:
                    continue
                key = (2, *key[1:])
                if key >= best_key:
                    continue
            if view.fits(*where):
                best, best_key = booking, key
        return best

    def begin(self, booking: Booking, batch: int, first: int) -> None:
        """Note that an instance has started so many, of which this is one."""
        self.started += batch
        booking.running = first
        booking.is_ready = True
        self._clock = max(booking.tag, self._clock)
        booking.tag = self._clock + batch / (booking.rate_rps or booking.offer.high_rps)

    def filled(self, configuration: Configuration, count: int) -> Configuration:
        """The smallest batch of the same size that holds so many: a batch takes what its configuration takes."""
        sizes = self.sizes[configuration.vcpus, configuration.vgpus]
        return next((each for each in sizes if each.batch >= count), configuration)
