"""Darly: a trained agent moves and scales the functions of a workflow, so that requests meet their objective.

D. Giagkos, A. Tzenetopoulos, D. Masouros, D. Soudris, S. Xydis, "Darly: Deep Reinforcement Learning for QoS-aware
scheduling under resource heterogeneity. Optimizing serverless video analytics"; and D. Giagkos's diploma thesis (NTUA,
2022), chapters 5 and 6. Constants that neither gives are those of the author's public code, as described there.

**Differs from the paper:**

* What the agent sees is laid out as was meant, on a scale near 1; as it was published by a switch in training
  (`observation`).
* An agent decides at a control period, once a request has been answered that came after its last change; the authors
  send one request per decision. Where nothing is answered, one that waits and is too late stands in.
* A replica is `slots` instances, since an instance answers one call at a time.
* A group goes only where it fits and to a node that is up; what does not is refused like one replica too many. A group
  whose node is lost goes to the quickest with room.
* A move brings the new instances up before the old ones go, where there is room; the authors remove first.
* Kubernetes is a rule of ours that follows its scheduler (`rules`), on nodes that are otherwise empty.
* Live, counters other than C0, C1 and the rest are not on the scale of training; nothing was measured of these agents
  there.
* Other workflows and clusters: groups, actions and what is seen follow from them. Without an agent for them everything
  stays where it was put.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fairlead.model import Record
from fairlead.policy.base import Action, Policy, Site, View
from fairlead.policy.darly import arranging, rules
from fairlead.policy.darly.actions import MAX_REPLICAS, Act, Scheduler, action_space
from fairlead.policy.darly.checkpoint import Checkpoint, check_fits, read_checkpoint
from fairlead.policy.darly.deployed import Deployed
from fairlead.policy.darly.groups import VIDEO, counted, groups_of, parse_groups, replicas_of
from fairlead.policy.darly.network import forward
from fairlead.policy.darly.observation import COUNTERS, INPUT_CLASSES, Floats, observe
from fairlead.policy.darly.outcomes import Outcome, Outcomes
from fairlead.policy.darly.reward import REFUSED, Weights, reward
from fairlead.policy.kit.weights import fail

NODES = ("w01", "w02", "w03", "w04")
"""The nodes that the agents that come with Fairlead were trained for, with the groups of the video workflow."""


@dataclass
class Darly(Policy):
    """What the four schedulers share.

    Args:
        checkpoint: File of a trained agent (.safetensors); empty takes the one that comes with Fairlead, where groups
            and nodes are those that it was trained for, and otherwise none: everything stays where it was put.
        groups: What moves together, as `group=function,function` with semicolons between; the last is also scaled, and
            functions in none follow it. Empty: those of the video workflow, or each function by itself.
        slots: Instances that make a replica; at least 1. Fewer where so many do not fit.
        first_node: Where everything begins; empty: on the quickest node, or where Kubernetes would put it.
        max_replicas: Of the last group; at least 1.
        settle_s: After a change, how long nothing else is decided; not negative.
        remove_s: How much longer after a move of two replicas or more; not negative.
        input_class: 1 to 4, for 7, 16, 32 or 65 frames.
        epsilon: Chance of an action at random, in [0, 1].
    """

    paper: ClassVar[str] = "Darly (NTUA, 2022)"
    scheduler: ClassVar[Scheduler] = "fullmap"

    checkpoint: str = ""
    groups: str = ""
    slots: int = 4
    first_node: str = ""
    max_replicas: int = MAX_REPLICAS
    settle_s: float = 18.0
    remove_s: float = 15.0
    input_class: int = 2
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        self._named = parse_groups(self.groups)
        for name in ("slots", "max_replicas"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        for name in ("settle_s", "remove_s"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be finite and not negative; got {getattr(self, name)}.")
        if not 1 <= self.input_class <= INPUT_CLASSES:
            raise ValueError(f"input_class must be in [1, {INPUT_CLASSES}]; got {self.input_class}.")
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon must be in [0, 1]; got {self.epsilon}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._rng = rng
        order = dict.fromkeys(name for workflow in site.workflows.values() for name in workflow.functions)
        functions = (*order, *(name for name in site.functions if name not in order))
        self._groups = groups_of(functions, self._named)
        self._members = {group.name: group for group in self._groups}
        self._nodes = tuple(node.name for node in site.cluster.nodes)
        if self.first_node and self.first_node not in self._nodes:
            raise ValueError(f"first_node must be one of {', '.join(self._nodes)}; got {self.first_node!r}.")
        self._acts = action_space(self.scheduler, tuple(self._members), self._nodes)
        self._weights = Weights(most_replicas=float(self.max_replicas * counted(self._groups)))
        self._needs = arranging.needs_of(site)
        self._deployed = Deployed(self._groups, self._needs or {}, self.slots)
        self._agent = self._read()
        self._layers = self._agent.layers if self._agent else []
        self._outcomes = Outcomes(site.workflows)
        self._changed_at = self._settled_at = -np.inf
        self._is_refused = False
        self._noted: dict[str, float] = {}

    def _read(self) -> Checkpoint | None:
        names = tuple(self._members)
        if not self.checkpoint and (names, self._nodes) != (tuple(VIDEO), NODES):
            return None
        path = Path(self.checkpoint) if self.checkpoint else Path(__file__).with_name(f"{self.scheduler}.safetensors")
        if not self.checkpoint and not path.exists():
            train = f"fairlead train darly --scheduler {self.scheduler} --out FILE"
            fail(f"darly-{self.scheduler}", f"no trained agent comes with this version; train one with: {train}")
        found = read_checkpoint(path)
        check_fits(str(path), found.description, self.scheduler, names, self._nodes)
        return found

    def observe(self, record: Record) -> None:
        if self._agent is not None and self._needs is not None:  # nobody else takes what is kept
            self._outcomes.observe(record)

    def notes(self) -> Mapping[str, Mapping[str, float]]:
        """Of the last decision, for every function: the `action`'s index, its `value`, whether it `is_refused`, and the
        `reward` of the one before."""
        return {name: dict(self._noted) for group in self._groups for name in group.moved} if self._noted else {}

    def adjust(self, view: View) -> Iterator[Action]:
        if self._needs is None:
            return
        if not self._deployed.is_whole(view):
            wanted = self._deployed.places or self._first(view)
            self._change(view, self.settle_s)
            yield from self._deployed.arrange(view, wanted)
            return
        if self._agent is None or view.now < self._settled_at:
            return
        outcome = self._outcomes.take(view, self._changed_at)
        if outcome is not None:
            yield from self._decide(view, self._agent, outcome)

    def _first(self, view: View) -> Mapping[str, str]:
        """Where groups begin; without a wish, on the quickest node with room."""
        if self.scheduler != "kubernetes" or self.first_node:
            return dict.fromkeys(self._members, self.first_node)
        rooms, pods = self._rooms(view), self._pods()
        return rules.kubernetes_start(
            self._members, rooms, pods, self._rng.random(len(self._members)), daemons=self._daemons()
        )

    def _change(self, view: View, wait_s: float) -> None:
        self._changed_at, self._settled_at = view.now, view.now + wait_s

    def _decide(self, view: View, agent: Checkpoint, outcome: Outcome) -> Iterator[Action]:
        values = forward(self._layers, self._see(view, agent, outcome))
        index = int(np.argmax(values))
        if self.epsilon and self._rng.random() < self.epsilon:
            index = int(self._rng.integers(len(self._acts)))
        earned = REFUSED if self._is_refused else self._reward(outcome)
        act = self._acts[index]
        actions = self._carry_out(view, act, outcome)
        self._is_refused = actions is None
        self._noted = {
            "action": float(index),
            "value": float(values[index]),
            "reward": earned,
            "is_refused": float(self._is_refused),
        }
        yield from actions or ()

    def _see(self, view: View, agent: Checkpoint, outcome: Outcome) -> Floats:
        up, description = {node.name for node in view.nodes}, agent.description
        return observe(
            [view.signals(node) if node in up else (0.0,) * COUNTERS for node in self._nodes],
            [self._nodes.index(self._deployed.places[group]) + 1 for group in self._members],
            1,
            self._deployed.replicas,
            min(outcome.qos_s, 1e6),
            self.input_class,
            is_as_published=description.is_as_published,
            qos_scale_s=description.qos_scale_s,
            max_replicas=description.max_replicas,
        )

    def _reward(self, outcome: Outcome) -> float:
        return reward(
            outcome.latency_s,
            outcome.qos_s,
            nodes_used=len(set(self._deployed.places.values())),
            replicas=replicas_of(self._groups, self._deployed.replicas),
            groups=len(self._groups),
            weights=self._weights,
        )

    def _carry_out(self, view: View, act: Act, outcome: Outcome) -> list[Action] | None:
        """What brings an action about; None if it is refused."""
        if act.kind == "keep" or act.group is None:
            return []
        if act.kind == "move":
            return self._move(view, act.group, act.node or self._destination(view, act.group, outcome))
        replicas = self._deployed.replicas + (1 if act.kind == "out" else -1)
        actions = self._deployed.scale(view, replicas) if 1 <= replicas <= self.max_replicas else None
        if actions is not None:
            self._change(view, self.settle_s)
        return actions

    def _move(self, view: View, group: str, node: str) -> list[Action] | None:
        actions = self._deployed.move(view, group, node)
        if actions:
            is_many = group == self._groups[-1].name and self._deployed.replicas > 1
            self._change(view, self.settle_s + self.remove_s * is_many)
        return actions

    def _destination(self, view: View, group: str, outcome: Outcome) -> str:
        """Where a rule sends a group."""
        counters = {node.name: view.signals(node.name) for node in view.nodes}
        if self.scheduler == "custom":
            return rules.custom_node(counters)
        if self.scheduler == "oracle":
            assert self._needs is not None
            return rules.oracle_node(counters, outcome.is_within, arranging.by_speed(view.nodes, self._needs))
        places, rooms = self._deployed.places, self._rooms(view)
        best = rules.kubernetes_nodes(group, places, rooms, self._pods(), daemons=self._daemons())
        return rules.drawn(best, float(self._rng.random()))

    def _daemons(self) -> int:
        """Containers on every node that are nobody's here."""
        return 0

    def _rooms(self, view: View) -> dict[str, rules.Room]:
        return {node.name: rules.Room(node.vcpus, node.memory_gb) for node in view.nodes}

    def _pods(self) -> dict[str, int]:
        """Containers of each group."""
        counts = arranging.instances(self._groups, 1, self._deployed.replicas)
        return {group.name: sum(counts[name] for name in group.moved) for group in self._groups}


