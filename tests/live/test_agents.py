"""Agents and their provider: nodes that come and go, instances that are adopted, code and values that travel."""

import asyncio
import os
from hashlib import sha256
from pathlib import Path

import pytest
import uvloop
from agent_world import TOKEN, World, world
from runtimes import until

from fairlead.engine.live.contracts import AppCode
from fairlead.engine.live.links import caller
from fairlead.engine.live.links.control import MOST_CODE_BYTES, Fetch, Piece
from fairlead.engine.live.links.greeting import RefusedError
from fairlead.engine.live.links.messages import PIECE_BYTES
from fairlead.engine.live.node.code import CodeFolder
from fairlead.engine.live.node.service import AgentService
from fairlead.engine.live.values import LostValueError, reference
from fairlead.testing.backends import Heard, Opened, Stored, write_app


def run(test) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


async def opened(made: World, folder: Path, **timing: float) -> Opened:
    """A gateway's end, open."""
    provider, heard = made.provider(**timing), Heard()
    inventory = await provider.open(heard)
    return Opened(provider, provider.values, write_app(folder), heard, inventory)


def process_of(service: AgentService, key: str) -> int:
    return service._agent.pid(key)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_next_gateway_adopts_what_the_last_one_started(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            agent = made.agent("a")
            first = await opened(made, tmp_path)
            idle, busy = await first.start("echo"), await first.start("wait")
            pids = [process_of(agent, key) for key in (idle, busy)]
            first.run(busy, 1, "wait", 1.0)
            await asyncio.sleep(0.1)
            await first.provider.close(keep=True)  # its connections end, as those of a gateway that was killed
            second = await opened(made, tmp_path)
            assert {spec.key for spec in second.inventory.instances} == {idle, busy}
            await second.heard.until(lambda: {idle, busy} <= second.heard.ready, "both are ready, one after its batch")
            assert [process_of(agent, key) for key in (idle, busy)] == pids
            for key, function in ((idle, "echo"), (busy, "wait")):
                second.run(key, 1, function, 0)
                assert second.values.read((await second.answer(key, 1)).results[0].value) == 0
            second.provider.stop(idle, 5.0)
            await second.gone(idle)
            await second.provider.close()
            assert not any(map(is_alive, pids))

    run(test)


def test_an_answer_to_the_last_gateway_is_dropped_by_the_next(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            agent = made.agent("a")
            first = await opened(made, tmp_path)
            key = await first.start("make")
            late = first.heard.links[key]
            first.run(key, 1, "make", 200_000)
            await first.answer(key, 1)
            # The answer of a batch with another generation, as if the first gateway had sent it.
            generation, late.generation = late.generation, late.generation - 1
            first.run(key, 2, "make", 200_000)
            late.generation = generation
            first.run(key, 3, "make", 10)
            await first.answer(key, 3)
            assert (key, 2) not in first.heard.done
            assert first.provider.late_answers == 1
            await until(lambda: len(os.listdir(agent._store.folder)) == 1)  # its value is deleted on the node
            await first.provider.close()

    run(test)


def test_a_node_whose_connection_is_cut_is_lost_and_joins_again_without_its_instances(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            agent = made.agent("a")
            b = await opened(made, tmp_path)
            key = await b.start("echo")
            pid = process_of(agent, key)
            agent._stream.abort()
            await b.heard.until(lambda: b.heard.nodes.get("a", 1) is None, "the node is lost")
            await b.heard.until(lambda: b.heard.nodes.get("a") is not None, "the node is there again")
            assert not is_alive(pid)  # its capacity is free before the node joins
            again = await b.start("echo")
            b.run(again, 1, "echo", 5)
            await b.answer(again, 1)
            assert b.heard.exits == {}
            await b.provider.close()

    run(test)


def test_a_silent_node_is_given_up_and_its_late_answers_are_dropped(tmp_path, monkeypatch):
    async def test():
        async with world(tmp_path) as made:
            agent = made.agent("a")
            b = await opened(made, tmp_path, beat_s=0.1, silence_s=0.5)
            key = await b.start("wait")
            b.run(key, 1, "wait", 1.2)
            began = asyncio.get_running_loop().time()
            monkeypatch.setattr(agent, "_join", asyncio.Event().wait)  # it cannot dial again
            monkeypatch.setattr(agent._stream, "send", lambda data: None)
            await b.heard.until(lambda: b.heard.nodes.get("a", 1) is None, "the node is lost")
            assert asyncio.get_running_loop().time() - began < 1.1
            await until(lambda: b.provider.late_answers == 1)
            assert (key, 1) not in b.heard.done
            await b.provider.close()

    run(test)


def test_an_instance_whose_connection_is_cut_is_ended_and_says_why(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            made.agent("a")
            b = await opened(made, tmp_path)
            key = await b.start("echo")
            b.provider._instances[key].stream.abort()
            assert "connection to the gateway ended" in (await b.gone(key)).error
            crashed = await b.start("leave")
            b.run(crashed, 1, "leave", 1)
            assert "code 3" in (await b.gone(crashed)).error
            await b.provider.close()

    run(test)


def test_without_a_gateway_instances_end_after_the_adoption_window(tmp_path, monkeypatch):
    async def test():
        async with world(tmp_path) as made:
            agent = made.agent("a")
            b = await opened(made, tmp_path, adoption_s=0.5)
            key = await b.start("echo")
            pid = process_of(agent, key)
            monkeypatch.setattr(caller, "HANDSHAKE_LIMIT_S", 0.5)  # the socket stays, and nobody answers at it
            await b.provider.close(keep=True)
            await until(lambda: not is_alive(pid))
            monkeypatch.undo()
            b = await opened(made, tmp_path)
            assert b.inventory.instances == ()
            assert [node.name for node in b.inventory.nodes] == ["a"]
            await b.provider.close()

    run(test)


def test_names_and_speeds_of_nodes_must_fit(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            made.agent("a")
            b = await opened(made, tmp_path)
            made.agent("a2", name="a")
            made.agent("b", speed=0.5)
            await until(lambda: any("a node named a is connected already" in line for line in made.log))
            await until(lambda: any("give this one another --kind" in line for line in made.log))
            made.agent("c", speed=0.5, kind="slow")
            await b.heard.until(lambda: "c" in b.heard.nodes, "c joins")
            assert set(b.heard.nodes) == {"c"}
            await b.provider.close()

    run(test)


def test_a_wrong_token_is_told_to_whoever_started_the_agent(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            made.agent("a")
            b = await opened(made, tmp_path)
            stranger = made.agent("b", token=TOKEN + "x")
            with pytest.raises(RefusedError):
                await made.tasks.pop()
            assert stranger._epoch == 0
            await b.provider.close()

    run(test)


# --- code ------------------------------------------------------------------------------------------------------------


def test_code_travels_by_pieces_and_is_kept(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            made.agent("a")
            b = await opened(made, tmp_path)
            file = Path(b.code.file)
            file.write_text(file.read_text() + "#" * (2 * PIECE_BYTES))
            b.code = AppCode(str(file), "conformance")
            for _ in range(2):
                key = await b.start("echo")
                b.run(key, 1, "echo", 1)
                await b.answer(key, 1)
            kept = list((tmp_path / "a" / "code").iterdir())
            assert [path.read_bytes() for path in kept] == [file.read_bytes()]
            assert kept[0].stem == sha256(file.read_bytes()).hexdigest()
            await b.provider.close()

    run(test)


DATA = b"x" * 100
DIGEST = sha256(DATA).hexdigest()


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([Piece(DIGEST, 0, 100, DATA[:60]), Piece(DIGEST, 60, 100, DATA[60:])], None),
        ([Piece(DIGEST, 0, 100, DATA[:60]), Piece(DIGEST, 60, 100, b"y" * 40)], "digest is wrong"),
        ([Piece(DIGEST, 0, 100, DATA + b"x")], "at most"),
        ([Piece(DIGEST, 0, MOST_CODE_BYTES + 1, DATA)], "at most"),
        ([Piece(DIGEST, 0, 100, b"")], "a part of it is missing"),
        ([Piece(DIGEST, 0, 0, b"", "gone")], "gone"),
    ],
    ids=["whole", "changed", "too-long", "too-large", "too-short", "refused"],
)
def test_code_is_taken_only_if_it_is_what_was_asked_for(tmp_path, pieces, error):
    asked, found = [], []
    folder = CodeFolder(tmp_path, asked.append)
    folder.want(DIGEST, "app.snapshot", found.append)
    folder.want(DIGEST, "app.snapshot", found.append)
    assert asked == [Fetch(DIGEST, 0)]  # once for both
    folder.take(Piece("f" * 64, 0, 100, DATA))  # it was not asked for
    for piece in pieces:
        folder.take(piece)
    if error is None:
        assert found == [tmp_path / f"{DIGEST}.snapshot"] * 2
        assert found[0].read_bytes() == DATA
    else:
        assert all(error in text for text in found)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("digest", "name"), [("../x", "a.py"), ("A" * 64, "a.py"), (DIGEST, "a.sh"), ("", "a.py")])
def test_what_names_no_code_is_refused(tmp_path, digest, name):
    found = []
    CodeFolder(tmp_path, found.append).want(digest, name, found.append)
    assert [type(one) for one in found] == [str]


# --- values ----------------------------------------------------------------------------------------------------------


def test_a_large_output_is_read_on_another_node_until_its_node_is_lost(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            one = made.agent("one")
            made.agent("two")
            b = await opened(made, tmp_path)
            names = [node.name for node in b.inventory.nodes]
            if len(names) < 2:
                await b.heard.until(lambda: bool(b.heard.nodes), "the second node joins")
            maker, taker = b.spec("make", node="one"), b.spec("echo", node="two")
            for spec in (maker, taker):
                b.provider.start(spec)
            await b.heard.until(lambda: {maker.key, taker.key} <= b.heard.ready, "both are ready")
            b.run(maker.key, 1, "make", 3_000_000)
            value = (await b.answer(maker.key, 1)).results[0].value
            b.values.hold(value)
            assert reference(value).node == "one"
            b.run(taker.key, 2, "echo", Stored(value))
            done = await b.answer(taker.key, 2)
            assert b.values.size_bytes(done.results[0].value) == b.values.size_bytes(value)
            assert 0 < done.transfer_s < 5
            await one.close_now()
            b.run(taker.key, 3, "echo", Stored(value))
            (result,) = (await b.answer(taker.key, 3)).results
            assert "a value of 2.86 MiB on node one is lost" in result.error
            with pytest.raises(LostValueError, match="node one"):
                await asyncio.to_thread(b.values.read, value)
            b.values.release(value)
            await b.provider.close()

    run(test)
