"""Agents, instances and readers that know the token and say what cannot be: only their own connection ends."""

import asyncio
import socket
from contextlib import suppress
from math import inf, nan

import msgspec
import pytest
import uvloop
from agent_world import TOKEN, World, world
from runtimes import until

from fairlead.engine.live.contracts import AppCode, Exit, InstanceSpec
from fairlead.engine.live.kernels.status import DeviceStatus, Resident
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.links import control
from fairlead.engine.live.links.address import Address
from fairlead.engine.live.links.asked import Asked
from fairlead.engine.live.links.dial import dial
from fairlead.engine.live.links.greeting import agent_credential
from fairlead.engine.live.links.hub import MOST_UNKNOWN, Hub
from fairlead.engine.live.links.messages import MOST_CONTROL_BYTES, Read, Refused, pack
from fairlead.engine.live.links.stream import StreamLink
from fairlead.engine.live.logs import lines
from fairlead.engine.live.logs.folder import LogFolder
from fairlead.engine.live.logs.forwarding import Receiver
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import Result
from fairlead.engine.live.wire import Batch, Done, Ready, frame
from fairlead.model import Device, Node
from fairlead.testing.backends import Heard, write_app

NODE = Node(name="evil", kind="machine", vcpus=1)
DEVICE = DeviceStatus(node="evil", index=0, device="opencl:0")
SPEC = InstanceSpec(
    key="7.1", code=AppCode("/app.py", "d"), function="f", node="evil", vcpus=1, memory_gb=1, max_items=1
)


def run(test) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


class Fake:
    """An agent that is only a socket."""

    def __init__(self, made: World) -> None:
        self._at = made.address

    async def say(self, *messages: msgspec.Struct) -> None:
        self.socket = await asyncio.to_thread(dial, self._at, agent_credential(TOKEN), None)
        self.socket.settimeout(10)
        self.tell(*messages)

    def tell(self, *messages: msgspec.Struct) -> None:
        for message in messages:
            self.socket.sendall(pack(message))

    async def answer(self) -> control.ToAgent:
        data = await asyncio.to_thread(self._exactly, 4)
        return control.to_agent.decode(await asyncio.to_thread(self._exactly, int.from_bytes(data, "little")))

    async def is_cut_off(self) -> bool:
        try:
            while await asyncio.to_thread(self.socket.recv, 1 << 16):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            assert more, "the connection was closed"
            data += more
        return data


def hello(node: Node = NODE, *specs: InstanceSpec) -> control.Hello:
    return control.Hello(node, tuple(control.Running(spec, 1) for spec in specs), "127.0.0.1:9")


def changed(struct, **fields):
    return msgspec.structs.replace(struct, **fields)


@pytest.mark.parametrize(
    "words",
    [
        hello(changed(NODE, vcpus=1e308)),
        hello(changed(NODE, vcpus=1e200, overcommit=1e200)),
        hello(changed(NODE, memory_gb=1e308)),
        hello(changed(NODE, kind="x" * 1000)),
        hello(changed(NODE, kind="two\nlines")),
        hello(NODE, changed(SPEC, node="another")),
        hello(NODE, changed(SPEC, key="no key")),
        hello(NODE, changed(SPEC, vcpus=nan)),
        hello(NODE, SPEC, SPEC),
    ],
)
def test_a_node_that_cannot_be_is_refused(tmp_path, words):
    async def test():
        async with world(tmp_path) as made:
            provider, heard = made.provider(wait_s=0.1), Heard()
            opening = asyncio.create_task(provider.open(heard))
            fake = Fake(made)
            await fake.say(words)
            assert isinstance(await fake.answer(), Refused)
            fake.socket.close()
            made.agent("a")
            inventory = await opening
            assert [node.name for node in inventory.nodes] == ["a"]
            assert inventory.instances == ()
            await provider.close()

    run(test)


