"""Faults that are planted on purpose, to see whether the simulation finds them."""

from fairlead.engine.live.contracts import Exit
from fairlead.engine.live.journal.entries import Accepted, AcceptOp, Op
from fairlead.engine.live.journal.store import Written
from fairlead.engine.live.wire import Done
from fairlead.testing.virtual.checks import CheckedProvider
from fairlead.testing.virtual.journal import InlineWriter
from fairlead.testing.virtual.provider import VirtualLink


class UnfencedProvider(CheckedProvider):
    """Takes any answer, of whatever generation, also of nodes that were given up."""

    def _is_current(self, node: str, generation: int) -> bool:
        return True

    def _is_fresh(self, link: VirtualLink, message: Done) -> bool:
        return True

    def _forget(self, key: str) -> None:
        link = self._links.get(key)
        super()._forget(key)
        if link is not None:
            self._links[key] = link


class HastyProvider(CheckedProvider):
    """Says that an instance is gone as soon as it is told to stop."""

    def stop(self, key: str, grace_s: float) -> None:
        """Stop an instance, and do not wait for its end."""
        super().stop(key, grace_s)
        self.post(0.0, self.ended, key, Exit("it was told to stop"))


class RashWriter(InlineWriter):
    """Acknowledges a request before it is on disk."""

    def put(self, op: Op) -> None:
        """Queue an operation; say at once that a request was accepted."""
        super().put(op)
        if isinstance(op, AcceptOp):
            told = Written()
            told.answers.append((AcceptOp(op.id, op.entry, op.accepted_at, op.answer), Accepted(op.id, True)))
            self._told(told)
