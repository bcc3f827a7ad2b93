"""`fairlead replay`: a recorded run again, under the same or other policies, or instant by instant."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from fairlead.app.units import seconds
from fairlead.cli.choices import admit_own, parse_settings, whole_number
from fairlead.cli.errors import FAILED, UsageError, warn
from fairlead.cli.outputs import STDOUT, check_files, write_json
from fairlead.cli.progress import ShareProgress
from fairlead.errors import ConfigError, Fault
from fairlead.policy import policy_class, policy_faults, role
from fairlead.replay import Deviation, LoggedRun, Observations, check_exactly, deviation, read_logged_run
from fairlead.replay.again import RECORDED, left_out
from fairlead.replay.again import replay as run_again
from fairlead.report import Summary, results_json, summarise
from fairlead.report.labels import who_labels
from fairlead.report.live import latest_run
from fairlead.report.numbers import Kind, show
from fairlead.runlog import HEAD
from fairlead.workload import PolicyChoice
from fairlead.workload.parse.document import parse_value

_LEAD_S = 20.0  # before the requests that count, so that these meet the queues and instances that they met


def replay(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", show_default=False, help="Folder of a live run; of a served app's state: its latest run."
        ),
    ],
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME",
            callback=admit_own,
            help="The policy that dispatches: a name or my.module:Class; repeat it to compare. Default: the run's own.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="A parameter, such as policy.headroom=0.2; repeatable."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(parser=whole_number(0), metavar="K", help="Seed of the draws. Default: the run's own.")
    ] = None,
    warmup_s: Annotated[
        float, typer.Option("--warmup", metavar="SECONDS", help="Do not count requests that came before this instant.")
    ] = 0.0,
    last: Annotated[
        str | None, typer.Option(metavar="TIME", help="Replay and count only the requests of the last TIME, as in 5m.")
    ] = None,
    newest_mb: Annotated[
        int | None, typer.Option(metavar="MB", min=1, help="Read only so much at the end of the records of a long run.")
    ] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON; - for standard output.")
    ] = None,
    is_exact: Annotated[
        bool, typer.Option("--exact", help="Feed the same events to a fresh controller and compare every row.")
    ] = False,
    is_quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")] = False,
) -> None:
    """Replay a recorded run in the simulator, under any policy."""
    check_files({"--json": json_to})
    if is_exact and (policies or settings):
        raise UsageError("--exact compares with what was recorded, so the policy cannot be another one.")
    if is_exact and (last is not None or newest_mb is not None):
        raise UsageError("--exact compares the whole run: leave out --last and --newest-mb.")
    if last is not None and warmup_s:
        raise UsageError("--last and --warmup each say which requests count; leave one out.")
    logged = read_logged_run(find_live_run(run), None if newest_mb is None else newest_mb << 20)
    if logged.damaged_bytes and logged.has_ended:
        warn(f"{logged.folder}: {logged.damaged_bytes} bytes are damaged and left out.")
    if is_exact:
        _check(logged, json_to)
        return
    last_s = logged.recording.duration_s
    since = 0.0
    if last is not None:
        warmup_s = max(0.0, min(last_s - 1e-3, logged.recording.end_s - _duration(last)))
        since = max(0.0, warmup_s - _LEAD_S)
    if not 0 <= warmup_s < last_s:
        raise UsageError(
            f"--warmup must be at least 0 and before the last arrival, at {last_s:.3g} s; got {warmup_s:g}."
        )
    warmup_s = max(warmup_s, logged.recording.warmup_s)  # time before the first request is not averaged over
    choices = choose_policies(logged, policies or [], settings or [])
    recorded = summarise(changed(logged.recording, point={"run": RECORDED}, warmup_s=warmup_s))
    observed = Observations(logged)
    summaries = [recorded]
    with ShareProgress(f"Replaying {logged.head.app}", is_quiet=is_quiet) as progress:
        for i, choice in enumerate(choices):

            def reach(now: float, done: int = i, name: str = choice.name) -> None:
                progress.reach((done + min(1.0, now / last_s)) / len(choices), name)

            again = run_again(
                logged, choice, seed=seed, warmup_s=warmup_s, observed=observed, since=since, progress=reach
            )
            summaries.append(summarise(again))
    _show(logged, choices, summaries, json_to, is_quiet)


def _duration(text: str) -> float:
    try:
        return seconds(text, "--last")
    except ValueError as error:
        raise UsageError(str(error)) from error


def find_live_run(folder: Path) -> Path:
    """The folder of a live run: this one, or the latest in a folder of state."""
    if (folder / HEAD).exists():
        return folder
    found = latest_run(folder) if folder.is_dir() else None
    if found is None:
        hint = "`fairlead serve` writes live runs, to .fairlead/<app>/runs. A simulated one is simulated again instead."
        raise ConfigError(str(folder), [Fault("", f"no live run is here. {hint}")])
    return found


def choose_policies(logged: LoggedRun, policies: Sequence[str], settings: Sequence[str]) -> list[PolicyChoice]:
    """The policies that are to decide, each with its parameters. The run's own policy keeps those it had."""
    given: dict[str, object] = {}
    faults: list[Fault] = []
    for key, text in parse_settings(settings).items():
        part, _, name = key.partition(".")
        if part != "policy" or not name:
            what = "only parameters of the policy can be set in a replay, such as policy.headroom=0.2."
            raise UsageError(f"--set {key}={text}: {what}")
        given[name] = parse_value(text) if isinstance(text, str) else text
    own = logged.head.scenario.policy
    choices = []
    for name in dict.fromkeys(policies) or (own.name,):
        kept: Mapping[str, object] = own.parameters if name == own.name else {}
        parameters = {**kept, **given}
        found = policy_faults(name, parameters)
        if not found and role(policy_class(name)) != "dispatch":
            found = [Fault("policy.dispatch", f"{name} scales, and one that dispatches is needed here.")]
        faults += found
        choices.append(PolicyChoice(name=name, parameters=parameters))
    if faults:
        raise ConfigError("--policy", faults)
    return choices


