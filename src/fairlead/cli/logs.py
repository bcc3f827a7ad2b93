"""`fairlead logs`: what functions wrote, from a gateway or, once it has ended, from its state folder."""

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from time import time
from typing import Annotated
from urllib.parse import urlencode

import typer

from fairlead.app.units import seconds
from fairlead.cli.errors import UsageError
from fairlead.cli.gateways import find_gateway, state_folders
from fairlead.engine.live.logs.folder import LOGS, LogFolder
from fairlead.engine.live.logs.lines import Line, Names, Wanted, unpack
from fairlead.errors import plain

_PATH = "/v1/logs"


def logs(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with new lines until Ctrl-C.")] = False,
    function: Annotated[str | None, typer.Option(metavar="NAME", help="Lines of this function.")] = None,
    request: Annotated[
        str | None, typer.Option(metavar="ID", help="Lines of this request, by the id in its answer.")
    ] = None,
    app: Annotated[str | None, typer.Option(metavar="NAME", help="Lines of this app.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Lines that are no older than this, such as 10m.")
    ] = None,
    limit: Annotated[int, typer.Option(help="The last lines, at most this many.", min=1, max=10_000)] = 1000,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Of the gateway. Default: the one started last from here.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="State of the served app, instead of the URL.")
    ] = None,
    cacert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates (PEM) to trust at an https URL.")
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show what functions printed and logged. FAIRLEAD_TOKEN holds the token, where one is needed."""
    wanted = Wanted(app=app, function=function, request=request, since=_since(since))
    try:
        gateway = find_gateway(url, state, cacert)
    except UsageError:
        folder = _ended(state) if url is None and not follow else None
        if folder is None:
            raise
        _show(folder.last(wanted, limit), is_json=is_json)
        return
    asked = {"app": app, "function": function, "request": request, "since": wanted.since, "limit": limit}
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    if not follow:
        _show(gateway.get(f"{_PATH}?{query}").splitlines(), is_json=is_json)
        return
    try:
        _show(gateway.follow(f"{_PATH}?{query}&follow=1"), is_json=is_json)
    except KeyboardInterrupt:
        return


def _since(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return time() - seconds(text, "--since")
    except ValueError as error:
        raise UsageError(str(error)) from error


def _ended(state: Path | None) -> LogFolder | None:
    """The lines that a gateway left that does not run any more; the newest. None where there are none."""
    found = [LogFolder(folder / LOGS) for folder in state_folders(state, None)]
    there = [(folder.path.stat().st_mtime, folder) for folder in found if folder.segments()]
    return max(there, key=lambda pair: pair[0])[1] if there else None


def _show(lines: Iterable[bytes], *, is_json: bool) -> None:
    for data in lines:
        line = unpack(data)
        if line is None:
            continue  # an empty line says that the connection is alive
        typer.echo(_escaped(data.decode()) if is_json else in_words(line))


def _escaped(text: str) -> str:
    """The same JSON, with what could control a terminal escaped: it stands in strings only."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def in_words(line: Line) -> str:
    """A line for people: when, which function, for which request, and what."""
    when = datetime.fromtimestamp(line.t).astimezone().strftime("%H:%M:%S.%f")[:-3]
    level = f" {line.level}" if line.level is not None else ""
    head = f"{when} {line.function or line.node}{_of(line.request)}{level}: "
    return plain(head + line.text.replace("\n", "\n" + " " * 4))


def _of(request: Names) -> str:
    if request is None:
        return ""
    return f" [{request}]" if isinstance(request, str) else f" [{', '.join(request[:3])}{', ...' * (len(request) > 3)}]"
