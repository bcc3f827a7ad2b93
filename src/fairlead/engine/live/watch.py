"""What the monitor sees of the nodes of a run, and what of it the controller is told.

A thread samples every node twice a second. Once per control period, before the scaler is asked, the controller hears
the mean of the last samples: the seven counters, and how much of the node others take.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path

import msgspec

from fairlead.engine.core import events as ev
from fairlead.errors import FairleadError
from fairlead.monitor import Place, Provider, Sampler, Signals, choose
from fairlead.monitor.place import cpu_s, groups_of, holders_of, quota_cpus, room_cpus

EVERY_S = 0.5


class NodeWatch:
    """Watches the nodes of one run until it is closed.

    Args:
        places: Where the nodes are.
        log: Told once where nothing can be seen any more.
    """

    def __init__(self, places: Sequence[Place], log: Callable[[str], None]) -> None:
        self._places = tuple(places)
        self._log = log
        self._sampler: Sampler | None = None

    def open(self) -> None:
        """Begin to sample. Takes a moment, on any thread. Raises `FairleadError` where this machine tells nothing."""
        if not self._places:
            raise FairleadError("No node of this run is on this machine.")
        provider, _ = choose(self._places)
        self._sampler = Sampler(_WithPressure(provider), self._places, every_s=EVERY_S)
        self._sampler.__enter__()

    @property
    def provider(self) -> str | None:
        """Where signals come from; None while there are none."""
        return None if self._sampler is None else self._sampler.provider.name

    def overhead(self) -> float:
        """CPU time of sampling, as a share of one core."""
        return 0.0 if self._sampler is None else self._sampler.overhead()

    def means(self) -> Mapping[str, Signals]:
        """The mean of the last samples, by node; empty before the first."""
        sampler = self._sampler
        if sampler is None:
            return {}
        try:
            found = {place.name: sampler.mean(place.name) for place in self._places}
        except Exception as error:  # what the thread died of: requests are served without it
            self._log(f"nodes are not watched any more: {type(error).__name__}: {error}")
            self.close()
            return {}
        return {name: signals for name, signals in found.items() if signals is not None}

    def events(self) -> list[ev.Event]:
        """What is to be told, as of now."""
        events: list[ev.Event] = []
        for node, signals in self.means().items():
            events.append(ev.Signalled(node, tuple(x if isfinite(x) else 0.0 for x in signals.vector())))
            if "pressure" in signals.extras:
                events.append(ev.Pressure(node, signals.extras["pressure"]))
        return events

    def close(self) -> None:
        """End the thread."""
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None


class _WithPressure:
    """A provider whose samples also say how much of a node others take, as a share of it: `pressure`.

    Where a node has a limit, others are those that hold a part of it: the groups that `fairlead stress` makes beside
    its own. Neighbours who merely want the same CPUs are not in it; they show in the other signals (`wait_share`,
    `psi_cpu`, `steal`, `host_busy`). A node that is the whole machine shares it with everybody.
    """

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._usage: dict[str, Path | None] = {}  # by place: its group where CPU time is counted
        self._held_s: dict[str, tuple[float, dict[str, float]]] = {}  # by place: when, and CPU time by holder

    @property
    def name(self) -> str:
        return self._provider.name

    def open(self, places: Sequence[Place]) -> None:
        self._provider.open(places)

    def close(self) -> None:
        self._provider.close()

    def sample(self, place: Place) -> Signals:
        found = self._provider.sample(place)
        pressure = self._pressure(place, found)
        if pressure is None:
            return found
        return msgspec.structs.replace(found, extras={**found.extras, "pressure": pressure})

    def _pressure(self, place: Place, found: Signals) -> float | None:
        if place.cgroup is None:
            return None
        if quota_cpus(place.cgroup) is None:
            busy, all_busy = found.extras.get("busy"), found.extras.get("host_busy")
            return None if busy is None or all_busy is None else max(0.0, all_busy - busy)
        if place.name not in self._usage:
            self._usage[place.name] = groups_of(place.cgroup).usage
        usage = self._usage[place.name]
        held = {} if usage is None else {group.name: cpu_s(group) or 0.0 for group in holders_of(usage)}
        before_at, before = self._held_s.get(place.name, (found.at_s, held))
        self._held_s[place.name] = (found.at_s, held)
        room = room_cpus(place.cgroup)
        if not held or not room or found.at_s <= before_at:
            return 0.0
        used_s = sum(max(0.0, now_s - before.get(name, 0.0)) for name, now_s in held.items())
        return min(1.0, used_s / (room * (found.at_s - before_at)))
