"""The Python sources of an app: recorded while it is described, and loaded from that record afterwards.

Both directions go through the import system, just before the finder that searches `sys.path`. While recording, modules
below the app's own folder are found as always, and their text is kept as it is compiled. Afterwards the same modules
are compiled from the kept text, under their original paths: `__file__`, data files beside the app and the lines in
tracebacks are those of the app's folder, whatever became of the files there.
"""

import ast
import linecache
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

_PACKAGE = Path(__file__).resolve().parent.parent
_INSTALLED = frozenset({"site-packages", "dist-packages", "__pycache__"})


class _Loader(SourceFileLoader):
    """Loads a module from the text in `Sources`, without a cached compilation: what is kept is what runs."""

    def __init__(self, name: str, path: str, sources: "Sources") -> None:
        super().__init__(name, path)
        self._sources = sources

    def get_code(self, fullname: str) -> CodeType | None:
        return self.source_to_code(self.get_source(fullname), self.path)

    def get_source(self, fullname: str) -> str:
        return self._sources.text(Path(self.path))


class Sources(MetaPathFinder):
    """The texts of the modules in an app's own folder, by their path relative to it.

    Args:
        folder: The app's folder.
        kept: What was recorded before; None to record.
    """

    def __init__(self, folder: Path, kept: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.files = dict(kept or {})
        self._is_recording = kept is None
        self._names = {part for name in self.files for part in (*Path(name).parts[:-1], Path(name).stem)}

    def install(self) -> None:
        """Take part in imports of this process, from now on."""
        place = next((i for i, finder in enumerate(sys.meta_path) if finder is PathFinder), len(sys.meta_path))
        sys.meta_path.insert(place, self)

    def text(self, path: Path) -> str:
        """The text of a file in the folder: as kept, or, while recording, as it is now."""
        name = path.relative_to(self.folder).as_posix()
        if name not in self.files and self._is_recording:
            self.files[name] = decode_source(path.read_bytes())
        elif str(path) not in linecache.cache:  # tracebacks show the lines that run, not those of a later edit
            text = self.files[name]
            linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
        return self.files[name]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of the app's own; None leaves it to the other finders."""
        return self._record(fullname, path, target) if self._is_recording else self._replay(fullname, path)

    def _record(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader):
            return spec
        origin = Path(os.path.realpath(spec.origin))
        if self._is_own(origin):
            spec.loader = _Loader(fullname, str(origin), self)
            spec.cached = None
        return spec

    def _replay(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        tail = fullname.rpartition(".")[2]
        if tail not in self._names:
            return None
        for entry in sys.path if path is None else path:
            base = Path(os.path.realpath(entry or "."))
            if not base.is_relative_to(self.folder):
                if PathFinder.find_spec(fullname, [entry]) is not None:
                    return None
                continue
            for file, inside in ((base / tail / "__init__.py", [str(base / tail)]), (base / f"{tail}.py", None)):
                if file.relative_to(self.folder).as_posix() in self.files:
                    loader = _Loader(fullname, str(file), self)
                    return spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=inside)
            below = f"{(base / tail).relative_to(self.folder).as_posix()}/"
            if any(name.startswith(below) for name in self.files):
                spec = ModuleSpec(fullname, None, is_package=True)  # a folder without __init__.py
                spec.submodule_search_locations = [str(base / tail)]
                return spec
        return None

    def complete(self) -> None:
        """Record also what is imported only later, inside functions, as far as import statements name it."""
        unread = list(self.files)
        while unread:
            name = unread.pop()
            try:
                tree = ast.parse(self.files[name])
            except (SyntaxError, ValueError, RecursionError):
                continue  # it is imported by nothing that has run so far
            for module in _imported(tree, Path(name).parent):
                for found in (module / "__init__.py", module.with_name(f"{module.name}.py")):
                    path = self.folder / found
                    if found.as_posix() not in self.files and path.is_file() and self._is_own(path):
                        try:
                            self.text(path)
                        except (OSError, SyntaxError, UnicodeDecodeError):
                            continue
                        unread.append(found.as_posix())

    def _is_own(self, path: Path) -> bool:
        if not path.is_relative_to(self.folder) or path.is_relative_to(_PACKAGE) or path.suffix != ".py":
            return False
        parts = path.relative_to(self.folder).parts
        if any(part in _INSTALLED or part.startswith(".") for part in parts):
            return False
        installed = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
        return not any(path.is_relative_to(each) and each.is_relative_to(self.folder) for each in installed)


def _imported(tree: ast.AST, package: Path) -> Iterator[Path]:
    """The modules that a text may import, as paths without suffix relative to the app's folder."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _steps(Path(), alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = Path()
            if node.level:
                parts = package.parts
                if node.level - 1 > len(parts):
                    continue
                base = Path(*parts[: len(parts) - (node.level - 1)])
            yield from _steps(base, node.module or "")
            for alias in node.names:
                yield from _steps(base, ".".join(filter(None, (node.module, alias.name))))


def _steps(base: Path, dotted: str) -> Iterator[Path]:
    for part in filter(str.isidentifier, dotted.split(".")):
        base /= part
        yield base
