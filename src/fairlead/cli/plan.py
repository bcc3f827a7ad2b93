"""`fairlead plan`: which configurations meet the objective of a workflow at least cost, if any do.

Says it in words and numbers, and shows what more speed would cost: the front, as characters or as an SVG file.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fairlead.app.prediction import gateway_s
from fairlead.app.units import seconds
from fairlead.cli.choices import open_source, parse_settings
from fairlead.cli.errors import FAILED, UsageError
from fairlead.cli.forecasts import show_granularity, show_rate
from fairlead.cli.machines import Machine, machine_of, warn_of_extrapolation
from fairlead.cli.outputs import check_files
from fairlead.cli.scatter import ASCII, Ink, scatter
from fairlead.cli.tables import fit_table
from fairlead.errors import UnknownNameError
from fairlead.planning.outline import NEAR, Choice, Outline, StageChoice, outline
from fairlead.report.figure import line_figure
from fairlead.workload import Scenario, load_scenario
from fairlead.workload.arrivals import Poisson

_MOST_OF_FRONT = 1_000
_MOST_DRAWN = 200  # members of the front, of which a figure shows no more
_FAR = 3  # times the slowest, or a third of the fastest: an objective further away would leave the front a speck
_WIDEST = 96
_MOST_RATE = 100_000  # requests per second: more would be simulated for hours


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
    top: Annotated[
        int, typer.Option(metavar="K", min=1, max=1000, help="How many choices to name, the cheapest first.")
    ] = 5,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="Draw what each latency costs at least (SVG)."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", show_default=False, help="Another setting; may be repeated."),
    ] = None,
    machine: Machine = None,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="R", show_default=False, help="Say what R requests per second would see instead, with intervals."
        ),
    ] = None,
    granularity: Annotated[
        bool,
        typer.Option(
            "--granularity", help="Compare the splits of an app's workflow instead: which stages to fuse at which load."
        ),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            max=100,
            show_default=False,
            help="Runs per figure, for --rate (5) or --granularity (3).",
        ),
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Say which configurations of each stage meet the SLO of a workflow at least cost, and if any do.

    From the profiles: warm runs in full batches, without queueing. Of an app, what the gateway of the machine takes is
    kept free. Ends with 1 if the SLO cannot be met even so. With --rate or --granularity, the figures are simulated,
    from a warm start and with queueing.
    """
    slo_s = _latency(slo)
    check_files({"--figure": figure})
    here = machine_of(machine, source)
    if rate is not None or granularity:
        _check_simulated(rate, figure)
        overrides = [*(settings or ()), *([f"workflows.*.slo.latency_s={slo_s}"] if slo_s is not None else [])]
        if granularity:
            show_granularity(source, here, workflow, rate, seeds or 5, overrides, is_json=is_json)
            scenario = load_scenario(open_source(source, here), overrides=parse_settings(overrides))
        else:
            assert rate is not None
            scenario = load_scenario(open_source(source, here), overrides=parse_settings(overrides))
            picked = _pick(scenario, workflow)
            scenario = replace(scenario, arrivals=(Poisson(picked, rate_rps=rate),))
            show_rate(scenario, picked, rate, seeds or 5, is_json=is_json)
        warn_of_extrapolation(source, machine, [scenario])
        return
    if seeds is not None:
        raise UsageError("--seeds goes with --rate or --granularity.")
    scenario = load_scenario(open_source(source, here), overrides=parse_settings(settings or ()))
    picked = _pick(scenario, workflow)
    kept_s = gateway_s(scenario, picked)
    if kept_s:
        slo_s = (scenario.workflows[picked].slo.latency_s if slo_s is None else slo_s) - kept_s
        if slo_s <= 0:
            raise UsageError(f"The gateway alone takes {_time(kept_s)} of every request on this machine.")
    # For the first time after an installation the search is compiled, which takes seconds.
    with Console(stderr=True).status(f"Planning {picked}"):
        found = outline(scenario, picked, slo_s=slo_s, top=top)
    if figure is not None:
        figure.write_text(_figure(found), encoding="utf-8", newline="\n")
    if is_json:
        typer.echo(json.dumps(_as_json(scenario, found), indent=1, allow_nan=False))
    else:
        _show(found)
        if kept_s:
            typer.echo(
                f"The gateway of this machine takes {_time(kept_s)} besides, for which the objective leaves room."
            )
        if figure is not None:
            typer.echo(f"Wrote {figure}")
    warn_of_extrapolation(source, machine, [scenario])
    if not found.is_met:
        raise typer.Exit(FAILED)


