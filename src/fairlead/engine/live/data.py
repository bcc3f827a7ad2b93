"""Values of one machine: what is large lies in its shared memory."""

from fairlead.engine.live.store import Store
from fairlead.engine.live.values import Value


class LocalValues:
    """The values of a gateway whose instances all run on its own machine."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.hold = store.hold
        self.release = store.drop
        self.copy = store.copy
        self.size_bytes = store.size_bytes
        self.read = store.read
        self.encoded = store.encoded

    def put(self, data: bytes) -> Value:
        """Keep a large value in shared memory."""
        value = self.store.put(data)
        self.store.hold(value)
        return value
