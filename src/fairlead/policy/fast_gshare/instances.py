"""Which instances stand behind pods, and which no pod has. Instances are the platform's, pods the policy's."""

from collections import Counter

from fairlead.model import Configuration, Instance, Node
from fairlead.policy.base import View
from fairlead.policy.fast_gshare.fleet import Fleet, Pod, Spot

_CLOSE = 1e-6


class Instances:
    """The instances of functions, listed once for all that is opened at one instant."""

    def __init__(self, view: View, fleet: Fleet) -> None:
        self._view = view
        self._fleet = fleet
        self._listed: dict[str, tuple[Instance, ...]] = {}

    def unclaimed(self, function: str, configuration: Configuration) -> set[Spot]:
        """Where there are more instances of this size than pods that would use them."""
        counts = Counter(_spot(each) for each in self._of(function) if each.vgpus == configuration.vgpus)
        if not counts:
            return set()
        claimed = self._fleet.count_pods(function, configuration.vgpus)
        return {spot for spot, count in counts.items() if count > claimed[spot]}

    def are_enough(self, pod: Pod) -> bool:
        """Whether there is one for each pod that would use it, this one included."""
        function, vgpus, spot = pod.key
        return len(self._at(pod)) >= self._fleet.count_pods(function, vgpus)[spot]

    def is_starting(self, pod: Pod) -> bool:
        """Whether one that this pod could use is not ready yet."""
        return any(not each.is_ready for each in self._at(pod))

    def _at(self, pod: Pod) -> list[Instance]:
        function, vgpus, spot = pod.key
        return [each for each in self._of(function) if each.vgpus == vgpus and _spot(each) == spot]

    def _of(self, function: str) -> tuple[Instance, ...]:
        if function not in self._listed:
            self._listed[function] = self._view.instances(function)
        return self._listed[function]


def has_room(view: View, pod: Pod, node: Node) -> bool:
    """Whether one more instance could start, where `view.fits` may be about one that starts there already."""
    if node.vcpus and (1 - view.load(node.name)) * node.vcpus + _CLOSE < pod.configuration.vcpus:
        return False
    device = pod.spot[1]
    if device is None:
        return True
    if node.devices[device].sharing == "mig":
        return False  # whether a slice can be cut is not to be seen
    return any(
        (each.node, each.device) == pod.spot and each.free_vgpus + _CLOSE >= pod.configuration.vgpus
        for each in view.devices()
    )


def _spot(instance: Instance) -> Spot:
    return instance.node, None if instance.device < 0 else instance.device
