"""What every back end must do, whoever wrote it: a provider of nodes and instances, the links to them, and values.

```python
@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.__name__)
def test_my_back_end_conforms(check, tmp_path):
    check_backend(MyBench(tmp_path), [check])
```

A bench opens a back end; its instances load the functions of `APP`, or behave as those do. A check takes an open back
end and raises AssertionError. Times are those of the running event loop, which may be a virtual one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Protocol

from fairlead.engine.live.contracts import AppCode, Exit, InstanceSpec, Inventory, Link, Provider, Values
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.values import Result, Value, encode
from fairlead.engine.live.wire import MOST_BYTES, Batch, Done, Failed, Ready
from fairlead.model import Node

LIMIT_S = 30.0
"""How long anything may take before a check fails."""

APP = dedent(
    """
    import time
    from fairlead.app import App

    app = App("conformance")

    @app.function
    def echo(value):
        return value

    @app.function
    def wait(seconds):
        time.sleep(seconds)
        return seconds

    @app.function
    def fail(value):
        raise ValueError("it fails")

    @app.function
    def leave(value):
        raise SystemExit(3)

    @app.function
    def make(size):
        return "x" * size

    def prepare():
        raise RuntimeError("it cannot start")

    @app.function(setup=prepare)
    def broken(prepared, value):
        return value

    for function in (echo, wait, fail, leave, make, broken):
        app.workflow(function.name, function)
    """
)
"""Functions that give back their input, take a time, fail, end their instance, make a long text, and cannot start."""


def write_app(folder: Path) -> AppCode:
    """`APP` as a file in this folder."""
    file = folder / "conformance_app.py"
    file.write_text(APP)
    return AppCode(str(file), "conformance")


@dataclass
class Opened:
    """A back end that is open, and everything that it has reported."""

    provider: Provider
    values: Values
    code: AppCode
    heard: "Heard"
    inventory: Inventory

    @property
    def node(self) -> Node:
        """A node to start instances on."""
        return self.inventory.nodes[0]

    def spec(self, function: str, **changes: object) -> InstanceSpec:
        """An instance of a function of `APP`, with a key that was never used."""
        given: dict[str, object] = {
            "key": f"1.{next(_numbers)}",
            "code": self.code,
            "function": function,
            "node": self.node.name,
            "vcpus": 1.0,
            "memory_gb": 0.0,
            "max_items": 100,
        }
        return InstanceSpec(**(given | changes))  # type: ignore[arg-type]

    async def start(self, function: str, node: str | None = None) -> str:
        """The key of an instance that is ready."""
        spec = self.spec(function, node=node or self.node.name)
        self.provider.start(spec)
        await self.heard.until(lambda: spec.key in self.heard.ready, f"{function} says Ready")
        return spec.key

    def run(self, key: str, batch: int, function: str, *inputs: object, generation: int = 0) -> None:
        """Send a batch."""
        values = [value if isinstance(value, Stored) else encode(value) for value in inputs]
        found: list[Value] = [value.value if isinstance(value, Stored) else value for value in values]
        self.heard.links[key].run(Batch(batch, [f"{function}/{function}"] * len(found), found, generation))

    async def answer(self, key: str, batch: int) -> Done:
        """The answer to a batch."""
        await self.heard.until(lambda: (key, batch) in self.heard.done, f"batch {batch} is answered")
        return self.heard.done[key, batch]

    async def gone(self, key: str) -> Exit:
        """How an instance ended."""
        await self.heard.until(lambda: key in self.heard.exits, f"{key} is reported gone")
        return self.heard.exits[key][0]


@dataclass(frozen=True)
class Stored:
    """An input that is a value already."""

    value: Value


_numbers = count(1)


@dataclass
class Heard:
    """Takes the reports of a provider and of all its links."""

    links: dict[str, Link] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    done: dict[tuple[str, int], Done] = field(default_factory=dict)
    order: list[tuple[str, int]] = field(default_factory=list)
    exits: dict[str, list[Exit]] = field(default_factory=dict)
    connections: list[str] = field(default_factory=list)
    refused: list[tuple[str, float]] = field(default_factory=list)
    nodes: dict[str, Node | None] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds; AssertionError after `LIMIT_S`."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not holds():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(
                f"Expected within {LIMIT_S:g} s: {what}. Failed: {self.failed}. Ended: {self.exits}."
            ) from None

    def connected(self, key: str, link: Link) -> None:
        """An instance can be spoken to."""
        self.links[key] = link
        self.connections.append(key)
        link.open(_Member(self, key))
        self._news.set()

    def gone(self, key: str, how: Exit) -> None:
        """An instance exists no more."""
        self.exits.setdefault(key, []).append(how)
        self._news.set()

    def resize_refused(self, key: str, vcpus: float, reason: str) -> None:
        """An instance keeps its CPU limit."""
        assert reason
        self.refused.append((key, vcpus))
        self._news.set()

    def evicted(self, key: str, buffers: Sequence[str]) -> None:
        """Constants of a kernel have left a device; this suite starts no kernels."""

    def node_joined(self, node: Node) -> None:
        """A node can be used."""
        self.nodes[node.name] = node
        self._news.set()

    def node_changed(self, node: Node) -> None:
        """A node has other capacities."""
        self.node_joined(node)

    def node_lost(self, name: str, reason: str) -> None:
        """A node is gone."""
        assert reason
        self.nodes[name] = None
        self._news.set()

    def message(self, key: str, message: Ready | Failed | Done) -> None:
        """An instance said something."""
        if isinstance(message, Done):
            assert (key, message.batch) not in self.done, f"batch {message.batch} is answered twice"
            self.done[key, message.batch] = message
            self.order.append((key, message.batch))
        elif isinstance(message, Ready):
            self.ready.add(key)
        else:
            self.failed[key] = message.error
        self._news.set()


@dataclass
class _Member:
    _heard: Heard
    _key: str

    def heard(self, message: Ready | Failed | Done) -> None:
        self._heard.message(self._key, message)


class Bench(Protocol):
    """Opens a back end for a check, and closes it."""

    def open(self, heard: Heard) -> AbstractAsyncContextManager[Opened]:
        """A back end with at least one node that holds four instances of one vCPU; reports go to `heard`."""
        ...

    def run(self, check: Awaitable[None]) -> None:
        """Run a check to its end, on the event loop that the back end needs."""
        ...


Check = Callable[[Opened], Awaitable[None]]


def check_backend(bench: Bench, checks: "Iterable[Check] | None" = None) -> None:
    """Run every check, each on a back end of its own."""
    for check in BACKEND_CHECKS if checks is None else checks:

        async def on_its_own(check: Check = check) -> None:
            async with bench.open(Heard()) as opened:
                await check(opened)

        bench.run(on_its_own())


# --- instances -----------------------------------------------------------------------------------------------------


async def an_instance_starts_runs_and_stops(b: Opened) -> None:
    """Ready, one answer per batch in order, gone once."""
    key = await b.start("echo")
    for batch in range(20):
        b.run(key, batch, "echo", batch, f"text {batch}")
    last = await b.answer(key, 19)
    assert b.heard.order == [(key, batch) for batch in range(20)]
    assert [b.values.read(result.value) for result in last.results] == [19, "text 19"]
    b.provider.stop(key, 5.0)
    b.provider.stop(key, 5.0)
    await b.gone(key)
    await asyncio.sleep(0.1)
    assert len(b.heard.exits[key]) == 1


async def a_start_that_is_repeated_starts_one_instance(b: Opened) -> None:
    """Calls may be repeated without harm."""
    spec = b.spec("echo")
    b.provider.start(spec)
    b.provider.start(spec)
    await b.heard.until(lambda: spec.key in b.heard.ready, "Ready")
    b.provider.start(spec)
    b.run(spec.key, 1, "echo", "once")
    await b.answer(spec.key, 1)
    assert b.heard.connections == [spec.key]


async def an_unknown_key_changes_nothing(b: Opened) -> None:
    """Nothing is raised, and nothing is reported."""
    b.provider.stop("1.999999", 0.0)
    b.provider.resize("1.999999", 1.0)
    assert b.provider.usage("1.999999") == Usage()
    key = await b.start("echo")
    b.run(key, 1, "echo", 1)
    await b.answer(key, 1)
    assert b.heard.exits == {}


async def an_unknown_node_is_an_exit(b: Opened) -> None:
    """An instance that cannot be placed is reported as gone, with a reason."""
    spec = b.spec("echo", node="no-such-node")
    b.provider.start(spec)
    assert "no-such-node" in (await b.gone(spec.key)).error


async def code_that_cannot_start_is_told(b: Opened) -> None:
    """`Failed` with the reason, then gone."""
    spec = b.spec("broken")
    b.provider.start(spec)
    await b.gone(spec.key)
    assert "it cannot start" in b.heard.failed[spec.key]
    assert spec.key not in b.heard.ready


async def a_failing_function_keeps_its_instance(b: Opened) -> None:
    """An exception of the user's code is a result, not an exit."""
    key = await b.start("fail")
    b.run(key, 1, "fail", 1)
    (result,) = (await b.answer(key, 1)).results
    assert not result.ok
    assert "it fails" in (result.error or "")
    b.run(key, 2, "fail", 1)
    await b.answer(key, 2)
    assert b.heard.exits == {}


