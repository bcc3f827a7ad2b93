"""What must hold of the slices of a MIG device, worked out from when they were in use or held.

Where a slice lay is in no record, so this asks whether any places would do. A slice is *in use* while an instance
starts or runs there, and *held* while an idle one keeps it. While anything is in use nothing is destroyed, so that all
slices in use or held at any time of such a period must have places beside each other, and each that the device did not
begin with was cut, and paid for, by some start until then.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import isclose
from typing import NamedTuple

# Where a slice of each size may begin on a MIG device, and which of the eight memory slices it takes.
_MIG_PLACES = {1: range(7), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)}
_MIG_WIDTH = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}


class Span(NamedTuple):
    """A slice of some size, in use or held from one instant until another."""

    start: float
    end: float
    size: int
    is_used: bool = True


class Started(NamedTuple):
    """A start of an instance: how much longer it took than declared, None where that is not known."""

    at: float
    size: int
    extra_s: float | None


def mig_fits(sizes: Sequence[int], taken: int = 0) -> bool:
    """Whether slices of these sizes can be on one MIG device together; `taken` masks memory slices already in use."""
    if not sizes:
        return True
    first, *rest = sorted(sizes, reverse=True)
    masks = [((1 << _MIG_WIDTH[first]) - 1) << start for start in _MIG_PLACES[first]]
    return any(mig_fits(rest, taken | mask) for mask in masks if not mask & taken)


def check_slices(name: str, spans: Iterable[Span]) -> None:
    """At every instant, and over every period in which the device was in use, the slices had places."""
    there: Counter[int] = Counter()
    needed: Counter[int] = Counter()
    used = 0
    for at, ends, starts in _instants(spans):
        for span in ends:
            there[span.size] -= 1
            used -= span.is_used
        if not used:
            needed.clear()  # now or never: what is cut otherwise is cut before anything starts
        for span in starts:
            there[span.size] += 1
            used += span.is_used
        assert _fit(there), f"MIG slices {_sizes(there)} ran together on {name} at {at}."
        if used:
            needed |= there
            assert _fit(needed), (
                f"MIG slices {_sizes(needed)} were on {name} until {at} without an instant to cut it otherwise."
            )


def check_cuts(
    name: str, partition: Sequence[int], repartition_s: float, spans: Iterable[Span], starts: Iterable[Started]
) -> None:
    """Of each size, no more slices are there than the device began with and starts have paid for."""
    paid: dict[int, list[float]] = defaultdict(list)
    for start in starts:
        if start.extra_s is None or isclose(start.extra_s, repartition_s, rel_tol=1e-6, abs_tol=1e-9):
            paid[start.size].append(start.at)
        else:
            assert isclose(start.extra_s, 0.0, abs_tol=1e-9 * max(1.0, start.at)), (
                f"a start on {name} at {start.at} took {start.extra_s:g} s longer than declared; "
                f"a cut takes {repartition_s:g} s."
            )
    first, there = Counter(partition), Counter[int]()
    for at, ends, begins in _instants(spans):
        for span in ends:
            there[span.size] -= 1
        for span in begins:
            there[span.size] += 1
        for size in {span.size for span in begins}:
            cuts = sum(instant <= at for instant in paid[size])
            assert there[size] <= first[size] + cuts, (
                f"{there[size]} slices of {size} are on {name} at {at}: "
                f"it began with {first[size]}, and {cuts} cuts were paid for."
            )


def _instants(spans: Iterable[Span]) -> list[tuple[float, list[Span], list[Span]]]:
    """Every instant with what ends and what starts there; what takes no time is left out."""
    ends: dict[float, list[Span]] = defaultdict(list)
    starts: dict[float, list[Span]] = defaultdict(list)
    for span in spans:
        if span.end > span.start:
            starts[span.start].append(span)
            ends[span.end].append(span)
    return [(at, ends.get(at, []), starts.get(at, [])) for at in sorted({*ends, *starts})]


def _sizes(counts: Mapping[int, int]) -> list[int]:
    return sorted(size for size, count in counts.items() for _ in range(count))


def _fit(counts: Mapping[int, int]) -> bool:
    return _fits(tuple(_sizes(counts)))


@lru_cache(maxsize=1024)
def _fits(sizes: tuple[int, ...]) -> bool:
    return sum(sizes) <= 7 and mig_fits(sizes)
