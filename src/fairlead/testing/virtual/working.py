"""What a function of a virtual instance can do: take virtual time, and die.

Functions run in this process, at once. How long they took is what they asked for with `sleep`, not what they needed.
"""

from collections.abc import Callable
from contextlib import redirect_stderr
from contextvars import ContextVar
from io import StringIO
from typing import TypeVar

T = TypeVar("T")

_spent_s: ContextVar[list[float] | None] = ContextVar("fairlead_virtual_spent_s", default=None)


class Died(BaseException):
    """Raised by a function whose instance is to end, as a crash of its process would."""


def sleep(seconds: float) -> None:
    """Take virtual time. For functions of apps on virtual time, instead of `time.sleep`."""
    spent = _spent_s.get()
    if spent is None:
        raise RuntimeError("sleep() of fairlead.testing.virtual works in functions of a virtual instance only.")
    spent[0] += seconds


def die(error: str = "it was killed by SIGKILL") -> None:
    """End the instance that runs this function, with this error."""
    raise Died(error)


def timed(work: Callable[[], T]) -> tuple[float, T | Died]:
    """How much virtual time some work took, and what it gave; or how it died. What it prints as errors is dropped."""
    spent = [0.0]
    token = _spent_s.set(spent)
    result: T | Died
    try:
        with redirect_stderr(StringIO()):
            result = work()
    except Died as died:
        result = died
    except SystemExit as exit:
        result = Died(f"it ended with exit code {exit.code}")
    finally:
        _spent_s.reset(token)
    return spent[0], result
