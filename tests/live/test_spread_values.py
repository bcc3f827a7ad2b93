"""Values between nodes: read from where they were made, made again when they are lost, and never left behind."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import uvloop
from agent_world import TOKEN, world
from runtimes import until
from spread_runtimes import served

from fairlead.engine.core.transfers import Transfers
from fairlead.engine.live.links.dialled import DialledChannel
from fairlead.engine.live.links.greeting import instance_credential
from fairlead.engine.live.links.reading import Reader
from fairlead.engine.live.values import LostValueError, reference
from fairlead.engine.live.wire import Dial
from fairlead.testing.backends import Heard, Opened, write_app


def run(test) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


def test_a_node_that_is_not_reached_is_read_through_the_gateway(tmp_path, monkeypatch):
    direct: list[str] = []
    dial = Reader._dial

    async def test():
        async with world(tmp_path) as made:
            made.agent("a")
            provider, heard = made.provider(), Heard()
            inventory = await provider.open(heard)
            b = Opened(provider, provider.values, write_app(tmp_path), heard, inventory)
            key = await b.start("make")
            b.run(key, 1, "make", 3_000_000)
            (result,) = (await b.answer(key, 1)).results
            wanted = reference(result.value)

            def no_way(reader, address):
                if str(address) == wanted.address and reader is not provider._reader:
                    direct.append(str(address))
                    raise ConnectionRefusedError("there is no way")
                return dial(reader, address)

            monkeypatch.setattr(Reader, "_dial", no_way)
            own = instance_credential(TOKEN, key)
            how = Dial(str(made.address), key, own.identity, own.secret, "@b@127.0.0.1:1", 1.0)
            channel = DialledChannel(how, None)
            expected = await asyncio.to_thread(provider.values.encoded, result.value)
            for _ in range(2):
                assert bytes(await asyncio.to_thread(channel.fetch, wanted)) == expected
            assert len(direct) == 1  # for a while the gateway is asked at once
            for home in ("@a@127.0.0.1:9", "@nowhere@127.0.0.1:9"):  # of a former agent, and of none
                with pytest.raises(LostValueError, match=r"is lost: node \w+ is not connected"):
                    await asyncio.to_thread(channel.fetch, wanted._replace(home=home))
            with pytest.raises(LostValueError, match="does not exist any more"):
                await asyncio.to_thread(channel.fetch, wanted._replace(name="1-1"))
            channel._reader.close()
            await provider.close()

    run(test)


MAKE_AGAIN = """
    import time
    from pathlib import Path

    @app.function(vcpus=1)
    def make(given):
        with open(Path(given["folder"]) / "made.txt", "a") as file:
            file.write("made ")
        return b"x" * 1_000_000

    @app.function(vcpus=1)
    def hold(given):
        while not (Path(given["folder"]) / "go").exists():
            time.sleep(0.005)
        return 1

    @app.function(vcpus=1)
    def count(parts):
        return len(parts[0]) + parts[1]

    app.workflow("w", fork(make, hold) >> count)
"""


@pytest.mark.parametrize("on_loss", ["retry", "fail"])
def test_an_output_that_is_lost_with_its_node_is_made_again_or_the_request_fails(tmp_path, on_loss):
    async def test():
        async with served(tmp_path, MAKE_AGAIN, nodes={"a": 1, "b": 1}) as app:
            object.__setattr__(app.runtime.scenario, "on_loss", on_loss)
            number, ending = app.begin("w", {"folder": str(tmp_path)})
            state = app.runtime._transit.open[number]
            await until(lambda: ("make", 0) in state.outputs)
            node = app.where(number, "make")
            await app.kill(node)
            await until(lambda: not app.runtime.controller.nodes[node].is_up)
            (tmp_path / "go").touch()
            end = await asyncio.wait_for(ending, 120)
            if on_loss == "retry":
                assert end.outcome == "completed", end
                assert app.store.read(end.value) == 1_000_001
                assert (tmp_path / "made.txt").read_text() == "made made "
            else:
                assert (end.outcome, end.code) == ("failed", "value_lost")
                assert f"on node {node} is lost: the node is not connected" in end.reason
            await until(lambda: app.stored() == [])

    run(test)


LARGE = """
    @app.function(vcpus=1)
    def blob(n):
        return b"x" * n

    @app.function(vcpus=1)
    def size(data):
        return len(data)

    app.workflow("large", blob >> size)
