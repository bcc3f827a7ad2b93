"""Names of apps, functions, workflows and nodes: they go into addresses, keys and metrics."""

import re

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")


def checked_name(name: object, kind: str) -> str:
    """This name, if it can be one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"the name of {kind} must be up to 63 letters, digits, '-' and '_', and begin with a letter; got {name!r}."
        )
    return name
