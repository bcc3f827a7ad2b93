"""What is said while machine code is made: that takes a minute or two, once, and a silent minute looks like a hang.

numba takes half a second to load, so it is imported where compiled code is about to be used, and nowhere else.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from time import perf_counter

import typer
from rich.console import Console

from fairlead.errors import FairleadError

ENGINE = "fairlead.engine.sim.compiled"
FOLDER_VARIABLE = "NUMBA_CACHE_DIR"


class CompilingError(FairleadError):
    """Machine code cannot be kept."""


class Compiled:
    """What was compiled, rather than loaded from disk, while this listened."""

    def __init__(self, message: str, is_quiet: bool) -> None:
        self.count = 0
        self._message = message
        self._is_quiet = is_quiet
        self._shown = ExitStack()

    def start(self) -> None:
        """One more function is being compiled."""
        self.count += 1
        if self.count > 1 or self._is_quiet:
            return
        console = Console(stderr=True, highlight=False)
        if console.is_terminal and not console.is_dumb_terminal:
            self._shown.enter_context(console.status(self._message))
        else:
            typer.echo(self._message, err=True)

    def stop(self) -> None:
        """Show nothing any more."""
        self._shown.close()


@contextmanager
def telling(message: str, *, is_quiet: bool = False) -> Iterator[Compiled]:
    """Say so as soon as anything of ours has to be compiled; what is loaded from disk is no news.

    Raises:
        CompilingError: The machine code cannot be kept.
    """
    from numba.core import event  # noqa: PLC0415 - see above

    told = Compiled(message, is_quiet)

    class Listener(event.Listener):  # type: ignore[misc,unused-ignore]
        def on_start(self, event: object) -> None:
            told.start()

        def on_end(self, event: object) -> None:
            pass

    try:
        with event.install_listener("numba:compile", Listener()):
            yield told
    except OSError as error:
        raise CompilingError(f"Machine code cannot be kept: {error}. {_advice()}") from error
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        raise CompilingError(f"There is no folder in which machine code can be kept. {_advice()}") from error
    finally:
        told.stop()


def load_engine(*, is_quiet: bool = False) -> float:
    """Load the compiled engine, which is compiled first if need be; gives the seconds that it took."""
    began = perf_counter()
    with telling("Compiling the engine (once; a minute or two)...", is_quiet=is_quiet):
        import_module(ENGINE)
    return perf_counter() - began


def _advice() -> str:
    return f"Set {FOLDER_VARIABLE} to a folder that can be written."
