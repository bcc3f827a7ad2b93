"""Checks that every learning environment makes before a step: has an episode begun, and is the action a legal number?

Compiled code indexes arrays with actions and trusts that an episode has begun, so both are checked here first.
"""

from operator import index
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairlead.errors import MissingExtraError

NOT_BEGUN = "no episode has begun"
IS_OVER = "the episode is over"

_largest, _WHOLE, _UNSIGNED = np.maximum.reduce, np.dtype(np.int64), np.dtype(np.uint64)


def raise_reset_needed(why: str) -> NoReturn:
    """Raises Gymnasium's `ResetNeeded`, with the reason and what to do."""
    try:
        from gymnasium.error import ResetNeeded  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise MissingExtraError("A learning environment", "Gymnasium", "learn") from error
    raise ResetNeeded(f"{why}: call reset() before step().")


def one_action(action: object, count: int) -> int:
    """Returns an action in [0, `count`) as an int.

    Accepts what is a whole number: Python and NumPy integers, and integer arrays with the shape () or (1,), such as
    `predict` of Stable-Baselines3 returns.

    Raises:
        ValueError: Anything else, among it booleans, floats, NaN, arrays of several actions, and numbers out of range.
    """
    value = action[0] if isinstance(action, np.ndarray) and action.shape == (1,) else action
    try:
        number = index(value)  # type: ignore[arg-type] # raises TypeError for what is no whole number
    except TypeError:
        number = -1
    if 0 <= number < count and value is not True and value is not False:
        return number
    raise ValueError(f"action must be a whole number from 0 to {count - 1}; got {_shown(action)}.")


def many_actions(actions: ArrayLike, size: int, count: int) -> NDArray[np.int64]:
    """Returns `size` actions, each in [0, `count`), as a contiguous array of 64-bit integers.

    Raises:
        ValueError: The shape is not (`size`,), the type is not an integer type, or an action is out of range.
    """
    if actions.__class__ is np.ndarray and actions.dtype is _WHOLE and actions.shape == (size,):
        chosen: NDArray[np.int64] = np.ascontiguousarray(actions)
        # Read as unsigned numbers, negative ones are the largest: one comparison checks both bounds.
        if int(_largest(chosen.view(_UNSIGNED))) < count:
            return chosen
    return _checked(actions, size, count)


def _checked(actions: ArrayLike, size: int, count: int) -> NDArray[np.int64]:
    """The same for any input; says what is wrong with it."""
    try:
        given = np.asarray(actions)
    except (TypeError, ValueError) as error:
        raise ValueError(f"actions must have {size} entries, all whole numbers; got {_shown(actions)}.") from error
    if given.shape != (size,):
        raise ValueError(f"actions must have {size} entries; got the shape {given.shape}.")
    if given.dtype.kind not in "iu":
        raise ValueError(f"actions must be whole numbers from 0 to {count - 1}; got the type {given.dtype}.")
    wrong = np.flatnonzero((given < 0) | (given >= count))
    if wrong.size:
        first = int(wrong[0])
        raise ValueError(f"actions must be whole numbers from 0 to {count - 1}; entry {first} is {given[first]}.")
    return np.ascontiguousarray(given, np.int64)


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray) and value.size != 1:
        return f"an array of the shape {value.shape}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
