"""Which runs a league consists of: every policy on every scenario, at every load, with every seed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from fairlead.errors import ConfigError, Fault, UnknownPolicyError
from fairlead.league.catalogue import Catalogue
from fairlead.league.fingerprint import hash_value, policy_hash, simulator_hash
from fairlead.league.load import at_load, offered_rps
from fairlead.league.times import shortened, steady
from fairlead.policy import policy_class, policy_faults, policy_names, role
from fairlead.workload import Poisson, PolicyChoice, Scenario, load_scenario, shipped_names
from fairlead.workload.parse.load import rate_for_load


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One scenario of a league: itself at each load, shortened where it is a shipped one, and who competes in it.

    `rate_rps` is what arrives per second at load 1, over all workflows; 0 for closed loops.
    """

    name: str
    at: dict[float, Scenario]
    policies: tuple[str, ...]
    rate_rps: float
    is_app: bool = False


@dataclass(frozen=True, order=True)
class Cell:
    """Who decided, where, and at which load."""

    scenario: str
    load: float
    policy: str

    def __str__(self) -> str:
        return f"{self.policy} on {self.scenario} at load {self.load:g}"


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a cell. `key` is the hash of all that its result depends on."""

    cell: Cell
    scenario: Scenario
    seed: int
    key: str

    def __str__(self) -> str:
        return f"{self.cell}, seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The scenarios of a league and all its runs; `notes` says what was left out, and why."""

    entrants: tuple[Entrant, ...]
    runs: tuple[PlannedRun, ...]
    seeds: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def policies(self) -> tuple[str, ...]:
        """Every policy that competes somewhere, in order of first appearance."""
        return tuple(dict.fromkeys(name for one in self.entrants for name in one.policies))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell, in order."""
        return tuple(dict.fromkeys(run.cell for run in self.runs))


def core_scenarios(chosen: Catalogue) -> tuple[list[str], list[str]]:
    """The shipped scenarios of the core league, and notes about listed ones that are not shipped."""
    shipped = shipped_names()
    missing = [name for name in chosen.core if name not in shipped]
    notes = [f"Not shipped, so left out of the core league: {', '.join(missing)}."] if missing else []
    return [name for name in chosen.core if name in shipped], notes


def full_scenarios(chosen: Catalogue) -> tuple[list[str], list[str]]:
    """Every shipped scenario of the full league, and notes about those left out."""
    kept = [name for name in shipped_names() if name not in chosen.left_out]
    return kept, [f"Left out: {name} ({reason})." for name, reason in chosen.left_out.items()]


def core_plan(
    chosen: Catalogue, *, scenarios: Sequence[str] = (), loads: Sequence[float] = (), seeds: int | None = None
) -> Plan:
    """The core league, or a part of it: some of its scenarios, other loads, another number of seeds."""
    names, notes = core_scenarios(chosen)
    policies = chosen.general()
    entrants = [
        shipped_entrant(name, policies, loads or chosen.loads, chosen)
        for name in names
        if not scenarios or name in scenarios
    ]
    return make_plan(entrants, seeds or chosen.seeds, [*notes, *unregistered(chosen)])


def unregistered(chosen: Catalogue) -> list[str]:
    """A note about general dispatchers that are listed and not registered, if there are any."""
    missing = [name for name in chosen.policies if name not in chosen.general()]
    return [f"Not registered, so left out: {', '.join(missing)}."] if missing else []


def check_policies(names: Sequence[str]) -> None:
    """Raise unless each name is that of a dispatcher which may compete."""
    for name in names:
        if name not in policy_names():
            raise UnknownPolicyError(name, policy_names())
        found = policy_class(name)
        if role(found) != "dispatch":
            raise ConfigError("league", [Fault("policy", f"{name} scales; only dispatchers compete in a league.")])


def shipped_entrant(
    name: str, policies: Sequence[str], loads: Sequence[float], chosen: Catalogue, *, is_full: bool = False
) -> Entrant:
    """A shipped scenario, shortened by the catalogue's rule; in the full league with the policies made for it too."""
    scenario = load_scenario(name)
    more = chosen.specialised_for(name) if is_full else ()
    at = {load: at_load(shortened(scenario, load, chosen.times), load) for load in loads}
    return Entrant(name=name, at=at, policies=_unique(policies, more), rate_rps=offered_rps(scenario))


