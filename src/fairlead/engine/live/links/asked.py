"""What an instance may answer: the batches that it was given, with values that are its own node's."""

import re
from math import inf

from fairlead.engine.live.values import Value, reference
from fairlead.engine.live.wire import Batch, Done, Failed, Ready

_NAME = re.compile(r"(?:disk-)?[0-9]{1,20}-[0-9]{1,20}")
_MOST_VALUE_BYTES = 1 << 40
_MOST_NODE = 64  # characters of a node's name
_MOST_DEPTH = 16  # of lists in lists; a worker makes lists of values only


class Asked:
    """Checks the messages of one instance, which runs code of users and may say anything.

    Args:
        home: How references to values must end: those of other nodes are not the instance's to give. None where any
            may come.
    """

    __slots__ = ("_batches", "_home")

    def __init__(self, home: str | None = None) -> None:
        self._home = home
        self._batches: set[int] = set()

    def note(self, batch: Batch) -> None:
        """The instance was given this batch."""
        self._batches.add(batch.batch)

    def clear(self) -> None:
        """Nothing that it was given is waited for any more."""
        self._batches.clear()

    def check(self, message: Ready | Failed | Done) -> None:
        """Raise ValueError for times that cannot be, and for what is no value of the instance's node."""
        if isinstance(message, Done):
            if not (0 <= message.work_s < inf and 0 <= message.transfer_s < inf):
                _check_times(message.work_s, message.transfer_s)
            if message.cpu_s is not None:
                _check_times(message.cpu_s)
            for result in message.results:
                if len(result.lost_at) > _MOST_NODE:
                    raise ValueError("it names a node that cannot be")
                if type(result.value) is not bytes:
                    self._check_value(result.value, _MOST_DEPTH)
        elif isinstance(message, Ready):
            _check_times(message.load_s, message.setup_s)

    def take(self, done: Done) -> None:
        """Take an answer in. ValueError if the instance does not have this batch, or has answered it already."""
        if done.batch not in self._batches:
            raise ValueError(f"it answered batch {done.batch}, which it does not have")
        self._batches.discard(done.batch)

    def _check_value(self, value: Value, depth: int) -> None:
        if isinstance(value, bytes):
            return
        if isinstance(value, str):
            found = reference(value)
            if not _NAME.fullmatch(found.name) or found.size > _MOST_VALUE_BYTES:
                raise ValueError(f"{value[:100]!r} is not a reference to a stored value")
            if self._home is not None and found.home != self._home:
                raise ValueError("it refers to a value of another node")
        elif isinstance(value, list | tuple) and depth > 0:
            for part in value:
                self._check_value(part, depth - 1)
        else:
            raise ValueError("it gave something else than a value")


def _check_times(*times_s: float) -> None:
    for time_s in times_s:
        if not 0 <= time_s < inf:
            raise ValueError(f"it gave a duration of {time_s} s")
