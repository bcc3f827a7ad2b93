"""Hashes of what a run depends on: its scenario, and the source code that decides and simulates.

Two runs with equal hashes and seeds have equal results, so one of them need not be done.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import msgspec
import numpy as np

import fairlead
from fairlead.policy import policy_class

DECIDING = ("fairlead.policy", "fairlead.planning", "fairlead.profile", "fairlead.model")
"""Packages in which a policy's imports are followed."""

SIMULATING = (
    "fairlead.engine.core",
    "fairlead.engine.sim",
    "fairlead.workload",
    "fairlead.model",
    "fairlead.profile",
    "fairlead.monitor.modelled",
    "fairlead.report.metrics",
    "fairlead.report.counted",
    "fairlead.report.fairness",
    "fairlead.league.figures",
)
"""Packages and modules whose code determines the figures of every run, whichever policy decides."""

WITHOUT_EFFECT = ("fairlead.policy.registry", "fairlead.engine.sim.compiled", "fairlead.workload.parse")
"""Left out: the table of names, the engine that a league does not use, and the reader, whose result is hashed."""


def hash_value(value: object) -> str:
    """The hash of a value made of dataclasses, structs, mappings, sequences, numbers and texts; types count too.

    Raises `TypeError` for anything else: what cannot be compared must not be taken for equal.
    """
    digest = sha256()
    for part in _parts(value):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def simulator_hash() -> str:
    """The hash of the code that every run shares, and of the versions of Python and NumPy."""
    versions = f"python {sys.version_info.major}.{sys.version_info.minor}, numpy {np.__version__}"
    return hash_value((versions, _code_of(tuple(_modules_below(SIMULATING)), ("fairlead.policy.base",))))


@cache
def policy_hash(name: str) -> str:
    """The hash of the code that determines a policy's decisions: its module and all that this imports."""
    return module_hash(policy_class(name).__module__)


def module_hash(module: str) -> str:
    """The hash of a module, of what it imports within `DECIDING` and its own package, and of data files beside it."""
    top = module.partition(".")[0]
    within = DECIDING if top == fairlead.__name__ else (*DECIDING, top)
    return hash_value((_code_of(tuple(imported(module, within)), ()), _data_beside(module)))


def imported(module: str, within: Iterable[str]) -> list[str]:
    """The module and every module that it imports, directly or not, within these packages; sorted."""
    allowed = tuple(within)
    found: set[str] = set()
    left = [module]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            near = (name for name in _imports(one) if _is_below(name, allowed) and not _is_below(name, WITHOUT_EFFECT))
            left += [name for name in near if _path(name) is not None]
    return sorted(found)


def _parts(value: object) -> Iterator[str]:
    """A text for every leaf, and one for every type and bracket around it, so that different values differ."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        yield f"{type(value).__name__}:{value!r}"
    elif isinstance(value, np.generic):
        yield from _parts(value.item())
    elif isinstance(value, np.ndarray):
        yield from _parts(value.tolist())
    elif isinstance(value, msgspec.Struct):
        yield from _members(value, value.__struct_fields__)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _members(value, [field.name for field in fields(value)])
    elif isinstance(value, Mapping):
        yield "{"
        for key, item in value.items():
            yield from _parts(key)
            yield from _parts(item)
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        for item in value:
            yield from _parts(item)
        yield "]"
    elif isinstance(value, set | frozenset):
        yield "<"
        yield from sorted(hash_value(item) for item in value)
        yield ">"
    else:
        raise TypeError(f"a value of type {type(value).__qualname__} cannot be hashed by its content: {value!r}")


def _members(value: object, names: Iterable[str]) -> Iterator[str]:
    yield f"{type(value).__qualname__}("
    for name in names:
        yield name
        yield from _parts(getattr(value, name))
    yield ")"


def _code_of(modules: tuple[str, ...], more: tuple[str, ...]) -> str:
    return hash_value([(name, _source(name)) for name in (*modules, *more)])


def _modules_below(names: Iterable[str]) -> Iterator[str]:
    """Every module of these packages, in order; a module stands for itself."""
    for name in names:
        path = _path(name)
        assert path is not None, name
        files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
        for file in files:
            inside = file.relative_to(path.parent).with_suffix("").parts if path.name == "__init__.py" else ()
            module = ".".join((name, *inside)).removesuffix(".__init__")
            if not _is_below(module, WITHOUT_EFFECT):
                yield module


def _data_beside(module: str) -> list[tuple[str, str]]:
    """Name and hash of the files beside a module in a package of its own, other than code: tables, weights."""
    path = _path(module)
    if path is None or module.count(".") < 2 or module.rpartition(".")[0] in DECIDING:
        return []
    files = (file for file in sorted(path.parent.iterdir()) if file.is_file() and file.suffix not in (".py", ".pyc"))
    return [(file.name, sha256(file.read_bytes()).hexdigest()) for file in files]


@cache
def _imports(module: str) -> tuple[str, ...]:
    """What a module's import statements name, wherever they stand in it; not all of these are modules."""
    path = _path(module)
    if path is None:
        return ()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: list[str] = []
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            found += [start, *(f"{start}.{alias.name}" for alias in node.names)]
    return tuple(dict.fromkeys(found))


@cache
def _source(module: str) -> str:
    path = _path(module)
    assert path is not None, module
    return path.read_text(encoding="utf-8")


@cache
def _path(module: str) -> Path | None:
    """The source file of a module; None for what is no module, or one that is not written in Python."""
    top, _, rest = module.partition(".")
    if top == fairlead.__name__:  # without importing anything
        place = Path(fairlead.__file__).parent.joinpath(*rest.split(".")) if rest else Path(fairlead.__file__).parent
        found = [file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()]
        return found[0] if found else None
    try:
        spec = find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def _is_below(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
