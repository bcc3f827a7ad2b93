"""Links over streams: greeting, hub, reads of values, and an instance that dials again."""

import asyncio
import os
import socket
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest
import uvloop
from agent_world import TOKEN, make_certificates
from runtimes import until

from fairlead.engine.live.links import control, hub
from fairlead.engine.live.links.address import Address, bound_address, listen_on, parse_address
from fairlead.engine.live.links.dial import dial
from fairlead.engine.live.links.greeting import (
    ANSWER_BYTES,
    REFUSAL,
    Dialler,
    GreetingError,
    Listener,
    RefusedError,
    agent_credential,
    instance_credential,
)
from fairlead.engine.live.links.hub import MOST_UNKNOWN, Hub
from fairlead.engine.live.links.messages import PIECE_BYTES, Attach, Attached, Read, pack
from fairlead.engine.live.links.reading import Reader
from fairlead.engine.live.links.stream import StreamLink
from fairlead.engine.live.links.tls import TlsFiles, client_context, server_context
from fairlead.engine.live.store import INLINE_BYTES, Store
from fairlead.engine.live.values import LostValueError, Result, encode, reference
from fairlead.engine.live.wire import Batch, Begin, Dial, Done, Ready, frame
from fairlead.errors import ConfigError
from fairlead.model import Node

NODE = Node(name="a", kind="machine", vcpus=1)
APP = """
import os
import subprocess
import sys
import time
from fairlead.app import App
app = App("test")
SPIN = "import time\\nwhile time.process_time() < 0.1: pass"

@app.function
def pid(x):
    return [os.getpid(), x]

@app.function
def blow(size):
    return "x" * size

@app.function
def length(text):
    return len(text)

@app.function
def work(how):
    if how == "sleep":
        time.sleep(0.2)
    elif how == "child":
        subprocess.run([sys.executable, "-S", "-c", SPIN], check=True)
    else:
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass

for function in list(app.functions.values()):
    app.workflow(function.name, function)
"""


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pems")
    return make_certificates(folder, ("", "IP:127.0.0.1,DNS:localhost"), ("other-", "DNS:other"))


def tls_of(pems: Path, kind: str = "") -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = server_context(TlsFiles(certfile=str(pems / f"{kind}cert.pem"), keyfile=str(pems / f"{kind}key.pem")))
    client = client_context(TlsFiles(cacert=str(pems / f"{kind}cert.pem")))
    assert server is not None
    assert client is not None
    return server, client


