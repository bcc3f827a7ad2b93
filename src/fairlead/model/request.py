"""What travels through the system: requests, their invocations, the batches and instances that serve them.

A request's deadline is set once, from its arrival and its workflow's SLO, and every invocation carries it.
"""

from math import inf

import msgspec

CACHED = "cached"
"""The outcome of an invocation that a prediction cache answered: nothing was run for it."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One call of a workflow. `deadline` is an instant; `budget_usd` what the answer may cost."""

    id: int
    workflow: str
    arrival: float
    deadline: float = inf
    budget_usd: float = inf


class Invocation(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One function of one request. `item` counts through a map (0 outside); `attempt` from 1.

    `copy` tells the copies of a competing stage apart (0 elsewhere): the first of them to be done is enough.
    Compared by identity: each attempt is made once, by the controller.
    """

    id: int
    request: int
    workflow: str
    stage: str
    function: str
    ready: float
    deadline: float
    item: int = 0
    attempt: int = 1
    copy: int = 0


class Instance(msgspec.Struct, frozen=True, gc=False):
    """One running copy of a function, as a policy sees it. `device` is -1 without an accelerator.

    `running` is how many invocations are in its batch, and `run_start` when that began to run, its cold start over;
    infinity without a batch, or while it starts. A replica of a scaled function that `is_draining` takes no more work.
    `start_s` is how long it took to start: infinity before it is ready, and 0 of one that was taken over as it was.
    """

    id: int
    function: str
    node: str
    device: int
    vcpus: float
    vgpus: float
    memory_gb: float
    is_ready: bool
    is_idle: bool
    is_replica: bool = False
    is_draining: bool = False
    running: int = 0
    run_start: float = inf
    start_s: float = inf
