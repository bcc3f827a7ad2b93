"""`fairlead warmup`: compile what is compiled when it is first used, so that no later command waits for it."""

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer

from fairlead.cli.compiling import ENGINE, FOLDER_VARIABLE, CompilingError, telling
from fairlead.planning.search import METHODS, Search
from fairlead.workload.traces import chunks, generate


@dataclass(frozen=True, kw_only=True)
class Part:
    """Something that is compiled: its name, the package whose functions they are, and what makes all of them.

    `takes` tells those who wait how long that is, on one core.
    """

    name: str
    package: str
    make: Callable[[], None]
    takes: str = "a few seconds"


def warmup(
    is_quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")] = False,
) -> None:
    """Compile the compiled engine and other machine code now, once, instead of when it is first used.

    The code is kept beside the source; where that cannot be written, in the user's cache; or in the folder that the
    environment variable NUMBA_CACHE_DIR names.
    """
    _check_folder()
    began = perf_counter()
    compiled = 0
    for part in PARTS:
        at = perf_counter()
        with telling(f"Compiling {part.name} (once; {part.takes})...", is_quiet=is_quiet) as told:
            part.make()
        compiled += told.count
        if told.count and not is_quiet:
            typer.echo(f"Compiled {part.name} in {perf_counter() - at:.1f} s.")
    if is_quiet:
        return
    if compiled:
        typer.echo(f"All is compiled, in {perf_counter() - began:.1f} s, and kept in {_folder()}.")
    else:
        typer.echo(f"Nothing to do: all is compiled already, and kept in {_folder()}.")


def _check_folder() -> None:
    """numba takes another folder without a word where the chosen one cannot be written; who chose one wants to know."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if not chosen:
        return
    try:
        Path(chosen).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=chosen).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise CompilingError(
            f"{FOLDER_VARIABLE}={chosen} cannot be written: {reason}. Set {FOLDER_VARIABLE} to a folder that can be "
            "written, or leave it out."
        ) from error


def _make_engine() -> None:
    """Every module of the package: what Python calls in them is compiled when they are loaded."""
    engine = import_module(ENGINE)
    for module in iter_modules(engine.__path__):
        import_module(f"{ENGINE}.{module.name}")


def _make_search() -> None:
    """These are compiled when they are first called, for the types that they are called with."""
    from fairlead.planning.search.preparing import corners  # noqa: PLC0415 - loads numba

    search = Search([[(1.0, 2.0), (2.0, 1.0)]] * 2)
    for method in METHODS:
        search.run(3.0, method=method)
    corners(np.zeros(1), np.zeros(1), 1)  # else only for fronts of many thousands


def _make_optimiser() -> None:
    """Likewise: a round of Bayesian optimisation over nine choices."""
    from fairlead.planning.bayesian import Effort, Space, expected_improvement, optimise  # noqa: PLC0415 - loads numba

    space = Space.of([[(1,), (2,), (3,)]] * 2)
    effort = Effort(initial=4, rounds=1, per_round=1, draws=2, restarts=1, raw=2)
    optimise(lambda choice: (float(sum(choice)), 0.0), space, np.random.default_rng(0), effort)
    expected_improvement(0.0, 1.0, 0.0)


def _make_streams() -> None:
    """Likewise: the calls of one minute."""
    next(chunks(generate(1, minutes=1, invocations=1)), None)


def _folder() -> Path:
    """Where the code of all parts lies: beside the source, that is the folder of the whole package."""
    return Path(os.path.commonpath([one.stats.cache_path for part in PARTS for one in kept_functions(part.package)]))


def kept_functions(package: str) -> list[Any]:
    """The compiled functions of a package that are kept on disk, as far as its modules are loaded."""
    from numba.core.dispatcher import Dispatcher  # noqa: PLC0415 - half a second

    found = {
        id(value): value
        for name, module in list(sys.modules.items())
        if name == package or name.startswith(f"{package}.")
        for value in vars(module).values()
        if isinstance(value, Dispatcher) and value.stats.cache_path
    }
    return list(found.values())


PARTS = (
    Part(name="the compiled engine", package=ENGINE, make=_make_engine, takes="one to two minutes"),
    Part(
        name="the configuration search",
        package="fairlead.planning.search",
        make=_make_search,
        takes="a quarter of a minute",
    ),
    Part(name="the Bayesian optimiser", package="fairlead.planning.bayesian", make=_make_optimiser),
    Part(name="the streams of traces", package="fairlead.workload.traces", make=_make_streams),
)
"""What there is to compile, the longest first."""
