"""The objective of a workflow: how soon it must answer and, optionally, at what cost."""

from math import inf

import msgspec


class SLO(msgspec.Struct, frozen=True, kw_only=True):
    """Latency and cost that a request may take at most; infinity asks for nothing."""

    latency_s: float = inf
    cost_usd: float = inf

    def __post_init__(self) -> None:
        for name in ("latency_s", "cost_usd"):
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name} must be positive; got {value}.")
