"""From what was typed to scenarios: which file, who decides, and what is set otherwise."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap

import typer

from fairlead.app.load import no_app_in, split_address
from fairlead.app.scenario import document_of, measured_beside
from fairlead.app.serving import served_scenario
from fairlead.cli.errors import UsageError, warn
from fairlead.cli.machines import manifest_of
from fairlead.errors import ConfigError, Fault, UnknownPolicyError
from fairlead.policy import admit, is_address, policy_class, policy_faults, role
from fairlead.profile.host import MachineProfile
from fairlead.workload import PolicyChoice, Scenario, load_scenario, scenario_points, shipped_names, shipped_scenarios
from fairlead.workload.parse import Document

NO_SCALER = "none"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One of the two who decide: the key of its mapping in a file, that of its name, and the option that chooses it."""

    key: str
    name_key: str
    option: str


DISPATCHER = Part(key="policy", name_key="dispatch", option="--policy")
SCALER = Part(key="scaler", name_key="scale", option="--scaler")


def admit_own(given: str | list[str] | None) -> str | list[str] | None:
    """Admit policies typed as `my.module:Class`, looked for in the working folder first; the callback of an option."""
    for name in [given] if isinstance(given, str) else given or []:
        if is_address(name):
            try:
                admit(name, os.getcwd())
            except ConfigError as error:
                raise typer.BadParameter(
                    "; ".join(f"{fault.path} {fault.message}" for fault in error.faults)
                ) from error
    return given


def choose_scenarios(
    source: str | None,
    policies: Sequence[str],
    scaler: str | None,
    settings: Sequence[str],
    machine: MachineProfile | None = None,
) -> list[tuple[dict[str, object], Scenario]]:
    """Every sweep point under every policy, points first: the point, and a scenario whose own policy is that one.

    A policy keeps the parameters of the file only if it is the file's own. With a `machine`, an app is as that machine
    would serve it. Raises `ConfigError` with every fault.
    """
    if not source:
        raise UsageError(f"Name a scenario: a YAML file, an app file, or one of these.\n{_shipped_listing()}")
    opened = open_source(source, machine)
    _check_names(policies)
    overrides = parse_settings(settings)
    try:
        return _choose(opened, policies, scaler, overrides)
    except ConfigError as error:
        raise ConfigError(source, _with_causes(opened, error.faults, overrides)) from error


def open_source(source: str, machine: MachineProfile | None = None, *, is_served: bool = True) -> str | Document:
    """What was named, for those who read scenarios; an app file (`app.py`, `app.py:name`) gives that of its app.

    A folder stands for the `app.py` in it. The app is described in a process of its own; what was measured of it lies
    beside it. With a `machine`, the scenario of an app is what that machine would make of it; without, it is served
    in the same way by a machine that costs nothing. Unless `is_served`, it is a cluster that starts empty.
    """
    path, _ = split_address(source)
    if path.suffix != ".py":
        if path.is_dir() and source not in shipped_names():
            raise no_app_in(path)
        _check_is_no_stem(source)
        return source
    manifest, measured = manifest_of(source), measured_beside(source)
    scenario = served_scenario(manifest, measured, None if machine is None else machine.host)
    if not is_served:
        scenario = replace(scenario, host=None)
    return Document(source, scenario.name, document_of(scenario), path.parent)


def parse_settings(settings: Sequence[str]) -> dict[str, object]:
    """`key=value` texts as overrides; values are read as in a file. A key given twice has its last value."""
    overrides: dict[str, object] = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign or not key.strip():
            raise UsageError(f"--set {setting!r} must be key=value, such as arrivals.0.rate_rps=20.")
        overrides[key.strip()] = value
    return overrides


