"""Apps by name, each in its current generation: what the gateway talks to.

Replacing an app starts the new generation beside the old one, switches over once it is ready, and lets the old one
finish what it has: no request is dropped. A generation is served from a snapshot of its source. Which apps there are,
and their snapshots, are kept in the state folder: a gateway that starts again serves what its predecessor did.
"""

import asyncio
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from fairlead.app.manifest import Manifest, WorkflowSpec
from fairlead.app.scenario import declared_nodes, measured_in, profiles_of, scenario_of, with_measured_devices
from fairlead.app.snapshot import Snapshot
from fairlead.engine.live.clock import REAL, Clock
from fairlead.engine.live.contracts import AppCode, HasDevices, Provider, Values
from fairlead.engine.live.data import LocalValues
from fairlead.engine.live.gateway.served import Accepted
from fairlead.engine.live.glance import AppGlance, instances_of, nodes_of
from fairlead.engine.live.gpus import GpuChoice
from fairlead.engine.live.instances import Instances, SharedProvider, overcommitted
from fairlead.engine.live.kernels.finding import DeviceChoice, DeviceFinder
from fairlead.engine.live.known import KnownApp, KnownApps, Source
from fairlead.engine.live.logs.folder import LOGS, MOST_BYTES, LogFolder
from fairlead.engine.live.needs import Needs
from fairlead.engine.live.nodes import EmulatedNodes
from fairlead.engine.live.providers.local import LocalProvider
from fairlead.engine.live.records import RunHead, RunLog
from fairlead.engine.live.runtime import Runtime
from fairlead.engine.live.sharing import Seat, Sharing
from fairlead.engine.live.status import AppStatus, MonitorStatus, Status
from fairlead.engine.live.store import Store
from fairlead.engine.live.tracing.tracer import Tracer
from fairlead.engine.live.transit import Done, Origin
from fairlead.engine.live.values import MOST_ITEMS, Value
from fairlead.errors import AmbiguousNameError, ConfigError, DuplicateNameError, Fault, UnknownNameError
from fairlead.model import Bounds, Cluster, Node
from fairlead.policy import make_policy
from fairlead.runlog import prune_runs
from fairlead.workload import PolicyChoice, Scenario

Log = Callable[[str], None]

_PARTS_HAVE_NONE = "the app names its nodes, which are parts of this machine without GPUs"
_MOST_LOOKED_AT = 20  # instances of an app whose CPU time is read for one picture of the dashboard
_RUNS_KEPT = 20  # every deployment leaves one, and a crash makes another


class Ticket(msgspec.Struct, frozen=True):
    """Names a request: the app, which deployment of it, and the number there."""

    app: str
    generation: int
    request: int


@dataclass(frozen=True, kw_only=True)
class Options:
    """How apps are served, where their own files do not say.

    Args:
        policy: Wins over the policy that an app names.
        policy_parameters: Of `policy`; without one, of the app's own.
        scaler: Wins over the scaler that an app names.
        overcommit: How many times their vCPUs nodes promise; None leaves them as they are.
        weights: What part of the nodes an app gets where all want more than there is; 1 where it is not named.
        limits: A kind of limiter; None for the best that works here.
        gpus: Which GPUs of this machine to offer; None for none.
        nodes: Take the place of those that apps ask for.
        is_watched: Whether the monitor watches the nodes; None for where there is a scaler.
        warms_up: Whether the examples of apps run before they are served.
        profiled: Whether the profiles that lie beside apps are used.
        times_decisions: Whether records have the CPU time of each decision.
        is_restart: Whether what cannot be started now is tried again, not given up.
        max_items: How many items a list may give to a map stage.
        growth: How many nodes of each kind may be asked for.
        devices: What runs the kernels of apps, where the provider makes the nodes.
        log_bytes: What the lines of functions take of the disk at most.
    """

    policy: PolicyChoice | None = None
    policy_parameters: Mapping[str, object] = field(default_factory=dict)
    scaler: PolicyChoice | None = None
    control_period_s: float | None = None
    overcommit: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    limits: str | None = None
    gpus: GpuChoice | None = None
    nodes: EmulatedNodes | None = None
    is_watched: bool | None = None
    warms_up: bool = True
    profiled: bool = True
    records: bool = True
    times_decisions: bool = False
    record_bytes: int = 256 << 20
    is_restart: bool = False
    max_items: int = MOST_ITEMS
    log_bytes: int = MOST_BYTES
    growth: Mapping[str, Bounds] = field(default_factory=dict)
    devices: DeviceChoice = field(default_factory=DeviceChoice)
    apps: tuple[Path, ...] = field(default=())


