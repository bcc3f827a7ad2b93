"""`fairlead load`: requests at a given rate, whatever the answers do, and what came of them."""

import base64
import json
import os
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fairlead.app.units import seconds
from fairlead.cli.choices import whole_number
from fairlead.cli.errors import FAILED, UsageError, warn
from fairlead.cli.gateways import TOKEN, GatewayError, get
from fairlead.cli.outputs import STDOUT, check_files, write_json
from fairlead.cli.progress import ShareProgress
from fairlead.errors import UnknownNameError
from fairlead.load import Closed, Listed, LoadProgress, LoadResult, Open, Plan, Target, Times, run_load

POISSON, EVEN = "poisson", "even"
DURATION_S = 10.0
MAX_BODY_BYTES = 64 * 2**20
MAX_ARRIVAL_BYTES = 256 * 2**20


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
        typer.Option(parser=whole_number(1), metavar="N", help="A closed loop of so many users, instead of a rate."),
    ] = None,
    arrivals: Annotated[
        str,
        typer.Option(
            metavar=f"{POISSON}|{EVEN}|FILE", help="How arrivals are spread; a file has one instant (s) per line."
        ),
    ] = POISSON,
    workflow: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which workflow of the gateway; not needed if it has one.")
    ] = None,
    value: Annotated[
        str | None,
        typer.Option("--input", metavar="JSON|@FILE", help="The workflow's input. Default: its example, or null."),
    ] = None,
    body: Annotated[
        str | None, typer.Option(metavar="TEXT|@FILE", help="The whole body, for an address with its path.")
    ] = None,
    deadline_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="From the scheduled arrival; sent along as X-Deadline-Ms.")
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
    token = _token(token_file)
    spread = _arrivals(rate, users, arrivals, seed)
    plan = _plan(
        arrivals=spread,
        duration_s=_default_duration(spread) if duration is None else _duration("--duration", duration),
        warm_up_s=0.0 if warm_up is None else _duration("--warm-up", warm_up),
        deadline_s=None if deadline_ms is None else deadline_ms / 1e3,
        headers=() if token is None else (("Authorization", f"Bearer {token}"),),
        timeout_s=_duration("--timeout", timeout),
        max_in_flight=max_in_flight,
        **({} if count is None else {"max_requests": count}),
    )
    if target.path == "/" and body is None:
        url, data = _workflow_call(url, workflow, value, token)
    else:
        if workflow is not None or value is not None:
            raise UsageError(f"--workflow and --input are for a gateway's own address, without a path; got {url}.")
        data = _text("--body", body or "")
    plan = msgspec.structs.replace(plan, body=data)
    result = _run(url, plan, is_quiet=is_quiet)
    if json_to is not None:
        write_json(msgspec.to_builtins(result), json_to)
    if not is_quiet and json_to != STDOUT:
        _show(result)
        if json_to is not None:
            typer.echo(f"Wrote {json_to}")
    if result.is_generator_late:
        late = f"{_ms(result.lag.p99_s)} ms at p99"
        warn(f"this program itself was late ({late}), so the latencies are not the server's alone.")
    if result.unsent:
        warn(f"{result.unsent} arrivals were not sent: {max_in_flight} requests were open. They count as missed.")
    if not result.answered:
        raise typer.Exit(FAILED)


def _run(url: str, plan: Plan, *, is_quiet: bool) -> LoadResult:
    with ShareProgress(f"Loading {url}", is_quiet=is_quiet) as bar:

        def show(at: LoadProgress) -> None:
            doing = f"{at.ended:,} of {at.sent:,} ended, {at.in_flight:,} open"
            bar.reach(min(1.0, at.elapsed_s / plan.duration_s), doing)

        return run_load(url, plan, progress=show)


def _target(url: str, allow_remote: bool) -> Target:
    try:
        target = Target.of(url)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not target.is_loopback and not allow_remote:
        raise UsageError(f"{target.host} is not this machine. To load it all the same, say --allow-remote.")
    return target


def _arrivals(rate: float | None, users: int | None, arrivals: str, seed: int) -> Open | Listed | Closed:
    is_file = arrivals not in (POISSON, EVEN)
    given = [name for name, is_given in (("--rate", rate is not None), ("--users", users is not None)) if is_given]
    given += ["--arrivals FILE"] if is_file else []
    if len(given) != 1:
        got = " and ".join(given) or "neither"
        raise UsageError(f"Say one of --rate N, --users N and --arrivals FILE; got {got}.")
    try:
        if users is not None:
            return Closed(users)
        if rate is not None:
            return Open(rate_rps=rate, pattern="even" if arrivals == EVEN else "poisson", seed=seed)
        return Listed(_instants(Path(arrivals)))
    except ValueError as error:
        raise UsageError(str(error)) from error


