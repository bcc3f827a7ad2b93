"""`fairlead profile`: the functions of an app, measured on this machine."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated

import msgspec
import typer
import uvloop
from rich.console import Console
from rich.text import Text

from fairlead.app.describe import describe, take_snapshot
from fairlead.app.load import split_address
from fairlead.app.manifest import Manifest
from fairlead.app.serving import served_scenario
from fairlead.app.snapshot import Snapshot, source_digest
from fairlead.app.units import seconds
from fairlead.calibrate import POLICIES, ServingError, calibrate, fit_rehearsal, rehearse
from fairlead.cli.choices import admit_own
from fairlead.cli.errors import FAILED, UsageError, warn
from fairlead.cli.outputs import STDOUT, check_files, write_json
from fairlead.cli.progress import ShareProgress
from fairlead.cli.ray_profile import linked_nodes, measure_cluster, serve_options
from fairlead.cli.tables import NOTHING, fit_table
from fairlead.engine.live.limits import make_limiter
from fairlead.engine.live.measuring import QUICK, Effort, Measurement, measure_app
from fairlead.errors import UnknownNameError
from fairlead.league.catalogue import catalogue
from fairlead.policy import policy_class, role
from fairlead.profile import Host
from fairlead.profile.host import machine_file, read_machine, write_machine
from fairlead.profile.measured import MeasuredFunction, MeasuredProfiles, as_plain, read_measured, write_measured
from fairlead.report.profile_figure import profile_figure

BUSY = 0.15
"""Share of the CPUs in the hands of others from which on a measurement is suspect."""


def profile(
    app: Annotated[
        str | None,
        typer.Argument(metavar="APP", show_default=False, help="An app: app.py, app.py:name, or its folder."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", show_default="30s", help="How long to measure in all, about.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the profile goes. Default: beside the app, as APP.profile.json."),
    ] = None,
    is_host: Annotated[
        bool,
        typer.Option(
            "--host",
            help="Measure this machine too, or alone: what its gateway and its wake-ups take. About half a minute. "
            "With an app, it is also served for some seconds, so that predictions of it are right.",
        ),
    ] = False,
    is_served: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Serve the app for some seconds too, so that predictions of it are right. --host does so as well; "
            "this takes the machine as it was measured before.",
        ),
    ] = False,
    machine: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the machine's profile goes. Default: the user's data folder."),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            callback=admit_own,
            help=f"With --host: a policy whose decisions are timed; repeatable. Default: {', '.join(POLICIES)}.",
        ),
    ] = None,
    functions: Annotated[
        list[str] | None,
        typer.Option("--function", metavar="NAME", help="Measure this one only; repeatable. Others are kept."),
    ] = None,
    is_quick: Annotated[bool, typer.Option("--quick", help="A rough look: 5s, one cold start, within 10 %.")] = False,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture: latency over batch size (SVG).")
    ] = None,
    limits: Annotated[
        str | None, typer.Option(metavar="KIND", help="How CPU is limited: cgroup-v1, cgroup-v2 or affinity.")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="Where to measure: local (this machine) or ray (a node of each kind of a cluster).")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Of the Ray cluster, with --backend ray.")
    ] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the profile there too; - for standard output.")
    ] = None,
    is_silent: Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")] = False,
) -> None:
    """Measure the functions of an app on this machine: cold start, warm latency, memory."""
    if backend not in ("local", "ray") or (backend == "local" and address is not None):
        raise UsageError("--backend must be local or ray, and --address goes with ray.")
    if backend == "ray" and limits is not None:
        raise UsageError("--limits is about this machine; it does not go with --backend ray.")
    options = serve_options(address) if backend == "ray" else ()  # a wrong address is told before anything is measured
    if not is_host and not is_served and (machine is not None or policies):
        raise UsageError("--machine and --policy go with --host, which measures the machine, or with --serve.")
    if is_served and not is_host and not (machine or machine_file()).is_file():
        raise UsageError("--serve needs the profile of this machine, and there is none. Use --host, which measures it.")
    if is_host:
        _measure_host(machine or machine_file(), policies or POLICIES, is_silent)
        if app is None:
            return
    if app is None:
        raise UsageError("Name an app file, such as: fairlead profile app.py")
    effort = _effort(budget, is_quick)
    file, _ = split_address(app)
    target = out or file.with_suffix(".profile.json")
    check_files({"--json": json_to, "--figure": figure, "--out": target})
    snapshot = take_snapshot(app)
    manifest = snapshot.manifest
    _check_names(functions, manifest)
    kept = read_measured(target).functions if functions and target.is_file() else {}
    measurement = (
        _measure(app, manifest, effort, functions, limits, is_silent)
        if backend == "local"
        else measure_cluster(snapshot, effort, functions, address, is_silent).measurement
    )
    measured = _merged(measurement.profiles, kept, snapshot)
    if measured.functions:
        write_measured(measured, target)
        if (is_host or is_served) and not measurement.skipped:
            host = read_machine(machine or machine_file()).host
            if backend == "ray":
                measured = msgspec.structs.replace(measured, nodes=linked_nodes(host, address, is_silent))
            measured = _rehearse(app, target, host, measured, policies or catalogue().general(), options, is_silent)
            write_measured(measured, target)
        if figure is not None:
            figure.write_text(profile_figure(measured), encoding="utf-8", newline="\n")
        if json_to is not None:
            write_json(as_plain(measured), json_to)
        if not is_silent and json_to != STDOUT:
            _show(measured, [path for path in (target, figure, json_to and Path(json_to)) if path], app, manifest)
    others = measured.machine.others_share or 0.0
    if others > BUSY:
        warn(f"Others used {others:.0%} of the CPUs meanwhile, so times may be too long. Repeat it on a quiet machine.")
    for name, reason in measurement.skipped.items():
        warn(f"{name} was not measured: {reason}.")
    if measurement.skipped:
        raise typer.Exit(FAILED)


def _measure_host(target: Path, policies: Sequence[str], is_quiet: bool) -> None:
    for name in policies:
        if role(policy_class(name)) != "dispatch":
            raise UsageError(f"--policy {name}: scales, and does not dispatch.")
    with ShareProgress("Measuring this machine", is_quiet=is_quiet) as progress:
        found = calibrate(policies, progress.reach)
    try:
        write_machine(found, target)
    except OSError as error:
        raise UsageError(f"--machine {target}: cannot be written: {error.strerror}.") from error
    host = found.host
    if not is_quiet:
        per_request = host.request_s + host.answer_s + 2 * host.turn_s + host.send_s + host.end_s
        typer.echo(
            f"{found.cpu}, {host.cores} cores: the gateway takes {per_request * 1e6:.0f} us per request of one stage"
        )
        decisions = ", ".join(f"{name} {seconds_ * 1e6:.0f}" for name, seconds_ in host.decision_s.items())
        typer.echo(f"Decisions, in us beyond those of fifo: {decisions}")
        typer.echo(f"Wrote {target}")
    if (found.others_share or 0.0) > BUSY:
        warn(f"Others used {found.others_share:.0%} of the CPUs meanwhile, and predictions will be for such a machine.")


def _rehearse(
    app: str,
    target: Path,
    host: Host,
    measured: MeasuredProfiles,
    policies: Sequence[str],
    options: Sequence[str],
    is_quiet: bool,
) -> MeasuredProfiles:
    """The profile with what serving the app for some seconds showed; as it was, with a warning, where that failed."""
    file, name = split_address(app)
    address = Path(f"{file.resolve()}:{name}" if name else file.resolve())
    manifest = describe(address)  # again: its objectives may depend on its profile
    scenario = served_scenario(manifest, measured, host)
    beside = file.with_suffix(".profile.json")
    if target.resolve() != beside.resolve():
        warn(f"The app was not served, since `fairlead serve` reads {beside} and not {target}.")
        return measured
    try:
        with ShareProgress(f"Serving {manifest.name}", is_quiet=is_quiet) as progress:
            seen = rehearse(address, manifest, options, lambda share, doing: progress.reach(0.6 * share, doing))
            found = fit_rehearsal(
                scenario,
                seen,
                policies,
                lambda share, doing: progress.reach(0.6 + 0.4 * share, doing),
            )
    except ServingError as error:
        warn(f"The app could not be served, so predictions know its functions alone: {error}")
        return measured
    if not is_quiet:
        off = ", ".join(f"{100 * each:+.1f}" for each in found.off)
        typer.echo(
            f"Served: {found.capacity_rps:.0f} answers/s at most. A simulation of the loads with "
            f"{found.rates_rps[0]:.0f} to {found.rates_rps[1]:.0f} requests/s is off by {off} points in time."
        )
    return msgspec.structs.replace(measured, served=found)


def _effort(budget: str | None, is_quick: bool) -> Effort:
    effort = QUICK if is_quick else Effort()
    if budget is None:
        return effort
    try:
        budget_s = seconds(budget, "--budget")
    except ValueError as error:
        raise UsageError(str(error)) from None
    return msgspec.structs.replace(effort, budget_s=budget_s)


def _check_names(functions: Sequence[str] | None, manifest: Manifest) -> None:
    known = [spec.name for spec in manifest.measurable]
    for name in functions or ():
        if name not in known:
            raise UnknownNameError(f"function of {manifest.name}", name, known)


def _measure(
    app: str, manifest: Manifest, effort: Effort, functions: Sequence[str] | None, limits: str | None, is_quiet: bool
) -> Measurement:
    try:
        kind = make_limiter(limits).kind
    except ValueError as error:
        raise UsageError(f"--limits: {error}") from None
    said: list[str] = []
    try:
        with ShareProgress(f"Measuring {manifest.name}", is_quiet=is_quiet) as progress:
            measuring = measure_app(
                app, manifest, effort=effort, functions=functions, limits=kind, watch=progress.reach, log=said.append
            )
            return uvloop.run(measuring)
    finally:
        for line in said:
            typer.echo(line, err=True)


def _merged(new: MeasuredProfiles, kept: Mapping[str, MeasuredFunction], snapshot: Snapshot) -> MeasuredProfiles:
    """What was measured now, and what the file had of functions that the app still has, in the app's order."""
    names = [spec.name for spec in snapshot.manifest.measurable]
    at, source = datetime.now(UTC).isoformat(timespec="seconds"), source_digest(snapshot.files)
    stamped = {
        name: msgspec.structs.replace(function, measured_at=at, source=source)
        for name, function in new.functions.items()
    }
    both = {**kept, **stamped}
    functions = {name: both[name] for name in names if name in both}
    return MeasuredProfiles(app=new.app, machine=new.machine, functions=functions, devices=new.devices)


