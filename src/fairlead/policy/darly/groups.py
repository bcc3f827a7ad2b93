"""What moves together: the groups of functions of a workflow.

For the video workflow the framer, the detector, and the models (analyzer and recogniser), which the uploader follows.
Of any other workflow each function is a group of its own, and its last function follows the last group.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

VIDEO: Mapping[str, tuple[str, ...]] = {
    "framer": ("framer",),
    "detector": ("detector",),
    "models": ("analyzer", "recogniser"),
}


class Group(NamedTuple):
    """Functions that are moved and scaled as one, and those that follow: moved with them, never scaled."""

    name: str
    functions: tuple[str, ...]
    followers: tuple[str, ...] = ()

    @property
    def moved(self) -> tuple[str, ...]:
        """Everything that changes its node with the group."""
        return self.functions + self.followers


def parse_groups(text: str) -> dict[str, tuple[str, ...]]:
    """`framer=framer;models=analyzer,recogniser` as functions by group. Raises ValueError."""
    found: dict[str, tuple[str, ...]] = {}
    for part in filter(str.strip, text.split(";")):
        name, sign, listed = part.partition("=")
        functions = tuple(function.strip() for function in listed.split(","))
        if not sign or not name.strip() or not all(functions):
            raise ValueError(f"groups must be group=function,function with semicolons between; got {text!r}.")
        if name.strip() in found:
            raise ValueError(f"groups must name each group once; got {text!r}.")
        found[name.strip()] = functions
    functions = tuple(function for group in found.values() for function in group)
    if len(set(functions)) < len(functions):
        raise ValueError(f"groups must name each function once; got {text!r}.")
    return found


def groups_of(functions: Sequence[str], named: Mapping[str, tuple[str, ...]]) -> tuple[Group, ...]:
    """The groups of these functions, in the order of their use; whoever is in none follows the last.

    Args:
        functions: In the order in which workflows use them.
        named: As `parse_groups` gives them; empty for the usual ones.
    """
    unknown = [name for group in named.values() for name in group if name not in functions]
    if unknown:
        raise ValueError(f"groups names the function {unknown[0]!r}; there are {', '.join(functions)}.")
    chosen = dict(named)
    if not chosen and all(name in functions for group in VIDEO.values() for name in group):
        chosen = dict(VIDEO)
    if not chosen:
        chosen = {name: (name,) for name in (functions[:-1] or functions)}
    placed = {name for group in chosen.values() for name in group}
    followers = tuple(name for name in functions if name not in placed)
    *others, last = (Group(name, members) for name, members in chosen.items())
    return (*others, last._replace(followers=followers))


def counted(groups: Sequence[Group]) -> int:
    """The functions whose replicas are counted in the reward: all but those of the first group, as published."""
    return sum(len(group.functions) for group in (groups[1:] or groups))


def replicas_of(groups: Sequence[Group], last_replicas: int) -> int:
    """r of the reward: one replica of each function that is counted, and so many of those in the last group."""
    scaled = len(groups[-1].functions)
    return counted(groups) - scaled + scaled * last_replicas
