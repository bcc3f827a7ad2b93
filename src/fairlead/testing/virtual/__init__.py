"""The live runtime on virtual time: an event loop whose clock jumps, and what runs on it instead of threads and I/O."""

from fairlead.testing.virtual.journal import InlineWriter, VirtualJournal
from fairlead.testing.virtual.loop import Life, LifeEndedError, StuckError, VirtualLoop, run

__all__ = ["InlineWriter", "Life", "LifeEndedError", "StuckError", "VirtualJournal", "VirtualLoop", "run"]
