"""Where scenario files come from: a path, or the name of one that is shipped."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from fairlead.errors import ConfigError, Fault, UnknownNameError
from fairlead.workload.parse.document import MAX_BYTES, parse_document

_SUFFIXES = (".yaml", ".yml")
_EXTENDS_MOST = 8  # files that extend each other


@dataclass(frozen=True)
class Document:
    """A scenario that was made, not read from a file: what it is called in errors, its data, where its paths start."""

    source: str
    name: str
    data: Mapping[object, object]
    folder: Path = Path()

    def __str__(self) -> str:
        return self.source


def shipped_names() -> tuple[str, ...]:
    """The name of every scenario that comes with Fairlead, in order. No file is read for it."""
    return tuple(_shipped())


def shipped_scenarios() -> dict[str, str]:
    """Every scenario that comes with Fairlead: its name, and what it is in one line."""
    shipped = _shipped()
    documents = {name: parse_document(file.read_bytes(), name) for name, file in shipped.items()}
    return {name: str(document.get("description", "")) for name, document in documents.items()}


def read_source(source: str | Path | Document) -> tuple[Mapping[object, object], str, Path]:
    """The data of a scenario, its default name, and the folder that its own paths start from.

    A file that `extends` another is that one with its own settings over it, key by key; lists are replaced whole,
    and what is set to null is left out.
    Raises `UnknownNameError` for what can only be a name, `ConfigError` for a file that cannot be read.
    """
    if isinstance(source, Document):
        return source.data, source.name, source.folder
    data, name, folder = _read_one(source)
    seen = [str(source)]
    while "extends" in data:
        base = data["extends"]
        if not isinstance(base, str) or not base:
            raise ConfigError(
                seen[-1], [Fault("extends", f"must be a file or a shipped scenario's name; got {base!r}.")]
            )
        where = folder / base if _looks_like_a_path(base) else base
        if str(where) in seen or len(seen) > _EXTENDS_MOST:
            raise ConfigError(
                seen[-1], [Fault("extends", f"leads back or too far: {' -> '.join([*seen, str(where)])}.")]
            )
        seen.append(str(where))
        data = _over(_read_one(where)[0], {key: value for key, value in data.items() if key != "extends"})
    return data, name, folder


def _over(base: Mapping[object, object], own: Mapping[object, object]) -> dict[object, object]:
    """A mapping with another over it; what that sets to nothing is left out."""
    merged = dict(base)
    for key, value in own.items():
        below = merged.get(key)
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _read_one(source: str | Path) -> tuple[Mapping[object, object], str, Path]:
    if not isinstance(source, Path) and not _looks_like_a_path(source):
        shipped = _shipped()
        if source in shipped:
            return parse_document(shipped[source].read_bytes(), source), source, Path()
        if not Path(source).exists():
            raise UnknownNameError("scenario", source, shipped)
    path = Path(source)
    return parse_document(_read(path), str(path)), path.stem, path.parent


def _looks_like_a_path(source: str) -> bool:
    return "/" in source or "\\" in source or source.endswith(_SUFFIXES)


def _shipped() -> dict[str, Traversable]:
    folder = files("fairlead") / "experiments" / "scenarios"
    found = [file for file in folder.iterdir() if file.name.endswith(_SUFFIXES)] if folder.is_dir() else []
    by_name = {file.name.rpartition(".")[0]: file for file in found}
    return dict(sorted(by_name.items()))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)  # one more than allowed, so that endless files end too
    except IsADirectoryError:
        message = "is a folder, not a scenario file."
    except FileNotFoundError:
        message = "there is no such file."
    except (OSError, ValueError) as error:  # ValueError: a path that no file system takes
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}."
    raise ConfigError(str(path), [Fault("", message)])
