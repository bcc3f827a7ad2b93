"""Quantities as people write them: "800ms", "2s", "1m", "64MB"."""

import re
from math import isfinite

_UNITS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(us|ms|s|m|h|)\s*")


_SIZES = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(kb|mb|gb)\s*", re.IGNORECASE)


def bytes_of(text: str) -> int | None:
    """A size in bytes from a text with its unit, where 1024 KB are an MB; None if it is none."""
    match = _SIZE.fullmatch(text)
    return None if match is None else int(float(match[1]) * _SIZES[match[2].lower()])


def seconds(value: object, name: str, *, or_none: bool = False) -> float:
    """A duration in seconds: a number of them, or a text with its unit. Positive and finite.

    `name` is what is asked for, and `or_none` whether None would do too; both are for the message.
    """
    found = _seconds(value)
    if found is None or not found > 0 or not isfinite(found):
        choices = "a positive duration, such as 0.8 (seconds), '800ms', '2s' or '1m'" + (", or None" if or_none else "")
        raise ValueError(f"{name} must be {choices}; got {value!r}.")
    return found


def seconds_or_none(value: object, name: str) -> float | None:
    """The same; None stays None."""
    return None if value is None else seconds(value, name, or_none=True)


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    number, unit = match.groups()
    return float(f"{number}e-3") if unit == "ms" else float(number) * _UNITS[unit]