def _check(logged: LoggedRun, json_to: str | None) -> None:
    found = check_exactly(logged)
    rows = len(logged.requests) + len(logged.invocations) + len(logged.instances)
    if json_to is not None:
        values: dict[str, object] = {"is_identical": found is None, "instants": len(logged.instants), "rows": rows}
        if found is not None:
            values["difference"] = msgspec.to_builtins(found, enc_hook=str)
        write_json(values, json_to)
    if json_to != STDOUT:
        if found is None:
            typer.echo(f"Identical: {len(logged.instants):,} instants give the same {rows:,} rows.")
        else:
            typer.echo(f"Not identical. First difference: {found}")
    if found is not None:
        raise typer.Exit(FAILED)


def _show(
    logged: LoggedRun,
    choices: Sequence[PolicyChoice],
    summaries: Sequence[Summary],
    json_to: str | None,
    is_quiet: bool,
) -> None:
    recorded, *replayed = summaries
    own = logged.head.scenario.policy
    offs = {
        i: deviation(recorded, summary)
        for i, (choice, summary) in enumerate(zip(choices, replayed, strict=True))
        if choice == own
    }
    if json_to is not None:
        values = results_json(logged.head.app, summaries)
        if offs:
            values["deviation"] = msgspec.to_builtins(next(iter(offs.values())))
        write_json(values, json_to)
    if json_to == STDOUT or is_quiet:
        return
    console = Console(highlight=False)
    console.print(_table(summaries, f"{logged.head.app}: {logged.folder}"))
    for off in offs.values():
        typer.echo(f"Replayed under its own policy, against what was recorded: {_words(off)}.")
    for what, count in left_out(logged).items():
        typer.echo(f"Not replayed: {count} {what}.")
    if json_to is not None:
        typer.echo(f"Wrote {json_to}")


_COLUMNS: tuple[tuple[str, Callable[[Summary], float | None], Kind], ...] = (
    ("in time", lambda one: one.slo_attainment, "share"),
    ("goodput /s", lambda one: one.goodput_rps, "rate"),
    ("p50", lambda one: one.latency_s.p50, "seconds"),
    ("p99", lambda one: one.latency_s.p99, "seconds"),
    ("cost", lambda one: one.cost_usd, "usd"),
    ("refused", lambda one: one.rejected + one.dropped, "count"),
)


def _table(summaries: Sequence[Summary], title: str) -> RenderableType:
    headings = ("run", "policy", *(heading for heading, _, _ in _COLUMNS))
    lines = [
        [str(one.point["run"]), who, *(show(read(one), kind) for _, read, kind in _COLUMNS)]
        for who, one in zip(who_labels(summaries), summaries, strict=True)
    ]
    table = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place > 1 else "left", no_wrap=place != 1)
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))
    return table


def _words(off: Deviation) -> str:
    parts = []
    for name, share in (("p50", off.p50), ("p99", off.p99)):
        if share is not None:
            parts.append(f"{name} {100 * share:+.1f} %")
    if off.attainment is not None:
        parts.append(f"in time {100 * off.attainment:+.1f} points")
    return ", ".join(parts) or "nothing to compare"
