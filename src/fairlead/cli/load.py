"""`fairlead load`: sends requests at a given rate, whatever the answers do, and counts the answers in time."""

from math import inf
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.app.units import seconds
from fairlead.cli.arrivals import Arrival, read_arrivals, timed_calls
from fairlead.cli.asking import TOKEN, Gateway, checked_cacert, checked_token, environment_token, target_of
from fairlead.cli.calls import Call, plain_call, read_file, read_inputs, read_text, workflow_call
from fairlead.cli.choices import whole_number
from fairlead.cli.errors import FAILED, UsageError, warn
from fairlead.cli.outputs import STDOUT, check_files, write_json
from fairlead.cli.progress import ShareProgress
from fairlead.load import Closed, Listed, LoadProgress, LoadResult, Open, Plan, Target, Times, run_load

POISSON, EVEN = "poisson", "even"
DURATION_S = 10.0
_OPTIONS = {
    "rate_rps": "--rate",
    "duration_s": "--duration",
    "warm_up_s": "--warm-up",
    "timeout_s": "--timeout",
    "max_in_flight": "--max-in-flight",
    "max_requests": "--count",
    "users": "--users",
    "times": "--arrivals: the instants",
}


def load(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="A Fairlead gateway (http://127.0.0.1:8000), or any address with its path."),
    ],
    rate: Annotated[float | None, typer.Option(metavar="N", help="Arrivals per second, on average.")] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long requests are sent. Default: 10s, or all of a file.")
    ] = None,
    users: Annotated[
        int | None,
        typer.Option(parser=whole_number(1), metavar="N", help="A closed loop of N users, instead of a rate."),
    ] = None,
    arrivals: Annotated[
        str,
        typer.Option(
            metavar=f"{POISSON}|{EVEN}|FILE",
            help='How arrivals are spread. A file has one per line: seconds, or {"at_s": 0.5, "input": ...}.',
        ),
    ] = POISSON,
    workflow: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which workflow of the gateway; not needed if it has one.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="JSON|@FILE",
            help="The workflow's input; several in turn. Default: its example, or null.",
        ),
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="One input (JSON) per line, sent in turn, over and over.")
    ] = None,
    body: Annotated[
        str | None, typer.Option(metavar="TEXT|@FILE", help="The whole body, for an address with its path.")
    ] = None,
    deadline_ms: Annotated[
        float | None,
        typer.Option(
            metavar="MS", help="From the scheduled arrival; sent as X-Deadline-Ms. Default: the workflow's objective."
        ),
    ] = None,
    warm_up: Annotated[
        str | None, typer.Option(metavar="TIME", help="At the beginning; sent but not counted. Default: none.")
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="When a request without an answer is given up.")] = "30s",
    max_in_flight: Annotated[
        int,
        typer.Option(parser=whole_number(1), metavar="N", help="The most requests open at once; more are not sent."),
    ] = 1000,
    count: Annotated[
        int | None, typer.Option(parser=whole_number(1), metavar="N", help="The most requests in all.")
    ] = None,
    seed: Annotated[int, typer.Option(parser=whole_number(0), metavar="K", help="Of the arrivals.")] = 0,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Holds the token; otherwise {TOKEN} does, if set.")
    ] = None,
    cacert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates (PEM) to trust at an https URL.")
    ] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Load another machine than this one. Be sure that you may.")
    ] = False,
    is_quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")] = False,
) -> None:
    """Send requests to a server and count what is answered in time. Exits with 1 if nothing was answered."""
    check_files({"--json": json_to})
    target = _target(url, allow_remote)
    gateway = Gateway(url=url, token=_token(token_file), cacert=checked_cacert(cacert, url))
    spread, lines = _arrivals(rate, users, arrivals, seed)
    if lines is not None and (given or inputs or body is not None or target.path != "/"):
        raise UsageError(
            f"{arrivals} says what is sent: leave out --input, --inputs and --body, and give the URL without a path."
        )
    plan = _plan(
        arrivals=spread,
        duration_s=_default_duration(spread) if duration is None else _duration("--duration", duration),
        warm_up_s=0.0 if warm_up is None else _duration("--warm-up", warm_up),
        deadline_s=_deadline(deadline_ms),
        headers=() if gateway.token is None else (("Authorization", f"Bearer {gateway.token}"),),
        timeout_s=_duration("--timeout", timeout),
        max_in_flight=max_in_flight,
        **({} if count is None else {"max_requests": count}),
    )
    if lines is not None:
        calls = timed_calls(gateway, lines, workflow, plan.deadline_s)
        # Objectives are applied by the gateway itself; deadlines have to be sent.
        is_sent = plan.deadline_s is not None or any(line.deadline_ms is not None for line in lines)
        plan = msgspec.structs.replace(plan, calls=calls, deadline_s=None, sends_deadline=is_sent)
        where, deadline = url, "each request with its own deadline"
    else:
        values = read_inputs(given or (), inputs)
        if target.path == "/" and body is None:
            call = workflow_call(gateway, workflow, values)
        else:
            if workflow is not None or values:
                raise UsageError(f"--workflow and --input are for a gateway's own address, without a path; got {url}.")
            call = plain_call(gateway, target, read_text("--body", body or ""))
        headers = (*plan.headers, ("Content-Type", call.content_type))
        plan = msgspec.structs.replace(plan, body=call.bodies, headers=headers if call.bodies[0] else plan.headers)
        if plan.deadline_s is None and call.objective_s is not None:  # which the gateway applies by itself
            plan = msgspec.structs.replace(plan, deadline_s=call.objective_s, sends_deadline=False)
        where, deadline = call.url, _deadline_text(plan, call)
    result = _run(where, plan, cacert, is_quiet=is_quiet)
    if json_to is not None:
        write_json(msgspec.to_builtins(result), json_to)
    if not is_quiet and json_to != STDOUT:
        _show(result, deadline)
        if json_to is not None:
            typer.echo(f"Wrote {json_to}")
    if result.is_generator_late:
        late = f"{_ms(result.lag.p99_s)} ms at p99"
        warn(f"this program itself was late ({late}), so the latencies are not the server's alone.")
    if result.unsent:
        warn(f"{result.unsent} arrivals were not sent: {max_in_flight} requests were open. They count as missed.")
    if not result.answered:
        raise typer.Exit(FAILED)


