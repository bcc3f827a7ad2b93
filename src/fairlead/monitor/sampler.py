"""One thread that samples every node of this host, and remembers the last while."""

import threading
from collections import deque
from collections.abc import Sequence
from time import monotonic, thread_time
from types import TracebackType

from fairlead.monitor.instances import Instance, InstanceReader, instances_in
from fairlead.monitor.place import Place
from fairlead.monitor.provider import Provider
from fairlead.monitor.signals import InstanceSignals, Signals, mean

MEAN_OF = 5
"""Samples that a mean is taken over, as Darly does."""


class Sampler:
    """Samples places until it is closed. Reading from it never waits for a sample.

    Args:
        provider: Opened for these places; used by the thread only, and closed by `close`.
        places: The nodes, of different names.
        every_s: Between two samples.
        keep: How many samples of each node are kept.
        with_instances: Whether the instances of emulated nodes are sampled too.
    """

    def __init__(
        self,
        provider: Provider,
        places: Sequence[Place],
        *,
        every_s: float = 0.5,
        keep: int = 600,
        with_instances: bool = False,
    ) -> None:
        if not every_s > 0:
            raise ValueError(f"every_s must be positive; got {every_s}.")
        if keep < 1:
            raise ValueError(f"keep must be at least 1; got {keep}.")
        if len({place.name for place in places}) < len(places):
            raise ValueError("places must have different names.")
        self.provider = provider
        self.places = tuple(places)
        self._every_s = every_s
        self._samples = {place.name: deque[Signals](maxlen=keep) for place in places}
        self._readers: dict[tuple[str, Instance], InstanceReader] | None = {} if with_instances else None
        self._instances: dict[str, dict[str, InstanceSignals]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fairlead-monitor", daemon=True)
        self._cpu_s = 0.0
        self._began_s = 0.0
        self._error: BaseException | None = None

    def __enter__(self) -> "Sampler":
        self._began_s = monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread and close the provider."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.provider.close()

    def latest(self, place: str) -> Signals | None:
        """The last sample of a node; None before the first. Raises what the thread died of."""
        self._raise()
        samples = self._samples[place]
        return samples[-1] if samples else None

    def mean(self, place: str, count: int = MEAN_OF) -> Signals | None:
        """The mean of its last samples; None before the first."""
        self._raise()
        samples = list(self._samples[place])[-count:]
        return mean(samples) if samples else None

    def instances(self, place: str) -> dict[str, InstanceSignals]:
        """The last sample of each instance of an emulated node, by the name of its group."""
        self._raise()
        return self._instances.get(place, {})

    def overhead(self) -> float:
        """CPU time of the thread per second, as a share of one core."""
        passed_s = monotonic() - self._began_s
        return self._cpu_s / passed_s if self._began_s and passed_s > 0 else 0.0

    def _run(self) -> None:
        due = monotonic() + self._every_s
        try:
            if self._readers is not None:
                for place in self.places:
                    self._sample_instances(place, self._readers)  # rates need a first reading
            while not self._stop.wait(max(0.0, due - monotonic())):
                self._sample()
                self._cpu_s = thread_time()
                # What was missed stays missed: a busy machine is not made busier.
                due = max(due + self._every_s, monotonic())
        except BaseException as error:  # told to whoever asks next
            self._error = error

    def _sample(self) -> None:
        for place in self.places:
            self._samples[place.name].append(self.provider.sample(place))
            if self._readers is not None:
                self._instances[place.name] = self._sample_instances(place, self._readers)

    def _sample_instances(
        self, place: Place, readers: dict[tuple[str, Instance], InstanceReader]
    ) -> dict[str, InstanceSignals]:
        found = instances_in(place)
        known = {key for key in readers if key[0] == place.name}
        for gone in known - {(place.name, instance) for instance in found}:
            del readers[gone]
        samples = {}
        for instance in found:
            reader = readers.get((place.name, instance))
            if reader is None:  # its rates are known from the next sample on
                readers[place.name, instance] = InstanceReader(instance)
            else:
                samples[instance.name] = reader.sample()
        return samples

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