def _check_simulated(rate: float | None, figure: Path | None) -> None:
    if rate is not None and not 0 < rate <= _MOST_RATE:
        raise UsageError(
            f"--rate must be a positive number of requests per second, up to {_MOST_RATE:g}; got {rate:g}."
        )
    if figure is not None:
        raise UsageError("--figure draws configurations; it does not go with --rate or --granularity.")


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
    headings = ["stage", "function", "batch", "vCPU", "vGPU", "on", "run", "per request", "cost"]
    is_named_alike = all(way.stage == way.function for way in found.stages)
    lines: list[Sequence[Text]] = []
    for way in found.stages:
        configuration = way.configuration
        cells = [
            way.stage,
            way.function,
            f"{configuration.batch}",
            f"{configuration.vcpus:g}",
            f"{configuration.vgpus:g}",
            way.kind,
            _time(way.latency_s),
            f"{way.runs:.3g}x",
            _money(way.cost_usd),
        ]
        if is_named_alike:  # one of the two is enough
            del cells[1]
        lines.append([Text(cell) for cell in cells])
    if is_named_alike:
        del headings[1]
    title = f"{found.workflow}: the {_called(found)}"
    _show_table(console, headings, lines, title)
    if len(found.top) > 1:
        ranked = [
            (f"{rank}", _time(each.latency_s), _money(each.cost_usd), _differs(each, found.chosen))
            for rank, each in enumerate(found.top, 1)
        ]
        rest = [[Text(cell) for cell in cells] for cells in ranked]
        _show_table(console, ("", "takes", "costs", "how"), rest, f"The {len(rest)} cheapest in time")
    _show_front(console, found)
    console.print(Text(f"Verdict ({_objective(found)}): {verdict(found)}."))
    note = "Warm runs in full batches, no queueing; of a branch the longest arm, of a map all items at once."
    if found.front.epsilon > 0:
        note += f" A choice may be beaten by up to {found.front.epsilon:.2g} of its time and cost."
    console.print(Text(note))


def _show_table(console: Console, headings: Sequence[str], lines: Sequence[Sequence[Text]], title: str) -> None:
    table = fit_table(headings, lines, console.width, title=title)
    if table is not None:
        console.print(table)
    else:  # a narrow terminal
        for line in lines:
            console.print(Text("  ").join(line))


def _differs(each: Choice, best: Choice) -> str:
    """What a choice does otherwise than the best one."""
    if each.stages == best.stages:
        return "as above"
    changed = [way for way, usual in zip(each.stages, best.stages, strict=True) if way != usual]
    has_kinds = len({way.kind for way in (*each.stages, *best.stages)}) > 1
    return "\n".join(_way(way, has_kinds) for way in changed)


def _way(way: StageChoice, has_kinds: bool) -> str:
    where = f" on {way.kind}" if has_kinds else ""
    return f"{way.stage} {way.configuration}{where} ({_time(way.latency_s)}, {_money(way.cost_usd)})"


def _show_front(console: Console, found: Outline) -> None:
    """What each latency costs at least, the choice and the SLO in it."""
    limit, label = _limit(found)
    ink = ASCII if console.options.ascii_only else Ink()
    lines = scatter(
        _members(found),
        mark=(found.latency_s, found.cost_usd),
        limit=limit,
        limit_label=label,
        width=min(console.width, _WIDEST),
        x_text=_time,
        y_text=_money,
        ink=ink,
    )
    key = f"{ink.point} what each latency costs at least (logarithmic)   {ink.mark} {_called(found)}"
    if limit is not None:
        key += f"   {ink.limit} the SLO"
    lines.append(key)
    if limit is None and isfinite(found.slo_s):
        lines.append(f"{label} is far to the {'right' if found.slo_s > found.latency_s else 'left'}.")
    console.print(Text("\n".join([*lines, ""])))


