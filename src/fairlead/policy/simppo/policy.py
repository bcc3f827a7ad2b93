"""SIMPPO: one trained agent per function scales it, and sees the others as one virtual agent.

H. Qiu et al., "SIMPPO: A Scalable and Incremental Online Learning Framework for Serverless Resource Management", ACM
SoCC 2022. Read as the published slides, and as the code of a successor from the same group (AWARE), which still has
SIMPPO's sizes; the paper's text was not at hand.

**Differs from the paper:**

* What an agent sees of itself and of the others, on which scale, and the reward are our definitions: see `observation`
  and `reward`.
* Agents are trained in the simulator (`fairlead train simppo`) and served here from a file; without one, by a network
  that comes with Fairlead, one for all functions, trained on twelve small functions.
* A function without an agent of its own is served by that of the most alike one in time on one vCPU.
* Faults, which the slides leave open: where an agent gives no usable answer, its function was not measured, or too
  little is known of the others, a rule takes over (`guard`, `rule`).
* An action for which there is no room is left out, and rewarded like one that is refused.
* Agents can be in processes of their own (`hosts`), and be retrained while they serve (`retraining`); runs with either
  depend on the clock, and their decisions cannot be replayed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fairlead.model import Configuration, Record
from fairlead.policy.base import Action, Policy, Resize, Scale, Site, View
from fairlead.policy.kit.ladder import vcpu_rungs
from fairlead.policy.kit.measuring import Measures, Meter, stage_goals
from fairlead.policy.simppo import reward as worth
from fairlead.policy.simppo.agents import Agents, Networks, agent_numbers
from fairlead.policy.simppo.checkpoint import Checkpoint, read_checkpoint
from fairlead.policy.simppo.guard import Fault, Flags, Guard, Recall, Rescue, faults_of
from fairlead.policy.simppo.hosts import Hosts
from fairlead.policy.simppo.observation import Floats, observe, state_of
from fairlead.policy.simppo.retraining import Explorers, Period, Retraining
from fairlead.policy.simppo.room import Room
from fairlead.policy.simppo.rule import Need, relief, staffed
from fairlead.policy.simppo.rungs import Size, rungs_of, within_bounds
from fairlead.policy.simppo.site import describe_site
from fairlead.policy.simppo.watch import Rule, Trigger

Mode = Literal["act", "shadow"]
Retrain = Literal["off", "process"]
SHIPPED = Path(__file__).with_name("shared.safetensors")
_LOADING_S = 15.0  # for processes to load their agents, before the first control period


@dataclass
class Simppo(Policy):
    """Let trained agents scale each function, once per control period.

    Args:
        checkpoint: File of trained agents (.safetensors); empty takes the one that comes with Fairlead.
        mode: `act`, or `shadow`: agents decide, but the rule acts.
        draws: Whether agents draw their actions by their chances, as in training, and do not take the likeliest.
        first_replicas: Replicas at the first control period.
        min_replicas: Of each function; at least 1, so that none is left without.
        stale_periods: For how many periods what was last measured of a function stands in; at least 0.
        recover_periods: After how many good periods in a row an agent decides again; at least 1.
        rescue: A function over so many times its SLO for two periods falls to the rule until it is within; 0 for none.
        hosts: Processes over which agents are spread; 0 keeps them in this one. For live runs, as is `retrain`.
        answer_s: How long the answers of those processes may take, above 0.
        retrain: `process` retrains agents whose reward has fallen, in a program beside this one (needs PyTorch).
        trigger: When to: `relative` to the reward at the end of training, or `absolute` (0.6 per step, as published).
        episode_periods: Control periods of an episode, ten of which are judged; at least 1.
        retrain_steps: Control periods to learn from at a time; at least 8.
    """

    paper: ClassVar[str] = "SIMPPO (SoCC 2022)"

    checkpoint: str = ""
    mode: Mode = "act"
    draws: bool = False
    first_replicas: int = 2
    min_replicas: int = 1
    stale_periods: int = 3
    recover_periods: int = 3
    rescue: float = 3.0
    hosts: int = 0
    answer_s: float = 0.05
    retrain: Retrain = "off"
    trigger: Trigger = "relative"
    episode_periods: int = 20
    retrain_steps: int = 100

    def __post_init__(self) -> None:
        self._agents: Agents | None = None
        self._retraining: Retraining | None = None
        for name, choices in (("mode", Mode), ("retrain", Retrain), ("trigger", Trigger)):
            if getattr(self, name) not in get_args(choices):
                raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}; got {getattr(self, name)!r}.")
        for name, least in (("min_replicas", 1), ("recover_periods", 1), ("episode_periods", 1), ("retrain_steps", 8)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}; got {getattr(self, name)}.")
        if self.first_replicas < self.min_replicas:
            raise ValueError(f"first_replicas must be at least min_replicas; got {self.first_replicas}.")
        for name in ("stale_periods", "hosts", "rescue"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative; got {getattr(self, name)}.")
        if not self.answer_s > 0:
            raise ValueError(f"answer_s must be positive; got {self.answer_s}.")
        if self.hosts and self.retrain != "off":
            raise ValueError(f"retrain must be 'off' with hosts, whose agents stay as they are; got {self.retrain!r}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self.close()
        trained = read_checkpoint(Path(self.checkpoint) if self.checkpoint else SHIPPED)
        self._description = trained.description
        most = max(trained.description.most_replicas, self.first_replicas)
        rungs = {
            name: rungs_of(
                [Configuration(vcpus=vcpus) for vcpus in vcpu_rungs(site.profiles[name], function, site.cluster)],
                function.memory_gb,
                least=self.min_replicas,
                most=most,
            )
            for name, function in site.functions.items()
        }
        self._all_functions = tuple(site.functions)
        self._functions = tuple(name for name, own in rungs.items() if own.vcpus)
        self._rungs = tuple(rungs[name] for name in self._functions)
        self._sizes = [own.first(self.first_replicas) for own in self._rungs]
        self._site = describe_site(
            site.cluster,
            {name: site.functions[name] for name in self._functions},
            site.workflows,
            site.profiles,
            most_replicas=most,
        )
        self._meter = Meter(self._functions, stage_goals(site.workflows, site.profiles))
        times = {
            name: site.profiles[name].latency_s(Configuration(vcpus=own.vcpus[own.first(1).rung]))
            for name, own in zip(self._functions, self._rungs, strict=True)
        }
        self._make_agents(trained, agent_numbers(trained.description.agents, times), rng)
        many = len(self._functions)
        self._guard, self._recall = Guard(many, self.recover_periods), Recall(many, self.stale_periods)
        self._rescue = Rescue(many, self.rescue)
        self._before = self._last = np.zeros(many, np.int64)
        self._is_refused: Flags = np.zeros(many, np.bool_)
        self._is_begun = False
        self._changed: set[int] = set()  # numbers of functions that were acted on in this control period
        self._noted: tuple[list[Size], Floats] = [], np.zeros((0, 5))  # made into notes when they are asked for

    def close(self) -> None:
        """End the processes of agents and of retraining, if there are any; they also end with this process."""
        if self._agents is not None:
            self._agents.close()
        if self._retraining is not None:
            self._retraining.close()

    def observe(self, record: Record) -> None:
        self._meter.observe(record)

    def adjust(self, view: View) -> Iterator[Action]:
        measures = self._measure(view)
        is_first, self._is_begun = not self._is_begun, True
        self._changed.clear()
        try:
            yield from self._begin(view) if is_first else self._act(view, measures)
        finally:  # also if an action is refused, which ends the call
            self._meter.open(view, None if is_first else self._changed)

    def _begin(self, view: View) -> Iterator[Action]:
        """A first replica for everybody, and further ones if everybody found room."""
        for name, own, size in zip(self._functions, self._rungs, self._sizes, strict=True):
            yield Scale(name, own.least, own.configuration(size))
        if not all(any(i.is_replica for i in view.instances(name)) for name in self._functions):
            self._sizes = [
                replace(size, replicas=own.least) for own, size in zip(self._rungs, self._sizes, strict=True)
            ]
        for name, own, size in zip(self._functions, self._rungs, self._sizes, strict=True):
            if size.replicas > own.least:
                yield Scale(name, size.replicas)

    def _measure(self, view: View) -> Measures:
        """What the last control period brought; a number that is not finite is one that is missing."""
        return self._meter.close(view)

    def notes(self) -> Mapping[str, Mapping[str, float]]:
        """Of the last control period: the agent's reward and choice, whether it decided, and what it would have."""
        found: dict[str, dict[str, float]] = {}
        for name, own, size, noted in zip(self._functions, self._rungs, *self._noted, strict=False):
            reward, action, is_agent, fault, is_retraining = map(float, noted)
            shadow = own.after(size, int(action)) or size
            found[name] = {
                "reward": reward,
                "action": action,
                "is_agent": is_agent,
                "fault": fault,
                "is_retraining": is_retraining,
                "shadow_replicas": float(shadow.replicas),
                "shadow_vcpus": own.vcpus[shadow.rung],
            }
        return found

    def _act(self, view: View, measured: Measures) -> Iterator[Action]:
        assert self._agents is not None
        measures, is_measured, is_known = self._recall.fill(measured)
        state = state_of(measures, self._site, is_known, self._meter.period_s)
        seen = observe(state, self._site, self._description.encoding, *worth.steps(self._last))
        sizes = [self._size(view, i) for i in range(len(self._functions))]
        allowed = within_bounds(self._rungs, self._sizes, self._description.actions)
        answers = self._agents.choose(seen, allowed)
        faults = faults_of(answers, allowed, is_measured, is_known)
        is_starved = is_measured & (measures.vcpus <= 0) & np.array([size is not None for size in sizes], np.bool_)
        gives = relief(self._rungs, self._sizes, measures.vcpus, is_starved) if is_starved.any() else {}
        is_lost = self._rescue.judge(measures.slowest_s / self._site.slo_s)
        is_agent = self._guard.judge(faults == 0) & ~is_starved & ~is_lost & (self.mode == "act")
        faults = np.where((faults == 0) & is_lost, Fault.LOST, faults)
        is_agent[list(gives)] = False
        weight, is_aware = self._description.slo_weight, self._description.is_workflow_aware
        rewards = worth.rewards(
            state, self._last, self._before, self._is_refused, slo_weight=weight, is_workflow_aware=is_aware
        )
        if self._retraining is not None:
            is_agent = is_agent & ~self._retraining.is_demoted
            self._retraining.observe(Period(rewards, seen, allowed, answers, is_agent, is_measured))
        is_needed = np.zeros(len(answers)) if self._retraining is None else self._retraining.watch.is_needed
        self._noted = list(self._sizes), np.stack([rewards, answers, is_agent, faults, is_needed], axis=1)
        self._before, self._last = self._last, np.where(is_agent, answers, worth.NOTHING)
        self._is_refused = np.zeros(len(answers), np.bool_)
        room = Room(view, self._all_functions, is_full=bool(is_starved.any()))
        self._changed.update(i for i, size in enumerate(sizes) if size is None)
        chosen, is_own, is_seen = answers.tolist(), is_agent.tolist(), is_measured.tolist()  # quicker one by one
        for i, size in enumerate(sizes):
            if size is None:  # an operator gave it back to the policies
                yield Scale(self._functions[i], self._sizes[i].replicas, self._rungs[i].configuration(self._sizes[i]))
                continue
            if i in gives:
                wanted = gives[i]
            elif is_own[i]:
                own = self._sizes[i]
                wanted = own if chosen[i] == worth.NOTHING else self._rungs[i].after(own, chosen[i]) or own
            elif is_seen[i]:
                wanted = staffed(self._rungs[i], self._sizes[i], self._need(view, measures, i, bool(is_starved[i])))
            else:
                wanted = self._sizes[i]  # nothing is known: nothing is changed
            if wanted == size:
                self._sizes[i] = wanted
            else:
                self._changed.add(i)
                yield from self._bring(view, room, i, size, wanted)

    def _size(self, view: View, i: int) -> Size | None:
        """What the function has been given, by us or by an operator; None if it is not scaled."""
        scaled, own, size = view.scaled(self._functions[i]), self._rungs[i], self._sizes[i]
        if scaled is None or scaled.instances is None or scaled.configuration is None:
            return None
        vcpus = scaled.configuration.vcpus
        if (scaled.instances, vcpus) == (size.replicas, own.vcpus[size.rung]):
            return size
        rung = own.vcpus.index(vcpus) if vcpus in own.vcpus else size.rung
        self._sizes[i] = replace(size, replicas=min(max(scaled.instances, own.least), own.most), rung=rung)
        return replace(size, replicas=scaled.instances, rung=rung)

    def _bring(self, view: View, room: Room, i: int, size: Size, wanted: Size) -> Iterator[Action]:
        """The actions from one size to another; what finds no room is left out."""
        name, own = self._functions[i], self._rungs[i]
        present, configuration = own.configuration(size), own.configuration(wanted)
        if wanted.replicas > max(size.replicas, own.least) and room.is_full:
            wanted = replace(wanted, replicas=size.replicas)
            self._is_refused[i] = self._last[i] != worth.NOTHING  # the agent's doing, not the rule's
        if wanted.replicas != size.replicas:
            yield Scale(name, wanted.replicas)
        if configuration != present:
            vcpus, memory_gb = configuration.vcpus, configuration.memory_gb
            is_larger = vcpus > present.vcpus or memory_gb > present.memory_gb
            if not is_larger or (view.resizes(name, vcpus, memory_gb) and room.grows(name, configuration)):
                yield Resize(name, vcpus, memory_gb)
            else:
                self._is_refused[i] = self._last[i] != worth.NOTHING
                wanted = replace(size, replicas=wanted.replicas)
        self._sizes[i] = wanted

    def _need(self, view: View, measures: Measures, i: int, is_starved: bool) -> Need:
        name, vcpus = self._functions[i], self._rungs[i].vcpus[self._sizes[i].rung]
        return Need(
            rate_rps=float(measures.arrived[i]) / (self._meter.period_s or np.inf),
            time_s=view.profile(name).latency_s(Configuration(vcpus=vcpus)),
            slo_s=float(self._site.slo_s[i]),
            p99_s=float(measures.p99_s[i]),
            oldest_s=float(measures.oldest_s[i]),
            is_starved=is_starved,
        )

    def _make_agents(self, trained: Checkpoint, numbers: NDArray[np.intp], rng: np.random.Generator) -> None:
        if self.retrain == "process":
            explorers = Explorers(trained, numbers, rng, draws=self.draws)
            self._agents = explorers
            self._retraining = Retraining(
                trained,
                numbers,
                explorers,
                rule=Rule(trigger=self.trigger),
                episode_periods=self.episode_periods,
                steps=self.retrain_steps,
                seed=int(rng.integers(2**31)),
            )
        elif self.hosts:
            path = str(self.checkpoint or SHIPPED)
            hosts = Hosts(path, numbers, self.hosts, self.answer_s, rng if self.draws else None)
            hosts.wait(_LOADING_S)
            self._agents = hosts
        else:
            self._agents = Networks(trained, numbers, rng if self.draws else None)
