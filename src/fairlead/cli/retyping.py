"""What to type to do the same again."""

from collections.abc import Sequence
from shlex import join


def retyped(command: Sequence[str], *options: Sequence[object]) -> str:
    """A command with its options, each given as (name, value, default), where value and default differ.

    A flag has the value True; an argument has no name.
    """
    words = list(command)
    for name, value, default in options:
        if value != default:
            words += [str(name)] if name else []
            words += [] if value is True else [str(value)]
    return join(words)
