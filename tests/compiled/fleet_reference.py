"""A fleet in plain Python, by the words of the documentation: what the compiled keep-alive rules are compared with.

Calls are served first come, first served, each by one vCPU: on the emptiest node with an idle instance of the function,
else on the emptiest node. Nothing here is quick: at every instant everything is looked at.
"""

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf

from fairlead.engine.core.placement import Levels
from fairlead.engine.sim.compiled import Fixed, GreedyDual, HybridHistogram


@dataclass
class Instance:
    number: int
    function: int
    node: int
    started: float
    is_busy: bool = False
    is_idle: bool = False
    has_run: bool = False
    since: float = 0.0
    expires: float = inf
    worth: float = 0.0
    turn: int = 0  # the later it turned idle, the higher


@dataclass
class Node:
    free: int  # thousandths of a vCPU
    memory: int
    clock: float = 0.0


@dataclass
class Memory:
    """What the hybrid rule knows of a function."""

    running: int = 0
    ended: float | None = None
    idle_times: list = field(default_factory=list)
    prewarm_at: float = inf
    until: float = 0.0


@dataclass
class Outcome:
    cold: list
    ends: list
    prewarmed: int = 0
    evicted: int = 0
    wasted_mb_s: float = 0.0
    used_mb_s: float = 0.0


