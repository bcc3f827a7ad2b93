"""Infinity in JSON, which has none: a limit that is none must come back, so it is written as {"float": "inf"}."""

from math import isfinite


def tag_floats(value: object) -> object:
    """The same plain value with every float that JSON does not have put into words."""
    if isinstance(value, float) and not isfinite(value):
        return {"float": str(value)}
    if isinstance(value, dict):
        return {key: tag_floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [tag_floats(item) for item in value]
    return value


def untag_floats(value: object) -> object:
    """The value that `tag_floats` was given; a text that is no number is a ValueError."""
    if isinstance(value, dict):
        if value.keys() == {"float"} and isinstance(value["float"], str):
            return float(value["float"])
        return {key: untag_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [untag_floats(item) for item in value]
    return value
