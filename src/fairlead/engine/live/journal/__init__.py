"""The journal: accepted requests are on disk before they are acknowledged, and end once."""

from fairlead.engine.live.journal.entries import (
    ID_PATTERN,
    Accept,
    Accepted,
    Entry,
    Final,
    JournalFullError,
    JournalStats,
    KeyConflictError,
    Pending,
    Undelivered,
)
from fairlead.engine.live.journal.front import Journal

__all__ = [
    "ID_PATTERN",
    "Accept",
    "Accepted",
    "Entry",
    "Final",
    "Journal",
    "JournalFullError",
    "JournalStats",
    "KeyConflictError",
    "Pending",
    "Undelivered",
]
