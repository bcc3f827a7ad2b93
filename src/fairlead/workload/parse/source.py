"""Where scenario files come from: a path, or the name of one that is shipped."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from fairlead.errors import ConfigError, Fault, UnknownNameError
from fairlead.workload.parse.document import MAX_BYTES, parse_document

_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Document:
    """A scenario that was made, not read from a file: what it is called in errors, its data, where its paths start."""

    source: str
    name: str
    data: Mapping[object, object]
    folder: Path = Path()

    def __str__(self) -> str:
        return self.source


def shipped_scenarios() -> dict[str, str]:
    """Every scenario that comes with Fairlead: its name, and what it is in one line."""
    shipped = _shipped()
    documents = {name: parse_document(file.read_bytes(), name) for name, file in shipped.items()}
    return {name: str(document.get("description", "")) for name, document in documents.items()}


def read_source(source: str | Path | Document) -> tuple[Mapping[object, object], str, Path]:
    """The data of a scenario, its default name, and the folder that its own paths start from.

    Raises `UnknownNameError` for what can only be a name, `ConfigError` for a file that cannot be read.
    """
    if isinstance(source, Document):
        return source.data, source.name, source.folder
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
