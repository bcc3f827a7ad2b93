"""Placements from outside: a user's function that says on which node the oldest waiting invocation goes.

A placement is `pick(now, function, deadline, free, warm) -> int`: `function` is the number of the function in its
scenario, `free` has the free thousandths of a vCPU of every node, `warm` the idle instances of this function on every
node. It answers with the number of a node, -1 to let it wait, or -2 to refuse the request. It is asked while the
oldest fits anywhere, and nobody overtakes.

`placement` compiles it; `python_placement` leaves it as it is, whatever it does. In Python, take `free.tolist()` before
a loop: single elements of small arrays are slow.
"""

from collections.abc import Callable
from ctypes import CFUNCTYPE, c_double, c_int64, c_void_p, cast
from operator import index
from typing import Any

import numpy as np
from numba import njit, types
from numba.core.errors import NumbaError

from fairlead.engine.sim.compiled import layout as at

Pick = Callable[[float, int, float, np.ndarray, np.ndarray], int]

_numbers = types.Array(types.int64, 1, "C", readonly=True)
PICK = types.int64(types.float64, types.int64, types.float64, _numbers, _numbers)
CALL = types.int64(types.float64, types.int64, types.float64)


class Placement:
    """A user's function, ready for a run. `rule` says how it is called."""

    def __init__(self, function: Pick, rule: int) -> None:
        self.function = function
        self.rule = rule
        self.name = getattr(function, "__name__", type(function).__name__)
        self.compiled: Any = _guarded(function, self.name) if rule == at.USER else None


def placement(function: Pick) -> Placement:
    """Compile a placement. What numba cannot compile is an error here, at once."""
    return Placement(function, at.USER)


def python_placement(function: Pick) -> Placement:
    """Call a placement as plain Python."""
    return Placement(function, at.CALLED)


def _guarded(function: Pick, name: str) -> Any:
    """The function as machine code; an exception inside becomes an answer that stops the run."""
    body: Any = njit(function)
    raised = at.RAISED
    takes = len(PICK.args)
    try:
        if body.py_func.__code__.co_argcount != takes:
            raise TypeError(f"The placement {name!r} must take {takes} arguments: now, function, deadline, free, warm.")
        body.compile(PICK.args)
        answers = body.nopython_signatures[0].return_type
        if not isinstance(answers, types.Integer):
            raise TypeError(f"The placement {name!r} must answer with a whole number; it answers with {answers}.")

        @njit(PICK)
        def pick(now, number, deadline, free, warm):  # type: ignore[no-untyped-def]
            try:
                answer = body(now, number, deadline, free, warm)
            except Exception:
                answer = raised
            return answer

    except NumbaError as error:
        why = next((line for line in str(error).splitlines() if line and not line.startswith("Failed in")), "")
        raise TypeError(
            f"The placement {name!r} cannot be compiled: {why} Use python_placement to call it as plain Python."
        ) from error
    return pick


@njit(PICK, cache=True)
def nobody(now, number, deadline, free, warm):  # type: ignore[no-untyped-def]
    """Stands where a run has no compiled placement."""
    return -1


class Called(types.WrapperAddressProtocol):
    """A Python function behind a pointer: what it raises is kept, and the loop is told to stop."""

    def __init__(self, function: Pick | None, free: np.ndarray, warm: np.ndarray) -> None:
        self.error: BaseException | None = None
        nodes, raised, whole = len(free), at.RAISED, int
        function = function or nobody.py_func

        def call(now: float, number: int, deadline: float) -> int:
            try:
                answer = function(now, number, deadline, free, warm)
                if type(answer) is not whole:
                    answer = index(answer)
                return answer if -2 <= answer < nodes else _out_of_range(answer, nodes)
            except BaseException as error:
                self.error = error
                return raised

        self._call = CFUNCTYPE(c_int64, c_double, c_int64, c_double)(call)

    def __wrapper_address__(self) -> int:
        address = cast(self._call, c_void_p).value
        assert address is not None
        return address

    def signature(self) -> Any:
        """What numba takes it for."""
        return CALL


def _out_of_range(answer: int, nodes: int) -> int:
    raise ValueError(f"it must answer with a node in 0..{nodes - 1}, -1 to wait or -2 to refuse; got {answer}.")
