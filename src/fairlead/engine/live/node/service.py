"""The agent as a program of its own: dials a gateway, runs instances for it, and outlives it for a while.

It says what its node has and which instances run there. The gateway answers which of them it wants, and orders others.
Where the gateway is lost, the agent dials again and again; instances stay for the next gateway to adopt, and end when
none has come within the adoption window.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path

import msgspec

from fairlead.engine.live.contracts import Exit, InstanceSpec
from fairlead.engine.live.gpus import GpuChoice, MachineGpus, offered
from fairlead.engine.live.kernels.dialled import DialledKernel
from fairlead.engine.live.kernels.host import KernelHost
from fairlead.engine.live.kernels.instance import KernelInstance
from fairlead.engine.live.kernels.status import DeviceStatus
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.links import control
from fairlead.engine.live.links.address import Address, bound_address, parse_address
from fairlead.engine.live.links.backoff import delays_s
from fairlead.engine.live.links.caller import call
from fairlead.engine.live.links.greeting import GreetingError, RefusedError, agent_credential, instance_credential
from fairlead.engine.live.links.hub import Hub
from fairlead.engine.live.links.messages import MOST_CONTROL_BYTES, Refused, pack
from fairlead.engine.live.links.reading import Reader
from fairlead.engine.live.links.stream import Stream
from fairlead.engine.live.links.tls import TlsFiles, client_context, server_context
from fairlead.engine.live.logs.folder import LOGS, LogFolder
from fairlead.engine.live.logs.forwarding import Forwarder
from fairlead.engine.live.node.agent import NodeAgent
from fairlead.engine.live.node.code import CodeFolder
from fairlead.engine.live.node.passing import Passing
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import Reference
from fairlead.engine.live.wire import Begin, Dial, frame
from fairlead.model import Node

Log = Callable[[str], None]

_WELCOME_LIMIT_S = 10.0
_MOST_UNSENT = 1 << 20  # bytes on the connection, beyond which lines of instances wait
_USAGE_EVERY = 4  # beats
_LOOK_S = 1.0  # between two looks at the devices


class AgentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is to do.

    `join` is the gateway's address for agents. `folder` holds the code of apps, and values that do not fit into shared
    memory. `limits` is a kind of limiter; None for the best that works here. An agent that has found no gateway for
    `leave_after_s` ends; by default it goes on dialling. `gpus` says which GPUs to offer; None for those that Ray gave
    this process. `log_bytes` is what the lines of its
    instances take on its disk at most; the gateway gets them too.
    """

    join: Address
    token: str
    node: Node
    folder: Path
    tls: TlsFiles = TlsFiles()
    limits: str | None = None
    labels: Mapping[str, str] = {}
    leave_after_s: float = inf
    gpus: GpuChoice | None = GpuChoice(gpus="none")
    log_bytes: int = 64 << 20


