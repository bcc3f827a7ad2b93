"""How the rate of a function is divided among its instances, and which of them it can do without. Pure functions."""

from collections.abc import Sequence
from itertools import islice, product

Span = tuple[float, float]  # of an instance: the least and the greatest rate it should be given

_LOADED = 0.8  # of the way from the sum of the least to that of the greatest: below, some can be dropped
_LEVELS = (_LOADED, _LOADED / 2, _LOADED / 4, 0.0)
_MOST = 50_000  # combinations that are looked at


def shares(spans: Sequence[Span], rate_rps: float) -> list[float]:
    """The rate of each instance; one with 0 is to be dropped.

    No instance gets what exceeds the sum of the greatest rates.
    """
    low, high = _sum(spans)
    if rate_rps <= 0:
        return [0.0] * len(spans)
    if rate_rps >= high:
        return [most for _, most in spans]
    if rate_rps >= low + _LOADED * (high - low):
        return _divided(spans, rate_rps)
    kept = subset(spans, rate_rps)
    if kept is not None:
        parts = iter(_divided([span for span, is_kept in zip(spans, kept, strict=True) if is_kept], rate_rps))
        return [next(parts) if is_kept else 0.0 for is_kept in kept]
    if rate_rps >= low:
        return _divided(spans, rate_rps)
    return _filled(spans, rate_rps)


def subset(spans: Sequence[Span], rate_rps: float) -> list[bool] | None:
    """Which instances to keep so that the rest is well loaded and has enough; None if no part of them will do.

    Best is what is loaded to 80 % of its span or more, then 40 %, 20 %, anything; among those, what drops fewest. Equal
    instances are told apart by their order only, so that the number of each kind is all that is searched.
    """
    kinds = list(dict.fromkeys(spans))
    counts = [sum(span == kind for span in spans) for kind in kinds]
    best: tuple[int, int, tuple[int, ...]] | None = None
    for kept in islice(product(*(range(count, -1, -1) for count in counts)), 1, _MOST):
        low = sum(count * kind[0] for count, kind in zip(kept, kinds, strict=True))
        high = sum(count * kind[1] for count, kind in zip(kept, kinds, strict=True))
        if not low <= rate_rps <= high:
            continue
        level = next(i for i, part in enumerate(_LEVELS) if rate_rps >= low + part * (high - low))
        found = (level, -sum(kept), kept)
        if best is None or found[:2] < best[:2]:
            best = found
    if best is None:
        return None
    left = dict(zip(kinds, best[2], strict=True))
    flags = []
    for span in spans:
        flags.append(left[span] > 0)
        left[span] -= 1
    return flags


def _divided(spans: Sequence[Span], rate_rps: float) -> list[float]:
    """Each its greatest rate, less a part of its span, the same part for all."""
    low, high = _sum(spans)
    if high <= low:
        return [most * rate_rps / high for _, most in spans]
    part = (high - rate_rps) / (high - low)
    return [most - part * (most - least) for least, most in spans]


def _filled(spans: Sequence[Span], rate_rps: float) -> list[float]:
    """One after the other as much as it can take: too little for all, and no part of them has so low a least."""
    found = []
    for _, most in spans:
        part = min(most, rate_rps)
        found.append(part)
        rate_rps -= part
    return found


def _sum(spans: Sequence[Span]) -> Span:
    return sum(least for least, _ in spans), sum(most for _, most in spans)
