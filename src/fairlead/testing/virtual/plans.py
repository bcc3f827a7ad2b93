"""What happens in a simulation of faults: drawn from a seed, before anything runs."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from fairlead.app import App, each
from fairlead.model import Node
from fairlead.testing.virtual.traits import Traits
from fairlead.testing.virtual.working import die, sleep

FAULTS_S = 12.0
"""How long requests and faults come; from then on nothing goes wrong any more."""

_POLICIES = ("fairlead", "fairlead", "fifo", "earliest-deadline", "least-loaded")
_SCALERS = (None, None, None, "hpa", "static-replicas")

Kind = Literal[
    "crash",
    "crash-step",
    "freeze",
    "cut",
    "lose",
    "kill",
    "jump",
    "deploy",
    "scale",
    "give-back",
    "move",
    "disk",
    "drain",
    "undrain",
]
_KINDS: tuple[Kind, ...] = (
    "crash",
    "crash-step",
    "crash-step",
    "freeze",
    "freeze",
    "cut",
    "cut",
    "lose",
    "kill",
    "kill",
    "jump",
    "deploy",
    "scale",
    "give-back",
    "move",
    "disk",
    "drain",
    "drain",
    "undrain",
)


@dataclass(frozen=True)
class Call:
    """A request: when, of which workflow, with which input, and what its client does.

    `deadline_s` is the client's own; None for the workflow's. `leaves_s` is when the client gives up on it, or cancels
    it where it is asynchronous; None for never.
    """

    at_s: float
    workflow: str
    value: int
    is_async: bool
    deadline_s: float | None
    leaves_s: float | None


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, or that an operator does. `amount` and `pick` are numbers in [0, 1)."""

    at_s: float
    kind: Kind
    amount: float
    pick: float


@dataclass(frozen=True)
class Plan:
    """A simulation of faults. The first gateway dies after `dies_after` steps, where that is given."""

    seed: int
    nodes: tuple[Node, ...]
    traits: Traits
    policy: str
    scaler: str | None
    calls: tuple[Call, ...]
    faults: tuple[Fault, ...]
    dies_after: int | None = None


def plan_of(seed: int, *, keeps: bool = True, deploys: bool = True) -> Plan:
    """The plan of a seed. Without `keeps` no instance outlives its gateway, without `deploys` no app is replaced."""
    rng = np.random.default_rng(seed)
    policy = _POLICIES[rng.integers(len(_POLICIES))]
    scaler = _SCALERS[rng.integers(len(_SCALERS))]
    least = 2 if scaler is None else 5  # replicas hold their vCPUs: every function must find room for one
    nodes = tuple(
        Node(name=f"n{number}", kind="node", vcpus=float(least + number % 2), memory_gb=float(rng.integers(5, 8)))
        for number in range(int(rng.integers(1, 4)))
    )
    traits = Traits(
        spikes=_share(rng, 0.05),
        start_failures=_share(rng, 0.3),
        deaths=_share(rng, 0.1),
        slow_ends=_share(rng, 0.5),
        resize_refusals=_share(rng, 0.5),
        duplicates=_share(rng, 0.2),
        keeps=bool(rng.random() < 0.5) and keeps,
        resizes=bool(rng.random() < 0.8),
    )
    calls = sorted((_call(rng) for _ in range(int(rng.integers(5, 25)))), key=lambda call: call.at_s)
    faults = sorted((_fault(rng) for _ in range(int(rng.integers(0, 8)))), key=lambda fault: fault.at_s)
    chosen = tuple(fault for fault in faults if deploys or fault.kind != "deploy")
    return Plan(seed, nodes, traits, policy, scaler, tuple(calls), chosen)


@cache
def make_app(version: int = 1) -> App:
    """The app of the simulations. Its answers are known (`expected`), and are the same in every version.

    Made once: its functions keep nothing, so instances can share it.
    """
    app = App("sim")

    @app.function(memory_gb=1, vcpus=(1, 2), retries=4)
    def first(value: int) -> int:
        sleep(0.005 + 0.02 * (value % 5))
        return value + 1

    @app.function(memory_gb=1, batch=4, retries=4, warm=0)
    def double(values: list[int]) -> list[int]:
        sleep(0.01)
        return [2 * value for value in values]

    @app.function(memory_gb=1, retries=4, warm=0)
    def spread(value: int) -> list[int]:
        sleep(0.01)
        return [value + number for number in range(value % 4)]

    @app.function(memory_gb=1, retries=4, warm=0)
    def total(values: list[int]) -> int:
        sleep(0.002)
        return sum(values)

    @app.function(memory_gb=0.5, retries=1, warm=0)
    def risky(value: int) -> int:
        sleep(0.01)
        if value % 5 == 0:
            raise ValueError("not this one")
        if value % 7 == 0:
            die()
        return -value

    app.workflow("chain", first >> double, slo="2s")
    app.workflow("fan", spread >> each(first) >> total, slo="3s")
    app.workflow("risk", risky)
    if version % 2 == 0:
        app.workflow("more", first, slo="2s")
    return app


def expected(workflow: str, value: int) -> int | None:
    """What a workflow answers; None for one that must fail."""
    if workflow == "chain":
        return 2 * (value + 1)
    if workflow == "fan":
        return sum(value + number + 1 for number in range(value % 4))
    return None if value % 5 == 0 or value % 7 == 0 else -value


def _share(rng: np.random.Generator, most: float) -> float:
    """Nothing in half of the plans, else up to `most`."""
    share = float(rng.uniform(0, most))
    return share if rng.random() < 0.5 else 0.0


def _call(rng: np.random.Generator) -> Call:
    is_async = bool(rng.random() < 0.6)
    own = bool(rng.random() < 0.3)
    leaves = bool(rng.random() < 0.15)
    return Call(
        at_s=float(rng.uniform(0, FAULTS_S)),
        workflow=("chain", "fan", "risk")[rng.choice(3, p=(0.5, 0.3, 0.2))],
        value=int(rng.integers(0, 1000)),
        is_async=is_async,
        deadline_s=float(rng.uniform(0.2, 20.0)) if own else None,
        leaves_s=float(rng.exponential(0.5)) if leaves else None,
    )


def _fault(rng: np.random.Generator) -> Fault:
    return Fault(
        at_s=float(rng.uniform(0, FAULTS_S)),
        kind=_KINDS[rng.integers(len(_KINDS))],
        amount=float(rng.random()),
        pick=float(rng.random()),
    )
