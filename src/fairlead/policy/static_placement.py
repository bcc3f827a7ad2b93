"""Every function where it was put, whatever happens there.

A baseline, not a paper: what a deployment with node selectors does, and what Darly is compared with.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairlead.policy.base import Action, Move, Policy, Scale, Site, View


@dataclass
class StaticPlacement(Policy):
    """Keep so many replicas of every function on a node that does not change.

    Args:
        placement: Where each function is, as `function=node` with commas between; `*` stands for all that are not
            named. A function without a node is placed where there is most room.
        replicas: Of each function; at least 1.
    """

    placement: str = ""
    replicas: int = 1

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"replicas must be at least 1; got {self.replicas}.")
        parts = [part for part in self.placement.split(",") if part.strip()]
        if any(part.count("=") != 1 or not all(side.strip() for side in part.split("=")) for part in parts):
            raise ValueError(f"placement must be function=node, with commas between; got {self.placement!r}.")
        pairs = [(function.strip(), node.strip()) for function, node in (part.split("=") for part in parts)]
        self._nodes = dict(pairs)
        if len(self._nodes) < len(pairs):
            raise ValueError(f"placement must name each function once; got {self.placement!r}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        known = {node.name for node in site.cluster.nodes}
        for function, node in self._nodes.items():
            if function != "*" and function not in site.functions:
                raise ValueError(f"placement names the function {function!r}; there are {', '.join(site.functions)}.")
            if node not in known:
                raise ValueError(f"placement names the node {node!r}; there are {', '.join(sorted(known))}.")
        self._wanted = {name: self._nodes.get(name, self._nodes.get("*")) for name in site.functions}
        self._moved: set[str] = set()

    def adjust(self, view: View) -> Iterator[Action]:
        for function, node in self._wanted.items():
            scaled = view.scaled(function)
            if scaled is None or scaled.instances != self.replicas:
                yield Scale(function, self.replicas)
                self._moved.discard(function)
            if node is not None and function not in self._moved:
                self._moved.add(function)
                yield Move(function, node)
