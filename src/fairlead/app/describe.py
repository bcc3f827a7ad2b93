"""Describing an app file in a process of its own, so that the process that asks never runs what is in it.

`python -m fairlead.app.describe app.py` prints the manifest as JSON. What the file itself prints goes to stderr.
"""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from fairlead.app.bundle import read_files
from fairlead.app.environments import python_for, required
from fairlead.app.load import record_app, split_address
from fairlead.app.manifest import Manifest
from fairlead.app.secrets import public_environment
from fairlead.app.snapshot import Snapshot, is_snapshot, read_snapshot
from fairlead.errors import ConfigError, Fault

_TAIL_BYTES = 2000  # of what a file printed before it ended the process


class _Refusal(msgspec.Struct, frozen=True):
    """What the child says instead of a manifest."""

    source: str
    faults: tuple[tuple[str, str], ...]


class _Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    snapshot: Snapshot | None = None
    refusal: _Refusal | None = None


def describe(path: str | Path, timeout_s: float = 60.0) -> Manifest:
    """The manifest of an app file (or `app.py:name`), from a process that runs it and ends. Blocks.

    Raises `ConfigError` with what that process found wrong, also if it never came to an end.
    """
    return take_snapshot(path, timeout_s).manifest


def take_snapshot(path: str | Path, timeout_s: float = 60.0) -> Snapshot:
    """The manifest of an app file, and exactly the texts that it was read from. Otherwise as `describe`.

    An app with requirements is run in their environment, which is built where it is not there yet.
    """
    requirements = requirements_of(path)
    command = [python_for(requirements), "-P", "-m", "fairlead.app.describe", "--reply", str(path)]
    with tempfile.TemporaryFile() as printed:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=printed,
            start_new_session=True,
            env=public_environment(),
        )
        try:
            out, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise ConfigError(
                str(path), [Fault("", f"took more than {timeout_s:g} s to be described; move slow work into setup.")]
            ) from None
        finally:
            _end(child)
        try:
            reply = msgspec.json.decode(out, type=_Reply)
        except (msgspec.DecodeError, UnicodeDecodeError):
            reply = _Reply()
        if reply.refusal is not None:
            raise ConfigError(reply.refusal.source, [Fault(*fault) for fault in reply.refusal.faults])
        if reply.snapshot is None:
            raise ConfigError(str(path), [Fault("", _how_it_ended(child.returncode, printed))])
        return msgspec.structs.replace(reply.snapshot, requirements=requirements)


def requirements_of(path: str | Path) -> tuple[str, ...]:
    """The requirements of an app file or a snapshot. Raises `ConfigError`.

    There are none where the file cannot be read: whoever runs it says why.
    """
    file, _ = split_address(path)
    if is_snapshot(file):
        return read_snapshot(file).requirements
    try:
        return required(file, file.read_bytes())
    except OSError:
        return ()


def _end(child: "subprocess.Popen[bytes]") -> None:
    """The child is gone, with all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # its own group, of which it is the leader
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _how_it_ended(code: int, printed: BinaryIO) -> str:
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with {code}"
    size = printed.seek(0, os.SEEK_END)
    printed.seek(max(0, size - _TAIL_BYTES))
    tail = printed.read().decode(errors="replace").strip()
    return f"the process that was to describe it ended {how}." + (f" It printed last:\n{tail}" if tail else "")


def main(arguments: list[str]) -> int:
    """The child: run the file, print the manifest. With --reply, faults are printed as JSON too."""
    is_reply = arguments[:1] == ["--reply"]
    if len(arguments) != 1 + is_reply:
        sys.stderr.write("usage: python -m fairlead.app.describe APP.py[:NAME]\n")
        return 2
    path = arguments[-1]
    # From here on only we have the real stdout: a file that prints, in Python or C, cannot spoil the manifest.
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        app, sources = record_app(path)
        try:
            file, name = split_address(path)
            manifest = app.manifest()
            data = read_files(file.resolve().parent, app.files) | app.bundle()
            reply = _Reply(snapshot=Snapshot(str(file.resolve()), name, manifest, sources.files, data=data))
        except (OSError, ValueError) as error:
            raise ConfigError(path, [Fault("", str(error))]) from None
    except ConfigError as error:
        if not is_reply:
            sys.stderr.write(f"{error}\n")
            return 1
        reply = _Reply(refusal=_Refusal(error.source, tuple((fault.path, fault.message) for fault in error.faults)))
    text = msgspec.json.encode(reply)
    if reply.snapshot is not None and not is_reply:
        text = msgspec.json.format(msgspec.json.encode(reply.snapshot.manifest)) + b"\n"
    with os.fdopen(out, "wb") as stream:
        stream.write(text)
    return 0 if reply.refusal is None else 1


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that the file started do not keep the answer waiting
