"""What a search gives."""

import msgspec


class Path(msgspec.Struct, frozen=True, gc=False):
    """One option for each stage. `choice` has its index in each stage; both numbers are sums in the order of stages."""

    choice: tuple[int, ...]
    latency_s: float
    cost_usd: float


class Found(msgspec.Struct, frozen=True):
    """The cheapest paths, cheapest first, and what it took to find them.

    Attributes:
        paths: None if nothing is within the budget.
        steps: Extensions of a path by one option that were looked at; complete paths, for brute force. It does not
            depend on the machine: the unit of a modelled decision time.
        cut_by_time: Extensions that cannot be within the budget, however fast the rest is.
        cut_by_cost: Extensions that cannot be among the cheapest, however cheap the rest is. Those that were never
            looked at, because a cheaper option of the same stage was cut already, are counted too.
    """

    paths: tuple[Path, ...]
    steps: int
    cut_by_time: int
    cut_by_cost: int
