"""The results of a league as JSON values, and as flat rows for a table file."""

from collections.abc import Mapping

from fairlead.league.load import offered_rps
from fairlead.league.run import Done
from fairlead.league.standing import HOLDS, LEVEL, Result, Table, breaks, standings
from fairlead.report.metrics import Estimate, json_values


def league_json(table: Table, done: Done, limit_s: float) -> dict[str, object]:
    """Everything that a league found out: its scenarios with their times, cells, standings and breaking loads."""
    plan = table.plan
    document = {
        "seeds": list(plan.seeds),
        "level_within": LEVEL,
        "holds_at": HOLDS,
        "limit_s": limit_s,
        "runs": {"all": len(plan.runs), "found": done.found, "ran": done.ran, "cpu_s": done.cpu_s},
        "scenarios": [
            {
                "name": entrant.name,
                "is_app": entrant.is_app,
                "rate_rps": entrant.rate_rps,
                "loads": [
                    {
                        "load": load,
                        "warmup_s": scenario.warmup_s,
                        "duration_s": scenario.duration_s,
                        "rate_rps": offered_rps(scenario),
                    }
                    for load, scenario in entrant.at.items()
                ],
            }
            for entrant in plan.entrants
        ],
        "cells": [_cell(result) for result in table.results.values()],
        "standings": [
            {
                "policy": one.policy,
                "cells": one.cells,
                "level": one.level,
                "mean_attainment": one.mean_attainment,
                "mean_regret": one.mean_regret,
                "worst_regret": one.worst_regret,
                "worst_at": {"scenario": one.worst_at.scenario, "load": one.worst_at.load},
                "failed": one.failed,
            }
            for one in standings(table)
        ],
        "breaks": [
            {"scenario": one.scenario, "policy": one.policy, "holds_to": one.highest, "fails_at": one.fails_at}
            for entrant in plan.entrants
            for one in breaks(table, entrant.name)
        ],
        "notes": list(plan.notes),
    }
    values = json_values(document)
    assert isinstance(values, dict)
    return values


def league_rows(table: Table) -> list[Mapping[str, object]]:
    """One flat row per cell, rounded, without what is measured on the machine."""
    rows: list[Mapping[str, object]] = []
    for result in table.results.values():
        row: dict[str, object] = {
            "scenario": result.cell.scenario,
            "load": result.cell.load,
            "policy": result.cell.policy,
            "status": result.status,
        }
        if result.attainment is not None and result.regret is not None and result.worst_attainment is not None:
            assert result.goodput_rps is not None
            assert result.cost_usd is not None
            row |= {
                "attainment": round(result.attainment.mean, 4),
                "attainment_half_width": _rounded(result.attainment.half_width),
                "regret": round(result.regret.mean, 4),
                "regret_half_width": _rounded(result.regret.half_width),
                "worst_attainment": round(result.worst_attainment.mean, 4),
                "goodput_rps": round(result.goodput_rps.mean, 3),
                "cost_usd": float(f"{result.cost_usd.mean:.4g}"),
            }
        rows.append(row)
    return rows


def _cell(result: Result) -> dict[str, object]:
    return {
        "scenario": result.cell.scenario,
        "load": result.cell.load,
        "policy": result.cell.policy,
        "status": result.status,
        "reason": result.reason or None,
        "requests": result.requests,
        "attainment": _estimate(result.attainment),
        "goodput_rps": _estimate(result.goodput_rps),
        "cost_usd": _estimate(result.cost_usd),
        "worst_attainment": _estimate(result.worst_attainment),
        "worst_workflow": result.worst_workflow or None,
        "decision_s": _estimate(result.decision_s),
        "regret": _estimate(result.regret),
        "is_level": result.is_best,
    }


def _estimate(found: Estimate | None) -> dict[str, float | None] | None:
    return None if found is None else {"mean": found.mean, "half_width": found.half_width}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
