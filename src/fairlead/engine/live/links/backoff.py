"""Back-off: how long to wait between attempts to reach the other end."""

import secrets
from collections.abc import Iterator

_FIRST_S, _MOST_S = 0.05, 2.0


def delays_s(first_s: float = _FIRST_S, most_s: float = _MOST_S) -> Iterator[float]:
    """Delays that double up to `most_s`, each shortened by up to a half at random: all peers of a gateway that starts
    again would otherwise dial at the same instant.
    """
    delay_s = first_s
    while True:
        yield delay_s * (0.5 + secrets.randbelow(1024) / 2048)
        delay_s = min(most_s, 2 * delay_s)
