"""`fairlead explain`: one request of a run, in words."""

import re
import sqlite3
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Annotated

import msgspec
import typer

from fairlead.cli.errors import UsageError
from fairlead.cli.gateways import STATE, state_folders
from fairlead.cli.outputs import check_files, write_json
from fairlead.errors import ConfigError, Fault, plain
from fairlead.report.explain import in_words
from fairlead.report.live import is_run, read_any_run
from fairlead.report.metrics import json_values
from fairlead.report.story import Story, tell
from fairlead.runlog import HEAD, read_head

_NUMBER = re.compile(r"[0-9]{1,18}")
_PUBLIC = re.compile(rf"(?P<app>.+)-(?P<generation>{_NUMBER.pattern})-(?P<number>{_NUMBER.pattern})")
_JOURNALLED = (
    "SELECT workflow, state, attempts, accepted_at, finished_at, reason, cost_usd, ran_as FROM requests WHERE id = ?"
)
_WIDTH = 100


def explain(
    request: Annotated[
        str, typer.Argument(metavar="REQUEST", show_default=False, help="Its number, or the id in its answer.")
    ],
    run: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Folder of the run. Default: the latest that is served here.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="State of a served app, whose latest run is meant.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Of a gateway on this machine, whose latest run is meant.")
    ] = None,
    cacert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates (PEM) to trust at an https URL.")
    ] = None,
    newest_mb: Annotated[
        int | None, typer.Option(metavar="MB", min=1, help="Read only the newest MB megabytes of a long run's records.")
    ] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the story as JSON; - for standard output.")
    ] = None,
) -> None:
    """Say why a request was placed, batched or refused."""
    if sum(one is not None for one in (run, state, url)) > 1:
        raise UsageError("--run, --state and --url each say which run is meant; leave all but one out.")
    check_files({"--json": json_to})
    app, generation, number = _parse(request)
    states = [] if run is not None and number is not None else state_folders(state, url, cacert)
    if number is None:
        account, ran_as = _from_journal(request, states)
        typer.echo(plain(account))
        app, generation, number = _parse(ran_as or "")
        if number is None:  # it never ran, or not yet
            return
    folder = run or _find(app, generation, states)
    story = _story(folder, number, None if newest_mb is None else newest_mb << 20)
    if json_to is not None:
        write_json({"run": str(folder), "words": in_words(story), **_plain(story)}, json_to)
    if json_to != "-":
        for paragraph in in_words(story):
            indent = " " * (len(paragraph) - len(paragraph.lstrip()) + 2)
            typer.echo(fill(plain(paragraph), _WIDTH, subsequent_indent=indent, break_on_hyphens=False))
        typer.echo(f"Run: {folder}")


def _parse(request: str) -> tuple[str | None, int | None, int | None]:
    """App, generation and number, as far as the text has them."""
    if _NUMBER.fullmatch(request):
        return None, None, int(request)
    found = _PUBLIC.fullmatch(request)
    if found is None:
        return None, None, None
    return found["app"], int(found["generation"]), int(found["number"])


def _find(app: str | None, generation: int | None, states: list[Path]) -> Path:
    """The newest run of this app and generation; of any, where they are not named."""
    runs = [folder for where in states for folder in where.glob("runs/*") if (folder / HEAD).exists()]
    for folder in sorted(runs, key=lambda one: (one / HEAD).stat().st_mtime, reverse=True):
        if app is None:
            return folder
        head = read_head(folder)
        if (head.app, head.generation) == (app, generation):
            return folder
    looked = ", ".join(map(str, states)) or str(STATE)
    wanted = "live run" if app is None else f"run of {app}, generation {generation}"
    raise UsageError(f"No {wanted} is in {looked}. Name the run with --run.")


def _story(folder: Path, number: int, newest_bytes: int | None) -> Story:
    if not is_run(folder):
        what = "no run is here. `fairlead simulate --out` and `fairlead serve` write runs."
        raise ConfigError(str(folder), [Fault("", what)])
    recording = read_any_run(folder, newest_bytes)
    profiles = read_head(folder).scenario.profiles if (folder / HEAD).exists() else None
    story = tell(recording, number, profiles)
    if story is None:
        count = recording.requests.height
        numbers: list[int] = recording.requests["request"].to_list()
        there = f"It has {count} requests, {min(numbers)} to {max(numbers)}." if count else "It has none."
        raise UsageError(f"{folder} has no request {number}. {there}")
    return story


def _from_journal(id: str, states: list[Path]) -> tuple[str, str | None]:
    """What the journal knows of an asynchronous request, and its name in the records of the run that ended it."""
    for where in states:
        path = where / "journal.sqlite"
        if not path.exists():
            continue
        try:
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as journal:
                row = journal.execute(_JOURNALLED, (id,)).fetchone()
        except sqlite3.Error as error:
            raise ConfigError(str(path), [Fault("", f"the journal cannot be read: {error}.")]) from error
        if row is not None:
            workflow, state, attempts, accepted, finished, reason, cost, ran_as = row
            took = "" if finished is None else f" {finished - accepted:.3f} s after it was accepted"
            text = f"Asynchronous request {id} of {workflow}: {state}{took}, at attempt {attempts}, for ${cost:.6f}."
            return f"{text}\nWhy: {reason}." if reason else text, ran_as
    looked = ", ".join(map(str, states)) or str(STATE)
    hint = "A request goes by its number, by the id in its answer (app-1-17), or by that of an asynchronous one."
    raise UsageError(f"No request {id[:80]!r} is in a journal in {looked}. {hint}")


def _plain(story: Story) -> dict[str, object]:
    values = json_values(_named(asdict(story)))
    assert isinstance(values, dict)
    return values


def _named(value: object) -> object:
    """The same with every struct as a mapping, also one that is an array on disk."""
    if isinstance(value, msgspec.Struct):
        return {name: _named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named(item) for item in value]
    return value
