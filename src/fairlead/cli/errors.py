"""From an exception to one message and an exit code: 0 done, 1 failed or not met, 2 wrong use."""

import os
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec

import typer

from fairlead.errors import (
    ConfigError,
    FairleadError,
    MissingExtraError,
    PolicyError,
    UncoveredError,
    UnknownNameError,
    plain,
)

FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130

TRACEBACK = "FAIRLEAD_TRACEBACK"
"""The environment variable that asks for tracebacks."""

Arguments = ParamSpec("Arguments")


class UsageError(FairleadError):
    """What was typed cannot be done as it stands."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An exception as values that pass between processes; most exceptions do not."""

    message: str
    code: int
    traceback: str
    is_fault: bool = False  # of Fairlead or of a policy, where the traceback tells more than the message

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        """The failure that this exception stands for."""
        if isinstance(error, FairleadError):
            message = str(error)
        else:
            message = f"Unforeseen, so a fault in Fairlead or in a policy: {_first_line(error)}"
        is_wrong_use = isinstance(
            error, UsageError | ConfigError | UnknownNameError | UncoveredError | MissingExtraError
        )
        return cls(
            message=message,
            code=WRONG_USE if is_wrong_use else FAILED,
            traceback="".join(traceback.format_exception(error)),
            is_fault=not isinstance(error, FairleadError) or isinstance(error, PolicyError),
        )


def show_failure(failure: Failure) -> None:
    """Print the message, and the traceback or how to get it."""
    if os.environ.get(TRACEBACK):
        typer.echo(failure.traceback, err=True, nl=False)
    typer.echo(f"Error: {plain(failure.message)}", err=True)
    if failure.is_fault and not os.environ.get(TRACEBACK):
        typer.echo(f"Set {TRACEBACK}=1 to see where it was raised.", err=True)


def warn(message: str) -> None:
    """Print a warning, which leaves the exit code as it is."""
    typer.echo(f"Warning: {plain(message)}", err=True)


def guarded(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """The command with every exception turned into a message and an exit code."""

    @wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()  # here, so that a reader that has gone is noticed here
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # the reader has seen enough, as in `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered has to go somewhere at exit
            raise typer.Exit(FAILED) from None
        except Exception as error:
            is_of_text = isinstance(error, UnicodeError)
            failure = Failure.of((_of_texts(kwargs.values()) if is_of_text else None) or error)
            show_failure(failure)
            raise typer.Exit(failure.code) from None

    return run


def _of_texts(values: Iterable[object]) -> UsageError | None:
    """The error about texts of the command line that are no UTF-8; None where all of them are. Paths may be any."""
    for value in values:
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str) and any("\udc80" <= letter <= "\udcff" for letter in text):
                return UsageError(f"{text!r} is no text in UTF-8.")
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
