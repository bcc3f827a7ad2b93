"""The contract of a provider of signals, and the choice among them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from fairlead.errors import FairleadError, suggestion
from fairlead.monitor.fallback import Fallback
from fairlead.monitor.pcm import Pcm
from fairlead.monitor.perf import Perf
from fairlead.monitor.place import Place
from fairlead.monitor.refusal import RefusedError
from fairlead.monitor.signals import Signals

PROVIDERS = ("perf", "pcm", "fallback")
"""The best first."""


class Provider(Protocol):
    """Reads the signals of places. Used by one thread only."""

    @property
    def name(self) -> str:
        """One of `PROVIDERS`."""
        ...

    def open(self, places: Sequence[Place]) -> None:
        """Begin to count. Raises `RefusedError`, and then holds nothing."""
        ...

    def sample(self, place: Place) -> Signals:
        """What happened there since the last sample, or since `open`."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


def choose(
    places: Sequence[Place], name: str | None = None, *, probe_every_s: float | None = 2.0
) -> tuple[Provider, Mapping[str, str]]:
    """The best provider that opens, opened, and why the better ones do not; or the one of this name.

    `probe_every_s` is how often the fallback runs its probes; None for never. Raises `FairleadError` where the named
    one does not open, and `ValueError` for a name that there is not.
    """
    if name is not None and name not in PROVIDERS:
        raise ValueError(f"provider must be one of {', '.join(PROVIDERS)}; got {name!r}.{suggestion(name, PROVIDERS)}")
    makers: dict[str, Callable[[], Provider]] = {
        "perf": Perf,
        "pcm": Pcm,
        "fallback": lambda: Fallback(probe_every_s=probe_every_s),
    }
    refusals: dict[str, str] = {}
    for candidate, make in makers.items():
        if name in (None, candidate):
            provider = make()
            try:
                provider.open(places)
            except RefusedError as error:
                refusals[candidate] = str(error)
            else:
                return provider, refusals
    why = "; ".join(f"{candidate}: {reason}" for candidate, reason in refusals.items())
    raise FairleadError(f"No signals can be read here: {why}. Leave the provider out to use what works.")