class Fleet:
    def __init__(self, nodes, functions, rule):
        """Nodes are (vCPUs, MB); functions (MB, seconds of a cold start, seconds of keep-alive)."""
        self.nodes = [Node(1000 * vcpus, memory) for vcpus, memory in nodes]
        self.unit = Levels([node.free for node in self.nodes]).unit
        self.functions = functions
        self.rule = rule
        self.instances = {}
        self.memories = [Memory() for _ in functions]
        self.frequency = [0] * len(functions)
        self.events, self.order, self.turns = [], count(), count()
        self.now = 0.0
        self.waiting = deque()
        self.idle_mb_s = self.life_mb_s = 0.0

    def run(self, calls):
        """Calls are (instant, function, seconds), in order."""
        self.calls = calls
        self.outcome = Outcome(cold=[0] * len(self.functions), ends=[None] * len(calls))
        arrivals = deque(range(len(calls)))
        last = calls[-1][0]
        self.open = 0
        is_counted = False
        while True:
            nexts = [inf]
            nexts += [self.events[0][0]] if self.events else []
            nexts += [calls[arrivals[0]][0]] if arrivals else []
            nexts += [i.expires for i in self.instances.values() if i.is_idle]
            nexts += [memory.prewarm_at for memory in self.memories]
            now = min(nexts)
            if now > last and not is_counted:
                self._count_memory(last)
                is_counted = True
            if now == inf or (not arrivals and not self.open):
                break
            self.now = now
            due = []
            while self.events and self.events[0][0] == now:
                due.append(heappop(self.events)[2:])
            for kind, instance, call in sorted(due, key=lambda event: event[0] != "ready"):
                if kind == "ready":
                    self._ready(instance, call)
                else:
                    self._finish(instance, call)
            while arrivals and calls[arrivals[0]][0] == now:
                self.waiting.append(arrivals.popleft())
                self.open += 1
            self._expire()
            self._prewarm()
            self._dispatch()
        if not is_counted:
            self._count_memory(last)
        return self.outcome

    def _count_memory(self, until):
        idle, life = self.idle_mb_s, self.life_mb_s
        for instance in self.instances.values():
            megabytes = self.functions[instance.function][0]
            life += (until - instance.started) * megabytes
            if instance.is_idle:
                idle += (until - instance.since) * megabytes
        self.outcome.wasted_mb_s, self.outcome.used_mb_s = idle, life - idle

    # --- what happens

    def _ready(self, instance, call):
        if call is None:
            self._turn_idle(instance)
        else:
            heappush(self.events, (self.now + self.calls[call][2], next(self.order), "finish", instance, call))

    def _finish(self, instance, call):
        self.outcome.ends[call] = self.now
        self.open -= 1
        self._turn_idle(instance)

    def _turn_idle(self, instance):
        megabytes, _, keep_alive_s = self.functions[instance.function]
        node = self.nodes[instance.node]
        node.free += 1000
        node.memory += megabytes
        instance.is_busy, instance.is_idle = False, True
        instance.since, instance.turn = self.now, next(self.turns)
        instance.expires = inf
        if isinstance(self.rule, Fixed):
            instance.expires = self.now + keep_alive_s
        elif isinstance(self.rule, HybridHistogram):
            memory = self.memories[instance.function]
            if not instance.has_run:
                instance.expires = memory.until
                return
            prewarm_s, keep_s = windows(self.rule, memory.idle_times)
            memory.running -= 1
            memory.ended = self.now
            instance.expires = self.now + keep_s
            if prewarm_s > 0:
                instance.expires = self.now
                if memory.running == 0:
                    memory.prewarm_at, memory.until = self.now + prewarm_s, self.now + keep_s

    def _expire(self):
        for instance in [i for i in self.instances.values() if i.is_idle and i.expires <= self.now]:
            self._stop(instance)

    def _prewarm(self):
        for function, memory in enumerate(self.memories):
            if memory.prewarm_at <= self.now:
                memory.prewarm_at = inf
                is_there = any(i.function == function and i.is_idle for i in self.instances.values())
                node = None if is_there else self._emptiest(function, range(len(self.nodes)))
                if node is not None:
                    self._create(function, node, None)
                    self.outcome.prewarmed += 1

    def _dispatch(self):
        while self.waiting:
            call = self.waiting[0]
            function = self.calls[call][1]
            idle = [i for i in self.instances.values() if i.is_idle and i.function == function]
            node = self._emptiest(function, sorted({i.node for i in idle}))
            if node is None:
                node = self._emptiest(function, range(len(self.nodes)))
            if node is None:
                return
            self.waiting.popleft()
            here = [i for i in idle if i.node == node]
            if here:
                instance = max(here, key=lambda i: i.turn)
                self._leave_idle(instance)
                self._take(instance)
                self._take_up(instance)
                heappush(self.events, (self.now + self.calls[call][2], next(self.order), "finish", instance, call))
            else:
                self.outcome.cold[function] += 1
                self._take_up(self._create(function, node, call))

    # --- the pool

    def _emptiest(self, function, nodes):
        megabytes = self.functions[function][0]
        fitting = [n for n in nodes if self.nodes[n].free >= 1000 and self.nodes[n].memory >= megabytes]
        return max(fitting, key=lambda n: (self.nodes[n].free // self.unit, -n), default=None)

    def _create(self, function, node, call):
        instance = Instance(next(self.turns), function, node, self.now)
        self.instances[instance.number] = instance
        self._take(instance)
        ready = self.now + self.functions[function][1]
        heappush(self.events, (ready, next(self.order), "ready", instance, call))
        return instance

    def _take(self, instance):
        instance.is_busy = True
        node = self.nodes[instance.node]
        node.free -= 1000
        node.memory -= self.functions[instance.function][0]
        while True:
            idle = [i for i in self.instances.values() if i.is_idle and i.node == instance.node]
            if sum(self.functions[i.function][0] for i in idle) <= node.memory:
                return
            if isinstance(self.rule, GreedyDual):
                goes = min(idle, key=lambda i: (i.worth, i.turn))
                node.clock = max(node.clock, goes.worth)
            else:
                goes = min(idle, key=lambda i: i.turn)
            self._stop(goes)
            self.outcome.evicted += 1

    def _take_up(self, instance):
        instance.has_run = True
        function = instance.function
        if isinstance(self.rule, GreedyDual):
            self.frequency[function] += 1
            megabytes, cold_s, _ = self.functions[function]
            instance.worth = self.nodes[instance.node].clock + self.frequency[function] * cold_s / megabytes
        memory = self.memories[function]
        memory.prewarm_at = inf
        if memory.running == 0 and memory.ended is not None:
            memory.idle_times.append(self.now - memory.ended)
        memory.running += 1

    def _leave_idle(self, instance):
        instance.is_idle = False
        self.idle_mb_s += (self.now - instance.since) * self.functions[instance.function][0]

    def _stop(self, instance):
        self._leave_idle(instance)
        del self.instances[instance.number]
        self.life_mb_s += (self.now - instance.started) * self.functions[instance.function][0]
        if not any(i.function == instance.function for i in self.instances.values()):
            self.frequency[instance.function] = 0


def windows(rule, idle_times):
    """After a run: when an instance is wanted again, and until when, in seconds."""
    counts = [0] * rule.bins
    inside = outside = 0
    for idle_s in idle_times:
        if idle_s / rule.bin_s < rule.bins:
            counts[int(idle_s / rule.bin_s)] += 1
            inside += 1
        else:
            outside += 1
    seen = inside + outside
    if seen >= rule.least_samples:
        if outside > rule.most_outside * seen:
            mean_s = sum(idle_times) / seen
            return mean_s * (1 - rule.mean_margin), mean_s * (1 + rule.mean_margin)
        mean = inside / rule.bins
        deviation = (sum((number - mean) ** 2 for number in counts) / rule.bins) ** 0.5
        if deviation >= rule.least_variation * mean * (1 - 1e-9):
            head = quantile(counts, rule.head * inside)
            tail = quantile(counts, rule.tail * inside)
            return head * rule.bin_s * (1 - rule.margin), (tail + 1) * rule.bin_s * (1 + rule.margin)
    return 0.0, rule.bins * rule.bin_s


def quantile(counts, wanted):
    """The first bin up to which at least so many lie."""
    so_far = 0
    for number, own in enumerate(counts):
        so_far += own
        if so_far >= wanted:
            return number
    raise AssertionError("a quantile lies in one of the bins")
