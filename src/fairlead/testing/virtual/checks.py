"""What is checked between the runtime and its provider, whatever the provider itself checks."""

from collections.abc import Sequence

from fairlead.engine.live.contracts import Exit, InstanceSpec, Inventory, Link, LinkReports, ProviderReports
from fairlead.engine.live.wire import Batch, Done, Failed, Ready
from fairlead.model import Node
from fairlead.testing.virtual.nodes import VirtualCluster
from fairlead.testing.virtual.provider import VirtualLink, VirtualProvider

_ROUNDING = 1e-6


class CheckedProvider(VirtualProvider):
    """Notes when more is promised on a node than it has, and when an answer comes that must not."""

    def __init__(self, cluster: VirtualCluster) -> None:
        super().__init__(cluster)
        self._is_due = False

    async def open(self, reports: ProviderReports) -> Inventory:
        """Open, with everything that is reported looked at."""
        return await super().open(_CheckedReports(self, reports))

    def start(self, spec: InstanceSpec) -> None:
        """Start an instance, and look."""
        super().start(spec)
        self._look_soon()

    def resize(self, key: str, vcpus: float) -> None:
        """Resize an instance, and look."""
        super().resize(key, vcpus)
        self._look_soon()

    def pass_on(self, link: VirtualLink, batch: Batch) -> None:
        """Send a batch, and look."""
        super().pass_on(link, batch)
        self._look_soon()

    def _look_soon(self) -> None:
        """After the turn: within one, the order of effects is no promise."""
        if not self._is_due:
            self._is_due = True
            self.post(0.0, self._look)

    def _look(self) -> None:
        self._is_due = False
        for name in list(self._sessions):
            node = self.cluster.nodes[name].node
            vcpus, memory_gb = self.held(name)
            if vcpus > node.capacity_vcpus + _ROUNDING or memory_gb > node.memory_gb + _ROUNDING:
                self.cluster.violations.append(
                    f"at {self._loop.time():.6f} {vcpus:g} vCPUs and {memory_gb:g} GB are promised on {name}, "
                    f"which has {node.capacity_vcpus:g} and {node.memory_gb:g}"
                )
            for number, (vgpus, generations) in self.held_devices(name).items():
                device = node.devices[number]
                if vgpus > device.vgpus + _ROUNDING or (device.sharing == "mig" and len(generations) > 1):
                    self.cluster.violations.append(
                        f"at {self._loop.time():.6f} {vgpus:g} vGPUs are promised to generations {sorted(generations)} "
                        f"on device {number} of {name}, which has {device.vgpus:g} ({device.sharing})"
                    )


class _CheckedReports:
    """Passes reports on, and watches the links."""

    def __init__(self, provider: CheckedProvider, reports: ProviderReports) -> None:
        self._provider = provider
        self._reports = reports
        self._links: dict[str, _CheckedLink] = {}

    def connected(self, key: str, link: Link) -> None:
        assert isinstance(link, VirtualLink)
        checked = self._links[key] = _CheckedLink(self._provider.cluster, link)
        self._reports.connected(key, checked)

    def gone(self, key: str, how: Exit) -> None:
        link = self._links.pop(key, None)
        if link is not None:
            link.is_over = True
        self._reports.gone(key, how)

    def resize_refused(self, key: str, vcpus: float, reason: str) -> None:
        self._reports.resize_refused(key, vcpus, reason)

    def evicted(self, key: str, buffers: Sequence[str]) -> None:
        self._reports.evicted(key, buffers)

    def node_joined(self, node: Node) -> None:
        self._reports.node_joined(node)

    def node_changed(self, node: Node) -> None:
        self._reports.node_changed(node)

    def node_lost(self, name: str, reason: str) -> None:
        for link in self._links.values():
            if link.node == name:
                link.is_over = True
        self._links = {key: link for key, link in self._links.items() if link.node != name}
        self._reports.node_lost(name, reason)


class _CheckedLink:
    """A link that knows which batches were sent on it, and so which answers may come."""

    def __init__(self, cluster: VirtualCluster, link: VirtualLink) -> None:
        self._cluster = cluster
        self._link = link
        self._sent: set[int] = set()
        self.node = link.spec.node
        self.is_over = False

    def open(self, reports: LinkReports) -> None:
        self._reports = reports
        self._link.open(self)

    def run(self, batch: Batch) -> None:
        self._sent.add(batch.batch)
        self._link.run(batch)

    def heard(self, message: Ready | Failed | Done) -> None:
        if isinstance(message, Done) and (self.is_over or message.batch not in self._sent):
            why = "its instance was given up" if self.is_over else "it was sent by another gateway"
            self._cluster.violations.append(
                f"at {self._cluster.loop.time():.6f} an answer of {self._link.spec.key} to batch {message.batch} "
                f"is taken, although {why}"
            )
        self._reports.heard(message)