async def an_instance_that_ends_by_itself_is_gone_once(b: Opened) -> None:
    """Its batch is not answered, and others go on."""
    other, key = await b.start("echo"), await b.start("leave")
    b.run(key, 1, "leave", 1)
    how = await b.gone(key)
    assert how.error
    assert (key, 1) not in b.heard.done
    b.run(other, 2, "echo", 2)
    await b.answer(other, 2)
    await asyncio.sleep(0.1)
    assert len(b.heard.exits[key]) == 1


async def a_busy_instance_is_stopped_by_force(b: Opened) -> None:
    """Without a grace, and nothing is heard of its batch afterwards."""
    key = await b.start("wait")
    loop = asyncio.get_running_loop()
    b.run(key, 1, "wait", 20)
    await asyncio.sleep(0.2)
    began = loop.time()
    b.provider.stop(key, 0.0)
    await b.gone(key)
    assert loop.time() - began < 10
    assert (key, 1) not in b.heard.done


async def a_grace_ends(b: Opened) -> None:
    """An instance that is busy for longer than its grace is ended by force."""
    key = await b.start("wait")
    loop = asyncio.get_running_loop()
    b.run(key, 1, "wait", 25)
    await asyncio.sleep(0.2)
    began = loop.time()
    b.provider.stop(key, 0.5)
    await b.gone(key)
    assert loop.time() - began < 15


