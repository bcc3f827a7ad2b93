"""What `fairlead plan --rate` and `--granularity` show: expected figures with intervals, and which split to take."""

import json
from collections.abc import Sequence

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from fairlead.app.describe import describe
from fairlead.app.scenario import document_of, measured_beside
from fairlead.cli.choices import parse_settings
from fairlead.cli.errors import UsageError
from fairlead.cli.machines import is_app
from fairlead.cli.progress import ShareProgress
from fairlead.cli.tables import fit_table
from fairlead.forecast import Comparison, Forecast, Split, compare, forecast
from fairlead.profile.host import MachineProfile
from fairlead.report import Estimate
from fairlead.workload import Scenario, load_scenario
from fairlead.workload.parse import Document

NOTE = "Intervals are of 95 % over {seeds} seeds of the arrivals; what the profiles are off by is not in them."


def show_rate(scenario: Scenario, workflow: str, rate_rps: float, seeds: int, *, is_json: bool) -> None:
    """Print what a workflow would do at a rate."""
    with ShareProgress(f"Simulating {workflow} at {rate_rps:g} requests/s", is_quiet=is_json) as progress:
        done = iter(range(1, seeds + 1))
        found = forecast(
            scenario, workflow, rate_rps, seeds=range(seeds), done=lambda: progress.reach(next(done) / seeds, workflow)
        )
    if is_json:
        typer.echo(json.dumps({"scenario": scenario.name, **forecast_json(found)}, indent=1, allow_nan=False))
        return
    console = Console(highlight=False)
    lines = [[Text(name), Text(text)] for name, text in _lines(found, scenario)]
    title = f"{workflow} at {rate_rps:g} requests/s under {scenario.policy.name}"
    table = fit_table(("", "expected"), lines, console.width, title=title)
    if table is not None:
        console.print(table)
    else:
        for line in lines:
            console.print(Text("  ").join(line))
    length = f"{found.requests:,} requests in {seeds} runs of {found.duration_s:.3g} s, from a warm start."
    console.print(Text(f"{length} {NOTE.format(seeds=seeds)}"))


