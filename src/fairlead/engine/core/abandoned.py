"""Batches that run on although their answers are not needed any more: *abandoned* ones.

A function runs on the only thread of its instance, so a run can be stopped only by ending its instance, and another one
has to start in its place. Therefore an abandoned batch runs to its end, as busy as any, and is discarded. Its
instance is ended before that only if both hold:

* the rest of the run is expected to take longer than a start. A run that is overdue is expected to take as long again
  as it is overdue, so that a prediction that was far too low is found out;
* something waits that fits nowhere now, and would fit in its place.

A run limit ends an abandoned batch like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from fairlead.engine.core.races import is_wanted
from fairlead.engine.core.showing import predicted_end, start_s

if TYPE_CHECKING:
    from fairlead.engine.core.capacity import InstanceState, Shape
    from fairlead.engine.core.controller import Controller
    from fairlead.engine.core.progress import RequestState

_ROUNDING_S = 1e-9  # a run that is looked at when it is overdue by a start must be found to be


class Abandoned(dict[int, "InstanceState"]):
    """The instances with an abandoned batch, by its id."""

    __slots__ = ("_armed_at", "_controller", "_terminating")

    def __init__(self, controller: Controller) -> None:
        super().__init__()
        self._controller = controller
        self._armed_at = inf  # when a run is looked at again that may be overdue by then
        self._terminating = -1  # the instance that was ended last

    def leave(self, state: RequestState) -> None:
        """A request has ended before its time: give up what runs for it alone."""
        for instance in list(self._controller.running.values()):
            if any(task[1] is state for task in instance.tasks):
                self.give_up(instance)

    def give_up(self, instance: InstanceState) -> None:
        """Abandon the batch of an instance, if it holds nothing that is needed; one that has not begun is withdrawn."""
        if any(map(is_wanted, instance.tasks)):
            return
        controller, batch = self._controller, instance.batch
        if instance.is_ready:
            self[batch] = instance
            self._arm(instance)
            return
        controller.abort(batch, "preempted")
        if instance.started > controller.now:  # even its start still lies ahead, where decisions take time
            controller.end_instance(instance, "preempted")
            return
        instance.batch = -1
        instance.flavour.starting.setdefault(instance.node.index, []).append(instance)

    def reclaim(self) -> None:
        """End an instance if something that waits could run in its place, and its run lasts longer than a start.

        One at a time: what waits may fit once that one is gone.
        """
        controller = self._controller
        endings = controller.pool.endings
        if endings is not None and endings.find(self._terminating) is not None:
            return
        gains = {batch: self._gain_s(instance) for batch, instance in self.items()}
        longest_first = sorted(
            (b for b, gain_s in gains.items() if gain_s > -_ROUNDING_S), key=lambda b: (-gains[b], b)
        )
        if not longest_first:
            return
        for function in dict.fromkeys(name for _, name in controller.waiting.filled()):
            for batch in self._in_the_way_of(function, longest_first):
                self._end(self[batch])
                return

    def _in_the_way_of(self, function: str, batches: list[int]) -> Iterator[int]:
        """Those of these batches in whose places a function could run that fits nowhere now."""
        controller = self._controller
        replicas = controller.replicas.sets.get(function)
        if replicas is not None:
            if not any(replicas.idle.values()):
                yield from (b for b in batches if self[b] in replicas.instances)
            return
        shapes = [controller.beliefs.shape(function, c) for c in controller.scenario.profiles[function].configurations]
        known = [shape for shape in shapes if shape is not None]
        if any(controller.placement.find(shape, "fresh") for shape in known):
            return
        for batch in batches:
            instance = self[batch]
            if not instance.is_replica and any(_fits_instead(shape, instance) for shape in known):
                yield batch

    def _gain_s(self, instance: InstanceState) -> float:
        """How much longer the rest of a run is expected to take than a start of its instance."""
        profile = self._controller.scenario.profiles[instance.shape.name]
        return abs(predicted_end(instance, profile) - self._controller.now) - start_s(instance, profile)

    def _end(self, instance: InstanceState) -> None:
        controller = self._controller
        controller.abort(instance.batch, "preempted")
        controller.end_instance(instance, "preempted")
        self._terminating = instance.id
        if controller.pool.endings is None:  # its place can be used at this very instant
            controller.note_freed(instance.node)
            controller.decisions.wake_due = True
            controller.timers.at(controller.now, _look)

    def _arm(self, instance: InstanceState) -> None:
        """Have the controller called when a run is overdue by what its instance takes to start."""
        profile = self._controller.scenario.profiles[instance.shape.name]
        at = predicted_end(instance, profile) + start_s(instance, profile)
        if self._controller.now < at < self._armed_at:
            self._armed_at = at
            self._controller.timers.at(at, self._ring)

    def _ring(self) -> None:
        self._armed_at = inf
        for instance in self.values():
            self._arm(instance)


def _fits_instead(shape: Shape, instance: InstanceState) -> bool:
    """Whether a run of this shape would fit on a node if an instance there were gone, idle ones out of the way."""
    node, flavour, device = instance.node, instance.flavour, instance.device
    if not node.is_open or node.kind not in shape.beliefs:
        return False
    if node.free + instance.vcpus < shape.vcpus or node.memory_free + flavour.memory < shape.memory:
        return False
    if not shape.vgpus:
        return True
    if device is None or device.memory_free + flavour.device_memory < shape.device_memory:
        return shape.device_for(node, None) is not None
    if device.slices is not None:
        return flavour.vgpus == shape.vgpus  # slices lie at fixed places: only one of the same size is sure to fit
    return device.free + flavour.vgpus >= shape.vgpus


def _look() -> None:
    """Being called is all that is wanted."""
