"""`fairlead plan`: which configurations meet the objective of a workflow at least cost, if any do."""

import json
from collections.abc import Sequence
from math import isfinite
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fairlead.app.units import seconds
from fairlead.cli.choices import open_source, parse_settings
from fairlead.cli.errors import FAILED, UsageError
from fairlead.cli.tables import fit_table
from fairlead.errors import UnknownNameError
from fairlead.planning.outline import Outline, outline
from fairlead.workload import Scenario, load_scenario

_MOST_OF_FRONT = 1_000


def plan(
    source: Annotated[
        str, typer.Argument(metavar="APP|SCENARIO", show_default=False, help="An app file, or a scenario.")
    ],
    workflow: Annotated[
        str | None,
        typer.Option("--workflow", "-w", metavar="NAME", show_default=False, help="Which one, if there are several."),
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(metavar="TIME", show_default=False, help="Another latency than its own, such as 800ms or 2s."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", show_default=False, help="Another setting; may be repeated."),
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Say which configuration each stage of a workflow needs to meet its SLO at least cost.

    From the profiles: warm runs in full batches, nobody waiting. Ends with 1 if the SLO cannot be met even so.
    """
    slo_s = _latency(slo)
    scenario = load_scenario(open_source(source), overrides=parse_settings(settings or ()))
    found = outline(scenario, _pick(scenario, workflow), slo_s=slo_s)
    if is_json:
        typer.echo(json.dumps(_as_json(scenario, found), indent=1, allow_nan=False))
    else:
        _show(found)
    if not found.is_met:
        raise typer.Exit(FAILED)


def _latency(slo: str | None) -> float | None:
    if slo is None:
        return None
    try:
        return seconds(float(slo) if _is_number(slo) else slo, "--slo")
    except ValueError as error:
        raise UsageError(str(error)) from None


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def _pick(scenario: Scenario, workflow: str | None) -> str:
    names = list(scenario.workflows)
    if workflow is None:
        if len(names) > 1:
            raise UsageError(f"{scenario.name} has several workflows; name one with --workflow: {', '.join(names)}.")
        return names[0]
    if workflow not in scenario.workflows:
        raise UnknownNameError("workflow", workflow, names)
    return workflow


def _show(found: Outline) -> None:
    console = Console(highlight=False)
    headings = ("stage", "function", "batch", "vCPU", "vGPU", "on", "run", "per request", "cost")
    lines: list[Sequence[Text]] = []
    for way in found.stages:
        configuration = way.configuration
        cells = (
            way.stage,
            way.function,
            f"{configuration.batch}",
            f"{configuration.vcpus:g}",
            f"{configuration.vgpus:g}",
            way.kind,
            _time(way.latency_s),
            f"{way.runs:.3g}x",
            _money(way.cost_usd),
        )
        lines.append([Text(cell) for cell in cells])
    table = fit_table(headings, lines, console.width, title=found.workflow)
    if table is not None:
        console.print(table)
    else:  # a narrow terminal
        for line in lines:
            console.print(Text("  ").join(line))
    objective = f"{_time(found.slo_s)}" if isfinite(found.slo_s) else "no latency objective"
    if isfinite(found.cost_limit_usd):
        objective += f" at {_money(found.cost_limit_usd)}"
    takes = f"{_time(found.latency_s)} at {_money(found.cost_usd)} per request"
    if found.is_met:
        count = len(found.front)
        rank = f"the cheapest of {count:,} trades worth making" if count > 1 else "which nothing beats"
        console.print(Text(f"Met ({objective}): {takes}, {rank}."))
    else:
        console.print(Text(f"Not met ({objective}): the fastest, shown here, takes {takes}."))
    console.print(
        Text("Warm runs in full batches, nobody waiting; of a branch the longest arm, of a map all items at once.")
    )


def _as_json(scenario: Scenario, found: Outline) -> dict[str, object]:
    members = list(zip(found.front.latency_s.tolist(), found.front.cost_usd.tolist(), strict=True))
    return {
        "scenario": scenario.name,
        "workflow": found.workflow,
        "slo_s": found.slo_s if isfinite(found.slo_s) else None,
        "cost_limit_usd": found.cost_limit_usd if isfinite(found.cost_limit_usd) else None,
        "is_met": found.is_met,
        "latency_s": found.latency_s,
        "cost_usd": found.cost_usd,
        "stages": [
            {
                "stage": way.stage,
                "function": way.function,
                "batch": way.configuration.batch,
                "vcpus": way.configuration.vcpus,
                "vgpus": way.configuration.vgpus,
                "memory_gb": way.configuration.memory_gb,
                "kind": way.kind,
                "latency_s": way.latency_s,
                "runs": way.runs,
                "cost_usd": way.cost_usd,
            }
            for way in found.stages
        ],
        "front": [{"latency_s": latency_s, "cost_usd": cost} for latency_s, cost in members[:_MOST_OF_FRONT]],
    }


def _time(value_s: float) -> str:
    return f"{value_s:.3g} s" if value_s >= 1 else f"{value_s * 1000:.3g} ms"


def _money(usd: float) -> str:
    return f"${usd:.3g}"