def whole_number(least: int) -> Callable[[str], int]:
    """Reads an option that counts; what is no whole number, or below `least`, is refused with what was typed."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise typer.BadParameter(f"must be a whole number of at least {least}; got {text!r}.")
        return number

    return read


def _choose(
    source: str | Document, policies: Sequence[str], scaler: str | None, overrides: Mapping[str, object]
) -> list[tuple[dict[str, object], Scenario]]:
    own = None
    if policies or scaler is not None:
        chosen = [part for part, is_given in ((DISPATCHER, policies), (SCALER, scaler)) if is_given]
        _check_not_chosen_twice(overrides, chosen)
        own = load_scenario(source, overrides=_without(overrides, chosen))
    by_policy: list[list[tuple[dict[str, object], Scenario]]] = []
    faults: dict[Fault, None] = {}
    for policy in dict.fromkeys(policies) or (None,):
        chosen_here = _choice(DISPATCHER, policy, own.policy if own else None)
        chosen_here |= _choice(SCALER, scaler, own.scaler if own else None)
        try:
            by_policy.append(scenario_points(source, {**chosen_here, **overrides}, check_policy=_check_policy))
        except ConfigError as error:
            faults.update(dict.fromkeys(error.faults))
    if faults:
        raise ConfigError(str(source), list(faults))
    return [pair for same_point in zip(*by_policy, strict=True) for pair in same_point]


def _check_is_no_stem(source: str) -> None:
    if Path(source).exists() or source in shipped_names():
        return
    for suffix in (".yaml", ".yml"):
        if Path(source + suffix).is_file():
            raise UsageError(f"No scenario is named {source!r}, but there is a file {source}{suffix}; name that.")


def _check_names(policies: Sequence[str]) -> None:
    for name in policies:
        if "," in name:
            repeated = " ".join(f"{DISPATCHER.option} {one.strip()}" for one in name.split(",") if one.strip())
            raise UsageError(f"{DISPATCHER.option} takes one name; got {name!r}. Repeat it: {repeated}")
    for name, count in Counter(policies).items():
        if count > 1:
            warn(f"{DISPATCHER.option} {name} was given {count} times; it runs once per seed.")


def _with_causes(source: str | Document, faults: Sequence[Fault], overrides: Mapping[str, object]) -> list[Fault]:
    """The faults; one beside a setting of --set, which the file does not have by itself, says which.

    A name that is spelt wrong makes a new entry, whose faults do not look like a wrong name.
    """
    try:
        scenario_points(source)
        own: set[Fault] = set()
    except ConfigError as error:
        own = set(error.faults)
    explained = []
    for fault in faults:
        causes = [key for key in overrides if key != fault.path and _is_beside(fault.path, key)]
        if causes and fault not in own:
            key = causes[0]
            hint = f"Without --set {key}={overrides[key]} this is no fault; is the name in it right?"
            explained.append(Fault(fault.path, f"{fault.message} {hint}"))
        else:
            explained.append(fault)
    return explained


def _is_beside(path: str, key: str) -> bool:
    parent, _, _ = key.rpartition(".")
    return parent.count(".") > 0 and path.startswith(f"{parent}.")


def _choice(part: Part, name: str | None, own: PolicyChoice | None) -> dict[str, object]:
    """The override that puts this name in a scenario; empty where it decides there already, or none was given."""
    if name is None or (own is not None and own.name == name):
        return {}
    if part is SCALER and name == NO_SCALER:
        return {part.key: None}
    return {part.key: {part.name_key: name}}


def _check_not_chosen_twice(overrides: Mapping[str, object], chosen: Sequence[Part]) -> None:
    for part in chosen:
        for key in (part.key, f"{part.key}.{part.name_key}"):
            if key in overrides:
                raise UsageError(f"--set {key}={overrides[key]} and {part.option} both choose; leave one out.")


def _without(overrides: Mapping[str, object], chosen: Sequence[Part]) -> dict[str, object]:
    """The overrides less the parameters of those who are chosen on the command line."""
    prefixes = tuple(f"{part.key}." for part in chosen)
    return {key: value for key, value in overrides.items() if not key.startswith(prefixes)}


def _check_policy(choice: PolicyChoice, path: str) -> list[Fault]:
    part = SCALER if path == SCALER.key else DISPATCHER
    try:
        found = role(policy_class(choice.name))
    except UnknownPolicyError:
        unknown = policy_faults(choice.name, choice.parameters, path)
        if part is DISPATCHER:
            return unknown
        hint = f"`fairlead policies` says which of them scale; {part.option} {NO_SCALER} is without."
        return [Fault(fault.path, f"{fault.message} {hint}") for fault in unknown]
    if found != part.name_key:
        other = DISPATCHER if part is SCALER else SCALER
        does, needed = ("scales", "dispatches") if found == SCALER.name_key else ("dispatches", "scales")
        message = f"{choice.name} {does}, and one that {needed} is needed here; it goes with {other.option}."
        return [Fault(f"{path}.{part.name_key}", message)]
    return policy_faults(choice.name, choice.parameters, path)


def _shipped_listing(width: int = 80) -> str:
    shipped = shipped_scenarios()
    indent = max((len(name) for name in shipped), default=0) + 4
    lines = []
    for name, description in shipped.items():
        lines += wrap(
            description or "-", width, initial_indent=f"  {name.ljust(indent - 2)}", subsequent_indent=" " * indent
        )
    return "\n".join(lines)