"""


def test_transfers_are_measured_and_learned(tmp_path, monkeypatch):
    seen = []
    learn = Transfers.learn
    monkeypatch.setattr(Transfers, "learn", lambda *a: (seen.append((a[1].transfer_mb, a[2])), learn(*a)))

    async def test():
        async with served(tmp_path, LARGE, "fairlead", {"a": 1, "b": 1}) as app:  # each has room for one function
            believed = app.runtime.controller.transfers
            assert believed.seconds(4) == 0  # nothing was declared, nothing is known
            for _ in range(8):
                assert await app.answer("large", 4_000_000) == 4_000_000
            mb = 4_000_000 / 2**20
            assert [round(size - mb, 2) for size, _ in seen] == [0] * 8  # the real sizes, none of which was declared
            times = sorted(seconds for _, seconds in seen)
            assert times[0] <= believed.seconds(mb) <= times[-1]
            told = app.runtime.tally.functions()
            assert [round(each.transfer_s - sum(times), 6) for each in told if each.name == "size"] == [0]
            await until(lambda: app.stored() == [])

    run(test)


RANDOM = """
    @app.function(vcpus=1)
    def grow(given):
        return {**given, "text": given["text"] + "x" * given["size"]}

    @app.function(vcpus=1)
    def other(given):
        return {**given, "text": given["text"] + "y" * (given["size"] // 2)}

    @app.function(vcpus=1)
    def parts(given):
        return [{**given, "text": given["text"] + str(i)} for i in range(3)]

    @app.function(vcpus=1)
    def count(given):
        if isinstance(given, dict):
            return [given["key"], len(given["text"])]
        return [given[0]["key"], sum(len(each["text"]) for each in given)]

    app.workflow("chain", grow >> other >> grow >> count)
    app.workflow("fork", grow >> fork(other, grow) >> count)
    app.workflow("map", grow >> parts >> each(other) >> count)
"""


def expected(workflow: str, size: int) -> int:
    if workflow == "chain":
        return 2 * size + size // 2
    return 3 * size + size // 2 if workflow == "fork" else 3 * (size + 1 + size // 2)


@pytest.mark.parametrize("seed", [1])
def test_random_workflows_over_nodes_that_die_are_answered_right_or_fail_and_leave_no_value(tmp_path, seed):
    check_random_workflows(tmp_path, seed, requests=40, deaths=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_random_workflows_over_nodes_that_die_again_and_again(tmp_path, seed):
    check_random_workflows(tmp_path, seed, requests=150, deaths=6)


def check_random_workflows(folder: Path, seed: int, requests: int, deaths: int) -> None:
    rng = np.random.default_rng(seed)

    async def test():
        async with served(folder, RANDOM, str(rng.choice(["fifo", "fairlead"])), {"a": 2, "b": 2, "c": 2}) as app:
            asked = []
            moments = set(rng.choice(np.arange(5, requests), deaths, replace=False).tolist())
            for key in range(requests):
                workflow = str(rng.choice(["chain", "fork", "map"]))
                size = int(rng.choice([10, 50_000, 70_000, 300_000, 2_000_000]))
                given = {"key": key, "text": "", "size": size}
                asked.append((key, workflow, size, app.begin(workflow, given)[1]))
                await asyncio.sleep(rng.random() * 0.02)
                if key in moments:
                    node = str(rng.choice(["a", "b", "c"]))
                    await app.kill(node)
                    await until(lambda node=node: not app.runtime.controller.nodes[node].is_up)
                    await app.revive(node)
            failed = 0
            for key, workflow, size, ending in asked:
                end = await asyncio.wait_for(ending, 300)  # none hangs
                if end.outcome == "completed":
                    assert await asyncio.to_thread(app.store.read, end.value) == [key, expected(workflow, size)]
                else:
                    failed += 1
                    assert end.outcome == "failed", end
                    assert end.reason
            assert failed <= requests // 10
            assert app.runtime._transit.open == {}
            await until(lambda: app.stored() == [])

    run(test)
