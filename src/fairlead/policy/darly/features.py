"""What an agent sees that has to serve any workflow on any cluster: numbers about each action, not about each node.

Beyond Darly, whose observation and actions are those of one application (the thesis leaves this open, 7.2.2). Every
action that can be taken is described by the same few numbers, and one network values each description by itself: its
weights know neither functions nor nodes. What an action would lead to is estimated from the profiles
(`fairlead.planning.deployment`); how far that holds, the agent learns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from fairlead.planning.deployment import Problem, Timetable, call_s
from fairlead.policy.darly.actions import Act
from fairlead.policy.darly.rules import idle_score

Features = NDArray[np.float32]

NAMES = (
    "is_move",
    "is_out",
    "is_in",
    "last",  # latency of the last request over the objective; 0 before the first
    "was_met",
    "now",  # estimated latency as things are, over the objective
    "then",  # and after the action
    "gain",
    "best",  # the least after any one move, or none
    "share",  # of the group in the time of one call of every function, without pressure
    "speed",  # of the node for the group, 1 for the quickest
    "idle",  # of the node
    "idle_here",  # of the group's present node
    "nodes",  # that would be used, over the groups
    "replicas",  # of the scaled group, over the most
)
_MOST = 4.0
_SHORTEST_S = 1e-9
AT_REST = 0.02
"""What C0 shows of a node on which nobody works."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """How things stand when an agent is asked."""

    problem: Problem
    places: Mapping[str, str]
    counters: Mapping[str, Sequence[float]]
    slo_s: float
    last_s: float | None
    scaled: str = ""
    replicas: int = 1
    most_replicas: int = 4
    pressures: Mapping[str, float] = field(default_factory=dict)
    known: Timetable | None = None  # of the same problem and pressures, where there is one

    @cached_property
    def table(self) -> Timetable:
        """What the stages take."""
        return self.known or Timetable(self.problem, self.pressures)


def pressures_of(counters: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Load from outside on each node, as its C0 shows while we are at rest."""
    return {node: max(0.0, 1 - idle_score(row) - AT_REST) for node, row in counters.items()}


def any_actions(groups: Sequence[str], nodes: Sequence[str], scaled: str) -> tuple[Act, ...]:
    """Every group to every node, one replica more or less of the scaled group, and nothing."""
    moves = tuple(Act("move", group, node) for group in groups for node in nodes)
    scaling = (Act("out", scaled), Act("in", scaled)) if scaled else ()
    return (*moves, *scaling, Act("keep"))


def allowed(acts: Sequence[Act], situation: Situation) -> NDArray[np.bool_]:
    """Which actions would change something that may be changed; nothing is always allowed."""
    found = [
        act.kind == "keep"
        or (act.kind == "move" and act.group is not None and situation.places[act.group] != act.node)
        or (act.kind == "out" and situation.replicas < situation.most_replicas)
        or (act.kind == "in" and situation.replicas > 1)
        for act in acts
    ]
    return np.array(found, np.bool_)


def is_sensible(rows: Features) -> NDArray[np.bool_]:
    """Which actions are estimated to meet the objective or to come closer to it, of rows as `describe` gives them."""
    then, gain = rows[:, NAMES.index("then")], rows[:, NAMES.index("gain")]
    sensible: NDArray[np.bool_] = (rows[:, NAMES.index("is_move")] == 0) | (then <= 1) | (gain > 0)
    return sensible


def after(situation: Situation, act: Act) -> Situation:
    """How things would stand after an action; the last request takes what it would have taken, as far as is known."""
    if act.kind != "move" or act.group is None or act.node is None:
        return replace(situation, replicas=replicas_after(situation, act), known=situation.table)
    table, last_s = situation.table, situation.last_s
    places = {**situation.places, act.group: act.node}
    if last_s is not None:
        now_s, then_s = table.latency_s(situation.places), table.latency_s(places)
        last_s *= then_s / now_s if 0 < now_s < inf else 1.0
    return replace(situation, places=places, last_s=last_s, known=table)


def replicas_after(situation: Situation, act: Act) -> int:
    """How many replicas the scaled group would have."""
    return situation.replicas + (act.kind == "out") - (act.kind == "in")


def describe(acts: Sequence[Act], situation: Situation) -> Features:
    """A row of `NAMES` for each action."""
    problem, places, slo_s = situation.problem, situation.places, situation.slo_s
    groups, nodes = list(problem.groups), [node.name for node in problem.cluster.nodes]
    table = situation.table
    now_s = table.latency_s(places)
    after = {(group, node): table.latency_s({**places, group: node}) for group in groups for node in nodes}
    best_s = min(min(after.values()), now_s)
    idle = {node: idle_score(situation.counters[node]) for node in nodes}
    times = {group: _times(problem, group, nodes) for group in groups}
    shares = {group: times[group][places[group]] for group in groups}
    total = sum(shares.values()) or 1.0
    last = 0.0 if situation.last_s is None else situation.last_s / slo_s
    rows = []
    for act in acts:
        group, node = act.group, act.node
        moved, then_s, speed, there = dict(places), now_s, 0.0, 0.0
        if act.kind == "move" and group is not None and node is not None:
            moved[group] = node
            then_s = after[group, node]
            speed = min(times[group].values()) / times[group][node]  # 0 where it cannot run
            there = idle[node]
        rows.append(
            (
                float(act.kind == "move"),
                float(act.kind == "out"),
                float(act.kind == "in"),
                last,
                float(situation.last_s is not None and last <= 1),
                now_s / slo_s,
                then_s / slo_s,
                (now_s - then_s) / slo_s,
                best_s / slo_s,
                shares[group] / total if group is not None else 0.0,
                speed,
                there,
                idle[places[group]] if group is not None else 0.0,
                len(set(moved.values())) / len(groups),
                situation.replicas / situation.most_replicas,
            )
        )
    described: Features = np.clip(np.nan_to_num(np.array(rows)), -_MOST, _MOST).astype(np.float32)
    return described


def _times(problem: Problem, group: str, nodes: Sequence[str]) -> dict[str, float]:
    """What the calls of a group take on each node, one after the other, without pressure; infinity where one cannot."""
    found = {node: sum(call_s(problem, f, node, 0.0) for f in problem.groups[group]) for node in nodes}
    return {node: max(seconds, _SHORTEST_S) for node, seconds in found.items()}
