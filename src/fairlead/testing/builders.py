"""Small worlds from few words: a cluster, a scenario, and a real view in which given requests wait."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TypedDict, TypeVar, Unpack

import msgspec
import numpy as np

from fairlead.engine.core import Controller
from fairlead.engine.core.events import Arrived
from fairlead.errors import PolicyError
from fairlead.model import (
    SLO,
    Bounds,
    Buffer,
    Cluster,
    Configuration,
    Device,
    Function,
    IdleHolds,
    Node,
    Price,
    Request,
    Sharing,
    Workflow,
)
from fairlead.policy import Action, Policy, Site, View
from fairlead.profile import Constant, Estimate, Law, Profile
from fairlead.workload import (
    Arrivals,
    ClosedLoop,
    DecisionTime,
    Listed,
    NodeFault,
    PolicyChoice,
    PressureChange,
    Scenario,
)

MAIN = "main"

Prepared = TypeVar("Prepared", bound=Policy)


class FunctionSettings(TypedDict, total=False):
    """Everything a function may be given besides its latency: the fields of `Function`, then those of `Profile`."""

    memory_gb: float
    device_memory_gb: float
    output_mb: float
    keep_alive_s: float
    idle_holds: IdleHolds
    retries: int
    run_limit_s: float
    start_limit_s: float
    buffers: tuple[Buffer, ...]
    hit_rate: float
    configurations: tuple[Configuration, ...]
    cold_start_s: float
    cold_start_by_kind: Mapping[str, float]
    noise: float
    bias: float
    failure_rate: float
    sensitivity: float
    pressure: float
    gpu_sensitivity: float
    pressure_curves: Mapping[str, tuple[tuple[float, float], ...]]
    overhead_s: float
    assumed_most_s: float


class ScenarioSettings(TypedDict, total=False):
    """The settings of a `Scenario` that its builder passes on as they are."""

    name: str
    duration_s: float
    warmup_s: float
    policy: PolicyChoice
    scaler: PolicyChoice
    control_period_s: float
    decision: DecisionTime
    node_faults: tuple[NodeFault, ...]
    pressures: tuple[PressureChange, ...]
    on_loss: str
    max_attempts: int
    retry_delay_s: float
    provision_s: float
    growth: Mapping[str, Bounds]


@dataclass(frozen=True)
class Declared:
    """A function and its profile, still without a name."""

    function: Function
    profile: Profile


@dataclass(frozen=True, kw_only=True)
class Waits:
    """One request that waits: of which workflow, since when, until when. `items` is for one that begins with a map."""

    deadline: float = inf
    workflow: str = MAIN
    at: float = 0.0
    items: int = 1


def declared(latency: float | Law, **settings: Unpack[FunctionSettings]) -> Declared:
    """A function that takes so many seconds, or follows a law; everything else as `Function` and `Profile` have it."""
    law = Constant(float(latency)) if isinstance(latency, int | float) else latency
    own = set(Function.__struct_fields__)
    function = {key: value for key, value in settings.items() if key in own}
    profile = {key: value for key, value in settings.items() if key not in own}
    return Declared(
        msgspec.convert({"name": "", **function}, Function),
        Profile(law=law, **profile),  # type: ignore[arg-type]  # the fields are checked by FunctionSettings
    )


def cluster(
    nodes: int = 1,
    *,
    vcpus: float = 4.0,
    vgpus: float = 0.0,
    devices: int = 1,
    sharing: Sharing = "mps",
    memory_gb: float = inf,
    device_memory_gb: float = inf,
    speed: float = 1.0,
    overcommit: float = 1.0,
    kind: str = "plain",
    beside: Cluster | None = None,
    bandwidth_gbps: float = inf,
    price: Price = Price(),
) -> Cluster:
    """So many equal nodes, named `n0` and on; with `vgpus`, each has so many `devices` of that size.

    `beside` is a cluster whose nodes come first, for several kinds in one.
    """
    before = beside.nodes if beside is not None else ()
    gpus = tuple(
        Device(vgpus=vgpus, memory_gb=device_memory_gb, sharing=sharing) for _ in range(devices if vgpus else 0)
    )
    more = tuple(
        Node(
            name=f"n{i}",
            kind=kind,
            vcpus=vcpus,
            memory_gb=memory_gb,
            devices=gpus,
            speed=speed,
            overcommit=overcommit,
        )
        for i in range(len(before), len(before) + nodes)
    )
    return Cluster(nodes=before + more, bandwidth_gbps=bandwidth_gbps, price=price)


def scenario(
    functions: Mapping[str, float | Law | Declared] | float | Law | Declared = 1.0,
    *,
    workflows: Mapping[str, Workflow | Sequence[str]] | None = None,
    arrivals: Sequence[float | Arrivals | ClosedLoop] = (0.0,),
    on: Cluster | None = None,
    slo_s: float = inf,
    **settings: Unpack[ScenarioSettings],
) -> Scenario:
    """A whole scenario; what is left out is one request for one function of a second, on one node of four vCPUs.

    Args:
        functions: Latency or declaration by name; without a name it is one function `f`.
        workflows: Workflows by name, or the functions of a chain; left out, `main` chains all functions.
        arrivals: Instants (of requests for the first workflow), processes, or both.
        on: The cluster.
        slo_s: Latency objective of the workflows that are given as chains.
        settings: Passed on to `Scenario`; `duration_s` is a thousand seconds unless given, and `policy` is `fifo`.
    """
    given = functions if isinstance(functions, Mapping) else {"f": functions}
    parts = {name: d if isinstance(d, Declared) else declared(d) for name, d in given.items()}
    slo = SLO(latency_s=slo_s)
    flows = {
        name: w if isinstance(w, Workflow) else Workflow.chain(name, *w, slo=slo)
        for name, w in (workflows or {MAIN: tuple(parts)}).items()
    }
    instants = tuple(float(a) for a in arrivals if isinstance(a, int | float))
    processes = tuple(a for a in arrivals if not isinstance(a, int | float))
    listed = (Listed(next(iter(flows)), instants),) if instants else ()
    defaults = {"name": "built", "duration_s": 1000.0, "policy": PolicyChoice(name="fifo")}
    return Scenario(
        **{**defaults, **settings},  # type: ignore[arg-type]  # as ScenarioSettings says
        cluster=on or cluster(),
        functions={name: msgspec.structs.replace(d.function, name=name) for name, d in parts.items()},
        profiles={name: d.profile for name, d in parts.items()},
        workflows=flows,
        arrivals=listed + processes,
    )


def site_of(scenario: Scenario, arrivals: Sequence[tuple[float, str]] | None = None) -> Site:
    """What a policy would be told of a scenario before its run."""
    return Site(
        cluster=scenario.cluster,
        functions=scenario.functions,
        workflows=scenario.workflows,
        profiles={
            name: Estimate(profile, scenario.cluster, load_mb=scenario.functions[name].constant_mb)
            for name, profile in scenario.profiles.items()
        },
        arrivals=arrivals,
        growth=scenario.growth,
        provision_s=scenario.provision_s,
    )


def prepared(policy: Prepared, scenario: Scenario | None = None, seed: int = 0) -> Prepared:
    """The policy itself, told of the scenario (if left out, the smallest), so that it can be asked."""
    policy.prepare(site_of(scenario or SMALLEST), np.random.default_rng(seed))
    return policy


def view_of(*waiting: float | Waits, scenario: Scenario | None = None, now: float | None = None) -> View:
    """A real controller's view in which these requests wait and nothing runs.

    A bare number is the deadline of a request of `main` that arrived at 0. Nobody carries out what a policy yields over
    this view, so it suits policies that walk through what waits; `decisions` suits all.

    Args:
        waiting: The requests, in order of arrival.
        scenario: Where they wait; left out, the builder's smallest.
        now: The instant of the view; left out, that of the last arrival, whose requests are then fresh.
    """
    instants = _instants(waiting, now)
    controller = Controller(scenario or SMALLEST, _Halt(instants[-1][0] if instants else inf))
    with suppress(PolicyError):  # halted in the midst of its call, when there is most to see
        for instant, events in instants:
            controller.handle(instant, events)
    return controller.view


def decisions(
    policy: Policy, *waiting: float | Waits, scenario: Scenario | None = None, now: float | None = None, seed: int = 0
) -> list[Action]:
    """What a policy does in one call when it finds these requests waiting; every action is carried out.

    The arguments are those of `view_of`. The policy is prepared first. An action that is refused is an
    AssertionError with the reason.
    """
    where = scenario or SMALLEST
    prepared(policy, where, seed)
    instants = _instants(waiting, now)
    gate = _From(policy, instants[-1][0] if instants else inf)
    controller = Controller(where, gate)
    for instant, events in instants:
        controller.handle(instant, events)
    for refusal in controller.refusals:
        raise AssertionError(f"{refusal.action} was refused: {refusal.reason}.")
    return gate.actions


SMALLEST = scenario()


def _instants(waiting: Sequence[float | Waits], now: float | None) -> list[tuple[float, list[Arrived]]]:
    requests = [w if isinstance(w, Waits) else Waits(deadline=float(w)) for w in waiting]
    at: dict[float, list[Arrived]] = {instant: [] for instant in sorted({w.at for w in requests})}
    for id, w in enumerate(requests):
        at[w.at].append(Arrived(Request(id, w.workflow, w.at, w.deadline), w.items))
    if now is not None:
        if any(instant > now for instant in at):
            raise ValueError(f"a request arrives at {max(at):g}, after now ({now:g}).")
        at.setdefault(now, [])
    return list(at.items())


@dataclass
class _Halt(Policy):
    """Lets everything wait until an instant, and stops there."""

    instant: float

    def decide(self, view: View) -> Iterator[Action]:
        if view.now >= self.instant:
            raise RuntimeError("halted")
        return iter(())


@dataclass
class _From(Policy):
    """Lets everything wait until an instant, then asks another policy and keeps what it did."""

    policy: Policy
    instant: float
    actions: list[Action] = field(default_factory=list)

    def decide(self, view: View) -> Iterator[Action]:
        if view.now >= self.instant:
            for action in self.policy.decide(view):
                self.actions.append(action)
                yield action