def _limit(found: Outline) -> tuple[float | None, str]:
    """The SLO as a place in a picture of the front, if it is near, and its label."""
    latency_s = found.front.latency_s
    is_near = latency_s[0] / _FAR <= found.slo_s <= latency_s[-1] * _FAR
    return (found.slo_s if is_near else None), f"SLO {_time(found.slo_s)}"


def _members(found: Outline) -> list[tuple[float, float]]:
    return list(zip(found.front.latency_s.tolist(), found.front.cost_usd.tolist(), strict=True))


def _figure(found: Outline) -> str:
    """The front as an SVG file. Costs are per million requests: numbers that can be read."""
    members = _members(found)
    step = max(1, -(-len(members) // _MOST_DRAWN))
    million = [(latency_s, cost_usd * 1e6) for latency_s, cost_usd in (*members[:-1:step], members[-1])]
    lines = {f"front ({len(members):,})": million}
    limit, label = _limit(found)
    if limit is not None:
        lines[label] = [(limit, 0.0), (limit, million[0][1])]
    # A line to the axis, where the cost can be read; a mere dot would be lost on the front.
    left = min(million[0][0], million[0][0] if limit is None else limit)
    cost = found.cost_usd * 1e6
    lines[f"{_called(found)}, {_time(found.latency_s)}"] = [(left, cost), (found.latency_s, cost)]
    title = f"{found.workflow}: what each latency costs at least"
    return line_figure(title, lines, x_label="latency (s)", y_label="cost per million requests (USD)")


def verdict(found: Outline) -> str:
    """Whether the objective can be met, and at what cost; if not, what can."""
    if found.is_met:
        return f"can be met: the cheapest takes {_takes(found.chosen)} per request"
    said = (
        f"cannot: the fastest possible is {_takes(found.fastest)}, "
        f"the cheapest within {NEAR:g}x of that is {_takes(found.near_fastest)}"
    )
    if found.in_time is not None:
        said += f"; in time but over the cost limit, the cheapest is {_takes(found.in_time)}"
    return said


def _called(found: Outline) -> str:
    return "cheapest in time" if found.is_met else "fastest"


def _takes(choice: Choice) -> str:
    return f"{_time(choice.latency_s)} at {_money(choice.cost_usd)}"


def _objective(found: Outline) -> str:
    objective = f"{_time(found.slo_s)}" if isfinite(found.slo_s) else "no latency objective"
    return objective + (f" at {_money(found.cost_limit_usd)}" if isfinite(found.cost_limit_usd) else "")


def _as_json(scenario: Scenario, found: Outline) -> dict[str, object]:
    return {
        "scenario": scenario.name,
        "workflow": found.workflow,
        "slo_s": found.slo_s if isfinite(found.slo_s) else None,
        "cost_limit_usd": found.cost_limit_usd if isfinite(found.cost_limit_usd) else None,
        "is_met": found.is_met,
        "verdict": verdict(found),
        **_choice_json(found.chosen),
        "top": [_choice_json(each) for each in found.top],
        "fastest": _choice_json(found.fastest),
        "near_fastest": _choice_json(found.near_fastest),
        "front": [{"latency_s": latency_s, "cost_usd": cost} for latency_s, cost in _members(found)[:_MOST_OF_FRONT]],
    }


def _choice_json(choice: Choice) -> dict[str, object]:
    return {
        "latency_s": choice.latency_s,
        "cost_usd": choice.cost_usd,
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
            for way in choice.stages
        ],
    }


def _time(value_s: float) -> str:
    return f"{value_s:.3g} s" if value_s >= 1 else f"{value_s * 1000:.3g} ms"


def _money(usd: float) -> str:
    return f"${usd:.3g}"
