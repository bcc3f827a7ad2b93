"""Policies by name. Ours are listed here and loaded when asked for; outsiders' come by entry point or by address.

A package adds its own with the entry point group `fairlead.policies`. A name that is taken is an error. A class in a
file of your own is named by its address, `my.module:Class`, once `admit` was called with it: the command line does,
for what is typed there. A name that arrives over the network cannot load code.
"""

import dataclasses
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec

from fairlead.errors import ConfigError, DuplicateNameError, Fault, UnknownPolicyError, suggestion
from fairlead.policy.base import Policy

ENTRY_POINTS = "fairlead.policies"
ADMITTED = "FAIRLEAD_POLICIES"
"""The environment variable that tells child processes which addresses are admitted, and in which folders they lie."""
_ADDRESS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")

BUILT_IN: Mapping[str, str] = {
    "aquatope": "fairlead.policy.aquatope.policy:Aquatope",
    "clockwork": "fairlead.policy.clockwork.policy:Clockwork",
    "clockwork-naive": "fairlead.policy.clockwork_naive:ClockworkNaive",
    "dag-admission": "fairlead.policy.dag_admission.policy:DagAdmission",
    "darly-any": "fairlead.policy.darly.anywhere:Anywhere",
    "darly-custom": "fairlead.policy.darly.policy:Custom",
    "darly-fullmap": "fairlead.policy.darly.policy:Fullmap",
    "darly-kubernetes": "fairlead.policy.darly.policy:Kubernetes",
    "darly-oracle": "fairlead.policy.darly.policy:Oracle",
    "earliest-deadline": "fairlead.policy.earliest_deadline:EarliestDeadline",
    "esg": "fairlead.policy.esg.policy:Esg",
    "fairlead": "fairlead.policy.fairlead.policy:Fairlead",
    "fast-gshare": "fairlead.policy.fast_gshare.policy:FastGshare",
    "fifo": "fairlead.policy.fifo:Fifo",
    "fifo-types": "fairlead.policy.fifo_types:FifoTypes",
    "hpa": "fairlead.policy.hpa:Hpa",
    "infless": "fairlead.policy.infless.policy:Infless",
    "kaas-affinity": "fairlead.policy.kaas.affinity:Affinity",
    "kaas-balance": "fairlead.policy.kaas.balance:Balance",
    "kaas-exclusive": "fairlead.policy.kaas.exclusive:Exclusive",
    "kaas-exclusive-pool": "fairlead.policy.kaas.exclusive_pool:ExclusivePool",
    "kaas-mlfq": "fairlead.policy.kaas.mlfq:MultiLevelFeedback",
    "kaas-round-robin": "fairlead.policy.kaas.round_robin:RoundRobin",
    "kaas-srtf": "fairlead.policy.kaas.srtf:ShortestFirst",
    "kaas-static": "fairlead.policy.kaas.static:Static",
    "knative": "fairlead.policy.knative:Knative",
    "least-loaded": "fairlead.policy.least_loaded:LeastLoaded",
    "mqfq-sticky": "fairlead.policy.kaas.mqfq_sticky:MqfqSticky",
    "orion": "fairlead.policy.orion.policy:Orion",
    "pard": "fairlead.policy.pard.policy:Pard",
    "queue-workers": "fairlead.policy.queue_workers:QueueWorkers",
    "simppo": "fairlead.policy.simppo.policy:Simppo",
    "static-placement": "fairlead.policy.static_placement:StaticPlacement",
    "static-replicas": "fairlead.policy.static_replicas:StaticReplicas",
    "threshold": "fairlead.policy.threshold:Threshold",
}


def merge(built_in: Mapping[str, str], outside: Mapping[str, EntryPoint]) -> dict[str, str]:
    """Every policy's `module:class` by name; a name claimed twice is an error."""
    for name, entry in outside.items():
        if name in built_in:
            raise DuplicateNameError(
                f"The policy name {name!r} is taken by Fairlead; "
                f"{entry.value} (entry point {ENTRY_POINTS}) must use another."
            )
    return {**built_in, **{name: entry.value for name, entry in outside.items()}}


@cache
def _known() -> dict[str, str]:
    outside: dict[str, EntryPoint] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name in outside:
            raise DuplicateNameError(
                f"Two packages register a policy named {entry.name!r}: {outside[entry.name].value} and {entry.value}."
            )
        outside[entry.name] = entry
    return {**merge(BUILT_IN, outside), **{address: address for address in _admitted()}}