def run(test) -> None:
    """On the loop that the gateway uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


class Open:
    """A hub that is open, and what it took in."""

    def __init__(self, listening: socket.socket, store: Store, server=None, client=None) -> None:
        self.listening = listening
        self.address = msgspec.structs.replace(bound_address(listening), is_tls=server is not None)
        self.store = store
        self.client = client
        self.agents: list[tuple[control.Hello, object]] = []
        self.instances: list[tuple[str, object]] = []
        self.log: list[str] = []
        self.dialled: list[socket.socket] = []
        self.hub = Hub(
            TOKEN, server, self.log.append, store, lambda *a: self.agents.append(a), lambda *a: self.instances.append(a)
        )
        self.hub.open(listening)

    async def dial(self, credential=None, address: Address | None = None) -> socket.socket:
        credential = credential or agent_credential(TOKEN)
        made = await asyncio.to_thread(dial, address or self.address, credential, self.client)
        self.dialled.append(made)
        return made


async def is_cut_off(connection: socket.socket) -> bool:
    """Whether the other end ends a connection without a word."""
    try:
        return await asyncio.to_thread(connection.recv, 1) == b""
    except ConnectionResetError:
        return True


@asynccontextmanager
async def opened(folder: Path, kind: str = "tcp", pems: Path | None = None, whose: str = ""):
    address = Address(path=str(folder / "hub.sock")) if kind == "unix" else Address("127.0.0.1", 0)
    server, client = tls_of(pems, whose) if kind == "tls" and pems is not None else (None, None)
    store = Store.make(folder)
    store.home = "@@"
    with listen_on(address, "--agents-listen") as listening:
        made = Open(listening, store, server, client)
        try:
            yield made
        finally:
            await made.hub.close()
            store.close()
            for connection in made.dialled:
                connection.close()


# --- addresses and greeting ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_local"),
    [
        ("127.0.0.1:80", True),
        ("tls:gw:80", False),
        ("[::1]:80", True),
        ("localhost:1", True),
        ("10.0.0.1:80", False),
        ("gw:80", False),
    ],
)
def test_addresses_are_read_and_written(text, is_local):
    assert str(parse_address(text)) == text
    assert parse_address(text).is_local == is_local
    assert parse_address("unix:/run/x").is_local


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:99999", "host:8o", "unix:", "unix:" + "x" * 200])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="must"):
        parse_address(text)


def test_a_socket_that_a_dead_process_left_is_replaced_and_a_file_is_not(tmp_path):
    path = tmp_path / "s"
    listen_on(Address(path=str(path)), "--listen").close()
    with listen_on(Address(path=str(path)), "--listen"):
        assert path.stat().st_mode & 0o077 == 0
        with pytest.raises(ConfigError, match="Another process listens there"):
            listen_on(Address(path=str(path)), "--listen")
    path.unlink()
    path.write_text("precious")
    with pytest.raises(ConfigError):
        listen_on(Address(path=str(path)), "--listen")
    assert path.read_text() == "precious"


def greet(token: str, credential) -> bytes:
    listener, dialler = Listener(token), Dialler(credential)
    proof = listener.feed(dialler.answer(listener.challenge()))
    assert proof is not None
    dialler.check(proof)
    return listener.identity


def test_both_ends_prove_that_they_know_the_token():
    assert greet(TOKEN, agent_credential(TOKEN)) == bytes(32)
    assert greet(TOKEN, instance_credential(TOKEN, "k1")) == instance_credential(TOKEN, "k1").identity
    for wrong in (agent_credential(TOKEN + "x"), instance_credential(TOKEN + "x", "k1")):
        with pytest.raises(GreetingError, match="token"):
            greet(TOKEN, wrong)


def test_an_instance_cannot_speak_for_another_or_for_an_agent():
    own = instance_credential(TOKEN, "k1")
    for identity in (bytes(32), instance_credential(TOKEN, "k2").identity):
        with pytest.raises(GreetingError):
            greet(TOKEN, type(own)(identity, own.secret))


def test_an_end_refuses_its_own_proof():
    credential = agent_credential(TOKEN)
    dialler = Dialler(credential)
    answer = dialler.answer(Listener(TOKEN).challenge())
    with pytest.raises(GreetingError):
        dialler.check(answer[-32:])
    with pytest.raises(RefusedError):
        dialler.check(REFUSAL)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"FLEAD\x7f", b"FLEAD\x03" + bytes(500)])
def test_what_is_no_answer_is_refused_before_it_is_whole(data):
    with pytest.raises(GreetingError):
        Listener(TOKEN).feed(data)


# --- hub -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["unix", "tcp", "tls"])
def test_agents_and_instances_are_taken_in_over_every_stream(tmp_path, pems, kind):
    async def test():
        async with opened(tmp_path, kind, pems) as at:
            agent = await at.dial()
            agent.sendall(pack(control.Hello(NODE, (), "")))
            instance = await at.dial(instance_credential(TOKEN, "k1"))
            instance.sendall(pack(Attach("k1")))
            await until(lambda: at.agents and at.instances)
            assert at.agents[0][0].node == NODE
            key, stream = at.instances[0]
            assert key == "k1"
            heard = []
            stream.heard = heard.append
            answer = frame(Done(1, 0.5, (Result(True, b"x" * 300_000),), 7))
            await asyncio.to_thread(instance.sendall, frame(Ready(1.0, 2.0)) + answer)
            await until(lambda: len(heard) == 2)
            stream.send(frame(Batch(1, ("w/a",), (b"1",), 7)))
            assert (await asyncio.to_thread(instance.recv, 4))[0] > 0
            ended = []
            stream.ended = ended.append
            instance.close()
            agent.close()
            await until(lambda: ended)

    run(test)


def test_an_instance_may_only_attach_as_itself(tmp_path):
    async def test():
        async with opened(tmp_path) as at:
            for words in (Attach("k2"), control.Hello(NODE, (), "")):
                liar = await at.dial(instance_credential(TOKEN, "k1"))
                liar.sendall(pack(words))
                assert await is_cut_off(liar)
            assert not at.agents
            assert not at.instances

    run(test)


def test_a_wrong_token_is_told_so_and_nothing_is_taken_in(tmp_path, pems):
    async def test():
        async with opened(tmp_path, "tls", pems) as at:
            with pytest.raises(RefusedError, match="refused the token"):
                await at.dial(agent_credential("another-token-0123456789"))
            await until(lambda: at.hub.refused == 1)
            assert any("does not know the token" in line for line in at.log)

    run(test)


def test_a_certificate_of_somebody_else_is_not_accepted(tmp_path, pems):
    async def test():
        async with opened(tmp_path, "tls", pems) as at:
            at.client = ssl.create_default_context()
            with pytest.raises(ssl.SSLCertVerificationError):
                await at.dial()
            at.client = tls_of(pems, "other-")[1]
            with pytest.raises(ssl.SSLCertVerificationError):
                await at.dial()

    async def of_another_name():
        async with opened(tmp_path, "tls", pems, "other-") as at:
            with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
                await at.dial()

    async def listening_everywhere():
        with socket.socket() as every:
            every.bind(("0.0.0.0", 0))
            every.listen()
            with pytest.raises(ConfigError, match="needs TLS"):
                Open(every, None)

    run(test)
    run(of_another_name)
    run(listening_everywhere)


def test_unknown_connections_are_few_and_short_lived(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "HANDSHAKE_LIMIT_S", 0.3)

    async def test():
        async with opened(tmp_path) as at:
            crowd = [socket.create_connection(("127.0.0.1", at.address.port)) for _ in range(MOST_UNKNOWN + 20)]
            await until(lambda: at.hub.refused >= 20)
            assert len(at.hub._unknown) <= MOST_UNKNOWN
            agent = await at.dial()  # the crowd does not keep an agent out
            agent.sendall(pack(control.Hello(NODE, (), "")))
            await until(lambda: at.agents)
            await until(lambda: not at.hub._unknown)
            for one in crowd:
                one.close()
            agent.close()
            slow = await at.dial()  # it proved itself, and says nothing
            assert await is_cut_off(slow)

    run(test)


@pytest.mark.parametrize("data", [b"\xff" * 64, bytes(4), b"\x05\x00\x00\x00hello", bytes(ANSWER_BYTES)])
def test_nonsense_after_the_greeting_ends_the_connection_only(tmp_path, data):
    async def test():
        async with opened(tmp_path) as at:
            broken = await at.dial()
            broken.sendall(data)
            assert await is_cut_off(broken)
            fine = await at.dial()
            fine.sendall(pack(control.Hello(NODE, (), "")))
            await until(lambda: at.agents)
            fine.close()

    run(test)


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["unix", "tcp", "tls"])
@pytest.mark.parametrize("size", [INLINE_BYTES + 1, PIECE_BYTES, 9 * PIECE_BYTES + 12345])
def test_values_are_read_by_pieces(tmp_path, pems, kind, size):
    data = os.urandom(size)

    async def test():
        async with opened(tmp_path, kind, pems) as at:
            wanted = reference(at.store.put(data))
            assert (wanted.size, wanted.home) == (size, "@@")
            reader = Reader(instance_credential(TOKEN, "k"), at.client)
            for _ in range(2):  # the second time on the same connection
                found = await asyncio.to_thread(reader.fetch, at.address, wanted.name, wanted.size, "")
                assert found == data
            at.store.delete(wanted.name)
            with pytest.raises(LostValueError, match="does not exist any more"):
                await asyncio.to_thread(reader.fetch, at.address, "1-999", size, "b")
            reader.close()

    run(test)


def test_a_value_of_a_node_that_is_gone_is_lost_with_a_clear_reason(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        reader = Reader(agent_credential(TOKEN), None)
        with pytest.raises(LostValueError, match=r"2.00 MiB on node b is lost: it cannot be reached at 127"):
            reader.fetch(bound_address(unused), "1-1", 2 << 20, "b")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "x", "1-1/../../x", ""])
def test_only_values_can_be_read(tmp_path, name):
    async def test():
        async with opened(tmp_path) as at:
            reader = Reader(agent_credential(TOKEN), None)
            with pytest.raises(LostValueError, match="not the name of a stored value"):
                await asyncio.to_thread(reader.fetch, at.address, name, INLINE_BYTES, "b")
            reader.close()

    run(test)


def test_a_reader_that_asks_for_too_much_is_cut_off(tmp_path):
    async def test():
        async with opened(tmp_path) as at:
            wanted = reference(at.store.put(bytes(PIECE_BYTES)))
            greedy = await at.dial()
            total = 0
            await asyncio.to_thread(greedy.sendall, pack(Read(wanted.name, 0, PIECE_BYTES)) * 1000)
            with suppress(ConnectionResetError):
                while data := await asyncio.to_thread(greedy.recv, 1 << 20):
                    total += len(data)
            assert total < 40 * PIECE_BYTES
            large = await at.dial()
            large.sendall(pack(Read(wanted.name, 0, PIECE_BYTES + 1)))
            assert await is_cut_off(large)

    run(test)


# --- links -----------------------------------------------------------------------------------------------------------


class Heard:
    def __init__(self):
        self.messages = []

    def heard(self, message):
        self.messages.append(message)


def test_answers_of_another_generation_are_dropped():
    sent, late, heard = [], [], Heard()
    link = StreamLink(sent.append, 5, late.append)
    link.heard(frame(Ready(0.1, 0.2))[4:])  # before anybody listens
    link.open(heard)
    link.run(Batch(1, ("w/a",), (b"1",)))
    assert sent == [frame(Batch(1, ("w/a",), (b"1",), 5))]
    for generation in (4, 5, 0):
        link.heard(frame(Done(1, 0.5, (), generation))[4:])
    assert heard.messages == [Ready(0.1, 0.2), Done(1, 0.5, ())]
    assert [done.generation for done in late] == [4, 0]
    link.fence(6)
    link.heard(frame(Done(2, 0.5, (), 5))[4:])
    assert [done.generation for done in late] == [4, 0, 5]


class Dialled:
    """An instance that dials a hub, started as an agent does it."""

    def __init__(self, at: Open, folder: Path, function: str, key: str = "k1", store: Store | None = None, **how):
        app = folder / "app.py"
        app.write_text(APP)
        self.leash, theirs = socket.socketpair()
        command = [sys.executable, "-m", "fairlead.engine.live.links.instance", str(theirs.fileno()), str(os.getpid())]
        with theirs:
            self.process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stderr=subprocess.PIPE)
        own = instance_credential(TOKEN, key)
        values = store or at.store
        how = {"home": values.home, "adoption_s": 30.0, **how}
        self.leash.sendall(frame(Dial(str(at.address), key, own.identity, own.secret, **how)))
        self.leash.sendall(frame(Begin(str(app), function, str(values.folder))))

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, 30)

    def end(self) -> None:
        self.leash.close()
        self.process.kill()
        self.process.communicate()


@asynccontextmanager
async def attached(at: Open, folder: Path, function: str, generation: int, **how):
    instance = Dialled(at, folder, function, **how)
    try:
        await until(lambda: at.instances)
        yield instance, *taken(at, generation)
    finally:
        instance.end()


def taken(at: Open, generation: int):
    """The link to the instance that has just dialled, and what is heard over it."""
    _, stream = at.instances.pop(0)
    late, heard = [], Heard()
    link = StreamLink(stream.send, generation, late.append)
    stream.heard = link.heard
    stream.send(pack(Attached(generation)))
    link.open(heard)
    return stream, link, heard.messages, late


@pytest.mark.parametrize("kind", ["unix", "tls"])
def test_an_instance_dials_runs_and_dials_again_when_it_is_cut_off(tmp_path, pems, kind):
    async def test():
        async with opened(tmp_path, kind, pems) as at:
            cacert = {"cacert": str(pems / "cert.pem")} if kind == "tls" else {}
            async with attached(at, tmp_path, "pid", 1, **cacert) as (instance, stream, link, heard, late):
                await until(lambda: heard)
                link.run(Batch(0, ("pid/pid",), (encode(5),)))
                await until(lambda: len(heard) == 2)
                assert at.store.read(heard[1].results[0].value) == [instance.process.pid, 5]
                stream.abort()
                await until(lambda: at.instances)
                _, link, again, late = taken(at, 2)
                await until(lambda: again)
                assert again == [heard[0]]  # it is ready as it was, without loading anything
                link.run(Batch(1, ("pid/pid",), (encode(6),)))
                await until(lambda: len(again) == 2)
                assert at.store.read(again[1].results[0].value) == [instance.process.pid, 6]
                assert not late
                instance.leash.close()
                assert await instance.ended() == 0

    run(test)


def test_an_instance_tells_the_cpu_time_of_each_run_with_that_of_processes_it_started(tmp_path):
    async def test():
        async with opened(tmp_path) as at, attached(at, tmp_path, "work", 1) as (_, _, link, heard, _):
            await until(lambda: heard)
            for number, how in enumerate(("sleep", "compute", "child", "sleep")):
                link.run(Batch(number, ("work/work",), (encode(how),)))
                await until(lambda number=number: len(heard) == number + 2)
            slept, computed, started, again = heard[1:]
            assert slept.work_s >= 0.2
            assert again.work_s >= 0.2
            assert slept.cpu_s < 0.1  # of 0.2 s or more
            assert computed.cpu_s >= 0.1
            assert started.cpu_s >= 0.1
            assert again.cpu_s < 0.1  # counted from the last answer on

    run(test)


def test_an_instance_that_is_refused_or_finds_no_gateway_ends(tmp_path):
    async def test():
        async with opened(tmp_path) as at:
            async with attached(at, tmp_path, "pid", 1) as (instance, stream, _, heard, _):
                await until(lambda: heard)
                stream.abort()
                await until(lambda: at.instances)
                at.instances[0][1].send(pack(control.Refused("nothing is known of you")))
                assert await instance.ended() == 1
                assert b"nothing is known of you" in instance.process.stderr.read()
                at.instances.clear()
            async with attached(at, tmp_path, "pid", 1, adoption_s=0.2) as (instance, stream, _, heard, _):
                await until(lambda: heard)
                await at.hub.close()
                at.listening.close()  # a socket that stays open would have it wait for the handshake, for ten seconds
                assert await instance.ended() == 1

    run(test)


def test_large_values_stay_where_they_were_made_and_are_read_from_there(tmp_path):
    size = 3 << 20

    async def test():
        async with opened(tmp_path) as at, opened(tmp_path / "node") as node:
            node.store.home = f"@a@{node.address}"
            async with attached(at, tmp_path, "blow", 1, store=node.store) as (_, _, link, heard, _):
                await until(lambda: heard)
                link.run(Batch(0, ("blow/blow",), (encode(size),)))
                await until(lambda: len(heard) == 2)
                made = heard[1].results[0].value
                assert reference(made).node == "a"
                assert at.store.size_bytes(made) == size + 5
            async with attached(at, tmp_path, "length", 1, key="k2") as (_, _, link, heard, _):
                await until(lambda: heard)
                link.run(Batch(0, ("length/length",), (made,)))
                given = at.store.put(encode("y" * size))  # kept by the gateway
                link.run(Batch(1, ("length/length",), (given,)))
                await until(lambda: len(heard) == 3)
                assert [at.store.read(done.results[0].value) for done in heard[1:]] == [size, size]
                assert heard[1].transfer_s > 0
                node.store.drop(made)
                link.run(Batch(2, ("length/length",), (made,)))
                await until(lambda: len(heard) == 4)
                assert not heard[3].results[0].ok
                assert "a value of 3.00 MiB on node a is lost" in heard[3].results[0].error

    run(test)
