"""What a scaler did, as it can be seen: a row per function and control period, and its own notes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from fairlead.engine.core.controller import Controller
from fairlead.policy import Policy
from fairlead.runlog import ScalingRow

Notes = Mapping[str, Mapping[str, float]]


class Scalings(Protocol):
    """Takes the rows."""

    def scaled(self, rows: Sequence[ScalingRow]) -> None:
        """Note them."""
        ...


class ScalingWatch:
    """Looks at the scaled functions after every control period.

    Args:
        controller: Knows what they have.
        scaler: Whose notes are read.
        record: Where rows go; None keeps none.
        log: Told once if the notes cannot be read.
    """

    def __init__(
        self, controller: Controller, scaler: Policy, record: Scalings | None, log: Callable[[str], None]
    ) -> None:
        self._controller = controller
        self._scaler = scaler
        self._record = record
        self._log = log
        self._seen = 0
        self._has_complained = False
        self.notes: Notes = {}

    def replace(self, scaler: Policy) -> None:
        """Another one has taken over."""
        self.close()
        self._scaler = scaler

    def close(self) -> None:
        """The scaler is not needed any more."""
        try:
            self._scaler.close()
        except Exception as error:  # it is the scaler's code, and what follows must be ended all the same
            self._log(f"the scaler did not end well: {type(error).__name__}: {error}")

    def look(self, now: float) -> None:
        """Write down how it stands, if the scaler was asked since the last look."""
        controller = self._controller
        if controller.decisions.adjustments == self._seen:
            return
        self._seen = controller.decisions.adjustments
        self.notes = self._read_notes()
        if self._record is not None:
            self._record.scaled(self._rows(now))

    def _read_notes(self) -> Notes:
        """Numbers only: they go to disk and over the wire. A scaler that fails here scales on, unseen."""
        try:
            notes = self._scaler.notes()
            return {
                function: {str(name): float(value) for name, value in own.items()} for function, own in notes.items()
            }
        except Exception as error:  # it is the scaler's code, and nothing depends on it
            if not self._has_complained:
                self._log(f"what the scaler notes cannot be read: {type(error).__name__}: {error}")
            self._has_complained = True
            return {}

    def _rows(self, now: float) -> list[ScalingRow]:
        sets = self._controller.replicas.sets
        ready, vcpus, memory_gb = (dict.fromkeys(sets, 0.0) for _ in range(3))
        for instance in self._controller.pool.instances.values():
            function = instance.flavour.function
            if function.name in sets:
                ready[function.name] += instance.is_replica and instance.is_ready and not instance.is_draining
                vcpus[function.name] += instance.vcpus / 1000
                memory_gb[function.name] += instance.configuration.memory_gb or function.memory_gb
        return [
            ScalingRow(
                now,
                name,
                found.target,
                found.configuration.vcpus,
                int(ready[name]),
                vcpus[name],
                memory_gb[name],
                self.notes.get(name, {}),
            )
            for name, found in sets.items()
        ]
