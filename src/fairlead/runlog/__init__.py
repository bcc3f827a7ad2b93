"""The folder of a live run: written by `engine.live`, read by `report` and `replay`.

A head (`live.json`) that declares all a run depends on, and segments that are only ever appended to.
"""

from fairlead.runlog.head import HEAD, RunHead, read_head, write_head
from fairlead.runlog.segments import Frame, Kind, SegmentWriter, Tail, prune_runs, read_frames

__all__ = [
    "HEAD",
    "Frame",
    "Kind",
    "RunHead",
    "SegmentWriter",
    "Tail",
    "prune_runs",
    "read_frames",
    "read_head",
    "write_head",
]
