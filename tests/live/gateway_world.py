"""A gateway on a real socket, in front of a small host that runs plain Python functions in this process."""

import asyncio
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import monotonic

import msgspec
import uvloop

from fairlead.app.describe import describe
from fairlead.app.manifest import FunctionSpec, Input, Manifest, StageSpec, WorkflowSpec
from fairlead.engine.live.draining import DrainError
from fairlead.engine.live.gateway import Settings
from fairlead.engine.live.gateway.server import serve
from fairlead.engine.live.glance import AppGlance, StageGlance
from fairlead.engine.live.journal import Journal
from fairlead.engine.live.status import AppStatus, FunctionStatus, Status, WorkflowStatus
from fairlead.engine.live.values import Ending, LostValueError, Value, decode, encode
from fairlead.errors import AmbiguousNameError, DuplicateNameError, UnknownNameError
from fairlead.model import Node


class Refuse(Exception):  # noqa: N818
    """Raised by a function of the small host to end a request otherwise than completed."""

    def __init__(self, outcome: str, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.retry_after_s = retry_after_s


class Ticket(msgspec.Struct, frozen=True):
    app: str
    generation: int
    request: int


def manifest_of(app: str, *workflows: str, slo_s: float | None = 1.0) -> Manifest:
    return Manifest(
        name=app,
        functions=tuple(FunctionSpec(name=name) for name in workflows),
        workflows=tuple(
            WorkflowSpec(
                name=name, stages=(StageSpec(name=name, function=name, source=Input()),), answer=Input(), slo_s=slo_s
            )
            for name in workflows
        ),
    )


@dataclass
class SmallHost:
    """Serves functions by "app.workflow". A function gets (input, deadline in seconds) and is run after `delay_s`."""

    functions: dict[str, Callable[[object, float], object]]
    delay_s: dict[str, float] = field(default_factory=dict)
    is_ready: bool = True
    is_draining: bool = False

    def __post_init__(self) -> None:
        self.calls: list[str] = []
        self.cancelled: list[int] = []
        self.released = 0
        self.scaled: dict[tuple[str, str], int | None] = {}
        self.moved: dict[tuple[str, str], str] = {}
        self.states = {"n0": "up", "n1": "up"}  # of nodes
        self._began = monotonic()
        self._number = 0
        self._open: dict[int, tuple[asyncio.TimerHandle | asyncio.Handle, str, float, float, Callable]] = {}
        self._manifests: dict[str, Manifest] = {}
        for name in self.functions:
            app, workflow = name.split(".")
            known = self._manifests.get(app)
            names = [*(spec.name for spec in known.workflows), workflow] if known else [workflow]
            self._manifests[app] = manifest_of(app, *names)

    def submit(self, workflow, value: Value, *, deadline_s=None, budget_usd=None, done, late_limit_s=None, origin=None):
        manifest, spec = self.workflow(workflow)
        full = f"{manifest.name}.{spec.name}"
        self.calls.append(full)
        self._number += 1
        number = self._number
        now = monotonic() - self._began
        allowed_s = (spec.slo_s or inf) if deadline_s is None else deadline_s
        loop = asyncio.get_running_loop()
        delay_s = self.delay_s.get(full, 0.0)
        run = (self._run, number, value, allowed_s)
        handle = loop.call_later(delay_s, *run) if delay_s else loop.call_soon(*run)
        self._open[number] = handle, full, now, now + allowed_s, done
        return Ticket(manifest.name, 1, number)

    def _run(self, number: int, value: Value, allowed_s: float) -> None:
        _, full, arrival, deadline, done = self._open.pop(number)
        ending = {"request": number, "workflow": full, "arrival": arrival, "deadline": deadline}
        try:
            given = self.functions[full](decode(value), allowed_s)
            ending |= {"outcome": "completed", "value": encode(given), "cost_usd": 0.25}
        except LostValueError as error:
            ending |= {"outcome": "failed", "reason": str(error), "code": "value_lost"}
        except Refuse as refusal:
            ending |= {"outcome": refusal.outcome, "reason": str(refusal), "retry_after_s": refusal.retry_after_s}
        except Exception as error:
            ending |= {"outcome": "failed", "reason": f"{type(error).__name__}: {error}"}
        done(Ending(**ending, end=monotonic() - self._began))

    def cancel(self, ticket: Ticket, /) -> None:
        found = self._open.pop(ticket.request, None)
        if found is not None:
            handle, full, arrival, deadline, done = found
            handle.cancel()
            self.cancelled.append(ticket.request)
            end = monotonic() - self._began
            ending = Ending(
                request=ticket.request, workflow=full, outcome="cancelled", arrival=arrival, end=end, deadline=deadline
            )
            asyncio.get_running_loop().call_soon(done, ending)

    def workflow(self, name: str):
        full = {f"{manifest.name}.{spec.name}": (manifest, spec) for manifest, spec in self._workflows()}
        chosen = [one for one, (_, spec) in full.items() if name in (one, spec.name)]
        if not chosen:
            raise UnknownNameError("workflow", name, [*full, *(spec.name for _, spec in full.values())])
        if len(chosen) > 1:
            raise AmbiguousNameError("workflow", name, chosen)
        return full[chosen[0]]

    def _workflows(self):
        return [(manifest, spec) for manifest in self._manifests.values() for spec in manifest.workflows]

    def obstacles(self) -> tuple[str, ...]:
        return ()

    def manifests(self) -> tuple[Manifest, ...]:
        return tuple(self._manifests.values())

    async def deploy(self, path: Path, *, replace: bool = False) -> Manifest:
        manifest = await asyncio.to_thread(describe, path)
        if manifest.name in self._manifests and not replace:
            raise DuplicateNameError(manifest.name)
        for workflow in manifest.workflows:
            self.functions.setdefault(f"{manifest.name}.{workflow.name}", lambda value, _: value)
        self._manifests[manifest.name] = manifest
        return manifest

    async def remove(self, app: str) -> None:
        if app not in self._manifests:
            raise UnknownNameError("app", app, self._manifests)
        del self._manifests[app]

    def scale(self, app: str, function: str, instances: int | None) -> None:
        self.scaled[app, function] = instances

    def nodes(self) -> tuple[tuple[Node, str], ...]:
        return tuple((Node(name=name, kind="node", vcpus=2), state) for name, state in self.states.items())

    def drain_node(self, node: str) -> None:
        self._check_node(node)
        self.states[node] = "moving"

    def undrain_node(self, node: str) -> None:
        self._check_node(node)
        if self.states[node] == "up":
            raise DrainError(f"Node {node!r} is not being drained.")
        self.states[node] = "up"

    def _check_node(self, node: str) -> None:
        if node not in self.states:
            raise UnknownNameError("node", node, self.states)

    def move(self, app: str, function: str, node: str) -> None:
        if node != "local":
            raise UnknownNameError("node", node, ["local"])
        self.moved[app, function] = node

    async def look_at_devices(self) -> None: ...

    def status(self) -> Status:
        return Status(
            uptime_s=monotonic() - self._began,
            is_ready=self.is_ready,
            is_draining=self.is_draining,
            apps=tuple(_status(manifest) for manifest in self._manifests.values()),
        )

    def glance(self) -> tuple[AppGlance, ...]:
        return tuple(_glance(manifest) for manifest in self._manifests.values())

    def read(self, value: Value) -> object:
        return decode(value)

    def encoded(self, value: Value) -> bytes:
        return value

    def size_bytes(self, value: Value) -> int:
        return len(value)

    def release(self, value: Value) -> None:
        self.released += 1

    async def drain(self, timeout_s: float) -> bool:
        self.is_draining = True
        end = monotonic() + timeout_s
        while self._open and monotonic() < end:
            await asyncio.sleep(0.01)
        return not self._open


def _status(manifest: Manifest) -> AppStatus:
    workflows = [
        WorkflowStatus(
            name=spec.name,
            slo_s=spec.slo_s,
            open=0,
            offered=0,
            completed=0,
            in_time=0,
            rejected=0,
            dropped=0,
            failed=0,
            cancelled=0,
            cost_usd=0.0,
            recent_offered_rps=0.0,
            recent_goodput_rps=0.0,
            recent_attainment=None,
            recent_p50_s=None,
            recent_p99_s=None,
            least_slack_s=None,
        )
        for spec in manifest.workflows
    ]
    functions = [
        FunctionStatus(
            name=spec.name,
            waiting=3,
            starting=0,
            idle=1,
            busy=1,
            batches=5,
            invocations=7,
            recent_batch_size=1.4,
            predicted_s=0.02,
            observed_s=0.03,
        )
        for spec in manifest.functions
    ]
    return AppStatus(
        name=manifest.name,
        generation=1,
        policy=manifest.policy,
        uptime_s=1.0,
        draining=0,
        refused_actions=0,
        workflows=tuple(workflows),
        functions=tuple(functions),
        nodes=(),
    )


def _glance(manifest: Manifest) -> AppGlance:
    return AppGlance(
        name=manifest.name,
        generation=1,
        policy=manifest.policy,
        scaler=None,
        uptime_s=1.0,
        draining=0,
        open={},
        functions=_status(manifest).functions,
        stages=tuple(
            StageGlance(spec.name, stage.name, stage.function, 3, 7, 0.7, 0.0, 0.0, 0.35, 14)
            for spec in manifest.workflows
            for stage in spec.stages
        ),
        nodes=(),
        instances=(),
    )


class Answer:
    """One HTTP answer."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json()["error"]["code"]


class Running:
    """A gateway that runs in a thread, and a client for it."""

    cacert: Path | None = None

    def __init__(self, host, settings: Settings, journal_options: dict | None = None) -> None:
        self.host, self.settings, self.cacert = host, settings, settings.certfile
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._journal_options = journal_options or {}
        self._started = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._main)

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self.error = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self.loop, self.stop_event = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        journal = Journal(self.settings.state / "journal.sqlite", **self._journal_options)
        await serve(self.host, journal, self.settings, [self._listening], self.stop_event)

    def start(self) -> "Running":
        self._thread.start()
        self._started.wait(60)
        while True:  # the socket listens before anybody answers on it
            try:
                self.send("GET", "/healthz", timeout_s=0.5)  # none comes from a gateway that has failed
                return self
            except OSError:
                if not self._thread.is_alive():
                    self.stop()

    def begin_stop(self) -> None:
        self.loop.call_soon_threadsafe(self.stop_event.set)

    def stop(self) -> None:
        if self._thread.is_alive():
            self.begin_stop()
        self._thread.join(60)
        self._listening.close()
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def send(
        self, method: str, path: str, body: object = None, headers: dict | None = None, timeout_s: float = 60.0
    ) -> Answer:
        """One request on a connection of its own. A body that is not bytes goes as JSON."""
        connection = self._connection(timeout_s)
        try:
            headers = dict(headers or {})
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
                headers.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self.cacert is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=str(self.cacert))
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout_s, context=context)

    def raw(self, data: bytes, timeout_s: float = 60.0) -> bytes:
        """Send these bytes and read until the gateway closes, or nothing more comes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as link:
            link.sendall(data)
            return read_all(link)


def read_all(link: socket.socket) -> bytes:
    parts = []
    try:
        while part := link.recv(65536):
            parts.append(part)
    except (TimeoutError, ConnectionResetError):
        pass
    return b"".join(parts)


def read_message(gateway: Running, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send these bytes and read one answer: its status, headers and body."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=15) as link:
        link.sendall(request)
        answer = http.client.HTTPResponse(link)
        answer.begin()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


@contextmanager
def running(host, state: Path, *, journal: dict | None = None, **settings) -> Iterator[Running]:
    """A gateway with these settings, ended whatever happens."""
    gateway = Running(host, Settings(state=state, **settings), journal).start()
    try:
        yield gateway
    finally:
        gateway.stop()


def wait_until(claim: Callable[[], bool], timeout_s: float = 300.0) -> None:
    """Wait for something to become true."""
    end = monotonic() + timeout_s
    pause = threading.Event()
    while not claim():
        assert monotonic() < end, "it never became true"
        pause.wait(0.01)
