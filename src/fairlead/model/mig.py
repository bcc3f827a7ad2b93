"""MIG: which slices a device can be cut into, where each may lie, and which lie beside each other.

The places are those of an A100: eight memory slices, of which a slice takes some that are adjacent (1g.5gb, 2g.10gb,
3g.20gb, 4g.20gb, 7g.40gb). A place is a bit mask over them.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

MIG_SIZES = (1, 2, 3, 4, 7)  # vGPUs

MIG_EIGHTHS: Mapping[int, int] = MappingProxyType({1: 1, 2: 2, 3: 4, 4: 4, 7: 8})  # memory slices by size
_STARTS = {1: (6, 5, 4, 3, 2, 1, 0), 2: (4, 2, 0), 3: (4, 0), 4: (0,), 7: (0,)}

# By size, the highest first: small slices from above leave the low places to the large, which begin there only.
MIG_PLACES: Mapping[int, tuple[int, ...]] = MappingProxyType(
    {size: tuple(((1 << MIG_EIGHTHS[size]) - 1) << start for start in starts) for size, starts in _STARTS.items()}
)


def mig_layout(sizes: Sequence[int]) -> tuple[int, ...] | None:
    """A place for each slice of these sizes, in their order; None if one device cannot hold them all."""
    if sum(sizes) > MIG_SIZES[-1]:
        return None
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    found = _lay([sizes[i] for i in order], 0)
    if found is None:
        return None
    places = dict(zip(order, found, strict=True))
    return tuple(places[i] for i in range(len(sizes)))


def _lay(sizes: Sequence[int], taken: int) -> list[int] | None:
    """Places for slices from the largest to the smallest, beside what is taken."""
    if not sizes:
        return []
    for place in MIG_PLACES.get(sizes[0], ()):
        if not place & taken:
            rest = _lay(sizes[1:], taken | place)
            if rest is not None:
                return [place, *rest]
    return None
