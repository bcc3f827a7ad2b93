"""What a league comes to: figures per cell, regret against the best, and the standing of each policy."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fairlead.league.figures import Figures, Outcome, Status
from fairlead.league.plan import Cell, Plan
from fairlead.report.metrics import Estimate, estimate

LEVEL = 0.01
"""A policy whose attainment is within this of the best is level with it."""

HOLDS = 0.95
"""Attainment at which a policy still holds a load."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One cell over its seeds. Figures and regret are None unless every run of the cell is done.

    `regret` is the attainment of the best policy of that scenario and load less the own, seed by seed.
    """

    cell: Cell
    status: Status
    reason: str = ""
    attainment: Estimate | None = None
    worst_attainment: Estimate | None = None
    worst_workflow: str = ""
    goodput_rps: Estimate | None = None
    cost_usd: Estimate | None = None
    decision_s: Estimate | None = None
    requests: float = 0.0
    regret: Estimate | None = None
    is_best: bool = False

    @property
    def share(self) -> float:
        """Mean attainment; that of a cell without figures is 0."""
        return self.attainment.mean if self.attainment is not None else 0.0


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One policy over all cells in which it competes. A cell without figures counts with an attainment of 0."""

    policy: str
    cells: int
    level: int
    mean_attainment: float
    mean_regret: float
    worst_regret: float
    worst_at: Cell
    failed: int


@dataclass(frozen=True, kw_only=True)
class Break:
    """How much load a policy holds in one scenario; `highest` is None where it does not hold the lowest load."""

    scenario: str
    policy: str
    highest: float | None
    fails_at: float | None


@dataclass(frozen=True, kw_only=True)
class Table:
    """The results of a league."""

    plan: Plan
    results: Mapping[Cell, Result]

    def row(self, scenario: str, load: float) -> list[Result]:
        """The results of one scenario and load, in the order of the policies."""
        return [result for cell, result in self.results.items() if (cell.scenario, cell.load) == (scenario, load)]

    @property
    def rows(self) -> list[tuple[str, float]]:
        """Every scenario and load, in order."""
        return [(entrant.name, load) for entrant in self.plan.entrants for load in entrant.at]

    @property
    def failed(self) -> list[Result]:
        """The cells without figures."""
        return [result for result in self.results.values() if result.status != "done"]

    @property
    def empty_rows(self) -> list[tuple[str, float]]:
        """Scenarios and loads in which no policy answers one request of a hundred in time: all are level there."""
        return [row for row in self.rows if max(result.share for result in self.row(*row)) < LEVEL]


def tabulate(plan: Plan, outcomes: Mapping[tuple[Cell, int], Outcome]) -> Table:
    """The results of all cells whose runs are there, each with its regret."""
    by_seed = {cell: [outcomes[cell, seed] for seed in plan.seeds if (cell, seed) in outcomes] for cell in plan.cells}
    whole = {cell: found for cell, found in by_seed.items() if len(found) == len(plan.seeds)}
    best = _best(whole)
    return Table(plan=plan, results={cell: _result(cell, found, best) for cell, found in whole.items()})


def standings(table: Table) -> list[Standing]:
    """Every policy, the one with the lowest mean regret first; ties by name."""
    found = []
    for policy in table.plan.policies:
        own = [result for cell, result in table.results.items() if cell.policy == policy]
        if own:
            found.append(_standing(policy, own, table))
    return sorted(found, key=lambda one: (one.mean_regret, one.policy))


def breaks(table: Table, scenario: str) -> list[Break]:
    """For each policy the highest load up to which it keeps `HOLDS`; the highest first, then by mean attainment."""
    loads = sorted(load for name, load in table.rows if name == scenario)
    found = []
    for policy in table.plan.policies:
        held: list[float] = []
        fails_at = None
        for load in loads:
            result = table.results.get(Cell(scenario, load, policy))
            if result is None:
                break
            if result.share < HOLDS:
                fails_at = load
                break
            held.append(load)
        if Cell(scenario, loads[0], policy) in table.results:
            found.append(Break(scenario=scenario, policy=policy, highest=held[-1] if held else None, fails_at=fails_at))
    return sorted(found, key=lambda one: (-(one.highest or 0.0), -_mean_share(table, one), one.policy))


def _mean_share(table: Table, one: Break) -> float:
    own = [r.share for c, r in table.results.items() if (c.scenario, c.policy) == (one.scenario, one.policy)]
    return sum(own) / len(own)


def _best(whole: Mapping[Cell, Sequence[Outcome]]) -> dict[tuple[str, float], list[float]]:
    """The attainments, seed by seed, of the best policy of every scenario and load; the first of equals."""
    best: dict[tuple[str, float], list[float]] = {}
    for cell, found in whole.items():
        shares = [one.attainment for one in _figures(found)]
        if len(shares) == len(found):
            row = (cell.scenario, cell.load)
            if row not in best or sum(shares) > sum(best[row]):
                best[row] = shares
    return best


def _result(cell: Cell, found: Sequence[Outcome], best: Mapping[tuple[str, float], list[float]]) -> Result:
    for status in ("error", "too slow"):
        failed = [one for one in found if one.status == status]
        if failed:
            reason = failed[0].reason or f"a run took longer than {failed[0].limit_s:g} s"
            return Result(cell=cell, status=failed[0].status, reason=reason)
    figures = _figures(found)
    rival = best[cell.scenario, cell.load]

    def over(value: Callable[[Figures], float]) -> Estimate:
        return estimate([value(one) for one in figures])

    regret = estimate([most - one.attainment for most, one in zip(rival, figures, strict=True)])
    decided = [one.decision_s for one in figures if one.decision_s is not None]
    return Result(
        cell=cell,
        status="done",
        attainment=over(lambda one: one.attainment),
        worst_attainment=over(lambda one: one.worst_attainment),
        worst_workflow=min(figures, key=lambda one: one.worst_attainment).worst_workflow,
        goodput_rps=over(lambda one: one.goodput_rps),
        cost_usd=over(lambda one: one.cost_usd),
        decision_s=estimate(decided) if decided else None,
        requests=sum(one.requests for one in figures) / len(figures),
        regret=regret,
        is_best=regret.mean <= LEVEL,
    )


def _standing(policy: str, own: Sequence[Result], table: Table) -> Standing:
    regrets = {result.cell: _regret(result, table) for result in own}
    worst = max(regrets, key=lambda cell: regrets[cell])
    return Standing(
        policy=policy,
        cells=len(own),
        level=sum(result.is_best for result in own),
        mean_attainment=sum(result.share for result in own) / len(own),
        mean_regret=sum(regrets.values()) / len(own),
        worst_regret=regrets[worst],
        worst_at=worst,
        failed=sum(result.status != "done" for result in own),
    )


def _regret(result: Result, table: Table) -> float:
    if result.regret is not None:
        return result.regret.mean
    return max(one.share for one in table.row(result.cell.scenario, result.cell.load))


def _figures(found: Iterable[Outcome]) -> list[Figures]:
    return [one.figures for one in found if one.figures is not None]
