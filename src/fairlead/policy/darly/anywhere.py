"""darly-any: one trained agent that moves the functions of any workflow on any cluster.

Beyond Darly, whose agents know one application on one cluster; its thesis leaves open what becomes of others (D.
Giagkos, diploma thesis, NTUA 2022, 7.2.2), and whether an objective can be met at all. The network values descriptions
of actions, one by one (`features`), so that its weights know neither functions nor nodes. It is served with NumPy.

**Differs from the paper:**

* What is seen and done follows from the workflow, the cluster and the profiles. Estimates come from the planner
  (`fairlead.planning.deployment`).
* Where no placement is estimated to meet the objective, everything goes where it is estimated to be quickest, and
  stays there.
* In one turn each group may move once: the agent is asked again as if the move had been made, until it keeps all as it
  is. In training it moves one group for each request.
* No move is made that is estimated to miss the objective, unless requests get quicker by it, and none at all in a turn
  whose moves together neither make requests quicker nor use fewer nodes. In training every move is made, and costs
  nothing.
* The load from outside is what the runtime reports of it (`View.pressure`). In training it is C0 while no request runs;
  with requests under way, C0 contains them.
* Of several workflows, the one that is closest to its objective, or furthest beyond, is the one that is looked at.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from msgspec import structs

from fairlead.model import Record
from fairlead.planning.deployment import Places, Problem, Timetable, improved
from fairlead.policy.base import Action, Policy, Site, View
from fairlead.policy.darly import arranging
from fairlead.policy.darly.actions import MAX_REPLICAS, Act
from fairlead.policy.darly.beliefs import Beliefs
from fairlead.policy.darly.checkpoint import read_any
from fairlead.policy.darly.deployed import Deployed
from fairlead.policy.darly.features import (
    AT_REST,
    Situation,
    after,
    allowed,
    any_actions,
    describe,
    is_sensible,
    replicas_after,
)
from fairlead.policy.darly.groups import Group, groups_of, parse_groups
from fairlead.policy.darly.network import Layer, forward
from fairlead.policy.darly.outcomes import Outcomes
from fairlead.policy.kit.weights import fail

SHIPPED = "any.safetensors"

_C0 = 4
_NOTICED = 0.05  # a change of pressure that is worth a decision: measured ones never stand still
_WORTH = 0.05  # of the time of a request: less is not worth a move where the objective is missed either way
_QUICKER = 0.02  # the same where it is met: a change starts instances
_LONGEST_S = 1e6  # in place of an objective that is infinite


class Choice(NamedTuple):
    """What a turn came to: what to do one after the other, and why."""

    acts: tuple[Act, ...]
    value: float
    now_s: float
    best_s: float
    is_doable: bool


@dataclass
class Anywhere(Policy):
    """Let one trained agent move the functions of any workflow from node to node.

    Args:
        checkpoint: File of a trained agent (.safetensors); empty takes the one that comes with Fairlead.
        groups: What moves together, as `group=function,function` with semicolons between; functions in none follow the
            last. Empty: each function by itself.
        slots: Instances of each function; at least 1. Fewer where so many do not fit.
        first_node: Where everything begins; empty: on the quickest node with room.
        workers: Calls of mapped stages that the dispatcher has under way at a time, for the estimates; at least 1.
        settle_s: After a change, how long nothing else is decided; not negative.
        scaled: The group whose replicas may be scaled; empty: none. The agent that comes with Fairlead was not trained
            for it.
        max_replicas: Of that group; at least 1.
        doable: Whether an objective that no placement is estimated to meet is given up: everything goes to where it is
            quickest, and stays. Without, the agent tries.
    """

    paper: ClassVar[str] = "after Darly (NTUA, 2022)"

    checkpoint: str = ""
    groups: str = ""
    slots: int = 1
    first_node: str = ""
    workers: int = 4
    settle_s: float = 5.0
    scaled: str = ""
    max_replicas: int = MAX_REPLICAS
    doable: bool = True

    def __post_init__(self) -> None:
        self._named = parse_groups(self.groups)
        for name in ("slots", "workers", "max_replicas"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if not 0 <= self.settle_s < inf:
            raise ValueError(f"settle_s must be finite and not negative; got {self.settle_s}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._layers = self._read()
        self._groups = self._group(site)
        names = [group.name for group in self._groups]
        nodes = [node.name for node in site.cluster.nodes]
        if self.first_node and self.first_node not in nodes:
            raise ValueError(f"first_node must be one of {', '.join(nodes)}; got {self.first_node!r}.")
        if self.scaled and self.scaled not in names:
            raise ValueError(f"scaled must be one of {', '.join(names)}; got {self.scaled!r}.")
        needs = arranging.needs_of(site)
        self._is_for_us = needs is not None
        self._deployed = Deployed(self._groups, needs or {}, self.slots)
        self._beliefs = Beliefs(site, needs or {})
        self._cluster, self._workflows = site.cluster, site.workflows
        self._outcomes = {name: Outcomes({name: workflow}) for name, workflow in site.workflows.items()}
        self._slos_s = {name: min(flow.slo.latency_s, _LONGEST_S) for name, flow in site.workflows.items()}
        self._last_s: dict[str, float] = {}  # by workflow: of requests that came after the last change
        self._changed_at = self._settled_at = -inf
        self._seen: Mapping[str, float] | None = None  # pressures at the last decision
        self._is_told = False  # whether a request was answered since then
        self._noted: dict[str, float] = {}

    def _read(self) -> list[Layer]:
        path = Path(self.checkpoint) if self.checkpoint else Path(__file__).with_name(SHIPPED)
        if not self.checkpoint and not path.exists():
            train = "fairlead train darly --scheduler any --out FILE"
            fail("darly-any", f"no trained agent comes with this version; train one with: {train}")
        return read_any(path).layers

    def _group(self, site: Site) -> tuple[Group, ...]:
        """The groups, the scaled one last."""
        order = dict.fromkeys(name for workflow in site.workflows.values() for name in workflow.functions)
        functions = (*order, *(name for name in site.functions if name not in order))
        found = groups_of(functions, self._named or {name: (name,) for name in functions})
        return tuple(sorted(found, key=lambda group: group.name == self.scaled))

    def observe(self, record: Record) -> None:
        if not self._is_for_us:
            return
        self._beliefs.observe(record)
        if record.workflow in self._outcomes:
            self._outcomes[record.workflow].observe(record)

    def notes(self) -> Mapping[str, Mapping[str, float]]:
        """Of the last decision, for every function: `is_doable`, how many groups it `moved`, the `value` of its first
        action, and what a request is estimated to take (`now_s`) and could take at best (`best_s`)."""
        return {name: dict(self._noted) for group in self._groups for name in group.moved} if self._noted else {}

    def adjust(self, view: View) -> Iterator[Action]:
        if not self._is_for_us:
            return
        deployed = self._deployed
        if not deployed.is_whole(view):
            self._change(view)
            yield from deployed.arrange(view, deployed.places or dict.fromkeys(deployed.members, self.first_node))
            return
        pressures = {node.name: view.pressure(node.name) for node in view.nodes}
        self._beliefs.look(view, pressures)
        self._hear(view)
        if view.now < self._settled_at or not self._has_news(pressures):
            return
        self._seen, self._is_told = pressures, False
        choice = self._choose(view, pressures)
        self._noted = {
            "is_doable": float(choice.is_doable),
            "moved": float(sum(act.kind == "move" for act in choice.acts)),
            "value": choice.value,
            "now_s": min(choice.now_s, _LONGEST_S),
            "best_s": min(choice.best_s, _LONGEST_S),
        }
        if not choice.acts:
            return
        self._change(view)
        for act in choice.acts:
            actions = self._carry_out(view, act)
            if actions is None:  # another group has to make room first
                self._seen = None
            yield from actions or ()

    # --- what has happened -----------------------------------------------------------------------------------------

    def _change(self, view: View) -> None:
        self._changed_at, self._settled_at = view.now, view.now + self.settle_s
        self._last_s.clear()

    def _hear(self, view: View) -> None:
        """Take in how requests went that came after the last change."""
        for name, outcomes in self._outcomes.items():
            outcome = outcomes.take(view, self._changed_at)
            if outcome is not None:
                before_s = self._last_s.get(name, inf)
                self._is_told |= abs(outcome.latency_s - before_s) > _NOTICED * self._slos_s[name]
                self._is_told |= outcome.is_within != (before_s <= self._slos_s[name])
                self._last_s[name], self._slos_s[name] = outcome.latency_s, min(outcome.qos_s, _LONGEST_S)

    def _has_news(self, pressures: Mapping[str, float]) -> bool:
        seen = self._seen
        if self._is_told or seen is None or seen.keys() != pressures.keys():
            return True
        return any(abs(pressure - seen[node]) > _NOTICED for node, pressure in pressures.items())

    # --- what is decided -------------------------------------------------------------------------------------------

    def _choose(self, view: View, pressures: Mapping[str, float]) -> Choice:
        name, table = self._most_urgent(view, pressures)
        problem = table.problem
        places = {group: self._deployed.places[group] for group in problem.groups}
        slo_s, now_s = self._slos_s[name], table.latency_s(places)

        def is_possible(found: Places, group: str) -> bool:
            everywhere = {**self._deployed.places, **found}
            return self._deployed.holds(view, everywhere, group, self._deployed.replicas)

        best_s, best = improved(problem, places, pressures, is_possible=is_possible)
        is_doable = best_s <= slo_s
        if self.doable and not is_doable:
            is_worth = best_s < now_s * (1 - _WORTH)
            moves = [Act("move", group, node) for group, node in best.items() if places[group] != node]
            return Choice(tuple(moves) if is_worth else (), 0.0, now_s, best_s, is_doable)
        situation = Situation(
            problem=problem,
            places=places,
            counters={node.name: self._at_rest(view, node.name, pressures) for node in view.nodes},
            slo_s=slo_s,
            last_s=self._last_s.get(name),
            scaled=self.scaled if self.scaled in problem.groups else "",
            replicas=self._deployed.replicas,
            most_replicas=self.max_replicas,
            pressures=pressures,
            known=table,
        )
        acts, value = self._ask(view, situation)
        return Choice(acts, value, now_s, best_s, is_doable)

    def _most_urgent(self, view: View, pressures: Mapping[str, float]) -> tuple[str, Timetable]:
        """The workflow whose requests take most of their objective, by the last ones or else as estimated."""
        cluster = structs.replace(self._cluster, nodes=view.nodes)
        found: list[tuple[float, str, Timetable]] = []
        for name, workflow in self._workflows.items():
            own = {group.name: tuple(f for f in group.moved if f in workflow.functions) for group in self._groups}
            problem = Problem(
                workflow=workflow,
                profiles=self._beliefs.times,
                cluster=cluster,
                groups={group: functions for group, functions in own.items() if functions},
                workers=self.workers,
            )
            table, last_s = Timetable(problem, pressures), self._last_s.get(name)
            takes_s = table.latency_s(self._deployed.places) if last_s is None else last_s
            found.append((takes_s / self._slos_s[name], name, table))
        _, name, table = max(found, key=lambda one: one[0])  # of equals, the first
        return name, table

    def _at_rest(self, view: View, node: str, pressures: Mapping[str, float]) -> tuple[float, ...]:
        """The counters of a node, with a C0 as if nothing of ours were under way there."""
        counters = list(view.signals(node))
        counters[_C0] = min(counters[_C0], pressures[node] + AT_REST)
        return tuple(counters)

    def _ask(self, view: View, situation: Situation) -> tuple[tuple[Act, ...], float]:
        """What the agent wants done, one after the other until it wants nothing more, and how it values the first."""
        wanted: list[Act] = []
        begun = situation
        first: float | None = None
        nodes = [node.name for node in view.nodes]
        while True:
            touched = {act.group for act in wanted}
            every = any_actions(list(situation.problem.groups), nodes, situation.scaled)
            acts = [act for act in every if act.group not in touched]
            rows = describe(acts, situation)
            is_allowed = allowed(acts, situation) & is_sensible(rows)
            is_allowed &= [self._has_room(view, act, situation) for act in acts]
            values = np.where(is_allowed, forward(self._layers, rows)[:, 0], -np.inf)
            act, value = acts[int(values.argmax())], float(values.max())
            first = value if first is None else first
            if act.kind == "keep":
                return (tuple(wanted) if _is_worth_it(begun, situation, wanted) else ()), first
            wanted.append(act)
            situation = after(situation, act)

    def _has_room(self, view: View, act: Act, situation: Situation) -> bool:
        if act.group is None:
            return True
        places = {**self._deployed.places, **situation.places}
        if act.kind == "move" and act.node is not None:
            return self._deployed.holds(view, {**places, act.group: act.node}, act.group, situation.replicas)
        return self._deployed.holds(view, places, act.group, replicas_after(situation, act))

    def _carry_out(self, view: View, act: Act) -> list[Action] | None:
        assert act.group is not None
        if act.kind == "move":
            assert act.node is not None
            return self._deployed.move(view, act.group, act.node)
        return self._deployed.scale(view, self._deployed.replicas + (1 if act.kind == "out" else -1))


def _is_worth_it(before: Situation, then: Situation, acts: Sequence[Act]) -> bool:
    """Whether actions make requests quicker, use fewer nodes, or scale."""
    if any(act.kind != "move" for act in acts) or len(set(then.places.values())) < len(set(before.places.values())):
        return True
    return then.table.latency_s(then.places) < before.table.latency_s(before.places) * (1 - _QUICKER)
