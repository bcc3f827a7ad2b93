"""Running an app file: where it is, which app in it, and whose fault it was."""

import sys
import traceback
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType, TracebackType

from fairlead.app.bundle import unpack
from fairlead.app.declare import App
from fairlead.app.snapshot import is_snapshot, read_snapshot
from fairlead.app.sources import Sources
from fairlead.errors import ConfigError, Fault

_OWN = str(Path(__file__).parent)


IN_FOLDER = "app.py"
"""The file that stands for an app whose address is a folder."""


def split_address(address: str | Path) -> tuple[Path, str | None]:
    """`app.py:name` as file and name; without a name, None. A folder stands for the `app.py` in it, if there is one."""
    path, sign, name = str(address).rpartition(":")
    file = _file(Path(path))
    if sign and name.isidentifier() and file.suffix == ".py":
        return file, name
    return _file(Path(address)), None


def no_app_in(folder: Path) -> ConfigError:
    """The error about a folder that has no `app.py`, with the folders in it that have one."""
    below = sorted(str(file.parent) for file in folder.glob(f"*/{IN_FOLDER}"))
    hint = f"Name one of these: {', '.join(below)}." if below else "Name the app file."
    return ConfigError(str(folder), [Fault("", f"is a folder without an {IN_FOLDER}. {hint}")])


def _file(path: Path) -> Path:
    inside = path / IN_FOLDER
    return inside if inside.is_file() else path


def load_app(path: str | Path, name: str | None = None) -> App:
    """Run an app file in a module of its own and give the app in it.

    `name` (or a path such as `app.py:name`) says which, if there are several. A folder stands for the `app.py` in it.
    The file's folder comes first on `sys.path`, as when Python runs it. A snapshot stands for the file that it was made
    from: the text is the snapshot's, the path is the file's, or, where the snapshot has data files, that of a folder
    with those. Raises `ConfigError`, which says what was wrong in the
    file, and at which line.
    """
    file, named = split_address(path)
    if is_snapshot(file):
        snapshot = read_snapshot(file)
        origin, named = Path(snapshot.path), snapshot.app
        file = unpack(file, snapshot.data) / origin.name if snapshot.data else origin
        sources = Sources(file.parent, snapshot.files)
        sources.install()
        return _app_in(_run(file, sources.text(file)), file, name or named)
    return _app_in(_run(file, _read(file)), file, name or named)


def load_module(file: Path) -> ModuleType:
    """Run a Python file in a module of its own, as `load_app` does. Raises `ConfigError`."""
    return _run(file, _read(file))


def record_app(path: str | Path) -> tuple[App, Sources]:
    """The app of a file as `load_app` gives it, and the texts of all modules of its own folder that it imports.

    For a process of its own: it stays in the way of imports.
    """
    file, name = split_address(path)
    source = _read(file)
    sources = Sources(file.resolve().parent)
    sources.install()
    app = _app_in(_run(file, source), file, name)
    sources.files[file.resolve().name] = decode_source(source)
    sources.complete()
    return app, sources


def _app_in(module: ModuleType, file: Path, name: str | None) -> App:
    found = {each: value for each, value in vars(module).items() if isinstance(value, App)}
    if name is not None:
        if name not in found:
            listed = ", ".join(found) or "none"
            raise ConfigError(str(file), [Fault("", f"there is no app {name!r} in it. Those there are: {listed}.")])
        return found[name]
    if not found:
        raise ConfigError(str(file), [Fault("", "there is no app in it; declare one: app = App('name').")])
    if len({id(app) for app in found.values()}) > 1:
        message = f"there are several apps in it: {', '.join(found)}. Name one, such as {file}:{next(iter(found))}."
        raise ConfigError(str(file), [Fault("", message)])
    return next(iter(found.values()))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except IsADirectoryError:
        raise no_app_in(file) from None
    except OSError as error:
        raise ConfigError(str(file), [Fault("", f"cannot be read: {error.strerror or error}.")]) from None


def _run(file: Path, source: bytes | str) -> ModuleType:
    module = ModuleType(f"fairlead_app_{file.stem}")
    module.__file__ = str(file.resolve())
    folder = str(file.resolve().parent)
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    sys.modules[module.__name__] = module  # dataclasses, for one, look a class's module up there
    try:
        # Compiled here, not imported: a cached compilation goes by whole seconds, and a file may be replaced faster.
        exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        raise ConfigError(str(file), [_fault(error, module.__file__)]) from None
    return module


def _fault(error: BaseException, file: str) -> Fault:
    """What the file raised, with the line of it; the way there only if it goes through other code of the user's."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return Fault(f"line {error.lineno}", f"{type(error).__name__}: {error.msg}.")
    frames = traceback.extract_tb(_from(error.__traceback__, file))
    lines = [frame.lineno for frame in frames if frame.filename == file]
    where = f"line {lines[-1]}" if lines else ""
    if isinstance(error, SystemExit):
        return Fault(where, f"it ends the process ({error.code!r}); put that under if __name__ == '__main__'.")
    if isinstance(error, ValueError | ConfigError) and frames and frames[-1].filename.startswith(_OWN):
        return Fault(where, str(error))  # ours, about what the line declares: our own lines would not help
    what = "".join(traceback.format_exception_only(error)).strip()
    tail = "".join(traceback.format_list(frames)).rstrip()
    return Fault(where, f"{what}\n{tail}" if len(frames) > 1 else what)


def _from(trace: TracebackType | None, file: str) -> TracebackType | None:
    """The part of a traceback that begins in this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace
