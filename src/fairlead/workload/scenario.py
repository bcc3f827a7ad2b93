"""A scenario: all that a run depends on except the seed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from fairlead.model import Bounds, Cluster, Function, Workflow
from fairlead.profile import Host, Profile
from fairlead.workload.arrivals import Arrivals, ClosedLoop


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < inf:
            raise ValueError(f"{name} must be positive and finite; got {value}.")


def _check_not_negative(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < inf:
            raise ValueError(f"{name} must be finite and not negative; got {value}.")


@dataclass(frozen=True, kw_only=True)
class PolicyChoice:
    """A policy by name, with the parameters that are not left at their defaults."""

    name: str
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DecisionTime:
    """How long a decision takes in simulated time: a fixed part, and a part per search step the policy reports."""

    fixed_s: float = 0.0
    per_step_s: float = 0.0

    def __post_init__(self) -> None:
        _check_not_negative(fixed_s=self.fixed_s, per_step_s=self.per_step_s)


@dataclass(frozen=True, kw_only=True)
class NodeFault:
    """A node goes down at an instant and, unless `back_s` is None, comes back so much later."""

    node: str
    at_s: float
    back_s: float | None = None

    def __post_init__(self) -> None:
        _check_not_negative(at_s=self.at_s)
        if self.back_s is not None:
            _check_positive(back_s=self.back_s)


@dataclass(frozen=True, kw_only=True)
class PressureChange:
    """From this instant on, load from outside takes this share of a node."""

    node: str
    at_s: float
    pressure: float

    def __post_init__(self) -> None:
        _check_not_negative(at_s=self.at_s, pressure=self.pressure)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One setting that takes several values, each a run of its own. `key` is a dotted path, `*` for every item."""

    key: str
    values: tuple[object, ...]

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("key must name a setting.")
        if not self.values:
            raise ValueError("values must hold at least one value.")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Cluster, functions, workflows, arrivals, and who decides.

    `on_loss` says what becomes of work that was running on a lost node; a retried invocation may run
    `max_attempts` times in all. `growth` says, by kind, how many nodes a policy may ask for; `provision_s` is how long
    a node takes to come where that does not say. With a `host`, everything is on one machine, whose gateway takes time
    too, and times are those that a client sees.
    """

    name: str
    cluster: Cluster
    functions: Mapping[str, Function]
    profiles: Mapping[str, Profile]
    workflows: Mapping[str, Workflow]
    arrivals: tuple[Arrivals | ClosedLoop, ...]
    description: str = ""
    duration_s: float = 60.0
    warmup_s: float = 0.0
    policy: PolicyChoice = PolicyChoice(name="fairlead")
    scaler: PolicyChoice | None = None
    control_period_s: float = 10.0
    decision: DecisionTime = DecisionTime()
    node_faults: tuple[NodeFault, ...] = ()
    pressures: tuple[PressureChange, ...] = ()
    on_loss: Literal["retry", "fail"] = "retry"
    max_attempts: int = 3
    retry_delay_s: float = 0.0
    provision_s: float = 60.0
    growth: Mapping[str, Bounds] = field(default_factory=dict)
    sweep: Sweep | None = None
    host: Host | None = None

    def __post_init__(self) -> None:
        _check_positive(duration_s=self.duration_s, control_period_s=self.control_period_s)
        _check_not_negative(warmup_s=self.warmup_s, retry_delay_s=self.retry_delay_s, provision_s=self.provision_s)
        if self.warmup_s >= self.duration_s:
            raise ValueError(f"warmup_s must be below duration_s; got {self.warmup_s} and {self.duration_s}.")
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1; got {self.max_attempts}.")
        if self.on_loss not in ("retry", "fail"):
            raise ValueError(f"on_loss must be 'retry' or 'fail'; got {self.on_loss!r}.")
        if self.host is not None:
            self._check_host()

    def _check_host(self) -> None:
        """What decides and what disturbs is measured with the machine; it must not be counted twice."""
        if self.decision != DecisionTime():
            raise ValueError("host cannot be combined with decision: it has the decision times of policies.")
        if any(profile.sensitivity or profile.pressure_curves for profile in self.profiles.values()):
            raise ValueError("host cannot be combined with functions that have a sensitivity.")
        if any(node.overcommit > 1 for node in self.cluster.nodes):
            raise ValueError("host cannot be combined with nodes that have an overcommit.")
        shared = any(device.sharing == "time" for node in self.cluster.nodes for device in node.devices)
        if shared or any(profile.gpu_sensitivity for profile in self.profiles.values()):
            raise ValueError(
                "host cannot be combined with devices shared by turns, or functions with a gpu_sensitivity."
            )