def _default_duration(arrivals: Open | Listed | Closed) -> float:
    """Until just after the last instant of a list, for the end is not part of the duration."""
    return max(arrivals.times, default=0.0) + 1e-3 if isinstance(arrivals, Listed) else DURATION_S


def _instants(file: Path) -> tuple[float, ...]:
    """One number per line; blank lines and those that begin with # are passed over."""
    lines = _read("--arrivals", file, MAX_ARRIVAL_BYTES).decode("utf-8", errors="replace").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        if text := line.partition("#")[0].strip():
            try:
                found.append(float(text))
            except ValueError as error:
                raise UsageError(f"{file}, line {number}: must be an instant in seconds; got {text[:40]!r}.") from error
    return tuple(found)


def _workflow_call(url: str, workflow: str | None, value: str | None, token: str | None) -> tuple[str, bytes]:
    """The address that calls the workflow, and the body to call it with."""
    served = {
        f"{app['name']}.{name}": (app["name"], name)
        for app in _ask(url, "/v1/apps", token)["apps"]
        for name in app["workflows"]
    }
    if workflow is None and len(served) != 1:
        raise UsageError(f"{url} serves {len(served)} workflows; say --workflow NAME: {', '.join(sorted(served))}.")
    chosen = [full for full, (_, name) in served.items() if workflow in (None, full, name)]
    if len(chosen) != 1:
        raise UnknownNameError("workflow", workflow or "", served)
    given = _json("--input", value) if value is not None else _example(url, *served[chosen[0]], token)
    return f"{url.rstrip('/')}/v1/workflows/{quote(chosen[0])}", json.dumps({"input": given}).encode()


def _example(url: str, app: str, workflow: str, token: str | None) -> object:
    """The value that the app itself gives to try the workflow with; None without."""
    for one in _ask(url, f"/v1/apps/{quote(app)}", token)["manifest"]["workflows"]:
        if one["name"] == workflow and one.get("example") is not None:
            return msgspec.msgpack.decode(base64.b64decode(one["example"]))
    return None


def _ask(url: str, path: str, token: str | None) -> Any:
    try:
        return json.loads(get(url, path, token=token))
    except ValueError as error:
        raise GatewayError(f"{url}{path}: is not JSON; is a Fairlead gateway served there?") from error


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN) or None
    text = _read("--token-file", file, 4096).decode("ascii", errors="replace").strip()
    if not text:
        raise UsageError(f"--token-file {file}: is empty.")
    return text


def _json(option: str, text: str) -> object:
    data = _text(option, text)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option} must be JSON; got {data[:40]!r}: {error}.") from error


def _text(option: str, text: str) -> bytes:
    """What was typed, or what is in the file that was named with @."""
    if text.startswith("@"):
        return _read(option, Path(text[1:]), MAX_BODY_BYTES)
    return text.encode()


def _read(option: str, file: Path, most: int) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(most + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{option} {file}: cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if len(data) > most:
        raise UsageError(f"{option} {file}: is larger than {most // 2**10:,} KiB.")
    return data


def _duration(option: str, text: str) -> float:
    try:
        return seconds(text, option)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _plan(**fields: Any) -> Plan:
    try:
        return Plan(**fields)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _show(result: LoadResult) -> None:
    console = Console(highlight=False)
    title = f"{urlsplit(result.url).path} {'' if result.users is None else f'{result.users} users '}".strip()
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    table.add_column(justify="left")
    limit = "no deadline" if result.deadline_s is None else f"within {result.deadline_s * 1e3:g} ms"
    share = "" if result.attainment is None else f"{result.attainment:.1%} of what was offered"
    seconds_counted = result.duration_s - result.warm_up_s
    table.add_row("offered", f"{result.offered:,}", f"{result.offered_rps:,.1f}/s for {seconds_counted:g} s")
    table.add_row("answered", f"{result.answered:,}", f"{result.answered_rps:,.1f}/s")
    table.add_row("in time", f"{result.in_time:,}", f"{share}; {limit}")
    table.add_row("goodput", f"{result.goodput_rps:,.1f}/s", "answers in time, per second")
    for name, number in result.refused.items():
        table.add_row("refused", f"{number:,}", name)
    for name, number in result.errors.items():
        table.add_row("failed", f"{number:,}", name)
    if result.unsent:
        table.add_row("not sent", f"{result.unsent:,}", "too many were open")
    console.print(table)
    _show_times(console, result)


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
