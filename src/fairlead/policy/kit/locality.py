"""Where a batch should run: near its data, at home, where it is warm. Mechanics that policies share, not a policy.

Home is OpenWhisk's: a hash of who is called, modulo the nodes; where that node is down, the next is so many further, a
number chosen by the same hash from those coprime to the count, so that every node is tried once.
"""

from collections.abc import Iterator, Sequence
from math import gcd
from zlib import crc32

from fairlead.model import Configuration, Invocation
from fairlead.policy.base import Site, View


def probes(hash: int, count: int) -> Iterator[int]:
    """The nodes to try, by index: home first, then in steps that are coprime to the count."""
    steps = [step for step in range(1, count + 1) if gcd(step, count) == 1]
    step = steps[hash % len(steps)]
    index = hash % count
    for _ in range(count):
        yield index
        index = (index + step) % count


def keeps_slices(site: Site) -> bool:
    """Whether idle containers of any function keep their slice of a device."""
    return any(function.idle_holds == "slice" for function in site.functions.values())


def home(view: View, workflow: str, function: str) -> str | None:
    """The node where a function of a workflow is at home; None while no node is up."""
    nodes = view.nodes
    if not nodes:
        return None
    return nodes[next(probes(crc32(f"{workflow}/{function}".encode()), len(nodes)))].name


class Locality:
    """Finds a node for a batch. Homes are kept until a node comes or goes.

    Where idle containers keep their slice of a device and their vCPUs (`keeps_slices`), a run with more vCPUs than its
    container had may drive out others; what does not is tried first.
    """

    def __init__(self, *, keeps_slices: bool = False) -> None:
        self._evicts = (False, True) if keeps_slices else (True,)
        self._homes: dict[tuple[str, str], str | None] = {}
        self._near: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {}  # of the last head of a queue, with its id
        self._at_once: dict[str, bool] = {}  # by function: whether a start takes no time
        self._seen = 0.0
        self._count = -1

    def home(self, view: View, workflow: str, function: str) -> str | None:
        """As `home`, remembered. `view.nodes` is a full listing, so that it is read once per second at most."""
        self._look(view)
        key = (workflow, function)
        if key not in self._homes:
            self._homes[key] = home(view, workflow, function)
        return self._homes[key]

    def near(self, view: View, invocation: Invocation) -> tuple[str, ...]:
        """Where to look first: the nodes that hold its input, the largest part first, then its home."""
        self._look(view)
        key = (invocation.workflow, invocation.function)
        known = self._near.get(key)
        if known is None or known[0] != invocation.id:  # an input stays where it is while its invocation waits
            held = sorted(view.inputs(invocation), key=lambda each: -each[1])
            spots = dict.fromkeys([node for node, _ in held])
            at_home = self.home(view, *key)
            if at_home is not None:
                spots[at_home] = None
            known = self._near[key] = invocation.id, tuple(spots)
        return known[1]

    def _look(self, view: View) -> None:
        if view.now >= self._seen:
            self._seen = view.now + 1.0
            count = len(view.nodes)
            if count != self._count:
                self._count = count
                self._homes.clear()
                self._near.clear()

    def find_warm(
        self, view: View, invocation: Invocation, ranked: Sequence[Configuration]
    ) -> tuple[Configuration, str] | None:
        """The first of these configurations with a warm container that fits, and where: by its data, at home, or any.

        What drives out no other warm container comes first, of all configurations. Where starting takes no time,
        everything counts as warm.
        """
        function = invocation.function
        if self._starts_at_once(view, function):
            return self.find_cold(view, invocation, ranked)
        spots = self.near(view, invocation)
        for evicts in self._evicts:
            for configuration in ranked:
                for node in spots:
                    if view.is_warm(function, configuration, node) and view.fits(
                        function, configuration, node, evicts=evicts
                    ):
                        return configuration, node
                found = view.place(function, configuration, "warm", evicts=evicts)
                if found is not None:
                    return configuration, found
        return None

    def _starts_at_once(self, view: View, function: str) -> bool:
        found = self._at_once.get(function)
        if found is None:
            found = self._at_once[function] = not view.profile(function).cold_start_s()
        return found

    def find_cold(
        self, view: View, invocation: Invocation, ranked: Sequence[Configuration]
    ) -> tuple[Configuration, str] | None:
        """The first of these configurations that fits, and where: by its data, at home, or on the emptiest node."""
        function = invocation.function
        spots = self.near(view, invocation)
        for configuration in ranked:
            for node in spots:
                if view.fits(function, configuration, node):
                    return configuration, node
            found = view.place(function, configuration, "emptiest")
            if found is not None:
                return configuration, found
        return None
