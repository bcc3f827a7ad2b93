"""Simulated faults: a gateway under load on a cluster where things go wrong, and what must hold all the same.

One seed gives one run, always the same. What must hold:

- Every accepted request ends, once: what a client was told of its end never changes, whatever crashes.
- Answers are right, and no answer is taken from an instance that was given up, or to another gateway's batch.
- No capacity is promised twice: neither by the gateway, as its provider sees it, nor on any node in fact.
- Nothing is stuck: once nothing goes wrong any more, every request ends and every instance is accounted for.
- The journal agrees with what clients were told.
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import process_time

from fairlead.engine.live.host import Options
from fairlead.errors import FairleadError
from fairlead.testing.virtual.checks import CheckedProvider
from fairlead.testing.virtual.journal import InlineWriter
from fairlead.testing.virtual.loop import LifeEndedError, StuckError, run
from fairlead.testing.virtual.nodes import VirtualCluster
from fairlead.testing.virtual.plans import FAULTS_S, Call, Fault, Plan, expected, make_app, plan_of
from fairlead.testing.virtual.provider import VirtualProvider
from fairlead.testing.virtual.world import Answered, Line, VirtualGateway, VirtualWorld
from fairlead.workload import PolicyChoice

_PATIENCE_S = 400.0  # after the last fault, until everything must have ended
_POLL_S = 0.3
_RETRY_S = 0.25
_FUNCTIONS = ("first", "double", "spread", "total", "risky")
_SHARED = Path("/dev/shm")


@dataclass
class Outcome:
    """How a simulation went."""

    seed: int
    violations: list[str]
    traces: list[str]
    steps: int = 0
    lives: int = 0
    cpu_s: float = 0.0
    endings: dict[str, int] = field(default_factory=dict)  # requests by how they ended, as clients were told

    @property
    def digest(self) -> str:
        """Names all that happened."""
        return sha256("\n".join(self.traces).encode()).hexdigest()[:16]

    def report(self, most_lines: int = 60) -> str:
        """What went wrong, and the end of the trace."""
        lines = [f"seed {self.seed}: {len(self.violations)} violations", *(f"  {each}" for each in self.violations[:8])]
        left = len(self.traces) - most_lines
        lines += [f"the trace, without its first {left} lines:"] if left > 0 else ["the trace:"]
        return "\n".join([*lines, *self.traces[-most_lines:]])


def simulate_faults(
    seed: int,
    *,
    plan: Plan | None = None,
    provider: Callable[[VirtualCluster], VirtualProvider] = CheckedProvider,
    writer: type[InlineWriter] = InlineWriter,
) -> Outcome:
    """Run the plan of a seed, or another one, and say which of the invariants did not hold."""
    plan = plan_of(seed) if plan is None else plan
    began = process_time()
    parent = _SHARED if _SHARED.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fairlead-simulated-", dir=parent) as folder:
        simulation = _Simulation(plan, Path(folder), provider, writer)
        try:
            run(simulation.main(), limit_s=FAULTS_S + 3 * _PATIENCE_S)
        except StuckError as error:
            simulation.violations.append(f"stuck: {error}")
        except RuntimeError as error:
            simulation.violations.append(f"{error}: {error.__cause__!r}")
    outcome = simulation.outcome()
    outcome.cpu_s = process_time() - began
    return outcome


class _Client:
    """A request, and what its client was told."""

    def __init__(self, number: int, call: Call) -> None:
        self.number = number
        self.call = call
        self.id: str | None = None  # once it was acknowledged
        self.final: tuple[int, object] | None = None  # how it ended, as it was told
        self.is_cancelled = False  # the gateway has said so


class _Simulation:
    def __init__(
        self,
        plan: Plan,
        folder: Path,
        provider: Callable[[VirtualCluster], VirtualProvider],
        writer: type[InlineWriter],
    ) -> None:
        self.plan = plan
        self._folder = folder
        self._provider = provider
        self._writer = writer
        self.violations: list[str] = []
        self.world: VirtualWorld | None = None
        self._version = 1
        self._is_over = False
        self._endings: dict[str, int] = {}
        self._clients = [_Client(number, call) for number, call in enumerate(plan.calls)]

    def outcome(self) -> Outcome:
        """What is to be said of it."""
        world = self.world
        if world is None:
            return Outcome(self.plan.seed, self.violations, [])
        violations = [*self.violations, *world.cluster.violations]
        violations += [f"a fault of the gateway: {error!r}" for error in world.faults]
        return Outcome(
            self.plan.seed, violations, world.traces, world.loop.steps, world.lives, endings=dict(self._endings)
        )

    async def main(self) -> None:
        """Everything."""
        plan = self.plan
        choice = PolicyChoice(name=plan.policy)
        scaler = None if plan.scaler is None else PolicyChoice(name=plan.scaler)
        options = Options(policy=choice, scaler=scaler, control_period_s=1.0)
        world = self.world = VirtualWorld(
            self._folder,
            {"sim": make_app},
            plan.nodes,
            seed=plan.seed,
            traits=plan.traits,
            options=options,
            provider=self._provider,
            writer=self._writer,
        )
        world.trace(f"{plan.policy} and {plan.scaler}; {[(n.name, n.vcpus, n.memory_gb) for n in plan.nodes]}")
        self._began = world.loop.time()
        keeper = asyncio.ensure_future(self._keep_serving())
        tasks = [asyncio.ensure_future(self._serve_client(client)) for client in self._clients]
        faults = asyncio.ensure_future(self._go_wrong())
        await faults
        world.trace("nothing goes wrong any more")
        world.cluster.heal()
        givers = asyncio.ensure_future(self._give_back())
        _, late = await asyncio.wait(tasks, timeout=_PATIENCE_S) if tasks else ((), ())
        stuck = [client for client, task in zip(self._clients, tasks, strict=True) if task in late]
        self.violations += [f"request {client.number} never ends: {client.call}" for client in stuck]
        for task in tasks:
            if task.done() and task.exception() is not None:
                self.violations.append(f"a client failed: {task.exception()!r}")
        givers.cancel()
        await self._settle()
        await self._check_ends("after everything has ended")
        world.crash()
        await self._serving()
        await self._check_ends("after a last crash")
        self._is_over = True
        keeper.cancel()
        try:
            await asyncio.wait_for(world.stop(), _PATIENCE_S)
        except TimeoutError:
            self.violations.append("the gateway does not end when it is told to")
        left = world.cluster.instances()
        if left and not plan.traits.keeps:
            self.violations.append(f"instances outlive their gateway: {sorted(left)}")

    # --- the supervisor --------------------------------------------------------------------------------------------

    async def _keep_serving(self) -> None:
        """Start a gateway whenever there is none, as a supervisor does."""
        world = self.world
        assert world is not None
        while not self._is_over:
            try:
                gateway = await world.start(dies_after=self.plan.dies_after if world.lives == 0 else None)
            except LifeEndedError:
                pass
            except FairleadError as error:
                world.trace(f"the gateway cannot start: {error}")
                world.crash()
            else:
                over = asyncio.Event()
                gateway.life.at_end(over.set)
                if not gateway.life.is_over:
                    await over.wait()
            await asyncio.sleep(float(world.rng.uniform(0.05, 1.0)))

    async def _serving(self) -> VirtualGateway:
        world = self.world
        assert world is not None
        for _ in range(int(_PATIENCE_S / _POLL_S)):
            gateway = world.gateway
            if gateway is not None and gateway.is_serving and gateway.host.is_ready:
                return gateway
            await asyncio.sleep(_POLL_S)
        raise StuckError("the gateway does not come to serve")

    # --- faults ----------------------------------------------------------------------------------------------------

    async def _go_wrong(self) -> None:
        world = self.world
        assert world is not None
        for fault in self.plan.faults:
            await self._until(fault.at_s)
            world.trace(f"fault: {fault.kind} {fault.amount:.3f} {fault.pick:.3f}")
            await self._commit(fault)
        await self._until(FAULTS_S)
        if world.gateway is not None:
            world.gateway.life.dies_after = None

    async def _commit(self, fault: Fault) -> None:
        world = self.world
        assert world is not None
        cluster, gateway = world.cluster, world.gateway
        node = sorted(cluster.nodes)[int(fault.pick * len(cluster.nodes))]
        keys = sorted(cluster.instances())
        if fault.kind == "freeze":
            cluster.freeze(node, 6 * fault.amount)
        elif fault.kind == "cut":
            cluster.cut(node, 6 * fault.amount)
        elif fault.kind == "lose":
            cluster.lose(node, 6 * fault.amount)
        elif fault.kind == "kill" and keys:
            cluster.kill(keys[int(fault.pick * len(keys))])
        elif fault.kind == "jump":
            world.jump(86_400 * (2 * fault.amount - 1))
        elif gateway is None:
            return
        elif fault.kind == "crash":
            world.crash()
        elif fault.kind == "crash-step":
            gateway.life.dies_after = gateway.life.steps + int(40 * fault.amount)
        elif gateway.is_serving:
            await self._operate(fault, gateway, node)

    async def _operate(self, fault: Fault, gateway: VirtualGateway, node: str, function: str | None = None) -> None:
        """What an operator does, and a disk that is full for a while."""
        world = self.world
        assert world is not None
        function = function or _FUNCTIONS[int(len(_FUNCTIONS) * fault.pick)]

        async def act() -> None:
            if fault.kind == "scale":
                gateway.host.scale("sim", function, int(3 * fault.amount))
            elif fault.kind == "give-back":
                gateway.host.scale("sim", function, None)
            elif fault.kind == "move":
                gateway.host.move("sim", function, node)
            elif fault.kind == "drain":
                gateway.host.drain_node(node)
            elif fault.kind == "undrain":
                for draining, state in gateway.host.nodes():
                    if state in ("moving", "draining"):
                        gateway.host.undrain_node(draining.name)

        try:
            if fault.kind == "deploy":
                self._version += 1
                version = self._version
                asked = asyncio.ensure_future(world.deploy("sim", lambda: make_app(version)))
                asked.add_done_callback(lambda done: None if done.cancelled() else done.exception())
            elif fault.kind == "disk":
                self._fill_disk(gateway, 3 * fault.amount)
            else:
                await gateway.life.ask(act())
        except (LifeEndedError, FairleadError) as error:
            world.trace(f"the operator is refused: {error}")

    async def _give_back(self) -> None:
        """Take back all that operators ordered: a function that is held at zero may keep requests waiting for ever."""
        world = self.world
        assert world is not None
        while True:
            gateway = await self._serving()
            for name in _FUNCTIONS:
                if gateway.is_serving:
                    await self._operate(Fault(0.0, "give-back", 0.0, 0.0), gateway, "", name)
            await asyncio.sleep(10.0)

    def _fill_disk(self, gateway: VirtualGateway, seconds: float) -> None:
        store = gateway.journal._store
        until, apply = gateway.world.loop.time() + seconds, store.apply

        def refuse(group):  # type: ignore[no-untyped-def]
            if gateway.world.loop.time() < until:
                raise sqlite3.OperationalError("no space left on the virtual disk")
            return apply(group)

        store.apply = refuse  # type: ignore[method-assign]

    async def _until(self, at_s: float) -> None:
        world = self.world
        assert world is not None
        await asyncio.sleep(max(0.0, self._began + at_s - world.loop.time()))

    # --- clients ---------------------------------------------------------------------------------------------------

    async def _serve_client(self, client: _Client) -> None:
        await self._until(client.call.at_s)
        if client.call.is_async:
            await self._serve_async(client)
        else:
            await self._serve_sync(client)

    async def _serve_sync(self, client: _Client) -> None:
        world, call = self.world, client.call
        assert world is not None
        line = Line()
        headers = {} if call.deadline_s is None else {"X-Deadline-Ms": f"{call.deadline_s * 1e3:.3f}"}
        if call.leaves_s is not None:
            world.loop.call_later(call.leaves_s, line.leave)
        try:
            answer = await world.send("POST", f"/v1/workflows/{call.workflow}", {"input": call.value}, headers, line)
        except LifeEndedError:
            self._count("connection lost")
            return
        self._check_answer(client, answer)

    async def _serve_async(self, client: _Client) -> None:
        call = client.call
        headers = {"Idempotency-Key": f"key-{client.number}"}
        if call.deadline_s is not None:
            headers["X-Deadline-Ms"] = f"{call.deadline_s * 1e3:.3f}"
        path = f"/v1/workflows/sim.{call.workflow}/async"
        answer = await self._insist("POST", path, {"input": call.value}, headers, (200, 202))
        client.id = answer.json()["id"]
        if call.leaves_s is not None:
            await asyncio.sleep(call.leaves_s)
            answer = await self._insist("DELETE", f"/v1/requests/{client.id}", None, {}, (202, 404, 409))
            client.is_cancelled = answer.status == 202
        answer = await self._insist("GET", f"/v1/requests/{client.id}/result", None, {}, (200, 404, 409))
        self._check_answer(client, answer)
        client.final = _end_of(answer)
        if client.is_cancelled and answer.status != 409:
            self.violations.append(f"request {client.number} was cancelled, and ended as {client.final}")

    async def _insist(
        self, method: str, path: str, body: object, headers: dict[str, str], wanted: tuple[int, ...]
    ) -> Answered:
        """Ask until one of these statuses comes, through crashes and refusals."""
        world = self.world
        assert world is not None
        while True:
            try:
                answer = await world.send(method, path, body, headers)
                if answer.status in wanted:
                    return answer
                if answer.status not in (202, 404, 429, 503, 507):
                    self.violations.append(f"{method} {path} is answered with {answer.status}: {answer.body[:200]!r}")
                    return answer
            except LifeEndedError:
                pass
            await asyncio.sleep(_RETRY_S)

    def _check_answer(self, client: _Client, answer: Answered) -> None:
        call = client.call
        right = expected(call.workflow, call.value)
        if answer.status == 200:
            self._count("completed")
            output = answer.json()["output"]
            if output != right:
                self.violations.append(f"request {client.number} is answered with {output}, not {right}: {call}")
            return
        if answer.status == 404 and client.id is not None:
            self.violations.append(f"request {client.number} was accepted, and is not known any more")
            return
        if answer.status not in (404, 409, 422, 429, 502, 503, 504):
            self.violations.append(f"request {client.number} is answered with {answer.status}: {answer.body[:200]!r}")
            return
        self._count(answer.json()["error"]["code"])

    def _count(self, ending: str) -> None:
        self._endings[ending] = self._endings.get(ending, 0) + 1

    # --- at the end ------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Wait until the gateway is at rest, and look whether everything is accounted for."""
        gateway = await self._serving()
        for _ in range(int(_PATIENCE_S / _POLL_S)):
            problem = self._unrest(gateway)
            if problem is None:
                return
            await asyncio.sleep(_POLL_S)
        self.violations.append(f"the gateway does not come to rest: {problem}")

    def _unrest(self, gateway: VirtualGateway) -> str | None:
        world = self.world
        assert world is not None
        if gateway.intake.inbox.total or gateway.runner.running or gateway.runner.waiting:
            inbox, runner = gateway.intake.inbox.total, gateway.runner
            return f"{inbox} requests in the inbox, {runner.running} run and {runner.waiting} wait in the runner"
        stats = gateway.journal.stats()
        if stats.open or stats.unwritten:
            return f"{stats.open} requests are open in the journal, {stats.unwritten} ends are not written"
        known = set()
        for deployment in gateway.host._all():
            runtime = deployment.runtime
            if runtime.open_requests:
                return f"{runtime.open_requests} requests are open in generation {deployment.generation}"
            members = runtime._instances._members
            if set(members) != set(runtime.controller.pool.instances):
                return f"the controller has {sorted(runtime.controller.pool.instances)}, the facade {sorted(members)}"
            known |= {member.spec.key for member in members.values()}
        found = set(world.cluster.instances())
        if known != found:
            return f"the gateway knows the instances {sorted(known)}, and there are {sorted(found)}"
        return None

    async def _check_ends(self, when: str) -> None:
        """What clients were told of ends is what they are told again."""
        for client in self._clients:
            if client.final is None:
                continue
            answer = await self._insist("GET", f"/v1/requests/{client.id}/result", None, {}, (200, 202, 404, 409))
            if _end_of(answer) != client.final:
                self.violations.append(
                    f"request {client.number} ended as {client.final}, and {when} as {_end_of(answer)}"
                )


def _end_of(answer: Answered) -> tuple[int, object]:
    """What a client is told of an end."""
    body = answer.json()
    return answer.status, body["output"] if answer.status == 200 else body.get("error", body)
