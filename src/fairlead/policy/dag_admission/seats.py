"""Which instances are or will be warm, and which of them bookings count on."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf

from fairlead.model import Instance
from fairlead.policy.dag_admission.bookings import Booking, Place, Seat
from fairlead.policy.dag_admission.tasks import Pool, Way
from fairlead.policy.kit.reservations import mebi, milli


class Seats:
    """Every seat, by what it can be used for."""

    def __init__(self) -> None:
        self._alike: dict[tuple[object, ...], dict[Seat, None]] = {}
        self.sizes: frozenset[tuple[object, ...]] = frozenset()  # of which there is a seat

    def alike(self, way: Way) -> Iterable[Seat]:
        """The seats of the size of a way."""
        return self._alike.get(way.seat_key) or ()

    def add(self, way: Way, place: Place, device: int | None) -> Seat:
        """One more seat."""
        seat = Seat(way, place, device)
        place.seats.append(seat)
        place.pools.setdefault(seat.pool, []).append(seat)
        place.settled = None
        self._enter(seat, way)
        return seat

    def drop(self, seat: Seat) -> None:
        """Forget a seat."""
        seat.place.seats.remove(seat)
        seat.place.pools[seat.pool].remove(seat)
        seat.place.settled = None
        self._leave(seat)

    def resize(self, seat: Seat, way: Way) -> None:
        """Let a seat have another size."""
        if seat.way.seat_key != way.seat_key:
            self._leave(seat)
            self._enter(seat, way)
        seat.way, seat.place.settled = way, None

    def _enter(self, seat: Seat, way: Way) -> None:
        self._alike.setdefault(way.seat_key, {})[seat] = None
        if way.seat_key not in self.sizes:
            self.sizes |= {way.seat_key}

    def _leave(self, seat: Seat) -> None:
        key = seat.way.seat_key
        del self._alike[key][seat]
        if not self._alike[key]:
            self.sizes -= {key}

    def wake(self, seat: Seat, way: Way, now: float) -> None:
        """A run starts on a warm instance: the last used of the pool. Another seat has the one that was meant."""
        idle = [s for s in seat.place.pools[seat.pool] if not s.is_busy and s.free_at <= now]
        last = max(idle, key=lambda other: other.free_at, default=seat)
        last.free_at = seat.free_at
        self.resize(last, seat.way)
        self.resize(seat, way)

    def expire(self, place: Place, now: float) -> None:
        """Forget the seats of a node whose instances have expired."""
        for seat in list(place.seats):
            if not (seat.chain or seat.is_busy) and seat.free_at + seat.way.keep_alive_s <= now:
                self.drop(seat)

    def recount(self, place: Place, idle: Iterable[Instance], now: float) -> None:
        """Forget seats whose instance made way for another; `idle` are the instances that are left."""
        left = Counter(map(pool_of, idle))
        pools: dict[Pool, list[Seat]] = {}
        for seat in place.seats:
            if not (seat.is_busy or seat.way.is_weightless) and seat.free_at <= now:
                pools.setdefault(seat.pool, []).append(seat)
        for pool, seats in pools.items():
            gone = len(seats) - left[pool]
            if gone > 0:  # the least recently used instances, which no claim can be told to be for
                seats.sort(key=lambda seat: seat.free_at, reverse=True)
                instants = [seat.free_at for seat in seats]
                seats.sort(key=lambda seat: not seat.chain)
                for seat, free_at in zip(seats, instants, strict=True):
                    seat.free_at = free_at
                for seat in [seat for seat in seats[-gone:] if not seat.chain]:
                    self.drop(seat)


def idle_seat(booking: Booking, now: float) -> Seat | None:
    """A seat that is idle, that no other booking counts on, and that would do for a booking."""
    alike = booking.place.pools.get(booking.way.pool(booking.device), ())
    seats = [seat for seat in alike if not seat.is_busy and seat.free_at <= now]
    idle = [seat for seat in seats if not seat.chain and seat.free_at + seat.way.keep_alive_s > now]
    last = max(idle, key=lambda seat: seat.free_at, default=None)
    if last is None:
        return None
    # A booking that counts on another seat may be left with the instance of this one.
    for claim in (seat.chain[-1] for seat in seats if seat.chain):
        if claim.start >= last.free_at + last.way.keep_alive_s or _differ(last.way, claim.way):
            return None
    return last


def claimed(place: Place, now: float) -> list[Seat]:
    """The seats of a node that do not run but that a booking counts on, or that are just being started."""
    return [seat for seat in place.seats if not seat.is_busy and (seat.chain or seat.free_at > now)]


def is_warm_at(seat: Seat, start: float, now: float) -> bool:
    """Whether a run on a seat will find a warm instance, however soon what runs ends.

    Where other bookings count on seats of the same pool, each may be left with the least recently used instance.
    """
    keep_alive_s = seat.way.keep_alive_s
    if start >= min(now, seat.free_at) + keep_alive_s:
        # A run may end sooner than planned or not be needed at all, and its instance expire sooner.
        is_used = seat.is_busy or any(booking.is_sure for booking in seat.chain)
        if start >= (now if is_used else seat.free_at) + keep_alive_s:
            return False
    oldest, latest, has_rivals = inf, start, False
    for other in seat.place.pools[seat.pool]:
        if other.chain or other.is_busy or other.free_at + keep_alive_s > now:
            oldest = min(oldest, now if other.is_busy else other.free_at)
            if other.chain and other is not seat:
                if _differ(seat.way, other.chain[-1].way):
                    return False
                latest, has_rivals = max(latest, other.chain[-1].start), True
    return not has_rivals or latest < oldest + keep_alive_s


def counted_on(idle: Sequence[Instance], seats: Sequence[Seat]) -> set[int]:
    """Which of these instances the seats stand for: those of their size, where there are any."""
    left = list(seats)
    found: set[int] = set()
    for is_exact in (True, False):
        for instance in idle:
            sizes = [seat for seat in left if seat.pool == pool_of(instance)]
            if is_exact:
                sizes = [seat for seat in sizes if seat.way.configuration.vcpus == instance.vcpus]
            if sizes and instance.id not in found:
                left.remove(sizes[0])
                found.add(instance.id)
    return found


def pool_of(instance: Instance) -> Pool:
    """The pool of an instance: those that could stand in for each other."""
    return instance.function, milli(instance.vgpus), mebi(instance.memory_gb), instance.device


def _differ(one: Way, other: Way) -> bool:
    """Whether an idle instance of one size would keep more or less than is booked for one of the other."""
    return one.keeps_slice and one.seat_key != other.seat_key
