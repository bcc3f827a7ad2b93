"""All instances of all functions: which are added, which are deleted, and the containers behind them."""

from collections.abc import Iterator
from math import inf

from fairlead.policy.base import Action, Changes, Retire, Site, View, Warm
from fairlead.policy.infless.offers import offers, smaller
from fairlead.policy.infless.placement import Found, Placement
from fairlead.policy.infless.service import Booking, Service
from fairlead.policy.kit.capacity import Capacity, place_of
from fairlead.policy.kit.objectives import queue_objectives
from fairlead.policy.kit.options import all_options


class Fleet:
    """The services of a site and the capacity that they share.

    Args:
        site: What there is.
        gpu_share: Largest part of a device that one instance may have.
    """

    def __init__(self, site: Site, gpu_share: float) -> None:
        self.capacity = Capacity(site.cluster.nodes)
        self.placement = Placement(self.capacity)
        self.services = {
            queue: Service(queue, site.functions[queue[1]], slo_s) for queue, slo_s in queue_objectives(site).items()
        }
        self._site = site
        devices = [device.vgpus for node in site.cluster.nodes for device in node.devices]
        self._most_vgpus = gpu_share * max(devices, default=0.0)
        self._running: dict[int, tuple[Service, Booking]] = {}  # by the first invocation of the batch
        self._next_id = 0

    def refresh(self, view: View) -> None:
        """Take over what is believed of the functions now."""
        profiles = {name: view.profile(name) for name in self._site.functions}
        known = all_options(self._site, profiles)
        for service in self.services.values():
            name = service.function.name
            found = {
                kind: offers(known[name], profiles[name], kind, service.slo_s, self._most_vgpus)
                for kind in self._site.cluster.kinds
            }
            service.renew(found, smaller(known[name]))

    def follow(self, changes: Changes) -> None:
        """Count what came, free the instances whose batches ended, give started containers to their instances."""
        for invocation in changes.ready:
            self.services[invocation.workflow, invocation.function].arrivals.count += 1
        for record in changes.ended:
            if record.invocation in self._running:
                service, booking = self._running.pop(record.invocation)
                service.end(booking)
        lost = self.capacity.follow(changes.nodes)
        if lost:
            for service in self.services.values():
                service.bookings = [booking for booking in service.bookings if booking.node not in lost]
                service.free = {id: booking for id, booking in service.free.items() if booking.node not in lost}
        for instance in changes.started:
            place = place_of(instance)
            waiting = [b for _, b in self._all() if b.place == place and not (b.is_ready or b.has_container)]
            if waiting:
                min(waiting, key=lambda each: each.id).has_container = True

    def begin(self, view: View, service: Service, booking: Booking, batch: int, first: int) -> None:
        """Note that an instance has started a batch of this size, of which `first` is the oldest invocation."""
        service.begin(view.now, booking, batch)
        self._running[first] = (service, booking)

    def add_first(self, view: View, service: Service) -> Iterator[Action]:
        """The instance that a function has from the beginning and keeps: of its smallest batch.

        If the reservations of others leave no room, it is oversold: it runs whenever there is room at that moment.
        """
        least = min((o.configuration.batch for found in service.offers.values() for o in found), default=1)
        by_kind = {kind: [o for o in found if o.configuration.batch == least] for kind, found in service.offers.items()}
        found = self.placement.best(service.function, by_kind)
        found = found or self.placement.oversold(service.function, by_kind)
        if found is not None:
            yield from self._book(view, service, found, is_kept=True)
            self.set_parts()

    def scale_out(self, view: View, excess: float) -> Iterator[Action]:
        """Add instances, one per function in turn, until each function's unserved share is at most `excess`.

        Where there is no room, the instance that has been given nothing longest is deleted for it.
        """
        short = [each for each in self.services.values() if each.rate_rps > 0]
        while short:
            short = [each for each in short if each.unserved_rps > excess * each.rate_rps]
            for service in list(short):
                before = len(service.bookings)
                yield from self._add(view, service)
                while len(service.bookings) == before and (spare := self._spare()) is not None:
                    yield from self.delete(view, *spare)
                    yield from self._add(view, service)
                if len(service.bookings) == before:
                    short.remove(service)

    def set_parts(self) -> None:
        """Note how much of its reservation each instance can use.

        On an oversold node that is at least an even part. Of vCPUs it is also what the rate of its function needs and
        what all rates together leave free: an instance that has little to do leaves its vCPUs to the others.
        """
        needs: dict[str, float] = {}  # by node: vCPUs that are busy on average
        for service, booking in self._all():
            if booking.device is None:
                needs[booking.node] = needs.get(booking.node, 0.0) + service.busy * booking.configuration.vcpus
        for service, booking in self._all():
            room = self.capacity.rooms[booking.node]
            booking.part = room.part(booking.device)
            if booking.part < 1 and booking.device is None and booking.configuration.vcpus:
                free = max(0.0, room.node.vcpus - needs[booking.node])
                booking.part = min(1.0, max(booking.part, service.busy + free / booking.configuration.vcpus))

    def adapt_batches(self, excess: float) -> None:
        """Change batches where that needs no more vCPUs and vGPUs: the batch is a setting of a container.

        Larger ones where there was no room for a further instance; a smaller one where the first instance of a
        function is given too little to fill its batch in time.
        """
        for service in self.services.values():
            unserved_rps = service.unserved_rps
            is_short = unserved_rps > excess * service.rate_rps
            for booking in service.bookings:
                if not is_short and not (booking.is_kept and booking.rate_rps < booking.offer.low_rps):
                    continue
                wanted_rps = booking.rate_rps + max(0.0, unserved_rps)
                kind = self.capacity.rooms[booking.node].node.kind
                alike = [o for o in service.offers.get(kind, ()) if o.size == booking.offer.size]
                fillable = [o for o in alike if o.low_rps <= wanted_rps] or alike[-1:]
                best = max(fillable, key=lambda o: o.high_rps, default=booking.offer)
                if not is_short or best.high_rps > booking.offer.high_rps:
                    unserved_rps -= (best.high_rps - booking.offer.high_rps) * booking.part
                    booking.offer, booking.configuration = best, best.configuration
                    is_short = unserved_rps > excess * service.rate_rps

    def provide_all(self, view: View) -> Iterator[Action]:
        """Start containers for instances that could be given none when they were added."""
        for service, booking in self._all():
            if booking.ready_by == inf:
                yield from self._provide(view, service, booking)

    def delete_idle(self, view: View, idle_s: float) -> Iterator[Action]:
        """Delete what has been given nothing for this many seconds."""
        for service, booking in self._all():
            if booking.is_spare and view.now - booking.dropped_at >= idle_s:
                yield from self.delete(view, service, booking)

    def delete(self, view: View, service: Service, booking: Booking) -> Iterator[Action]:
        """Give back the room. A container that would keep it goes with it; one that is paused stays."""
        service.bookings.remove(booking)
        del service.free[booking.id]
        self.capacity.release(booking)
        if service.function.idle_holds == "slice":
            for instance in view.idle(booking.node):
                if place_of(instance) == booking.place:
                    yield Retire(instance.id)
                    return

    def _all(self) -> list[tuple[Service, Booking]]:
        return [(service, booking) for service in self.services.values() for booking in service.bookings]

    def _spare(self) -> tuple[Service, Booking] | None:
        """Of all instances that are given nothing, the one for which that has been so longest."""
        found = [each for each in self._all() if each[1].is_spare]
        return min(found, key=lambda each: (each[1].dropped_at, each[1].id), default=None)

    def _add(self, view: View, service: Service) -> Iterator[Action]:
        """One more instance for what is not served, if there is room."""
        if service.blocked_at == self.capacity.version:
            return
        found = self.placement.best(service.function, service.offers, service.unserved_rps)
        if found is None:
            service.blocked_at = self.capacity.version
        else:
            yield from self._book(view, service, found)

    def _book(self, view: View, service: Service, found: Found, *, is_kept: bool = False) -> Iterator[Action]:
        """Reserve the room for an instance, for as long as it lives."""
        offer, room, device = found
        booking = Booking(
            service.function, offer.configuration, room.node.name, device, self._next_id, offer, is_kept=is_kept
        )
        self._next_id += 1
        self.capacity.reserve(booking)
        service.bookings.append(booking)
        service.free[booking.id] = booking
        yield from self._provide(view, service, booking)

    def _provide(self, view: View, service: Service, booking: Booking) -> Iterator[Action]:
        """Give an instance its container: that of a deleted instance, if there is one, or one that starts now."""
        name, kind = service.function.name, self.capacity.rooms[booking.node].node.kind
        cold_s = view.profile(name).cold_start_s(kind)
        if self.capacity.spare(view, name)[booking.place] >= 0:
            booking.expect(view.now, cold_s, is_started=True)
        elif self.capacity.can_warm(view, booking):
            booking.expect(view.now, cold_s, is_started=False)
            yield Warm(name, booking.configuration, booking.node, booking.device)
