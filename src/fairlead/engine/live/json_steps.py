"""JSON of large values in short steps.

The encoder holds the interpreter while it works, so one call on a large value keeps every other thread waiting, the
event loop's too. Cut into steps, others run in between.
"""

from typing import Any

from fairlead.engine.live.values import to_json

_STEP = 4096  # elements of one step
_FEW = 64  # elements of a step over containers; containers of at most this length may be part of one
_DEEPEST = 16  # levels that are cut into steps; what lies below is one step
_SCALARS = frozenset({str, int, float, bool, bytes, type(None)})


def json_in_steps(value: object) -> bytes:
    """The same bytes as `to_json`; for use in a thread."""
    parts: list[bytes] = []
    _add(value, parts, _DEEPEST)
    return b"".join(parts)


def _add(value: Any, parts: list[bytes], levels: int) -> None:
    if not levels:
        parts.append(to_json(value))
    elif _is_array(value) and value.ndim and value.size > _STEP:
        if value.ndim == 1:
            _add_all([value[first : first + _STEP] for first in range(0, len(value), _STEP)], parts, levels)
        else:
            _add_each(value, parts, levels)
    elif isinstance(value, list) and len(value) > _STEP:
        _add_all([value[first : first + _FEW] for first in range(0, len(value), _FEW)], parts, levels)
    elif isinstance(value, list) and value:
        _add_each(value, parts, levels)
    elif isinstance(value, dict) and value:
        sign = b"{"
        for key, each in value.items():
            parts += (sign, to_json({key: 0})[1:-2])  # the key as JSON has it, with its colon
            _add(each, parts, levels - 1)
            sign = b","
        parts.append(b"}")
    else:
        parts.append(to_json(value))


def _add_each(value: Any, parts: list[bytes], levels: int) -> None:
    """Add a list or an array element by element."""
    if isinstance(value, list) and set(map(type, value)) <= _SCALARS:
        parts.append(to_json(value))
        return
    sign = b"["
    for each in value:
        parts.append(sign)
        _add(each, parts, levels - 1)
        sign = b","
    parts.append(b"]")


def _add_all(pieces: list[Any], parts: list[bytes], levels: int) -> None:
    """Add a list that was cut into pieces, each in one step if nothing in it is large."""
    sign = b"["
    for piece in pieces:
        parts.append(sign)
        sign = b","
        if _is_array(piece) or all(type(each) in _SCALARS or _is_small(each) for each in piece):
            parts.append(to_json(piece)[1:-1])
        else:
            inner: list[bytes] = []
            _add_each(piece, inner, levels)
            inner[0], inner[-1] = inner[0][1:], inner[-1][:-1]  # without its brackets
            parts += inner
    parts.append(b"]")


def _is_small(value: object) -> bool:
    return isinstance(value, list | dict) and len(value) <= _FEW


def _is_array(value: object) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "ndim")