class AgentService:
    """Runs instances for the gateway that it has joined.

    Args:
        order: What to do.
        listening: Where the values of this node can be read.
        log: Gets a line for everything worth knowing.
    """

    def __init__(self, order: AgentOrder, listening: socket.socket, log: Log) -> None:
        self._order = order
        self._log = log
        self._credential = agent_credential(order.token)
        self._tls = None if order.join.path else client_context(order.tls)
        # A reader proves itself by the token: it needs no certificate.
        served = server_context(TlsFiles(certfile=order.tls.certfile, keyfile=order.tls.keyfile))
        address = bound_address(listening)
        if address.path:
            served = None
        self._address = msgspec.structs.replace(address, is_tls=served is not None)
        self._listening = listening
        self._store = Store.make(order.folder / "values")
        self._store.home = f"@{order.node.name}@{self._address}"
        self._hub = Hub(order.token, served, log, self._store)
        self._node = order.node
        self._logs = LogFolder(order.folder / LOGS, order.log_bytes)
        self._agent = NodeAgent(self._ended, limits=order.limits, logs=self._logs)
        self._forwarder = Forwarder(LogFolder(self._logs.path, self._logs.most_bytes), order.node.name, self._forward)
        self._code = CodeFolder(order.folder / "code", lambda fetch: self._say(fetch))
        self._passing = Passing(self._store, lambda message: self._say(message))
        self._store.elsewhere = self._fetch
        self._reader = Reader(self._credential, client_context(order.tls))
        self._kernels = KernelHost(order.folder / "kernels", self._store, self._kernel_ended, self._evicted, log)
        self._devices: tuple[DeviceStatus, ...] = ()
        self._dialling: set[asyncio.Task[None]] = set()
        self._specs: dict[str, InstanceSpec] = {}  # of instances that run, or wait for their code
        self._connections: dict[str, DialledKernel] = {}  # of kernels
        self._leashes: dict[str, socket.socket] = {}
        self._errors: dict[str, str] = {}  # by instance that is stopped: why
        self._stream: Stream | None = None
        self._welcome: control.Welcome | None = None
        self._offered: tuple[str, ...] = ()  # keys of the instances in the last `Hello`
        self._epoch = 0
        self._heard_at = 0.0
        self._left = asyncio.Event()
        self._told: dict[str, Usage] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop, or drained by the gateway. RefusedError if the first gateway refuses the token."""
        self._loop = asyncio.get_running_loop()
        self._hub.open(self._listening)
        gpus = await asyncio.to_thread(_gpus, self._order)
        for line in gpus.lines if gpus.devices or self._order.node.devices else ():
            self._log(line)
        self._agent = NodeAgent(
            self._ended, limits=self._order.limits, gpus=gpus, changed=self._changed, logs=self._logs
        )
        others = (device for device in self._order.node.devices if device.serves == "kernels")
        self._node = msgspec.structs.replace(self._order.node, devices=(*gpus.devices, *others))
        self._agent.add([self._node])
        self._kernels.add([self._node])
        serving = self._loop.create_task(self._serve())
        stopping = self._loop.create_task(stop.wait())
        leaving = self._loop.create_task(self._left.wait())
        forwarding = self._loop.create_task(self._forwarder.run())
        looking = self._loop.create_task(self._look_at_devices())
        try:
            await asyncio.wait((serving, stopping, leaving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            tasks = (serving, stopping, leaving, forwarding, looking, *self._dialling)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._stream is not None:
                self._stream.close()
            await self._passing.close()
            await self._kernels.close()
            await self._agent.close()
            await self._hub.close()
            self._reader.close()
            self._store.close()

    # --- the connection --------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Dial, serve, and dial again."""
        lost_at = self._loop.time()
        delays = delays_s()
        last_line = ""
        while True:
            try:
                ended = await self._join()
                delays, last_line = delays_s(), ""
                lost_at = self._loop.time()
                self._log(f"the gateway at {self._order.join} is lost ({ended}); dialling again")
            except RefusedError:
                if self._epoch == 0:
                    raise
                self._log(f"the gateway at {self._order.join} refuses the token")
            except (OSError, GreetingError, _RefusedNodeError) as error:  # TimeoutError is an OSError
                line = self._explained(error)
                if line != last_line:
                    last_line = line
                    self._log(f"cannot join the gateway at {self._order.join} yet: {line}; trying again")
            adoption_s = 60.0 if self._welcome is None else self._welcome.adoption_s
            if self._specs and self._loop.time() - lost_at > adoption_s:
                self._log(f"no gateway for {adoption_s:g} s: the instances end")
                self._keep_only(())
            if self._loop.time() - lost_at > self._order.leave_after_s:
                self._log(f"no gateway for {self._order.leave_after_s:g} s: this agent ends")
                self._left.set()
            await asyncio.sleep(next(delays))

    def _explained(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return f"TLS failed ({error.reason or error}); --cacert is for a gateway that is served with --certfile"
        if isinstance(error, TimeoutError):
            return "it did not answer in time" + ("" if self._tls else "; one that speaks TLS needs --cacert")
        return str(error)

    async def _join(self) -> str:
        """Dial once, and serve the gateway until the connection ends; gives the reason."""
        ended: asyncio.Future[str] = self._loop.create_future()
        welcomed: asyncio.Future[None] = self._loop.create_future()
        welcomed.add_done_callback(lambda future: future.cancelled() or future.exception())  # it is looked at

        def over(reason: str) -> None:
            if not welcomed.done():
                welcomed.set_exception(OSError(reason))
            if not ended.done():
                ended.set_result(reason)

        stream = Stream(lambda body: self._heard(body, stream, welcomed), over, MOST_CONTROL_BYTES)
        await call(self._order.join, self._credential, self._tls, stream)
        try:
            running = tuple(control.Running(spec, self._agent.pid(key)) for key, spec in self._specs.items())
            hello = control.Hello(self._node, running, str(self._address), self._epoch, dict(self._order.labels))
            self._offered = tuple(self._specs)
            stream.send(pack(hello))
            async with asyncio.timeout(_WELCOME_LIMIT_S):
                await welcomed
            self._heard_at = self._loop.time()
            self._log(f"joined the gateway at {self._order.join} as node {self._order.node.name}")
            return await self._beat(stream, ended)
        finally:
            self._stream = None
            self._code.reset()
            for key in [key for key in self._specs if not self._agent.has(key)]:
                del self._specs[key]  # it waited for its code, or is a kernel's, which holds nothing
                self._kernels.stop(key, 0.0)
            stream.abort()

    async def _beat(self, stream: Stream, ended: "asyncio.Future[str]") -> str:
        """Tell the gateway that this agent is alive, until it is silent itself or the connection ends."""
        assert self._welcome is not None
        beats = 0
        while not ended.done():
            usage: dict[str, Usage] = {}
            devices = None
            if beats % _USAGE_EVERY == 0:
                now = {key: self._agent.usage(key) for key in self._specs}
                usage = {key: used for key, used in now.items() if self._told.get(key) != used}
                self._told = now
                devices = self._devices or None
            stream.send(pack(control.Beating(usage, devices)))
            beats += 1
            due = self._loop.time() + self._welcome.beat_s
            await asyncio.wait((ended,), timeout=self._welcome.beat_s)
            if self._loop.time() - due > self._welcome.beat_s:  # this process itself stood still
                self._heard_at = self._loop.time()
            elif self._loop.time() - self._heard_at > self._welcome.silence_s:
                return f"it has been silent for {self._welcome.silence_s:g} s"
        return ended.result()

    def _forward(self, lines: bytes) -> bool:
        """Send lines of instances to the gateway, unless it is not there or does not keep up."""
        stream = self._stream
        if stream is None or stream.backlog_bytes() > _MOST_UNSENT:
            return False
        stream.send(pack(control.Wrote(lines)))
        return True

    def _say(self, message: control.FromAgent) -> None:
        if self._stream is not None:
            self._stream.send(pack(message))

    # --- what the gateway tells ------------------------------------------------------------------------------------

    def _heard(self, body: bytes, stream: Stream, welcomed: "asyncio.Future[None]") -> None:
        message = control.to_agent.decode(body)
        self._heard_at = self._loop.time()
        if isinstance(message, control.Welcome):
            self._take_welcome(message, stream)
            if not welcomed.done():
                welcomed.set_result(None)
        elif isinstance(message, Refused):
            if not welcomed.done():
                welcomed.set_exception(_RefusedNodeError(message.reason))
        elif isinstance(message, control.Start):
            self._start(message)
        elif isinstance(message, control.Stop):
            self._stop(message)
        elif isinstance(message, control.Resize):
            self._resize(message)
        elif isinstance(message, control.Piece):
            self._code.take(message)
        elif isinstance(message, control.Release):
            for name in message.names:
                with suppress(ValueError):  # what is no name is nothing to delete
                    self._store.delete(name)
        elif isinstance(message, control.Forget):
            self._store.forget(message.pid, message.keep)
        elif isinstance(message, control.Leave):
            self._log(f"the gateway at {self._order.join} has drained node {self._order.node.name}: this agent ends")
            self._left.set()
        elif isinstance(message, control.Share):
            self._passing.share(message)
        elif isinstance(message, control.Bring):
            self._passing.bring(message)

    def _take_welcome(self, welcome: control.Welcome, stream: Stream) -> None:
        if self._epoch not in (0, welcome.epoch):
            self._store.clear()  # the requests that these values belonged to begin anew
        self._epoch, self._welcome, self._stream = welcome.epoch, welcome, stream
        self._passing.begin(welcome.store, welcome.epoch)
        self._told = {}
        for key in self._offered:
            if key not in self._specs:  # it ended after `Hello`, when nothing could be said of it
                self._say(control.Gone(key, Exit("it ended while its agent joined")))
        self._keep_only(welcome.keep)

    def _keep_only(self, keys: tuple[str, ...]) -> None:
        for key in set(self._specs) - set(keys):
            self._stop(control.Stop(key, 0.0))

    def _start(self, order: control.Start) -> None:
        key = order.spec.key
        if key in self._specs:
            return
        self._specs[key] = order.spec
        self._code.want(order.sha256, Path(order.spec.code.file).name, lambda found: self._spawn(order.spec, found))

    def _spawn(self, spec: InstanceSpec, code: Path | str) -> None:
        if spec.key not in self._specs:
            return  # it was stopped meanwhile
        if isinstance(code, str):
            self._give_up(spec.key, code)
            return
        assert self._welcome is not None
        if spec.is_kernel:
            task = self._loop.create_task(self._start_kernel(spec, code, self._welcome.adoption_s))
            self._dialling.add(task)
            task.add_done_callback(self._dialling.discard)
            return
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            self._give_up(spec.key, f"it could not be started: {error}")
            return
        own, files, store = instance_credential(self._order.token, spec.key), self._order.tls, self._store
        dial = Dial(
            str(self._order.join),
            spec.key,
            own.identity,
            own.secret,
            store.home,
            self._welcome.adoption_s,
            files.certfile,
            files.keyfile,
            files.cacert,
            files.is_pinned,
        )
        spill = None if store.spill is None else str(store.spill)
        begin = Begin(str(code), spec.function, str(store.folder), spill, spec.max_items)
        self._leashes[spec.key] = ours
        self._agent.start(spec, "fairlead.engine.live.links.instance", theirs)
        with suppress(OSError):  # it has died already
            ours.sendall(frame(dial) + frame(begin))  # its limits hold now

    def _stop(self, order: control.Stop) -> None:
        key = order.key
        if key not in self._specs:
            return
        if self._kernels.has(key):
            self._kernels.stop(key, order.grace_s, order.error or "it was stopped")
            return
        if not self._agent.has(key):
            self._give_up(key, "it was stopped before it started")
            return
        leash = self._leashes.get(key)
        if leash is not None and order.grace_s > 0:
            leash.close()  # an idle instance ends by it
        self._agent.stop(key, order.grace_s, order.error)

    def _resize(self, order: control.Resize) -> None:
        spec = self._specs.get(order.key)
        if spec is not None:
            self._specs[order.key] = msgspec.structs.replace(spec, vcpus=order.vcpus)
            self._agent.resize(order.key, order.vcpus)

    async def _start_kernel(self, spec: InstanceSpec, code: Path, limit_s: float) -> None:
        """Dial the gateway for an instance of a kernel, and start it."""
        key = spec.key
        dialled = DialledKernel(
            key,
            lambda batch: None if instance is None else instance.run(batch),
            lambda reason: self._kernels.stop(key, 0.0, reason),
        )
        instance: KernelInstance | None = None
        try:
            await dialled.open(self._order.join, instance_credential(self._order.token, key), self._tls, limit_s)
        except (OSError, GreetingError) as error:
            if key in self._specs:
                self._give_up(key, f"its gateway cannot be reached: {error}")
            return
        if key not in self._specs:
            dialled.close()
            return
        self._connections[key] = dialled
        instance = self._kernels.start(spec, code, dialled.say)

    def _kernel_ended(self, spec: InstanceSpec, how: Exit) -> None:
        connection = self._connections.pop(spec.key, None)
        if connection is not None:
            connection.close()
        if self._specs.pop(spec.key, None) is not None:
            self._say(control.Gone(spec.key, how))

    def _evicted(self, key: str, buffers: tuple[str, ...]) -> None:
        self._say(control.Evicted(key, buffers))

    def _fetch(self, wanted: Reference) -> bytearray:
        """The bytes of a value that another node or the gateway holds. Blocks. Raises LostValueError."""
        address = self._order.join
        if wanted.address:
            address = parse_address(wanted.address)
        elif self._tls is not None and not address.path:
            address = msgspec.structs.replace(address, is_tls=True)
        return self._reader.fetch(address, wanted.name, wanted.size, wanted.node)

    async def _look_at_devices(self) -> None:
        """Keep an account of the devices, which the gateway is told with every few beats."""
        while self._order.node.devices:
            await self._kernels.look()
            self._devices = self._kernels.devices
            await asyncio.sleep(_LOOK_S)

    def _give_up(self, key: str, error: str) -> None:
        """An instance ends before it had a process."""
        del self._specs[key]
        self._say(control.Gone(key, Exit(error)))

    def _changed(self, node: Node) -> None:
        """A GPU was lost, or is back."""
        self._node = node
        self._log(f"this node has {offered(node.devices)} now")
        self._say(control.Changed(node))

    def _ended(self, spec: InstanceSpec, how: Exit) -> None:
        del self._specs[spec.key]
        self._leashes.pop(spec.key).close()
        self._say(control.Gone(spec.key, how))
        if self._stream is None:  # nothing of it was reported to whoever comes next
            self._store.forget(how.pid)


def _gpus(order: AgentOrder) -> MachineGpus:
    return MachineGpus.given() if order.gpus is None else MachineGpus.find(order.gpus)


class _RefusedNodeError(Exception):
    """The gateway does not take this node in."""
