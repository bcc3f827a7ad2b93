"""What an agent of Darly can do: four schedulers, each with a list of actions.

Order and content as published (Giagkos, diploma thesis, 6.2). What an agent moves is a *group* of functions: for the
video workflow the framer, the detector, and the models (analyzer and recogniser). The last group is also scaled.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Scheduler = Literal["fullmap", "custom", "kubernetes", "oracle"]
Kind = Literal["move", "out", "in", "keep"]

MAX_REPLICAS = 4


class Act(NamedTuple):
    """One action: move a group to a node (None: where a rule says), one replica more or less of it, or nothing."""

    kind: Kind
    group: str | None = None
    node: str | None = None

    def kind_of(self) -> str:
        """Without the destination: what was moved or scaled."""
        return "keep" if self.group is None else f"{self.kind} {self.group}"

    def __str__(self) -> str:
        if self.kind == "move":
            return f"move {self.group}" if self.node is None else f"move {self.group} to {self.node}"
        return self.kind if self.group is None else f"{self.group} {self.kind}"


def action_space(scheduler: Scheduler, groups: Sequence[str], nodes: Sequence[str]) -> tuple[Act, ...]:
    """Every action of a scheduler; an agent answers with an index into it."""
    if not groups or not nodes:
        raise ValueError("an action space needs at least one group and one node.")
    last = groups[-1]
    scaling = (Act("out", last), Act("in", last))
    if scheduler == "fullmap":
        moves = [Act("move", group, node) for group in groups for node in nodes]
        return (*moves, *scaling, Act("keep"))
    if scheduler == "custom":
        moves = [Act("move", group, node) for group in groups[:-1] for node in nodes]
        return (*moves, Act("move", last), *scaling, Act("keep"))
    return (*(Act("move", group) for group in groups), Act("keep"))