async def a_stop_before_the_start_is_done_holds(b: Opened) -> None:
    """An instance that is stopped at once is gone once, ready or not."""
    spec = b.spec("echo")
    b.provider.start(spec)
    b.provider.stop(spec.key, 0.0)
    await b.gone(spec.key)
    await asyncio.sleep(0.2)
    assert len(b.heard.exits[spec.key]) == 1


async def a_new_size_is_taken_or_refused(b: Opened) -> None:
    """A resize that cannot be had is reported, and the instance works on."""
    key = await b.start("echo")
    b.provider.resize(key, 0.5)
    b.run(key, 1, "echo", 1)
    await b.answer(key, 1)
    await asyncio.sleep(0.1)
    assert bool(b.heard.refused) != b.provider.capabilities.resizes


# --- links ---------------------------------------------------------------------------------------------------------


async def an_answer_carries_the_generation_of_its_batch(b: Opened) -> None:
    """Otherwise a late answer could be taken for a new one."""
    key = await b.start("echo")
    b.run(key, 1, "echo", 1)
    assert (await b.answer(key, 1)).generation == 0


async def a_batch_that_is_too_large_is_refused(b: Opened) -> None:
    """ValueError at once; the link goes on."""
    key = await b.start("echo")
    link = b.heard.links[key]
    try:
        link.run(Batch(1, ["echo/echo"], [b"\xc6" + bytes(MOST_BYTES + 1)]))
    except ValueError:
        pass
    else:
        raise AssertionError("A batch above the limit of a frame was accepted.")
    b.run(key, 2, "echo", 2)
    await b.answer(key, 2)


# --- values --------------------------------------------------------------------------------------------------------


async def values_of_any_size_are_read_and_freed(b: Opened) -> None:
    """What was put can be read by instances and here; what an instance made can be read here."""
    key = await b.start("echo")
    for batch, size in enumerate((10, 70_000, 2_000_000)):
        text = "y" * size
        value = b.values.put(encode(text))
        assert b.values.size_bytes(value) == len(encode(text))
        b.run(key, batch, "echo", Stored(value))
        result = _only(await b.answer(key, batch))
        b.values.hold(result.value)
        assert await asyncio.to_thread(b.values.read, result.value) == text
        assert await asyncio.to_thread(b.values.encoded, result.value) == encode(text)
        assert b.values.size_bytes(result.value) == len(encode(text))
        b.values.release(value)
        b.values.release(result.value)
        b.values.release(result.value)  # again: nothing happens


