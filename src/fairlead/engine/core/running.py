"""What runs, by batch; and by function, from the first time a policy asks for that."""

from collections.abc import Iterable

from fairlead.engine.core.capacity import InstanceState


class Running(dict[int, InstanceState]):
    """The instances that have a batch, by its id, in the order of their starts."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[str, dict[int, InstanceState]] | None = None

    def begin(self, batch: int, instance: InstanceState) -> None:
        """Note that an instance has this batch."""
        self[batch] = instance
        if self._of is not None:
            self._of.setdefault(instance.shape.name, {})[batch] = instance

    def end(self, batch: int) -> InstanceState | None:
        """Note that a batch is over; gives its instance, or None if there is no such batch."""
        instance = self.pop(batch, None)
        if instance is not None and self._of is not None:
            del self._of[instance.shape.name][batch]
        return instance

    def of(self, function: str) -> Iterable[InstanceState]:
        """The instances of a function that have a batch, in the order of their starts."""
        if self._of is None:
            self._of = {}
            for batch, instance in self.items():
                self._of.setdefault(instance.shape.name, {})[batch] = instance
        return self._of.get(function, {}).values()
