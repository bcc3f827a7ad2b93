"""Where the time of a request goes: every second of its latency belongs to one part.

A call is under way from its dispatch to its answer, as the gateway records it. An instant at which several calls are
under way belongs to each of them in equal parts; one at which none is, to the gateway: HTTP, decisions, and the
hand-over from one call to the next. What belongs to a call is divided as its function says that it spent its own time,
and what the function knows nothing of is the hop: the message to its process and back, with the values in it.

So parts add up to the latency, whatever ran side by side. Waiting is no part: while a call waits for a queue-worker,
other calls are under way. It is told apart, per call.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

PARTS = ("compute", "get", "put", "hop", "gateway")
"""In the order in which they are shown."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a function: when it could start, started and ended, and what it spent its time on."""

    function: str
    ready: float
    start: float
    end: float
    get_s: float
    run_s: float
    put_s: float
    cpu_s: float
    is_mapped: bool
    cold_s: float = 0.0

    @property
    def hop_s(self) -> float:
        """The time of the call in which its function did nothing for it."""
        return max(0.0, self.end - self.start - self.get_s - self.run_s - self.put_s)

    @property
    def wait_s(self) -> float:
        """From when it could start until it did."""
        return self.start - self.ready


def attributed_s(spans: Sequence[tuple[float, float]]) -> list[float]:
    """What belongs to each span, if every instant belongs in equal parts to all spans that it lies in."""
    found = [0.0] * len(spans)
    marks = sorted({instant for span in spans for instant in span})
    for begin, end in pairwise(marks):
        under_way = [i for i, (first, last) in enumerate(spans) if first <= begin and end <= last]
        for i in under_way:
            found[i] += (end - begin) / len(under_way)
    return found


def parts_of(latency_s: float, calls: Sequence[Call]) -> dict[str, float]:
    """The seconds of each part of a request that took so long; they sum to its latency."""
    found = dict.fromkeys(PARTS, 0.0)
    owned = attributed_s([(call.start, call.end) for call in calls])
    for call, seconds in zip(calls, owned, strict=True):
        own = {"compute": call.run_s, "get": call.get_s, "put": call.put_s, "hop": call.hop_s}
        whole = sum(own.values())
        for part, spent in own.items():
            found[part] += seconds * spent / whole if whole else 0.0
    found["gateway"] = latency_s - sum(owned)
    return found


def calls_of(invocations: Sequence[Mapping[str, Any]], spent: Sequence[Mapping[str, Any]], suffix: str) -> list[Call]:
    """The calls that a gateway recorded, each with what its function noted.

    Args:
        invocations: Rows of one request.
        spent: What its functions noted, in any order: frames are numbered by their place in the video.
        suffix: What the names of the app's functions have behind the name in the notes.
    """
    frames = sorted({one["frame"] for one in spent if one["frame"] is not None})
    items = {frame: item for item, frame in enumerate(frames)}
    notes = {(one["function"], items.get(one["frame"], 0)): one for one in spent}
    mapped = {one["function"] for one in spent if one["frame"] is not None}
    calls = []
    for row in invocations:
        function = row["function"].removesuffix(suffix)
        note = notes[function, row["item"] if function in mapped else 0]
        calls.append(
            Call(
                function=function,
                is_mapped=function in mapped,
                **{key: row[key] for key in ("ready", "start", "end", "cold_s")},
                **{key: note[key] for key in ("get_s", "run_s", "put_s", "cpu_s")},
            )
        )
    return calls