def _show(measured: MeasuredProfiles, wrote: Sequence[Path], app: str, manifest: Manifest) -> None:
    console = Console(highlight=False)
    machine = measured.machine
    title = f"{measured.app} on {machine.cpu}, {machine.cores} cores, CPU limits by {machine.limits}"
    headings = ("function", "configuration", "mean ms", "p50", "p95", "p99", "runs")
    lines = [
        [Text(cell) for cell in (name if i == 0 else "", *_point_cells(function, i))]
        for name, function in measured.functions.items()
        for i in range(len(function.points))
    ]
    table = fit_table(headings, lines, console.width, title)
    if table is not None:
        console.print(table)
    table = fit_table(
        ("function", "cold start ms", "process", "code", "setup", "memory GB", "noise", "held-out error"),
        [[Text(cell) for cell in _function_cells(name, one)] for name, one in measured.functions.items()],
        console.width,
    )
    if table is not None:
        console.print(table)
    for path in wrote:
        typer.echo(f"Wrote {path}")
    typer.echo(f"Next: fairlead serve {quote(app)}")


def _point_cells(function: MeasuredFunction, index: int) -> tuple[str, ...]:
    point = function.points[index]
    runs = "predicted" if point.is_predicted else str(point.count)
    return (
        str(point.configuration()),
        *(_ms(seconds) for seconds in (point.mean_s, point.p50_s, point.p95_s, point.p99_s)),
        runs,
    )


def _function_cells(name: str, function: MeasuredFunction) -> tuple[str, ...]:
    cold = function.cold_start
    parts = (None,) * 4 if cold is None else (cold.mean_s, cold.process_s, cold.load_s, cold.setup_s)
    error = NOTHING if function.held_out_error is None else f"{function.held_out_error:.1%}"
    return (name, *(_ms(part) for part in parts), f"{function.memory_gb:.3f}", f"{function.noise:.1%}", error)


def _ms(value_s: float | None) -> str:
    return NOTHING if value_s is None else f"{value_s * 1e3:.4g}"