async def a_list_of_values_is_one_value(b: Opened) -> None:
    """Parts may lie in different places."""
    parts: list[Value] = [encode(1), b.values.put(encode("z" * 100_000))]
    assert await asyncio.to_thread(b.values.read, parts) == [1, "z" * 100_000]
    assert b.values.size_bytes(parts) == len(encode([1, "z" * 100_000]))
    key = await b.start("echo")
    b.run(key, 1, "echo", Stored(parts))
    assert await asyncio.to_thread(b.values.read, _only(await b.answer(key, 1)).value) == [1, "z" * 100_000]


async def a_large_output_is_kept_after_its_instance(b: Opened) -> None:
    """Once it was held, a value outlives the instance that made it."""
    key = await b.start("make")
    b.run(key, 1, "make", 500_000)
    value = _only(await b.answer(key, 1)).value
    b.values.hold(value)
    b.provider.stop(key, 0.0)
    await b.gone(key)
    assert await asyncio.to_thread(b.values.read, value) == "x" * 500_000
    b.values.release(value)


async def a_value_of_one_node_is_read_on_another(b: Opened) -> None:
    """Also twice; then it is released, and so are copies of it."""
    first, last = b.inventory.nodes[0].name, b.inventory.nodes[-1].name
    maker, reader = await b.start("make", node=first), await b.start("echo", node=last)
    b.run(maker, 1, "make", 300_000)
    value = _only(await b.answer(maker, 1)).value
    b.values.hold(value)
    for batch in (2, 3):
        b.run(reader, batch, "echo", Stored([value, encode(batch)]))
        result = _only(await b.answer(reader, batch))
        b.values.hold(result.value)
        assert await asyncio.to_thread(b.values.read, result.value) == ["x" * 300_000, batch]
        b.values.release(result.value)
    b.values.release(value)


# --- nodes ---------------------------------------------------------------------------------------------------------


async def nodes_are_told_at_opening(b: Opened) -> None:
    """Names are unique, and every node can take an instance."""
    names = [node.name for node in b.inventory.nodes]
    assert names
    assert len(set(names)) == len(names)
    for name in names[:3]:
        spec = b.spec("echo", node=name)
        b.provider.start(spec)
        await b.heard.until(lambda key=spec.key: key in b.heard.ready, f"an instance is ready on {name}")  # type: ignore[misc]


async def a_node_that_is_given_back_is_lost(b: Opened) -> None:
    """Where it was empty. Others stay."""
    if len(b.inventory.nodes) < 2:
        return
    name = b.inventory.nodes[-1].name
    b.provider.shrink(name)
    await b.heard.until(lambda: b.heard.nodes.get(name, ...) is None, f"node {name} is lost")
    await b.start("echo", node=b.inventory.nodes[0].name)


async def closing_ends_everything(b: Opened) -> None:
    """Every instance is reported gone, also a busy one; closing again does nothing."""
    idle, busy = await b.start("echo"), await b.start("wait")
    b.run(busy, 1, "wait", 20)
    await b.provider.close()
    await b.gone(idle)
    await b.gone(busy)
    await b.provider.close()
    assert len(b.heard.exits[idle]) == len(b.heard.exits[busy]) == 1


def _only(done: Done) -> Result:
    (result,) = done.results
    assert result.ok, result.error
    return result


BACKEND_CHECKS: tuple[Check, ...] = (
    an_instance_starts_runs_and_stops,
    a_start_that_is_repeated_starts_one_instance,
    an_unknown_key_changes_nothing,
    an_unknown_node_is_an_exit,
    code_that_cannot_start_is_told,
    a_failing_function_keeps_its_instance,
    an_instance_that_ends_by_itself_is_gone_once,
    a_busy_instance_is_stopped_by_force,
    a_grace_ends,
    a_stop_before_the_start_is_done_holds,
    a_new_size_is_taken_or_refused,
    an_answer_carries_the_generation_of_its_batch,
    a_batch_that_is_too_large_is_refused,
    values_of_any_size_are_read_and_freed,
    a_list_of_values_is_one_value,
    a_large_output_is_kept_after_its_instance,
    a_value_of_one_node_is_read_on_another,
    nodes_are_told_at_opening,
    a_node_that_is_given_back_is_lost,
    closing_ends_everything,
)