def file_entrant(scenario: Scenario, policies: Sequence[str], loads: Sequence[float]) -> Entrant:
    """A scenario of one's own, as long as its file says."""
    at = {load: at_load(scenario, load) for load in loads}
    return Entrant(name=scenario.name, at=at, policies=_unique(policies), rate_rps=offered_rps(scenario))


def app_entrant(scenario: Scenario, policies: Sequence[str], loads: Sequence[float], chosen: Catalogue) -> Entrant:
    """An app at loads relative to the capacity of its cluster, all its workflows called equally often.

    The capacity is that of the smallest configurations, without batches: load 1 is the rate at which they would be busy
    all the time. Where the app's functions take no time there is none, and load 1 is the rate that simulations take.
    """
    rate_rps = capacity_rps(scenario)
    if rate_rps is not None:
        each = rate_rps / len(scenario.workflows)
        arrivals = tuple(Poisson(name, each) for name in scenario.workflows)
        scenario = replace(scenario, arrivals=arrivals)
    scenario = steady(scenario, chosen.times)
    at = {load: at_load(scenario, load) for load in loads}
    return Entrant(name=scenario.name, at=at, policies=_unique(policies), rate_rps=offered_rps(scenario), is_app=True)


def capacity_rps(scenario: Scenario) -> float | None:
    """Requests per second, spread evenly over the workflows, that keep the cluster busy; None if that is no number."""
    try:
        whole = [
            rate_for_load(1.0, workflow, scenario.functions, scenario.profiles, scenario.cluster)
            for workflow in scenario.workflows.values()
        ]
    except (ValueError, ZeroDivisionError):
        return None
    rate_rps = len(whole) / sum(1 / one for one in whole)
    return rate_rps if 0 < rate_rps < 1e6 else None


def make_plan(entrants: Sequence[Entrant], seeds: int, notes: Iterable[str] = ()) -> Plan:
    """All runs of a league. Raises `ConfigError` where a policy cannot be made with the parameters of a scenario."""
    simulator = simulator_hash()
    runs = []
    for entrant in entrants:
        known: dict[int, str] = {}
        for load, scenario in entrant.at.items():
            content = _content_hash(scenario, known)
            for policy in entrant.policies:
                decided = replace(scenario, policy=_choice(scenario, policy))
                who = hash_value((simulator, content, decided.policy, policy_hash(policy)))
                cell = Cell(entrant.name, load, policy)
                runs += [
                    PlannedRun(cell=cell, scenario=decided, seed=seed, key=hash_value((who, seed)))
                    for seed in range(seeds)
                ]
    return Plan(entrants=tuple(entrants), runs=tuple(runs), seeds=tuple(range(seeds)), notes=tuple(notes))


def _content_hash(scenario: Scenario, known: dict[int, str]) -> str:
    """The hash of a scenario without its policy, and with the code of its scaler.

    `known` has the hashes of values by their identity: the loads of an entrant share all but times and arrivals.
    """
    parts = []
    for field in fields(scenario):
        if field.name not in ("policy", "description", "sweep"):
            value = getattr(scenario, field.name)
            if id(value) not in known:
                known[id(value)] = hash_value(value)
            parts.append((field.name, known[id(value)]))
    return hash_value((parts, policy_hash(scenario.scaler.name) if scenario.scaler else ""))


def _choice(scenario: Scenario, policy: str) -> PolicyChoice:
    """A policy with its default parameters; the scenario's own policy keeps those that the scenario gives it."""
    choice = scenario.policy if scenario.policy.name == policy else PolicyChoice(name=policy)
    faults = policy_faults(choice.name, choice.parameters)
    if faults:
        raise ConfigError(scenario.name, faults)
    return choice


def _unique(*names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in names for name in part))
