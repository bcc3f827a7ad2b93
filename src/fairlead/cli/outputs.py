"""Where results go: paths are checked before the work, and written after it."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from fairlead.cli.errors import UsageError
from fairlead.model import Recording
from fairlead.report import write_trace
from fairlead.report.labels import who_labels

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


def write_traces(recordings: Sequence[Recording], path: Path) -> list[Path]:
    """One trace per policy and sweep point, of its first seed; where there are several, the name tells them apart."""
    firsts: dict[str, Recording] = {}
    for who, recording in zip(who_labels(recordings), recordings, strict=True):
        firsts.setdefault(file_name(who, recording.point), recording)
    if len(firsts) == 1:
        return [write_trace(recordings[0], path)]
    return [write_trace(one, path.with_name(f"{path.stem}-{name}{path.suffix}")) for name, one in firsts.items()]


def file_name(who: str, point: Mapping[str, object], seed: int | None = None) -> str:
    """A run's name as a file or folder: `esg+simppo-rate_scale=0.2-seed-0`; parameters follow the policy's name."""
    parts = [
        who.replace(" + ", "+").replace(" (", "-").replace(")", ""),
        *(f"{key}={value}" for key, value in point.items()),
    ]
    if seed is not None:
        parts.append(f"seed-{seed}")
    return re.sub(r"[^\w.+=-]+", "_", "-".join(parts))[:200]


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
