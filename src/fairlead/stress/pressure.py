"""How hard third parties press on a node, and with what."""

import re

import msgspec

KINDS = ("cpu", "cache", "memory-bandwidth")
"""What the time that is taken is spent on: arithmetic, going through the caches, or streaming through memory."""

_PERCENT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*")


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """A share of a node's CPU time that others hold, whatever the node itself wants.

    Raises `ValueError` for a share outside [0, 1] and for unknown kinds.
    """

    share: float = 0.0
    kinds: tuple[str, ...] = ("cpu",)

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be in [0, 1]; got {self.share}.")
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds:
            raise ValueError(f"kinds must be some of {', '.join(KINDS)}; got {', '.join(self.kinds) or 'none'}.")

    def __str__(self) -> str:
        with_ = "" if self.kinds == ("cpu",) else f" ({', '.join(self.kinds)})"
        return f"{100 * self.share:g}%{with_}"


NONE = Pressure()


def parse_share(value: object) -> float:
    """A share as people write it: `50%`, or 0.5. Raises `ValueError`."""
    found: float | None = None
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value)
        if match is not None:
            found = float(match[1]) / 100
        else:
            try:
                found = float(value)
            except ValueError:
                found = None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    if found is None or not 0 <= found <= 1:
        raise ValueError(f"must be a share from 0% to 100%, such as 50% or 0.5; got {value!r}.")
    return found
