"""A simulation of a served app, as `fairlead serve` would have it: the gateway takes time too, and shares the cores.

The gateway is a process that is busy while it handles an instant; what comes meanwhile is handled together in its next
one, and effects take place when their part of the turn is done. A batch begins when its instance is awake. Gateway,
load generator and batches share the cores. Latencies are those that a client sees.

Nodes may be reached over links. Then messages take longer, and a node that is a machine of its own has its own cores.
Kernels are no processes: runs and loads need as much of a core as their device does.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop
from math import inf
from time import thread_time

import numpy as np
import polars as pl
from msgspec import structs

from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.core.replytime import ReplyTime
from fairlead.engine.sim.cores import Cores
from fairlead.engine.sim.driver import IDLE_INSTANTS, REPORT_EVERY, Progress, Simulation
from fairlead.engine.sim.physics import Physics
from fairlead.engine.sim.process import Process
from fairlead.engine.sim.users import Loop
from fairlead.model import Configuration, Invocation, Request
from fairlead.policy import Policy
from fairlead.policy.base import Scale
from fairlead.profile import Host, Link
from fairlead.profile.links import HERE
from fairlead.workload import Scenario

_TIMER_LATE_S = 0.001  # a timer of the live event loop is rounded up to milliseconds, and half a one is added
_GATEWAY, _CLIENT = -1, -2  # tasks on the cores; batches have their own numbers
_STARTS = -10  # less the number of an instance that starts
_LUCK_AHEAD = 4096
_KERNEL_ENDS_S = 1e-6
_LEAST = 0.1  # of what a run takes alone: no correction makes it shorter than this


class _Sent:
    """A request as its client knows it."""

    __slots__ = ("at", "end", "given", "id", "loop", "slo_s", "workflow")

    def __init__(self, id: int, workflow: str, at: float, slo_s: float, given: ev.Arrived | None, loop: Loop | None):
        self.id = id
        self.workflow = workflow
        self.at = at
        self.slo_s = slo_s
        self.given = given
        self.loop = loop
        self.end: float | None = None


class _Ended:
    """A batch has ended in its instance; the gateway has not heard of it."""

    __slots__ = ("effect", "transfer_s")

    def __init__(self, effect: fx.RunBatch, transfer_s: float) -> None:
        self.effect = effect
        self.transfer_s = transfer_s


class HostedSimulation(Simulation):
    """One run of a scenario that has a `host`. Functions begin with their warm instances, as served ones do."""

    __slots__ = (
        "_client",
        "_cores",
        "_decision_s",
        "_entries",
        "_fates",
        "_gateway",
        "_host",
        "_inbox",
        "_kernels",
        "_last_end",
        "_links",
        "_luck",
        "_machines",
        "_noted",
        "_open",
        "_parts",
        "_reply_time",
        "_sending",
        "_sent",
        "_waiting_s",
        "decided",
    )

    def __init__(
        self,
        scenario: Scenario,
        policy: tuple[str, Policy],
        scaler: tuple[str | None, Policy | None],
        seed: int,
        physics: Physics | None,
        given: Sequence[tuple[float, ev.Event]],
    ) -> None:
        assert scenario.host is not None
        truth = physics or Physics(_as_seen(scenario, scenario.host), seed)
        self._kernels = {name for name, function in scenario.functions.items() if function.buffers}
        # CPU time, as the live runtime has it: a pause of this process is no part of a decision. Instances of kernels
        # end at once, but the gateway hears of it in a later turn.
        end_s = _KERNEL_ENDS_S if self._kernels else 0.0
        super().__init__(scenario, policy, scaler, seed, truth, given, end_s=end_s, stopwatch=thread_time)
        host = self._host = scenario.host
        self._decision_s = host.decides_s(policy[0])
        self._waiting_s = host.decision_waiting_s.get(policy[0], 0.0)
        self.decided: list[tuple[int, float]] = []  # what waited at each decision, and how long it really took
        self._cores = Cores(host.cores)
        self._machines = {HERE.machine: self._cores}  # by name
        self._links: dict[str, Link] = {}  # by node
        self._entries = {
            (name, stage.name) for name, one in scenario.workflows.items() for stage in one.stages if not stage.after
        }
        luck = self._luck = _luck(np.random.default_rng((seed, 1_000_008)))
        self._gateway = Process(_GATEWAY, host, self._cores, self.push, luck, self._iterate)
        self._client = Process(_CLIENT, host, self._cores, self.push, luck)
        self._reply_time = ReplyTime(policy[1])
        self._inbox: list[_Sent | _Ended | ev.Event] = []
        self._noted: list[ev.Event] = []
        self._open = 0
        self._parts: dict[tuple[str, Configuration, str, int], float] = {}
        self._sent: dict[int, _Sent] = {}
        self._sending = 0  # requests that the load generator has open
        self._last_end: dict[int, float] = {}  # by instance
        self._fates: dict[int, bool] = {}  # by batch under way: whether it still is wanted
        self.act |= {
            fx.RunBatch: self._run,
            fx.StartInstance: self._start,
        }

    def open(self) -> None:
        """Besides, let every function have its warm instances from the start."""
        super().open()
        controller = self.controller
        for function in self.scenario.functions.values():
            if self.scaler_name is not None and function.warm:
                self.push(0.0, ev.Ordered(Scale(function.name, function.warm)))
                continue
            for _ in range(function.warm):
                configuration = controller.view.profile(function.name).cheapest()
                node = controller.view.place(function.name, configuration, "fresh")
                if node is None:
                    break
                controller.handle(0.0, [controller.adopt(function.name, configuration, node)])

    def loop(self, progress: Progress | None, until: float = inf) -> None:
        """Let everything happen in order until nothing is left to do, or nothing up to an instant."""
        controller, heap, machines, gateway = self.controller, self.heap, self._machines, self._gateway
        idle = steps = 0
        while True:
            timer = max(controller.now, controller.next_wake + _TIMER_LATE_S) if gateway.is_asleep else inf
            now = min(heap[0][0], timer, *[cores.next_end() for cores in machines.values()])
            if now > until or now == inf:
                return
            for done in [done for cores in machines.values() for done in cores.advance(now)]:
                done(now)
            while heap[0][0] <= now:
                self._occur(heappop(heap)[2], now)
            if timer <= now and gateway.is_asleep:
                if self.coming == 0 and not controller.running and all(cores.is_idle for cores in machines.values()):
                    if not controller.requests:
                        return
                    idle += 1
                    if idle > IDLE_INSTANTS and not self.faults and controller.is_stuck:
                        return
                gateway.steps.append((0.0, self._turn))
                gateway.rouse(now)
            if progress is not None:
                steps += 1
                if steps % REPORT_EVERY == 0:
                    progress(now)

    @property
    def gateway_cpu_s(self) -> float:
        """CPU time that the gateway has used so far."""
        return self._gateway.cpu_s

    def request_table(self) -> pl.DataFrame:
        """The requests as their clients saw them: from the intended instant of sending to having the answer."""
        table = super().request_table()
        sent = [self._sent[id] for id in table["request"].to_list()]
        seen = [None if was is None else one.end for was, one in zip(table["end"].to_list(), sent, strict=True)]
        return table.with_columns(
            arrival=pl.Series([one.at for one in sent], dtype=pl.Float64),
            deadline=pl.Series([one.at + one.slo_s for one in sent], dtype=pl.Float64),
            end=pl.Series(seen, dtype=pl.Float64),
        ).sort("request")

    # --- the client --------------------------------------------------------------------------------------------------

    def _occur(self, what: object, now: float) -> None:
        """What was to happen at this instant."""
        if isinstance(what, str):
            self._send(_Sent(self._number(), what, now, self.slo[what].latency_s, None, None), now)
            self._next_arrival()
        elif isinstance(what, Loop):
            if what.calls_at(now):
                slo_s = self.slo[what.workflow].latency_s
                self._send(_Sent(self._number(), what.workflow, now, slo_s, None, what), now)
            else:
                self.coming -= 1
        elif isinstance(what, ev.Arrived):
            request = what.request
            self._send(_Sent(request.id, request.workflow, now, request.deadline - request.arrival, what, None), now)
        elif callable(what):
            what(now)
        else:
            events: list[ev.Event] = []
            self._happen(what, now, events)
            for event in events:
                self._tell(event, now)

    def _number(self) -> int:
        self.next_request += 1
        return self.next_request - 1

    def _send(self, sent: _Sent, now: float) -> None:
        self._sent[sent.id] = sent
        if self._sending >= self._host.max_sent:
            self.coming -= 1
            self._refuse(sent, now, f"the load generator has {self._host.max_sent} requests open")
            return
        self._sending += 1
        self._at_client(partial(self._tell, sent), now)

    def _at_client(self, call: Callable[[float], None], now: float) -> None:
        """Have the load generator do something; one on another machine takes no time of this one."""
        if self._host.client_s:
            self._client.steps.append((self._host.client_s / 2, call))
            self._client.rouse(now)
        else:
            call(now)

    def _received(self, sent: _Sent, now: float) -> None:
        sent.end = now
        self._sending -= 1
        if sent.loop is not None:
            self.loop_of[sent.id] = sent.loop, sent.at
            self._ended(fx.Answer(now, sent.id, "completed"))

    # --- the gateway -------------------------------------------------------------------------------------------------

    def _tell(self, what: "_Sent | _Ended | ev.Event", now: float) -> None:
        self._inbox.append(what)
        self._gateway.rouse(now)

    def _iterate(self, now: float) -> None:
        """One turn of the event loop: read all that has come, then let the controller decide."""
        items, self._inbox = self._inbox, []
        if items:
            steps = self._gateway.steps
            for item in items:
                steps.append((self._read_s(item), partial(self._read, item)))
            steps.append((0.0, self._turn_if_due))

    def _read_s(self, item: "_Sent | _Ended | ev.Event") -> float:
        host = self._host
        if isinstance(item, _Sent):
            return host.request_s + host.mb_s * host.values_mb.get(item.workflow, 0.0)
        if not isinstance(item, _Ended):
            return 0.0
        effect = item.effect
        return host.end_s + host.invocation_s * len(effect.invocations) / 2 + self._link(effect.node).cpu_s / 2

    def _read(self, item: "_Sent | _Ended | ev.Event", now: float) -> None:
        if isinstance(item, _Sent):
            self._enter(item, now)
        elif isinstance(item, _Ended):
            effect = item.effect
            if self._fates.pop(effect.batch):
                work_s = now - effect.at - item.transfer_s
                self._noted.append(ev.Finished(effect.batch, work_s, item.transfer_s, self.physics.outcomes(effect)))
                self._turn(now)  # it goes before what else there is to do
        else:
            self._noted.append(item)

    def _enter(self, sent: _Sent, now: float) -> None:
        self.coming -= 1
        if self._open >= self._host.max_open:
            self._refuse(sent, now, f"more than {self._host.max_open} requests are open")
            self._answer(sent, self._host.refusal_s)
            return
        self._open += 1
        items = self._admit(sent.id, sent.workflow)
        request = Request(sent.id, sent.workflow, now, now + sent.slo_s, self._budget_usd(sent))
        self._noted.append(ev.Arrived(self._reply_time.before(request), items))

    def _budget_usd(self, sent: _Sent) -> float:
        return self.slo[sent.workflow].cost_usd if sent.given is None else sent.given.request.budget_usd

    def _refuse(self, sent: _Sent, now: float, why: str) -> None:
        """Note a request that the controller never hears of."""
        ends = (sent.at + sent.slo_s, self._budget_usd(sent), now, "rejected", why)
        self.tables.requests.append((sent.id, sent.workflow, sent.at, *ends, *(None,) * 5, 0.0))

    def _turn_if_due(self, now: float) -> None:
        if self._noted or self.controller.next_wake <= now:
            self._turn(now)

    def _turn(self, now: float) -> None:
        """Let the controller decide; batches are sent first, and answers written when all that has come is read."""
        events, self._noted = self._noted, []
        times_s, host = self.controller.decisions.times_s, self._host
        asked = len(times_s)
        effects = self.controller.handle(now, events)
        cpu_s = host.turn_s
        if len(times_s) > asked:
            waiting = len(self.controller.waiting.tasks)
            cpu_s += self._decision_s + self._waiting_s * waiting
            self.decided.append((waiting, sum(times_s[asked:])))
        sending: list[tuple[float, Callable[[float], None]]] = [(cpu_s, _nothing)]
        has_answered = False
        for effect in effects:
            if isinstance(effect, fx.Answer | fx.Refuse):
                self._open -= 1
                is_answer = isinstance(effect, fx.Answer)
                has_answered = has_answered or is_answer
                self._answer(self._sent[effect.request], host.answer_s if is_answer else host.refusal_s)
            else:
                cost_s = 0.0
                if isinstance(effect, fx.RunBatch):
                    cost_s = host.send_s + host.invocation_s * len(effect.invocations) / 2
                    cost_s += self._link(effect.node).cpu_s / 2
                    self._fates[effect.batch] = True
                sending.append((cost_s, partial(self._act_out, effect)))
        self._gateway.steps.extendleft(reversed(sending))
        if has_answered:
            self._gateway.steps.append((0.0, lambda at: self._reply_time.observe(at - now)))

    def _answer(self, sent: _Sent, cpu_s: float) -> None:
        def leave(now: float) -> None:
            self._at_client(partial(self._received, sent), now)

        self._gateway.steps.append((cpu_s, leave))

    def _act_out(self, effect: fx.Effect, now: float) -> None:
        self.act[type(effect)](effect)

    # --- instances ---------------------------------------------------------------------------------------------------

    def _run(self, effect: fx.RunBatch) -> None:
        """Send a batch: its instance wakes, has its input, and begins to work."""
        now = self._now()
        host, link = self._host, self._link(effect.node)
        wake_s = link.way_s
        if effect.function not in self._kernels:
            pause_s = now - self._last_end.get(effect.instance, -inf)
            wake_s += host.wakes_s(self._luck(), is_busy=self._machine(link).is_full)
            wake_s += host.instance_cold_s * host.coldness(pause_s)
        wake_s += self._delay_s(effect.function)
        transfer_s = self.physics.transfer_s(effect)
        if link.mb_s:
            transfer_s += link.mb_s * (effect.transfer_mb + sum(map(self._entering_mb, effect.invocations)))
        self.push(now + wake_s + transfer_s, partial(self._work, effect, transfer_s))

    def _work(self, effect: fx.RunBatch, transfer_s: float, now: float) -> None:
        if not self._fates.get(effect.batch):
            self._fates.pop(effect.batch, None)
            return
        measured_s = self.physics.work_s(effect) * self._filled(effect)
        host, link = self._host, self._link(effect.node)
        # What is measured has the way to an instance in it.
        kind, is_kernel = self.nodes[effect.node].kind, effect.function in self._kernels
        alone_s = max(measured_s - host.way_to_s(effect.node, kind, is_kernel=is_kernel), 0.0)
        fixed_s, times = host.run_s.get(effect.function, 0.0), 1 + host.run_share.get(effect.function, 0.0)
        work_s = max(alone_s * times + fixed_s, _LEAST * alone_s)
        used = host.uses(effect.function, effect.configuration.vcpus)
        threads = max(1.0, used)
        cpu_s = min(alone_s * threads, used * measured_s) * times + fixed_s
        cpu_s = min(max(0.0, cpu_s), work_s * threads)
        slowness = 1.0 if link.machine else host.slowness  # that of other machines is not known
        work_s += cpu_s / threads * (slowness - 1)
        share = cpu_s * slowness / work_s if work_s else 1.0
        self._machine(link).begin(now, effect.batch, work_s, share, partial(self._done, effect, transfer_s))

    def _filled(self, effect: fx.RunBatch) -> float:
        """What a batch that is not full takes, of the time of a full one: a straight line between known sizes."""
        own, size = effect.configuration, len(effect.invocations)
        if size == own.batch:
            return 1.0
        key = (effect.function, own, effect.node, size)
        if key not in self._parts:
            profile, kind = self.scenario.profiles[effect.function], self.nodes[effect.node].kind
            known = sorted(
                (each.batch, profile.latency_s(each, kind))
                for each in profile.configurations
                if (each.vcpus, each.vgpus) == (own.vcpus, own.vgpus) and profile.latency_s(each, kind) < inf
            )
            sizes, times = zip(*known, strict=True)
            self._parts[key] = float(np.interp(size, sizes, times)) / profile.latency_s(own, kind)
        return self._parts[key]

    def _done(self, effect: fx.RunBatch, transfer_s: float, now: float) -> None:
        self._last_end[effect.instance] = now
        ended, way_s = _Ended(effect, transfer_s), self._link(effect.node).way_s
        if way_s:
            self.push(now + way_s, partial(self._tell, ended))
        else:
            self._tell(ended, now)

    def _stop_batch(self, effect: fx.StopInstance) -> None:
        if effect.batch in self._fates:
            self._fates[effect.batch] = False
            for cores in self._machines.values():
                cores.drop(self._now(), effect.batch)

    def _start(self, effect: fx.StartInstance) -> None:
        """A process that starts computes nearly all the time; a device that loads, as much as one that runs."""
        host, link = self._host, self._link(effect.node)
        seconds = self.physics.cold_start_s(effect) * (1.0 if link.machine else host.slowness)
        cores, key = self._machine(link), _STARTS - effect.instance
        ready = partial(self._tell, ev.InstanceReady(effect.instance))
        if effect.function in self._kernels:
            share = min(1.0, host.uses(effect.function, effect.configuration.vcpus))
            begins = self._now() + self._delay_s(effect.function)
            self.push(begins, lambda now: cores.begin(now, key, seconds, share, ready))
        else:
            cores.begin(self._now(), key, seconds, 1.0, ready)

    def _delay_s(self, function: str) -> float:
        """What a run, or a load of a kernel, loses this time without a core."""
        host = self._host
        delays_s = host.run_delay_s.get(function)
        if function in host.run_delay_busy_s and self.controller.waiting.tasks:
            delays_s = host.run_delay_busy_s[function]
        return delays_s[int(self._luck() * len(delays_s))] * host.slowness if delays_s else 0.0

    def _link(self, node: str) -> Link:
        if node not in self._links:
            self._links[node] = self._host.link(node, self.nodes[node].kind)
        return self._links[node]

    def _machine(self, link: Link) -> Cores:
        """The cores that instances behind a link run on."""
        found = self._machines.get(link.machine)
        if found is None:
            found = self._machines[link.machine] = Cores(link.cores)
            found.advance(self._now())
        return found

    def _entering_mb(self, invocation: Invocation) -> float:
        """What a first stage gets from outside, and what is answered in the end."""
        is_first = (invocation.workflow, invocation.stage) in self._entries
        return self._host.values_mb.get(invocation.workflow, 0.0) if is_first else 0.0

    def _now(self) -> float:
        return self._cores.now


def _as_seen(scenario: Scenario, host: Host) -> Scenario:
    """The scenario with arms and items as they were seen, which its workflows may declare otherwise."""
    workflows = {}
    for name, workflow in scenario.workflows.items():
        arms, items = host.arms.get(name, {}), host.items.get(name, {})
        stages = tuple(
            structs.replace(
                stage,
                when=arms.get(stage.name, stage.when) if stage.when is not None else None,
                map=(items[stage.name],) * 2 if stage.map is not None and stage.name in items else stage.map,
            )
            for stage in workflow.stages
        )
        workflows[name] = structs.replace(workflow, stages=stages)
    return replace(scenario, workflows=workflows)


def _luck(rng: np.random.Generator) -> Callable[[], float]:
    """Draws in [0, 1), one after the other."""
    ahead: list[float] = []

    def draw() -> float:
        if not ahead:
            ahead.extend(rng.random(_LUCK_AHEAD).tolist())
        return ahead.pop()

    return draw


def _nothing(now: float) -> None:
    """Time has passed; that is all."""