@dataclass
class Fullmap(Darly):
    """Let a trained agent choose what moves and where to, node by node."""

    scheduler: ClassVar[Scheduler] = "fullmap"


@dataclass
class Custom(Darly):
    """Let a trained agent choose what moves and where to; the models go to the least busy node."""

    scheduler: ClassVar[Scheduler] = "custom"


@dataclass
class Kubernetes(Darly):
    """Let a trained agent choose what moves; it goes where the scheduler of Kubernetes would put it.

    Args:
        allocatable: vCPUs that Kubernetes counts of a node, where they are not the node's own, as `node=vcpus` with
            commas between: such as twice as many where each core has two threads. Empty: the nodes' own, but 16 of
            w03 where the nodes are Darly's, as in training.
        daemons: Containers on every node that the scheduler counts besides ours; at least 0.
    """

    scheduler: ClassVar[Scheduler] = "kubernetes"

    allocatable: str = ""
    daemons: int = rules.DAEMONS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.daemons < 0:
            raise ValueError(f"daemons must not be negative; got {self.daemons}.")
        self._vcpus: dict[str, float] = {}
        for part in filter(str.strip, self.allocatable.split(",")):
            node, _, vcpus = part.partition("=")
            try:
                self._vcpus[node.strip()] = float(vcpus)
            except ValueError:
                self._vcpus[node.strip()] = np.nan
        if not all(0 < vcpus < np.inf and name for name, vcpus in self._vcpus.items()):
            raise ValueError(f"allocatable must be node=vcpus, with commas between; got {self.allocatable!r}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        super().prepare(site, rng)
        if strange := sorted(set(self._vcpus).difference(self._nodes)):
            there = ", ".join(self._nodes)
            raise ValueError(f"allocatable must name nodes; got {strange[0]!r}, there are {there}.")
        if not self.allocatable and self._nodes == NODES:
            self._vcpus = dict(rules.ALLOCATABLE)

    def _daemons(self) -> int:
        return self.daemons

    def _rooms(self, view: View) -> dict[str, rules.Room]:
        return {
            name: room._replace(vcpus=self._vcpus.get(name, room.vcpus)) for name, room in super()._rooms(view).items()
        }


@dataclass
class Oracle(Darly):
    """Let a trained agent choose what moves; it goes where profiles say."""

    scheduler: ClassVar[Scheduler] = "oracle"
