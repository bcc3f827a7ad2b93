"""All instances of all functions: which are added, which are deleted, and the containers behind them."""

from collections import Counter
from collections.abc import Iterator
from math import inf

from fairlead.planning.split import proportional
from fairlead.policy.base import Action, Retire, Site, View, Warm
from fairlead.policy.infless.offers import Offer, offers, smaller
from fairlead.policy.infless.room import Room, Spot
from fairlead.policy.infless.service import Booking, Queue, Service
from fairlead.policy.kit.options import all_options, graph_of, stage_weights


class Fleet:
    """The services of a site and the room that they share.

    Args:
        site: What there is.
        gpu_share: Largest part of a device that one instance may have.
    """

    def __init__(self, site: Site, gpu_share: float) -> None:
        self.room = Room(site.cluster.nodes)
        self.services = {service.queue: service for service in _services(site)}
        self._site = site
        self._by_function: dict[str, list[Service]] = {name: [] for name in site.functions}
        for service in self.services.values():
            self._by_function[service.function.name].append(service)
        devices = [device.vgpus for node in site.cluster.nodes for device in node.devices]
        self._most_vgpus = gpu_share * max(devices, default=0.0)
        self._next_id = 0

    def refresh(self, view: View) -> None:
        """Take over what is believed of the functions now."""
        profiles = {name: view.profile(name) for name in self._site.functions}
        known = all_options(self._site, profiles)
        for name, services in self._by_function.items():
            sizes = smaller(known[name])
            for service in services:
                found = {
                    kind: offers(known[name], profiles[name], kind, service.slo_s, self._most_vgpus)
                    for kind in self._site.cluster.kinds
                }
                service.renew(found, sizes)

    def renew(self, view: View) -> None:
        """Take in nodes that joined; forget what was booked on those that are gone."""
        lost = self.room.renew(view.nodes)
        if lost:
            for service in self.services.values():
                service.bookings = [booking for booking in service.bookings if booking.node not in lost]

    def note_ready(self, view: View) -> None:
        """Look which containers have started. Of those of a function in one place, the first are of the oldest."""
        for name, services in self._by_function.items():
            bookings = [booking for service in services for booking in service.bookings]
            if all(booking.is_ready for booking in bookings):
                continue
            started = Counter((i.node, i.device, i.vgpus) for i in view.instances(name) if i.is_ready)
            for booking in sorted(bookings, key=lambda each: each.id):
                booking.note(view.now, started[booking.place] > 0)
                started[booking.place] -= 1

    def add_first(self, view: View, service: Service) -> Iterator[Action]:
        """The instance that a function has from the beginning and keeps: of its smallest batch."""
        least = min((o.configuration.batch for found in service.offers.values() for o in found), default=1)
        by_kind = {kind: [o for o in found if o.configuration.batch == least] for kind, found in service.offers.items()}
        found = self.room.best(service.function, by_kind)
        if found is not None:
            yield from self._book(view, service, *found, is_kept=True)

    def scale_out(self, view: View, excess: float) -> Iterator[Action]:
        """Add instances until no function has more than this share unserved, or none that has finds room."""
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

    def provide_all(self, view: View) -> Iterator[Action]:
        """Containers for what is booked and has none yet: something that the books do not know was in the way."""
        for service in self.services.values():
            for booking in service.bookings:
                if booking.ready_by == inf:
                    yield from self._provide(view, service, booking)

    def delete_idle(self, view: View, idle_s: float) -> Iterator[Action]:
        """Delete what has been given nothing for so long."""
        for service in self.services.values():
            for booking in list(service.bookings):
                if booking.is_spare and view.now - booking.dropped_at >= idle_s:
                    yield from self.delete(view, service, booking)

    def delete(self, view: View, service: Service, booking: Booking) -> Iterator[Action]:
        """Give back the room. A container that would keep it goes with it; one that is paused stays."""
        service.bookings.remove(booking)
        self.room.spots[booking.node].release(service.function, booking.offer, booking.device)
        self.room.version += 1
        if service.function.idle_holds == "slice":
            for instance in view.idle(booking.node):
                place = (instance.node, instance.device, instance.vgpus)
                if instance.function == service.function.name and place == booking.place:
                    yield Retire(instance.id)
                    return

    def _spare(self) -> tuple[Service, Booking] | None:
        """Of all instances that are given nothing, the one for which that has been so longest."""
        found = [(service, b) for service in self.services.values() for b in service.bookings if b.is_spare]
        return min(found, key=lambda each: (each[1].dropped_at, each[1].id), default=None)

    def _add(self, view: View, service: Service) -> Iterator[Action]:
        """One more instance for what is not served, if there is room."""
        if service.blocked_at == self.room.version:
            return
        found = self.room.best(service.function, service.offers, service.unserved_rps)
        if found is None:
            service.blocked_at = self.room.version
        else:
            yield from self._book(view, service, *found, is_kept=False)

    def _book(
        self, view: View, service: Service, offer: Offer, spot: Spot, device: int, *, is_kept: bool
    ) -> Iterator[Action]:
        """Reserve the room for an instance, for as long as it lives."""
        spot.reserve(service.function, offer, device)
        booking = Booking(self._next_id, offer, spot.node.name, device, is_kept=is_kept)
        self._next_id += 1
        service.bookings.append(booking)
        yield from self._provide(view, service, booking)

    def _provide(self, view: View, service: Service, booking: Booking) -> Iterator[Action]:
        """Give an instance its container: one to spare, of an instance that was deleted, or one that starts now."""
        name, node = service.function.name, self.room.spots[booking.node].node
        there = [i for i in view.instances(name) if (i.node, i.device, i.vgpus) == booking.place]
        others = [b for each in self._by_function[name] for b in each.bookings if b is not booking]
        cold_s = view.profile(name).cold_start_s(node.kind)
        if len(there) > sum(other.place == booking.place for other in others):
            booking.expect(view.now, cold_s, is_started=True)
            return
        # `fits` also says yes where a container starts that could be shared. The books have room for both, but a MIG
        # device may have no place for the slice.
        is_mig = booking.device >= 0 and node.devices[booking.device].sharing == "mig"
        if is_mig and not all(instance.is_ready for instance in there):
            return
        if view.fits(name, booking.configuration, booking.node, booking.on_device):
            booking.expect(view.now, cold_s, is_started=False)
            yield Warm(name, booking.configuration, booking.node, booking.on_device)


def _services(site: Site) -> Iterator[Service]:
    """Every (workflow, function) pair with its part of the objective: the smallest, where it is used more than once."""
    known = all_options(site)
    for name, workflow in site.workflows.items():
        parts = proportional(graph_of(workflow), stage_weights(workflow, known))
        least: dict[Queue, float] = {}
        for stage, part in zip(workflow.stages, parts, strict=True):
            queue = (name, stage.function)
            least[queue] = min(part, least.get(queue, 1.0))
        for queue, part in least.items():
            yield Service(queue, site.functions[queue[1]], workflow.slo.latency_s * part)
