"""Environments: the packages that an app requires, in a virtual environment of its own, one per set of requirements.

An app says `App("shop", requirements="requirements.txt")` or lists them. They are read from the text of the app file
without running it, since the file itself may import what they bring. Each machine that runs instances of the app builds
the environment once, with pip; packages that are installed beside Fairlead are found in it too, and the app's own come
first. Two versions of an app with different requirements so run side by side.
"""

import ast
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from pathlib import Path
from sysconfig import get_path

from fairlead.app.secrets import public_environment
from fairlead.errors import ConfigError, Fault

LIMIT_S = 600.0
"""How long pip may take for one environment."""

MOST_BYTES = 1 << 16
"""Size limit of an app's requirements."""

_UNUSED_S = 30 * 86400.0  # an environment that was not used for so long is deleted by whoever builds the next one
_TAIL = 2000  # characters of what pip said that are shown
_READY = "ready"


def required(file: Path, source: bytes | str) -> tuple[str, ...]:
    """The requirements that an app file names, as lines of a requirements file; read without running it.

    Raises `ConfigError` where they are not written as a text or a list of texts, or their file cannot be read.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()  # running it says so, at which line
    lines: dict[str, None] = {}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _called(call.func) == "App":
            for keyword in call.keywords:
                if keyword.arg == "requirements":
                    lines.update(dict.fromkeys(_lines(file, keyword.value)))
    if sum(len(line.encode()) + 1 for line in lines) > MOST_BYTES:
        raise ConfigError(str(file), [Fault("requirements", f"must have at most {MOST_BYTES >> 10} KiB.")])
    return tuple(lines)


def _called(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _lines(file: Path, value: ast.expr) -> list[str]:
    where = f"line {value.lineno}"
    try:
        found = ast.literal_eval(value)
    except (ValueError, TypeError):
        found = None
    if isinstance(found, str) and found:
        beside = file.parent / found
        try:
            text = beside.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(str(file), [Fault(where, f"requirements: {beside} cannot be read: {error}.")]) from None
        return [line for raw in text.splitlines() if (line := raw.strip()) and not line.startswith("#")]
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) and each.strip() for each in found):
        what = "requirements must be written out: the name of a file, or a list of texts. They are read before the "
        raise ConfigError(str(file), [Fault(where, f"{what}file is run.")])
    return [each.strip() for each in found]


def default_folder() -> Path:
    """Where this user's environments are kept."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fairlead" / "environments"


def digest_of(requirements: Sequence[str]) -> str:
    """Names an environment: its requirements, and what Fairlead itself runs with."""
    parts = (sys.version, sys.prefix, *requirements)
    return sha256("\n".join(parts).encode()).hexdigest()[:24]


def python_for(requirements: Sequence[str], folder: Path | None = None) -> str:
    """The Python with these packages, whose environment is built where it is not there yet. Blocks, for minutes.

    Raises `ConfigError` with what pip said.
    """
    if not requirements:
        return sys.executable
    found = known_python(requirements, folder)
    return found if found is not None else _build(requirements, folder or default_folder())


def known_python(requirements: Sequence[str], folder: Path | None = None) -> str | None:
    """The Python with these packages; None where its environment has to be built first."""
    if not requirements:
        return sys.executable
    place = (folder or default_folder()) / digest_of(requirements)
    try:
        os.utime(place / _READY)
    except OSError:
        return None
    return str(place / "bin" / "python")


def _build(requirements: Sequence[str], folder: Path) -> str:
    place = folder / digest_of(requirements)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(place.with_suffix(".lock")):
            found = known_python(requirements, folder)
            if found is not None:
                return found  # another process was quicker
            shutil.rmtree(place, ignore_errors=True)
            _prune(folder)
            try:
                return _make(requirements, place)
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise
    except OSError as error:
        raise _failed(requirements, f"{error.filename or folder}: {error.strerror or error}") from None


def _make(requirements: Sequence[str], place: Path) -> str:
    until = time.monotonic() + LIMIT_S
    _run(requirements, [sys.executable, "-m", "venv", "--without-pip", str(place)], until)
    python = place / "bin" / "python"
    inside = place / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    beside = dict.fromkeys((get_path("purelib"), get_path("platlib")))
    lines = [f"import site; site.addsitedir({path!r})" for path in beside]
    # After its own packages come those beside Fairlead, Fairlead included; editable ones have files of their own there.
    (inside / "beside-fairlead.pth").write_text("\n".join(lines) + "\n")
    wanted = place / "requirements.txt"
    wanted.write_text("\n".join(requirements) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--no-input"]
    _run(requirements, [*pip, "install", "--quiet", "-r", str(wanted)], until)
    (place / _READY).touch()
    return str(python)


def _run(requirements: Sequence[str], command: Sequence[str], until: float) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=public_environment(),
            timeout=max(1.0, until - time.monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(requirements, f"it took more than {LIMIT_S:g} s") from None
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip()[-_TAIL:]
        raise _failed(requirements, said or f"{command[2]} ended with {done.returncode}")


def _failed(requirements: Sequence[str], why: str) -> ConfigError:
    listed = ", ".join(requirements[:5]) + (", ..." if len(requirements) > 5 else "")
    return ConfigError("requirements", [Fault("", f"no environment with {listed[:300]} can be made: {why}")])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _prune(folder: Path) -> None:
    """Delete the environments that nothing has used for long, and those that were never finished."""
    oldest = time.time() - _UNUSED_S
    for place in [path for path in folder.iterdir() if path.is_dir()]:
        lock = place.with_suffix(".lock")
        with suppress(OSError):
            mark = place / _READY if (place / _READY).exists() else place
            if mark.stat().st_mtime > oldest:
                continue
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
            finally:
                os.close(descriptor)