def _run(url: str, plan: Plan, cacert: Path | None, *, is_quiet: bool) -> LoadResult:
    with ShareProgress(f"Loading {url}", is_quiet=is_quiet) as bar:

        def show(at: LoadProgress) -> None:
            doing = f"{at.ended:,} of {at.sent:,} ended, {at.in_flight:,} open"
            bar.reach(min(1.0, at.elapsed_s / plan.duration_s), doing)

        return run_load(url, plan, cacert=cacert, progress=show)


def _target(url: str, allow_remote: bool) -> Target:
    target = target_of(url)
    if not target.is_loopback and not allow_remote:
        raise UsageError(f"{target.host} is not this machine. To load it all the same, say --allow-remote.")
    return target


def _arrivals(
    rate: float | None, users: int | None, arrivals: str, seed: int
) -> tuple[Open | Listed | Closed, tuple[Arrival, ...] | None]:
    """When requests are sent, and what each is, where a file says so."""
    is_file = arrivals not in (POISSON, EVEN)
    given = [name for name, is_given in (("--rate", rate is not None), ("--users", users is not None)) if is_given]
    given += ["--arrivals FILE"] if is_file else []
    if len(given) != 1:
        got = " and ".join(given) or "neither"
        raise UsageError(f"Say one of --rate N, --users N and --arrivals FILE; got {got}.")
    try:
        if users is not None:
            return Closed(users), None
        if rate is not None:
            return Open(rate_rps=rate, pattern="even" if arrivals == EVEN else "poisson", seed=seed), None
        found = read_arrivals(Path(arrivals))
        return found.listed, found.lines
    except ValueError as error:
        raise _wrong(error) from error