def show_granularity(
    source: str,
    machine: MachineProfile | None,
    workflow: str | None,
    rate_rps: float | None,
    seeds: int,
    settings: Sequence[str],
    *,
    is_json: bool,
) -> Comparison:
    """Print how the splits of a workflow compare, and which to take at which load."""
    if not is_app(source):
        raise UsageError(f"--granularity compares the splits of an app's workflow, and {source} is no app file.")
    manifest, measured = describe(source), measured_beside(source)
    names = [spec.name for spec in manifest.workflows]
    if workflow is None and len(names) > 1:
        raise UsageError(f"{manifest.name} has several workflows; name one with --workflow: {', '.join(names)}.")
    if workflow is not None and workflow not in names:
        raise UsageError(f"{manifest.name} has no workflow {workflow!r}; it has: {', '.join(names)}.")
    picked = workflow or names[0]
    overrides = parse_settings(settings)

    def adjust(scenario: Scenario) -> Scenario:
        return load_scenario(Document(source, scenario.name, document_of(scenario)), overrides=overrides)

    with ShareProgress(f"Comparing the splits of {picked}", is_quiet=is_json) as progress:
        try:
            found = compare(
                manifest,
                picked,
                measured,
                None if machine is None else machine.host,
                rates=None if rate_rps is None else [rate_rps],
                seeds=range(seeds),
                adjust=adjust if overrides else lambda scenario: scenario,
                watch=progress.reach,
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
    if is_json:
        typer.echo(json.dumps(comparison_json(manifest.name, found), indent=1, allow_nan=False))
    else:
        _show_comparison(found, seeds)
    return found


def advice(found: Comparison) -> str:
    """One sentence: which split to take at which load."""
    steps = found.advice()
    if len(found.rates) == 1:
        return f"At {found.rates[0]:g}/s take {steps[0][2].label}."
    if len(steps) == 1:
        return f"Take {steps[0][2].label} at every load that was tried ({found.rates[0]:g} to {found.rates[-1]:g}/s)."
    parts = [f"Up to {steps[0][1]:g}/s take {steps[0][2].label}"]
    for first, last, split in steps[1:-1]:
        parts.append(f"{'at' if first == last else 'from'} {_span(first, last)}/s {split.label}")
    parts.append(f"from {steps[-1][0]:g}/s on {steps[-1][2].label}")
    return "; ".join(parts) + "."


def how_to_declare(split: Split) -> str:
    """How a workflow is declared that has this split."""
    chains = ["+".join(chain) for chain in split.chains]
    return f"app.workflow(..., fuse={chains!r})" if chains else "app.workflow(...) without fuse"


def forecast_json(found: Forecast) -> dict[str, object]:
    """A forecast as plain values."""
    plain: dict[str, object] = msgspec.to_builtins(found)
    return plain


def comparison_json(app: str, found: Comparison) -> dict[str, object]:
    """A comparison as plain values."""
    return {
        "app": app,
        "workflow": found.workflow,
        "capacity_rps": found.capacity_rps,
        "left_out": found.left_out,
        "composed": list(found.composed),
        "advice": advice(found),
        "best": [{"rate_rps": rate, "split": found.best(i).split.label} for i, rate in enumerate(found.rates)],
        "splits": [
            {
                "split": row[0].split.label,
                "fuse": ["+".join(chain) for chain in row[0].split.chains],
                "loads": [forecast_json(cell.forecast) for cell in row],
            }
            for row in found.rows
        ],
    }


def _show_comparison(found: Comparison, seeds: int) -> None:
    console = Console(highlight=False)
    headings = ("load", "split", "in time", "p50", "p99", "cost per million", "")
    lines: list[list[Text]] = []
    for i, rate in enumerate(found.rates):
        best = found.best(i)
        for row in found.rows:
            cell = row[i].forecast
            load = "" if row is not found.rows[0] else f"{rate:g}/s"
            if load and found.capacity_rps:
                load += f" ({rate / found.capacity_rps:.0%})"
            cells = [
                load,
                row[i].split.label,
                _points(cell.in_time),
                _brief(cell.p50_s, 1e3, " ms"),
                _brief(cell.p99_s, 1e3, " ms"),
                _brief(cell.cost_per_million, 1, " $"),
                "best" if row[i] is best else "",
            ]
            lines.append([Text(each) for each in cells])
    table = fit_table(headings, lines, console.width, title=f"{found.workflow}: splits and loads")
    if table is not None:
        console.print(table)
    else:
        for line in lines:
            console.print(Text("  ").join(line))
    if found.capacity_rps is not None:
        console.print(Text(f"100 % are {found.capacity_rps:.3g} requests/s: the best split with 16 users in a loop."))
    if found.left_out:
        console.print(
            Text(
                f"{found.left_out:,} more splits were not compared: of more than 16, only those with no cut, one, all "
                "but one, or all of them."
            )
        )
    if found.composed:
        console.print(Text(f"Composed from the times of their parts, not measured: {', '.join(found.composed)}."))
    console.print(Text(NOTE.format(seeds=seeds)))
    console.print(Text(f"Advice: {advice(found)}"))
    for split in dict.fromkeys(split for _, _, split in found.advice()):
        console.print(Text(f"  {split.label}: {how_to_declare(split)}"))


def _lines(found: Forecast, scenario: Scenario) -> list[tuple[str, str]]:
    slo_s = scenario.workflows[found.workflow].slo.latency_s
    objective = f"answered within {slo_s * 1e3:g} ms" if slo_s < float("inf") else "answered (no objective)"
    return [
        (objective, _share(found.in_time)),
        ("latency p50", _time(found.p50_s)),
        ("latency p99", _time(found.p99_s)),
        ("goodput", _around(found.goodput_rps, 1, "/s")),
        ("cost per hour", _money(found.cost_per_hour)),
        ("cost per million answers", _money(found.cost_per_million)),
        ("vCPUs in use", _share(found.utilisation)),
    ]


def _share(value: Estimate) -> str:
    """A share in percent, with the ends of its interval where they lie in [0, 1]."""
    if value.half_width is None:
        return f"{value.mean:.1%}"
    low, high = max(0.0, value.mean - value.half_width), min(1.0, value.mean + value.half_width)
    return f"{value.mean * 100:.1f} % [{low * 100:.1f}, {high * 100:.1f}]"


def _points(value: Estimate) -> str:
    """A share in percent, with half of its interval in points."""
    half = "" if value.half_width is None else f" ± {value.half_width * 100:.1f}"
    return f"{value.mean * 100:.1f}{half} %"


def _brief(value: Estimate | None, scale: float, unit: str) -> str:
    return "-" if value is None else f"{value.mean * scale:.3g}{unit}"


def _time(value: Estimate | None) -> str:
    return "-" if value is None else _around(value, 1e3, " ms")


def _money(value: Estimate | None) -> str:
    return "-" if value is None else f"${_around(value, 1, '')}"


def _around(value: Estimate, scale: float, unit: str) -> str:
    """A mean with its interval. No quantity here can be negative, so its interval begins at 0 at the lowest."""
    mean = f"{value.mean * scale:.3g}{unit}"
    if value.half_width is None:
        return mean
    low, high = max(0.0, value.mean - value.half_width) * scale, (value.mean + value.half_width) * scale
    return f"{mean} [{low:.3g}, {high:.3g}]"


def _span(first: float, last: float) -> str:
    return f"{first:g}" if first == last else f"{first:g} to {last:g}"