def test_an_agent_cannot_have_the_instances_of_another(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            (tmp_path / "agents.json").write_text('{"epoch": 1, "nodes": ["evil", "late"]}')  # both are waited for
            provider, heard = made.provider(wait_s=1.0), Heard()
            opening = asyncio.create_task(provider.open(heard))
            first, second = Fake(made), Fake(made)
            await first.say(hello(NODE, SPEC))
            assert (await first.answer()).keep == ("7.1",)
            await second.say(hello(changed(NODE, name="thief"), changed(SPEC, node="thief")))
            assert isinstance(await second.answer(), Refused)
            assert (await opening).instances == (SPEC,)
            first.socket.close()
            second.socket.close()
            await provider.close(keep=True)

    run(test)


@pytest.mark.parametrize(
    "words",
    [
        control.Changed(changed(NODE, vcpus=1e308)),
        control.Changed(changed(NODE, speed=2.0)),  # others of its kind have 1
        control.ResizeRefused("7.1", nan, ""),
        control.Beating({"7.1": Usage(cpu_s=inf)}),
        control.Beating({"7.1": Usage(gpu_share=2.0)}),
        control.Beating({"7.1": Usage(gpu_bytes=-1)}),
        control.Beating({"7.1": Usage(memory_bytes=-1)}),
        control.Beating({"7.1": Usage(oom_kills=-1)}),
        control.Beating({}, (DEVICE, DEVICE)),
        control.Beating({}, (changed(DEVICE, hits=-1),)),
        control.Beating({}, (changed(DEVICE, used_bytes=1 << 62),)),
        control.Beating({}, (changed(DEVICE, device_s={"app": nan}),)),
        control.Beating({}, (changed(DEVICE, residents=(Resident("app", "key", 1),) * 1001),)),
        control.Wrote(b"no line"),
        control.Changed(changed(NODE, devices=(Device(vgpus=1, name="red\x1b[31m"),))),
        control.Changed(changed(NODE, devices=(Device(vgpus=1),) * 300)),
    ],
)
def test_an_agent_that_says_what_cannot_be_is_cut_off(tmp_path, words):
    async def test():
        async with world(tmp_path) as made:
            made.agent("a")
            provider, heard = made.provider(), Heard()
            await provider.open(heard)
            fake = Fake(made)
            await fake.say(hello())
            await heard.until(lambda: heard.nodes.get("evil") is not None, "it joins")
            fake.tell(control.Gone("7.1", Exit("x")), control.Gone("7.1", Exit("x")), control.Said("one\ntwo\x1b[31m"))
            await until(lambda: any("node evil: one two [31m" in line for line in made.log))
            fake.tell(words)
            assert await fake.is_cut_off()
            await heard.until(lambda: heard.nodes.get("evil", 1) is None, "it is lost")
            assert heard.exits == {}
            fake.socket.close()
            await provider.close()

    run(test)


def test_devices_of_an_agent_are_shown_as_its_own_and_without_control_characters(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            made.agent("a")
            provider, heard = made.provider(), Heard()
            await provider.open(heard)
            fake = Fake(made)
            await fake.say(hello())
            await heard.until(lambda: heard.nodes.get("evil") is not None, "it joins")
            said = DeviceStatus(node="a", index=0, device="red\x1b[31m", name="n" * 9999, device_s={"two\nlines": 1.0})
            fake.tell(control.Beating({}, (said,)))
            await until(lambda: any(each.index == 0 and each.node == "evil" for each in provider.devices))
            (shown,) = (each for each in provider.devices if each.node == "evil")
            assert (shown.device, shown.name, dict(shown.device_s)) == ("red [31m", "n" * 100, {"two lines": 1.0})
            fake.socket.close()
            await provider.close()

    run(test)


def test_a_node_writes_lines_of_its_own_and_not_all_that_there_is_room_for(tmp_path):
    def line(node: str, text: str) -> bytes:
        about = {"app": "a", "function": "f", "instance": "1.0", "request": None, "stream": "stdout", "level": None}
        return lines.pack(lines.Line(t=1.0, node=node, text=text, **about))

    async def test():
        folder = LogFolder(tmp_path / "logs")
        receiver = Receiver(folder)
        receiver.take(b"no line}\n" + line("another", "forged") + b'{"t":"\xff"}\n' + line("evil", "own"), "evil")
        large = line("evil", "x" * 60_000)
        for _ in range(1000):  # 60 MB at once
            receiver.take(large, "evil")
        receiver.take(line("honest", "heard"), "honest")
        await receiver.close()
        kept = [lines.unpack(data) for data in folder.last(lines.Wanted(), 10_000)]
        assert [(each.node, each.text) for each in kept[:2]] == [("evil", "forged"), ("evil", "own")]
        assert (kept[-1].node, kept[-1].text) == ("honest", "heard")
        assert sum(len(each.text) for each in kept) < 5_000_000
        assert receiver.dropped_bytes > 50_000_000

    run(test)


@pytest.mark.parametrize(
    "keys",
    ['"node":"a"', '"node":"evil","request":null,"node":"a"', '"node":"evil","request":null,"\\u006eode":"a"'],
    ids=["plain", "twice", "escaped"],
)
def test_no_way_of_writing_it_makes_a_line_that_of_another_node(tmp_path, keys):
    about = '"app":"a","function":"f","instance":"1.0"'
    data = f'{{"t":1.0,{about},{keys},"request":null,"stream":"stdout","level":null,"text":"x"}}\n'.encode()

    async def test():
        folder = LogFolder(tmp_path / "logs")
        receiver = Receiver(folder)
        receiver.take(data, "evil")
        await receiver.close()
        assert [lines.unpack(kept).node for kept in folder.last(lines.Wanted(), 10)] == ["evil"]

    run(test)


def test_an_agent_that_asks_for_too_much_code_is_cut_off(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            provider, heard = made.provider(), Heard()
            opening = asyncio.create_task(provider.open(heard))
            fake = Fake(made)
            await fake.say(hello())
            await opening
            digest = provider._digest(str(write_app(tmp_path).file))
            for number in range(20):  # in order
                fake.tell(control.Fetch(digest, number))
            offsets = []
            while len(offsets) < 20:
                answer = await fake.answer()
                if isinstance(answer, control.Piece):
                    offsets.append(answer.offset)
            assert offsets == list(range(20))
            pieces, piece = [], provider._piece
            provider._piece = lambda fetch: pieces.append(fetch) or piece(fetch)
            await asyncio.to_thread(_flood, fake.socket, pack(control.Fetch(digest, 0)) * 20_000)
            assert await fake.is_cut_off()
            assert len(pieces) < 2000  # of 20,000
            fake.socket.close()
            await provider.close(keep=True)

    run(test)


def _flood(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)


# --- instances -------------------------------------------------------------------------------------------------------


class Reports:
    def __init__(self) -> None:
        self.messages = []

    def heard(self, message) -> None:
        self.messages.append(message)


def test_an_instance_answers_the_batches_that_it_has_and_each_once():
    reports = Reports()
    link = StreamLink(lambda data: None, 5, lambda done: None, "@a@h:1")
    link.open(reports)
    link.run(Batch(1, ("w/a",), (b"1",)))
    with pytest.raises(ValueError, match="which it does not have"):
        link.heard(frame(Done(2, 0.5, (Result(True),), 5))[4:])
    link.heard(frame(Done(1, 0.5, (Result(True),), 5))[4:])
    with pytest.raises(ValueError, match="which it does not have"):
        link.heard(frame(Done(1, 0.5, (Result(True),), 5))[4:])
    assert [message.batch for message in reports.messages] == [1]


@pytest.mark.parametrize(
    "value",
    [
        "../../etc/passwd:100000@a@h:1",
        "/etc/passwd:100000@a@h:1",
        "1-1\0:100000@a@h:1",
        "\u00b2-1:100000@a@h:1",
        "1-1:100000@b@h:2",
        f"1-1:{10**30}@a@h:1",
        "1-1",
        5,
        {"a": 1},
        [["1-1:9@a@h:1", None]],
    ],
)
def test_what_is_no_value_of_the_instances_node_is_refused(value):
    with pytest.raises(ValueError, match="value"):
        Asked("@a@h:1").check(Done(1, 0.5, (Result(True, value),)))


def test_values_and_times_that_can_be_are_taken():
    asked = Asked("@a@h:1")
    asked.check(Done(1, 0.5, (Result(True, [b"x", "disk-12-3:100000@a@h:1", [b"y"]]),)))
    asked.check(Ready(0.1, 0.0))
    for message in (Done(1, nan, ()), Done(1, 0.1, (), 0, -1.0), Done(1, 0.1, (), 0, 0.0, -1.0), Ready(inf, 0.0)):
        with pytest.raises(ValueError, match="duration"):
            asked.check(message)


# --- the hub ---------------------------------------------------------------------------------------------------------


def test_a_burst_of_connections_leaves_few_unknown_ones(tmp_path):
    async def test():
        store = Store.make(tmp_path)
        listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        hub = Hub(TOKEN, None, lambda line: None, store)
        crowd = [socket.create_connection(listening.getsockname()) for _ in range(4 * MOST_UNKNOWN)]
        hub.open(listening)  # all of them wait already
        most = 0
        while hub.refused < 3 * MOST_UNKNOWN:
            most = max(most, len(hub._unknown))
            await asyncio.sleep(0)
        await asyncio.sleep(0.3)
        alive = sum(map(_is_open, crowd))
        assert most <= MOST_UNKNOWN
        assert alive <= MOST_UNKNOWN
        for one in crowd:
            one.close()
        await hub.close()
        listening.close()
        store.close()

    run(test)


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(1000):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


@pytest.mark.parametrize("size", [MOST_CONTROL_BYTES + 1, 1 << 13])
def test_a_reader_cannot_announce_a_large_frame(tmp_path, size):
    async def test():
        store = Store.make(tmp_path)
        listening = socket.create_server(("127.0.0.1", 0))
        hub = Hub(TOKEN, None, lambda line: None, store)
        hub.open(listening)
        address = Address(*listening.getsockname())
        reader = await asyncio.to_thread(dial, address, agent_credential(TOKEN), None)
        reader.settimeout(10)
        if size < MOST_CONTROL_BYTES:
            reader.sendall(pack(Read("1-1", 0, 10)))
            assert await asyncio.to_thread(reader.recv, 1000)  # it is known as a reader now
        reader.sendall(size.to_bytes(4, "little") + b"x")
        with suppress(ConnectionError):
            assert await asyncio.to_thread(reader.recv, 1000) == b""
        reader.close()
        await hub.close()
        listening.close()
        store.close()

    run(test)