def _default_duration(arrivals: Open | Listed | Closed) -> float:
    """Until just after the last instant of a list, for the end is not part of the duration."""
    return max(arrivals.times, default=0.0) + 1e-3 if isinstance(arrivals, Listed) else DURATION_S


def _deadline(deadline_ms: float | None) -> float | None:
    if deadline_ms is not None and not 0 < deadline_ms < inf:
        raise UsageError(f"--deadline-ms must be positive and finite; got {deadline_ms:g}.")
    return None if deadline_ms is None else deadline_ms / 1e3


def _token(file: Path | None) -> str | None:
    if file is None:
        return environment_token()
    text = read_file("--token-file", file, 4096).decode("ascii", errors="replace").strip()
    if not text:
        raise UsageError(f"--token-file {file}: is empty.")
    return checked_token(text, f"--token-file {file}")


def _duration(option: str, text: str) -> float:
    try:
        return seconds(text, option)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _plan(**fields: Any) -> Plan:
    try:
        return Plan(**fields)
    except ValueError as error:
        raise _wrong(error) from error


def _wrong(error: ValueError) -> UsageError:
    """The error of a plan, with the options in the place of its fields."""
    text = str(error)
    for field, option in _OPTIONS.items():
        text = text.replace(field, option)
    return UsageError(text)


def _deadline_text(plan: Plan, call: Call) -> str:
    if plan.deadline_s is None:
        why = "none was given" if call.workflow is None else "the workflow has no objective"
        return f"no deadline ({why}), so every answer is in time"
    whose = "as given" if plan.sends_deadline else "the workflow's objective"
    return f"deadline {plan.deadline_s * 1e3:g} ms, {whose}"


def _show(result: LoadResult, deadline: str) -> None:
    console = Console(highlight=False)
    users = "" if result.users is None else f", {result.users} users"
    console.print(Text(f"{urlsplit(result.url).path}{users}: {deadline}"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    table.add_column(justify="left")
    share = "" if result.attainment is None else f"{result.attainment:.1%} of what was offered"
    seconds_counted = result.duration_s - result.warm_up_s
    table.add_row("offered", f"{result.offered:,}", f"{result.offered_rps:,.1f}/s for {seconds_counted:g} s")
    table.add_row("answered", f"{result.answered:,}", f"{result.answered_rps:,.1f}/s")
    table.add_row("in time", f"{result.in_time:,}", share)
    table.add_row("goodput", f"{result.goodput_rps:,.1f}/s", "answers in time, per second")
    for name, number in result.refused.items():
        table.add_row("refused", f"{number:,}", Text(name))
    for name, number in result.errors.items():
        table.add_row("failed", f"{number:,}", name)
    if result.unsent:
        table.add_row("not sent", f"{result.unsent:,}", "too many were open")
    console.print(table)
    _show_times(console, result)
    if len(result.by_call) > 1:
        _show_calls(console, result)


def _show_calls(console: Console, result: LoadResult) -> None:
    """A row for each workflow of a load that has several."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("workflow", "offered", "in time", "goodput", "p50 ms", "p99 ms"):
        table.add_column(heading, justify="left" if heading == "workflow" else "right")
    for name, each in result.by_call.items():
        share = "–" if each.attainment is None else f"{each.attainment:.1%}"
        times = (_ms(each.latency.p50_s), _ms(each.latency.p99_s))
        table.add_row(name, f"{each.offered:,}", share, f"{each.goodput_rps:,.1f}/s", *times)
    console.print(table)


def _show_times(console: Console, result: LoadResult) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("ms, from the scheduled arrival", "p50", "p95", "p99", "max"):
        table.add_column(heading, justify="left" if "," in heading else "right")
    sets: dict[str, Times] = {"answers": result.latency, "refusals": result.refusal_latency}
    if result.users is None:
        sets["this program's own lag"] = result.lag
    for name, times in sets.items():
        if times.max_s is not None:
            table.add_row(name, *(_ms(one) for one in (times.p50_s, times.p95_s, times.p99_s, times.max_s)))
    if table.row_count:
        console.print(table)


def _ms(value_s: float | None) -> str:
    return "–" if value_s is None else f"{value_s * 1e3:,.1f}"