@dataclass(frozen=True)
class _Deployment:
    """One generation of one app."""

    source: Source
    generation: int
    runtime: Runtime


class Host:
    """Serves apps. Made and used on the thread of the event loop.

    Args:
        state: The folder that holds what outlives a process.
        options: How to serve.
        log: Gets a line for everything worth knowing.
        broken: See `Runtime`.
        provider: Where instances of all apps run; None for this machine.
        clock: Where instants come from.
        values: Where their data lies; None for this machine.
        store: What this gateway keeps itself; by default it makes one.
        tracer: See `Runtime`; closed with the host.
    """

    def __init__(
        self,
        state: Path,
        options: Options,
        log: Log,
        broken: Callable[[Exception], None] | None = None,
        provider: Provider | None = None,
        clock: Clock = REAL,
        values: Values | None = None,
        store: Store | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer
        self._broken = broken
        self._clock = clock
        self._state = state
        self._runs = state / "runs"
        self._options = options
        self._log = log
        self._began = clock.now()
        self._store = store or Store.make(state / "values")
        self._values: Values = values or LocalValues(self._store)
        if provider is None:
            provider = LocalProvider(
                self._store,
                emulated=options.nodes,
                limits=options.limits,
                gpus=options.gpus,
                folder=state / "kernels",
                logs=LogFolder(state / LOGS, options.log_bytes),
                log=log,
            )
        self._finder = DeviceFinder(state / "kernels" / "cache", options.devices, log)
        self._sharing = Sharing(clock.now)
        self._shared = SharedProvider(provider, self._sharing, options.overcommit, log)
        self._apps: dict[str, _Deployment] = {}
        self._former: dict[str, list[_Deployment]] = {}  # generations that finish what they have
        self._generation = _last_run(state)  # numbers go on where a former gateway ended, so that no id comes twice
        self._ending: set[asyncio.Task[None]] = set()
        self._known = KnownApps(state, log, profiled=options.profiled)
        self._unserved: dict[str, KnownApp] = {}  # apps that were served before, and could not be started
        self._changing = asyncio.Lock()
        self._hurry = asyncio.Event()
        self._names: dict[str, tuple[_Deployment, str] | None] = {}  # None: ambiguous
        self.is_ready = False
        self.is_draining = False

    async def open(self) -> None:
        """Serve the apps of the options, and those that were deployed before. ConfigError where the former cannot be.

        After a restart those count that were served last: what the options name may have been replaced or removed.
        """
        await self._shared.open()
        generation, known = self._known.read()
        self._generation = max(self._generation, generation, self._known.last_generation())
        if known is None or not self._options.is_restart:
            for path in self._options.apps:
                await self._deploy(partial(self._known.take, path), replace=True)
        for name, app in (known or {}).items():
            if name in self._apps:
                continue  # what is named now goes before what was served then
            try:
                await self._deploy(partial(self._known.find, app), replace=True)
            except ConfigError as error:  # it was not asked for now: the others need not suffer
                self._log(f"{name}, which was served before, is not served now, and its requests wait: {error}")
                self._unserved[name] = app
        self._shared.end_orphans()
        self.is_ready = True
        await self._leave_word()

    # --- requests --------------------------------------------------------------------------------------------------

    def submit(
        self,
        workflow: str,
        value: Value,
        *,
        deadline_s: float | None = None,
        budget_usd: float | None = None,
        done: Done,
        late_limit_s: float | None = None,
        origin: Origin | None = None,
    ) -> Ticket:
        """Take a request. See `Runtime.submit`; UnknownNameError if there is no such workflow."""
        deployment, name = self._find(workflow)
        request = deployment.runtime.submit(
            name,
            value,
            deadline_s=deadline_s,
            budget_usd=budget_usd,
            done=done,
            late_limit_s=late_limit_s,
            origin=origin,
        )
        return Ticket(deployment.runtime.manifest.name, deployment.generation, request)

    def cancel(self, ticket: Accepted, /) -> None:
        """Give a request up, unless it has ended."""
        deployment = self._deployment(ticket.app, ticket.generation)
        if deployment is not None:
            deployment.runtime.cancel(ticket.request)

    def read(self, value: Value) -> object:
        """What an answer stands for. May be called from any thread."""
        return self._values.read(value)

    def encoded(self, value: Value) -> bytes:
        """An answer as MessagePack. May be called from any thread."""
        return self._values.encoded(value)

    def size_bytes(self, value: Value) -> int:
        """How large an answer is as MessagePack."""
        return self._values.size_bytes(value)

    def release(self, value: Value) -> None:
        """An answer has been read."""
        self._values.release(value)

    # --- apps ------------------------------------------------------------------------------------------------------

    def manifests(self) -> tuple[Manifest, ...]:
        """The apps there are."""
        return tuple(deployment.runtime.manifest for deployment in self._apps.values())

    def snapshots(self) -> tuple[Snapshot, ...]:
        """The apps there are, each as it was deployed."""
        return tuple(deployment.source.snapshot for deployment in self._apps.values())

    def tried(self, app: str) -> Mapping[str, int]:
        """How often functions of an app ran before its first request, because they were never measured."""
        return self._apps[app].runtime.tried

    def workflow(self, name: str) -> tuple[Manifest, WorkflowSpec]:
        """A workflow by its name, or by "app.workflow"."""
        deployment, workflow = self._find(name)
        manifest = deployment.runtime.manifest
        return manifest, next(spec for spec in manifest.workflows if spec.name == workflow)

    async def deploy(self, path: Path, *, replace: bool = False) -> Manifest:
        """Start the app of a file, or of a snapshot, and switch over to it; the former generation finishes what it has.

        Raises:
            ConfigError: The file is no app, or a function of it cannot start: what was served before still is.
            DuplicateNameError: There is an app of that name, and it is not to be replaced.
        """
        manifest = await self._deploy(partial(self._known.take, path), replace=replace)
        await self._leave_word()
        return manifest

    async def _deploy(self, find: Callable[[], Source], *, replace: bool) -> Manifest:
        async with self._changing:
            source = await asyncio.to_thread(find)
            manifest = source.snapshot.manifest
            former = self._apps.get(manifest.name)
            if former is not None and not replace:
                raise DuplicateNameError(f"An app named {manifest.name!r} is served already; replace or remove it.")
            self._generation = generation = self._generation + 1
            await asyncio.to_thread(self._known.begin, generation)
            deployment = await self._start(source, generation)
            self._apps[manifest.name] = deployment
            self._unserved.pop(manifest.name, None)
            self._index()
            if former is not None:
                self._retire(former)
            return manifest

    async def remove(self, app: str) -> None:
        """Serve an app no more; what it has is finished. One that could not be started is forgotten."""
        async with self._changing:
            if app in self._apps:
                self._retire(self._apps.pop(app), is_removed=True)
                self._index()
            elif self._unserved.pop(app, None) is None:
                raise UnknownNameError("app", app, self._apps)
        await self._leave_word()

    def scale(self, app: str, function: str, instances: int | None) -> None:
        """Fix the number of a function's instances; None leaves it to the policies again."""
        self._runtime(app, function).scale(function, instances)

    def move(self, app: str, function: str, node: str) -> None:
        """Bring the instances of a function to a node: new ones are ready there before the old ones go."""
        runtime = self._runtime(app, function)
        if node not in runtime.controller.nodes:
            raise UnknownNameError("node", node, runtime.controller.nodes)
        runtime.move(function, node)

    def drain_node(self, node: str) -> None:
        """Start a node's instances elsewhere, then let it take no more work and leave. See `NodeDrains`."""
        self._shared.drains.begin(node)

    def undrain_node(self, node: str) -> None:
        """Let a node be used again that is being drained."""
        self._shared.drains.undo(node)

    def nodes(self) -> tuple[tuple[Node, str], ...]:
        """All nodes, each with its state: up, moving, draining or leaving."""
        stages = self._shared.drains.stages()
        known = {node.name: node for node in (*self._shared.inventory.nodes, *self._shared.drains.nodes())}
        return tuple((node, stages.get(name, "up")) for name, node in known.items())

    def _runtime(self, app: str, function: str) -> Runtime:
        if app not in self._apps:
            raise UnknownNameError("app", app, self._apps)
        runtime = self._apps[app].runtime
        if function not in runtime.scenario.functions:
            raise UnknownNameError("function", function, runtime.scenario.functions)
        return runtime

    def obstacles(self) -> tuple[str, ...]:
        """Why workflows cannot run now, as sentences; empty if all of them can."""
        return tuple(line for deployment in self._apps.values() for line in deployment.runtime.obstacles())

    async def look_at_devices(self) -> None:
        """Have the next status show how the devices for kernels stand now."""
        provider = self._shared.provider
        if isinstance(provider, HasDevices):
            await provider.look_at_devices()

    def status(self) -> Status:
        """How it all stands."""
        obstacles = self.obstacles()
        provider = self._shared.provider
        return Status(
            uptime_s=self._clock.now() - self._began,
            is_ready=self.is_ready and not obstacles,
            obstacles=obstacles,
            is_draining=self.is_draining,
            apps=tuple(self._app_status(name, deployment) for name, deployment in self._apps.items()),
            state=str(self._state.resolve()),
            devices=tuple(provider.devices) if isinstance(provider, HasDevices) else (),
        )

    def glance(self) -> tuple[AppGlance, ...]:
        """What the dashboard shows of every app now."""
        return tuple(self._app_glance(name, deployment) for name, deployment in self._apps.items())

    def _app_glance(self, name: str, deployment: _Deployment) -> AppGlance:
        runtime = deployment.runtime
        return AppGlance(
            name=name,
            generation=deployment.generation,
            policy=runtime.policy_name,
            scaler=runtime.scaler_name,
            uptime_s=runtime.now,
            draining=len(self._former.get(name, ())),
            open=dict(runtime.open_by_workflow()),
            functions=runtime.tally.functions(runtime.notes(), runtime.cpu_s(_MOST_LOOKED_AT), runtime.caches()),
            stages=runtime.tally.stages(),
            nodes=nodes_of(runtime.controller, self._shared.drains.stages()),
            instances=instances_of(runtime.controller, runtime.now),
        )

    async def drain(self, timeout_s: float) -> bool:
        """Wait for what is open; False if something was still open when time was up, which is then given up."""
        self.is_draining = True
        waits = [asyncio.ensure_future(deployment.runtime.drained()) for deployment in self._all()]
        if not waits:
            return True
        hurry = asyncio.ensure_future(self._hurry.wait())
        finished = asyncio.gather(*waits)
        await asyncio.wait((finished, hurry), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        is_done = finished.done()
        for wait in (finished, hurry):
            wait.cancel()
        await asyncio.gather(finished, hurry, return_exceptions=True)
        if not is_done:
            for deployment in self._all():
                deployment.runtime.give_up()
        return is_done

    def hurry(self) -> None:
        """Wait for nothing more that is open."""
        self._hurry.set()

    async def close(self) -> None:
        """End everything at once."""
        self.is_ready = False
        for task in self._ending:
            task.cancel()
        for deployment in self._all():
            await deployment.runtime.close()
        self._apps.clear()
        self._former.clear()
        await self._shared.close()
        self._store.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.close)

    # --- inside ----------------------------------------------------------------------------------------------------

    async def _start(self, source: Source, generation: int) -> _Deployment:
        manifest = source.snapshot.manifest
        scenario = await self._scenario_now(source)
        self._shared.declare(scenario.cluster.nodes)
        code = AppCode(str(source.file), source.file.name, source.snapshot.requirements, manifest.name)
        instances = Instances(
            self._shared, self._values, code, generation, self._log, max_items=self._options.max_items
        )
        record = self._record(manifest, scenario, generation) if self._options.records else None
        watched = self._options.is_watched
        try:
            runtime = Runtime(
                manifest,
                scenario,
                instances,
                self._log,
                record,
                broken=self._broken,
                is_watched=watched,
                max_items=self._options.max_items,
                warms_up=self._options.warms_up,
                is_timed=self._options.times_decisions,
                seat=self._seat(manifest.name, generation, scenario),
                clock=self._clock,
                tracer=self._tracer,
            )
            try:
                await runtime.open(is_patient=self._options.is_restart and not self.is_ready)
            except BaseException:
                await runtime.close()
                raise
        except BaseException:  # no request was taken: there is nothing to look at later
            if record is not None:
                record.close(0.0)
                shutil.rmtree(self._runs / str(generation), ignore_errors=True)
            raise
        return _Deployment(source, generation, runtime)

    def _seat(self, app: str, generation: int, scenario: Scenario) -> Seat:
        weight = self._options.weights.get(app, 1.0)
        return Seat(self._sharing, generation, app, weight, Needs(scenario).least, scenario.cluster.nodes)

    async def _scenario_now(self, source: Source) -> Scenario:
        """The scenario with the nodes that there are now. One may come or go while it is made; then it is made again.

        Until its runtime is open, a deployment is not told of nodes.
        """
        while True:
            nodes = self._shared.inventory.nodes
            scenario = await asyncio.to_thread(self._scenario, source)
            if self._shared.inventory.nodes == nodes:
                return scenario

    def _scenario(self, source: Source) -> Scenario:
        manifest = source.snapshot.manifest
        own = {**manifest.parameters, **self._options.policy_parameters}
        policy = self._options.policy or PolicyChoice(name=manifest.policy, parameters=own)
        if make_policy(policy.name, policy.parameters).clairvoyant:
            what = f"{policy.name} with these parameters must know the future, which a live system does not."
            raise ConfigError(manifest.name, [Fault("policy", what)])
        can = self._shared.provider.capabilities
        is_given = not can.declares
        if is_given and not self._shared.inventory.nodes:
            raise ConfigError(manifest.name, [Fault("nodes", "no node is connected now; deploy again when one is.")])
        if is_given:
            nodes = self._shared.inventory.nodes
        else:
            nodes = self._finder.complete(declared_nodes(manifest), is_needed=manifest.has_kernels)
        nodes = with_measured_devices(nodes, measured_in(source.snapshot))
        if can.devices and not manifest.nodes:
            (node,) = nodes  # its GPUs come first: an agent knows them by their number
            nodes = (msgspec.structs.replace(node, devices=(*can.devices, *node.devices)),)
        no_gpu = _PARTS_HAVE_NONE if manifest.nodes and not is_given else can.no_devices
        profiles = profiles_of(source.snapshot)
        scenario = scenario_of(manifest, profiles=profiles, cluster=Cluster(nodes=nodes), no_gpu=no_gpu)
        if self._options.overcommit is not None:
            nodes = overcommitted(scenario.cluster.nodes, self._options.overcommit)
            scenario = replace(scenario, cluster=msgspec.structs.replace(scenario.cluster, nodes=nodes))
        period_s = self._options.control_period_s or scenario.control_period_s
        kinds = scenario.cluster.kinds
        growth = {kind: each for kind, each in self._options.growth.items() if kind in kinds}
        for kind in sorted(self._options.growth.keys() - kinds.keys()):
            known = ", ".join(sorted(kinds))
            self._log(f"{manifest.name}: --grow {kind} has no effect: no node is of this kind; the kinds are {known}")
        return replace(scenario, policy=policy, scaler=self._options.scaler, control_period_s=period_s, growth=growth)

    def _record(self, manifest: Manifest, scenario: Scenario, generation: int) -> RunLog:
        self._runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        prune_runs(self._runs, _RUNS_KEPT)
        described = msgspec.to_builtins(manifest)
        head = RunHead(
            app=manifest.name,
            scenario=scenario,
            generation=generation,
            started_unix=self._clock.wall(),
            manifest=described,
            awaits_end=True,
        )
        return RunLog(self._runs / str(generation), head, keep_bytes=self._options.record_bytes, say=self._log)

    def _retire(self, deployment: _Deployment, *, is_removed: bool = False) -> None:
        name = deployment.runtime.manifest.name
        deployment.runtime.retire(is_removed=is_removed)
        self._former.setdefault(name, []).append(deployment)
        task = asyncio.ensure_future(self._finish(name, deployment))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _finish(self, name: str, deployment: _Deployment) -> None:
        await deployment.runtime.drained()
        await deployment.runtime.close()
        self._former[name].remove(deployment)
        await self._leave_word()  # its snapshot may not be needed any more

    def _all(self) -> list[_Deployment]:
        return [*self._apps.values(), *(one for former in self._former.values() for one in former)]

    def _deployment(self, app: str, generation: int) -> _Deployment | None:
        candidates: list[_Deployment | None] = [self._apps.get(app), *self._former.get(app, ())]
        for deployment in candidates:
            if deployment is not None and deployment.generation == generation:
                return deployment
        return None

    def _index(self) -> None:
        names: dict[str, tuple[_Deployment, str] | None] = {}
        for app, deployment in self._apps.items():
            for spec in deployment.runtime.manifest.workflows:
                names[f"{app}.{spec.name}"] = deployment, spec.name
                names[spec.name] = None if spec.name in names else (deployment, spec.name)
        self._names = names

    def _find(self, workflow: str) -> tuple[_Deployment, str]:
        found = self._names.get(workflow)
        if found is None:
            full = [name for name, what in self._names.items() if what]
            if workflow in self._names:
                same = [name for name in full if name.endswith(f".{workflow}")]
                raise AmbiguousNameError("workflow", workflow, same)
            raise UnknownNameError("workflow", workflow, full)
        return found

    def _app_status(self, name: str, deployment: _Deployment) -> AppStatus:
        runtime = deployment.runtime
        watch = runtime.watch
        provider, overhead = (None, 0.0) if watch is None else (watch.provider, watch.overhead())
        return AppStatus(
            name=name,
            generation=deployment.generation,
            policy=runtime.policy_name,
            scaler=runtime.scaler_name,
            uptime_s=runtime.now,
            draining=len(self._former.get(name, ())),
            refused_actions=runtime.refused_actions,
            workflows=runtime.tally.workflows(runtime.now, runtime.open_by_workflow()),
            functions=runtime.tally.functions(runtime.notes(), runtime.cpu_s(), runtime.caches(), runtime.usage),
            nodes=runtime.tally.nodes(
                {} if watch is None else watch.means(),
                self._whole(),
                self._shared.drains.stages(),
                {node.name: node.devices for node in self._shared.inventory.nodes},
            ),
            monitor=None if provider is None else MonitorStatus(provider=provider, overhead=overhead),
        )

    def _whole(self) -> dict[str, float]:
        """vCPUs of every node, where apps have leases of it."""
        if not self._sharing.is_shared:
            return {}
        return {node.name: node.vcpus for node in self._shared.inventory.nodes}

    async def _leave_word(self) -> None:
        """Note which apps are served, for the next gateway. Not while one is being deployed: its snapshot is new."""
        async with self._changing:
            served = {
                name: KnownApp(deployment.source.file.name, deployment.source.snapshot.address)
                for name, deployment in self._apps.items()
            }
            in_use = [deployment.source.file for deployment in self._all()]
            await asyncio.to_thread(self._known.write, self._generation, self._unserved | served, in_use)


def _last_run(state: Path) -> int:
    """The number of the last run that was recorded there."""
    runs = state / "runs"
    names = [folder.name for folder in runs.iterdir()] if runs.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=0)
