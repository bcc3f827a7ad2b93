"""Where results go: paths are checked before the work, and written after it."""

import json
from collections.abc import Mapping
from pathlib import Path

import typer

from fairlead.cli.errors import UsageError

STDOUT = "-"


def check_files(targets: Mapping[str, str | Path | None]) -> None:
    """Raise `UsageError` unless each file, by the option that names it, can be written. Makes missing folders."""
    seen: dict[Path, str] = {}
    for option, target in targets.items():
        if target is None or (option == "--json" and str(target) == STDOUT):
            continue
        if str(target) == STDOUT:
            raise UsageError(f"{option} needs a file; '-' (standard output) is for --json only.")
        path = Path(target)
        _check_file(option, path)
        other = seen.setdefault(path.resolve(), option)
        if other != option:
            raise UsageError(f"{other} and {option} name the same file: {path}.")


def check_folder(option: str, folder: Path) -> None:
    """Raise `UsageError` unless files can be written to this folder, which is made if need be."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{option} {folder}: is a file; a folder is needed.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".fairlead-probe"
        probe.touch()
        probe.unlink()
    except (OSError, ValueError) as error:
        raise UsageError(f"{option} {folder}: cannot be written: {_reason(error)}.") from error


def write_json(value: object, target: str) -> None:
    """Write JSON to a file, or to standard output for `-`."""
    text = json.dumps(value, indent=1, allow_nan=False)
    if target == STDOUT:
        typer.echo(text)
        return
    try:
        Path(target).write_text(f"{text}\n", encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"--json {target}: cannot be written: {_reason(error)}.") from error


def _check_file(option: str, path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder; a file is needed.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.touch()
            path.unlink()
        elif path.is_file():  # opening a pipe would wait for its reader
            path.open("ab").close()
    except (OSError, ValueError) as error:
        raise UsageError(f"{option} {path}: cannot be written: {_reason(error)}.") from error


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
