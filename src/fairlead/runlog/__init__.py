"""The folder of a live run: written by `engine.live`, read by `report` and `replay`.

A head (`live.json`) that declares all a run depends on, and segments that are only ever appended to.
"""

from fairlead.runlog.head import HEAD, RunHead, read_head, write_head
from fairlead.runlog.scaling import ScalingRow, read_scaling
from fairlead.runlog.segments import Frame, Kind, SegmentWriter, Tail, prune_runs, read_frames

__all__ = [
    "HEAD",
    "Frame",
    "Kind",
    "RunHead",
    "ScalingRow",
    "SegmentWriter",
    "Tail",
    "prune_runs",
    "read_frames",
    "read_head",
    "read_scaling",
    "write_head",
]
