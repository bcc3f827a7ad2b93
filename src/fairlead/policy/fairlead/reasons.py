"""Why the policy did what it did: reasons of refusals and drops, and notes on promises and starts for `explain`.

Notes are figures that the policy has at hand. They become text only when the record of their request is written.
"""

from collections.abc import Sequence
from math import inf

import msgspec
import numpy as np

from fairlead.model import Configuration

RESOURCES = ("vCPU", "vGPU")


class Planned(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One stage of a plan: from `start_s` to `end_s` after the arrival it gathers a batch and runs, for `run_s`."""

    stage: str
    function: str
    after: tuple[str, ...]
    configuration: Configuration
    kind: str
    run_s: float
    start_s: float
    end_s: float

    def __str__(self) -> str:
        return f"{self.stage}: {self.configuration} on {self.kind}, {self.run_s:.3g} s"


class _Note(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What is written as one line of JSON: an array, since there is one per request and one per run."""

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()


class Admitted(_Note, frozen=True, gc=False, tag="admitted"):
    """What a promise rests on. Work is in seconds of a vCPU and of a vGPU, prices are relative to the base price.

    Args:
        planned_s: How long the plan takes.
        ahead: Work that was promised before.
        need: Work of the request itself.
        room: Work that may be promised until its deadline.
        prices: One where nothing is short.
        steps: The plan.
        share: Of what may be promised, with its own work, where it had to be looked at closely.
        is_either: Whether a plan can do with one resource what it lacks of the other: both count, by their prices.
    """

    planned_s: float
    ahead: list[float]
    need: list[float]
    room: list[float]
    prices: list[float]
    steps: tuple[Planned, ...]
    share: float | None = None
    is_either: bool = False


class Started(_Note, frozen=True, gc=False, tag="started"):
    """Why a batch was started as it was.

    Args:
        function: What it runs.
        configuration: With what; the smallest batch that holds what was there.
        kind: On which kind of node.
        expected_s: How long it was expected to run.
        left_s: How long the first of the batch had until its deadline.
        waiting: How many invocations of the function waited.
        busy: Share of the node that others used.
        pace: Of the node: observed over expected time of its last batches.
        prices: One where nothing is short.
        better: What was preferred, and on which kind, but had no idle instance with room, nor could one be started.
        is_rushed: Whether nothing was in time by a safe estimate, so that a quick configuration was taken.
        skipped: How many more urgent invocations were passed over.
        slow: The slowest node of the kind and its pace, if it is avoided.
        was_kept: Whether it had to wait for room that is kept for requests that cannot wait.
    """

    function: str
    configuration: Configuration
    kind: str
    expected_s: float
    left_s: float
    waiting: int
    busy: float
    pace: float
    prices: list[float]
    better: tuple[Configuration, str] | None = None
    is_rushed: bool = False
    skipped: int = 0
    slow: tuple[str, float] | None = None
    was_kept: bool = False


_READER = msgspec.json.Decoder(Admitted | Started)


def read_notes(lines: Sequence[str]) -> tuple[Admitted | None, tuple[Started, ...]]:
    """The notes of a request's record: on its promise, and on its starts in their order."""
    notes = []
    for line in lines:
        try:
            notes.append(_READER.decode(line))
        except (msgspec.DecodeError, ValueError):
            continue  # of another version
    admitted = next((note for note in notes if isinstance(note, Admitted)), None)
    return admitted, tuple(note for note in notes if isinstance(note, Started))


# --- reasons: they end a request, so they are texts at once ---------------------------------------------------------


def no_room(
    over: float,
    ahead: Sequence[float],
    room: Sequence[float],
    matters: Sequence[bool],
    left_s: float,
    *,
    is_either: bool,
) -> str:
    """The cluster cannot do what is due before a request, and the request."""
    what = f"what was admitted before it takes all that the cluster can do in the {left_s:.3g} s until it is due"
    share = f"with it {100 * over:.4g} % of what may be promised"
    return f"{what}: {share} ({amounts(ahead, room, matters, is_either=is_either)})"


def too_busy(wait_s: float) -> str:
    """A request would have to wait until it could only be in time in a small batch, or not at all."""
    return f"all is busy until it would be in time in a small batch only, or not at all: for {wait_s:.3g} s"


def amounts(work: Sequence[float], room: Sequence[float], matters: Sequence[bool], *, is_either: bool) -> str:
    """So much work of so much, of what is fullest, or of both resources where they stand in for each other."""
    parts = [
        (done / most, f"{done:.3g} of {most:.3g} {name}-seconds")
        for name, done, most, counts in zip(RESOURCES, work, room, matters, strict=True)
        if most > 0 and (counts or is_either)
    ]
    if is_either and len(parts) > 1:
        return f"{' and '.join(text for _, text in parts)}, weighted by price"
    return max(parts, default=(0.0, "nothing"))[1]


def beyond_share(per_s: float, rate: float) -> str:
    """The workflow of a request has had its share."""
    what = "its workflow has had its share of a cluster that cannot serve all requests"
    return f"{what}: {per_s:.3g} of {rate:.3g} requests per second"


def too_late(stage: str, least_s: float, left_s: float) -> str:
    """There is too little time left for an admitted request."""
    needed, left = f"{least_s:.3g} s", f"{max(left_s, 0.0):.3g} s"
    rest = "less than that is left" if left == needed else f"{left} are left"
    return f"it can no longer be answered in time: from {stage} on it takes at least {needed}, and {rest}"


def too_expensive(stage: str, cost: float, fresh: float, most: float, left_s: float) -> str:
    """Finishing an admitted request in the time that is left takes too much of what is short."""
    what = f"with the {left_s:.3g} s that are left, from {stage} on"
    if cost == inf:
        return f"{what} no configuration is safely in time, and the cluster is too short of room to try"
    times = f"it would cost {cost / fresh:.4g} times as much as a new request"
    return f"{what} {times}, and while the cluster is short of room at most {most:g} times is spent"


def over_budget(stage: str, least_usd: float, spend_usd: float, budget_usd: float, spent_usd: float) -> str:
    """What is left of the budget of an admitted request does not suffice."""
    left = f"{_usd(spent_usd)} of {_usd(budget_usd)} are spent, which leaves {_usd(max(spend_usd, 0.0))} for {stage}"
    return f"it can no longer be answered within its budget: {left}, and in time that costs at least {_usd(least_usd)}"


def _usd(amount: float) -> str:
    return f"${np.format_float_positional(amount, precision=3, fractional=False, trim='-')}"