def is_address(name: str) -> bool:
    """Whether a name has the form `my.module:Class`."""
    return _ADDRESS.fullmatch(name) is not None


def admit(address: str, folder: str) -> None:
    """Let a class of the user's own be named by its address, here and in processes started from here.

    Its module is looked for in `folder` first. Raises `ConfigError` if there is no such module or policy.
    """
    if address not in _admitted():
        before = os.environ.get(ADMITTED, "[]")
        os.environ[ADMITTED] = msgspec.json.encode([*_admitted().items(), (address, folder)]).decode()
        _known.cache_clear()
        try:
            policy_class(address)
        except (Exception, SystemExit) as error:  # a module may end the process when it is imported
            os.environ[ADMITTED] = before
            _known.cache_clear()
            cause = f"{error or type(error).__name__}".rstrip(".")
            if isinstance(error, SystemExit):
                cause = f"it ends the process ({error.code!r})"
            raise ConfigError("--policy", [Fault(address, f"cannot be loaded from {folder}: {cause}.")]) from error


def _admitted() -> dict[str, str]:
    return dict(msgspec.json.decode(os.environ.get(ADMITTED, "[]"), type=list[tuple[str, str]]))


def policy_names() -> tuple[str, ...]:
    """Every known policy, sorted."""
    return tuple(sorted(_known()))


def policy_class(name: str) -> type[Policy]:
    """The class behind a name."""
    known = _known()
    if name not in known:
        raise UnknownPolicyError(name, known)
    module, _, attribute = known[name].partition(":")
    folder = _admitted().get(name)
    if folder is not None and folder not in sys.path:
        sys.path.insert(0, folder)
    found = getattr(import_module(module), attribute)
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise TypeError(f"{known[name]} is registered as policy {name!r} but is no Policy.")
    if not dataclasses.is_dataclass(found):
        raise TypeError(f"{known[name]} is no dataclass, as a policy must be.")
    if found.decide is Policy.decide and found.adjust is Policy.adjust:
        raise TypeError(f"{known[name]} implements neither decide nor adjust, so it decides nothing.")
    return found


def role(policy: type[Policy]) -> str:
    """`dispatch` or `scale`, by the method it implements."""
    return "dispatch" if policy.decide is not Policy.decide else "scale"


def parameters(policy: type[Policy]) -> Mapping[str, tuple[object, object]]:
    """A policy's parameters: (type, default) by name, as its dataclass fields declare them."""
    hints = get_type_hints(policy)
    return {
        field.name: (
            hints[field.name],
            field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(policy)
        if field.init
    }


def policy_faults(name: str, given: Mapping[str, object], path: str = "policy") -> list[Fault]:
    """Everything that keeps this policy from being made, with dotted paths."""
    try:
        found = policy_class(name)
    except UnknownPolicyError as error:
        key = "scale" if path == "scaler" else "dispatch"
        return [Fault(f"{path}.{key}", str(error))]
    known = parameters(found)
    faults, values = [], {}
    for key, value in given.items():
        if key not in known:
            available = f" It takes: {', '.join(known)}." if known else " It takes none."
            faults.append(Fault(f"{path}.{key}", f"{name} has no such parameter.{suggestion(key, known)}{available}"))
            continue
        try:
            values[key] = msgspec.convert(value, type=known[key][0])
        except msgspec.ValidationError as error:
            faults.append(Fault(f"{path}.{key}", _misfit(known[key][0], value, str(error))))
    if not faults:
        try:
            found(**values)
        except ValueError as error:
            first = str(error).split(" ", 1)[0]
            faults.append(Fault(f"{path}.{first}" if first in known else path, str(error)))
    return faults


def _misfit(wanted: object, value: object, problem: str) -> str:
    if get_origin(wanted) is Literal:
        return f"must be one of {', '.join(map(repr, get_args(wanted)))}; got {value!r}."
    return f"{problem[0].lower()}{problem[1:]}; got {value!r}."


def make_policy(name: str, given: Mapping[str, object] | None = None) -> Policy:
    """A policy by name, with parameters checked; ConfigError lists everything wrong with them."""
    found = policy_class(name)
    faults = policy_faults(name, given or {})
    if faults:
        raise ConfigError(f"policy {name}", faults)
    known = parameters(found)
    return found(**{key: msgspec.convert(value, type=known[key][0]) for key, value in (given or {}).items()})
