"""Large values go from node to node through an object store: what is kept there, for how long, and what fails when."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
import uvloop
from agent_processes import cluster
from agent_world import OWNER, World, world
from runtimes import until
from serving import wait_for

from fairlead.app.secrets import VALUES_KEY, VALUES_KEY_ID, public_environment
from fairlead.engine.live.links.reading import Reader
from fairlead.engine.live.objects import OURS, Objects, StoreError, owner_id, place_of
from fairlead.engine.live.values import LOST_INPUT, LostValueError, encode
from fairlead.errors import ConfigError
from fairlead.testing.backends import Heard, Opened, Stored, write_app

KEYS = {VALUES_KEY_ID: "an-id", VALUES_KEY: "a-secret"}


def run(test) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


async def opened(made: World, folder: Path) -> Opened:
    """A gateway with two nodes and a store in a folder."""
    made.agent("a")
    made.agent("b")
    provider, heard = made.provider(store=(folder / "store").as_uri()), Heard()
    inventory = await provider.open(heard)
    await until(lambda: len(provider._joined()) == 2)
    return Opened(provider, provider.values, write_app(folder), heard, inventory)


def kept(folder: Path) -> list[str]:
    """Names of all objects. Folders may be deleted while they are read, which `Path.rglob` does not survive."""
    return sorted(str((Path(at) / name).relative_to(folder)) for at, _, names in os.walk(folder) for name in names)


async def made_on(b: Opened, node: str, size: int = 300_000) -> str:
    """A reference to a value of a node."""
    key = await b.start("make", node=node)
    b.run(key, 1, "make", size)
    (result,) = (await b.answer(key, 1)).results
    assert isinstance(result.value, str)
    b.values.hold(result.value)
    return result.value


def test_a_value_is_uploaded_when_another_node_needs_it_and_deleted_when_nothing_does(tmp_path, monkeypatch):
    def never(*args):
        raise AssertionError("a node was read from.")

    monkeypatch.setattr(Reader, "fetch", never)

    async def test():
        async with world(tmp_path) as made:
            b = await opened(made, tmp_path)
            value = await made_on(b, "a")
            neighbour, other = await b.start("echo", node="a"), await b.start("echo", node="b")
            b.run(neighbour, 1, "echo", Stored(value))
            await b.answer(neighbour, 1)
            assert kept(tmp_path / "store") == []  # it was mapped from memory
            for batch in (1, 2):
                b.run(other, batch, "echo", Stored(value))
            first = await b.answer(other, 1)
            assert first.results[0].ok
            assert first.transfer_s > 0  # policies learn what the way took
            await b.answer(other, 2)
            (name,) = kept(tmp_path / "store")  # once, for both batches
            assert name.startswith(f"{OURS}/{OWNER}/")
            copies = [name for name in made._services[1]._store.folder.iterdir() if name.name.split("-")[0].isdigit()]
            assert len(copies) == 3  # one of the input, and two outputs of `echo`
            b.values.release(value)
            await until(lambda: kept(tmp_path / "store") == [] and len(list(copies[0].parent.iterdir())) == 2)
            await b.provider.close()

    run(test)


def test_the_gateway_reads_an_answer_through_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr(Reader, "fetch", lambda *args: pytest.fail("a node was read from."))

    async def test():
        async with world(tmp_path) as made:
            b = await opened(made, tmp_path)
            value = await made_on(b, "a")
            assert await asyncio.to_thread(b.values.read, value) == "x" * 300_000
            await made._services[0].close_now()
            await until(lambda: "a" not in b.provider._joined())
            assert await asyncio.to_thread(b.values.encoded, value) == encode("x" * 300_000)  # it outlives its node
            b.values.release(value)
            await until(lambda: kept(tmp_path / "store") == [])
            await b.provider.close()

    run(test)


def test_a_store_that_cannot_be_written_fails_the_batch_with_its_reason_until_it_can(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            b = await opened(made, tmp_path)
            value = await made_on(b, "a")
            other = await b.start("echo", node="b")
            folder = tmp_path / "store" / OURS / OWNER
            shutil.rmtree(folder)
            folder.write_text("in the way")
            b.run(other, 1, "echo", Stored(value))
            (result,) = (await b.answer(other, 1)).results
            assert not result.ok
            assert result.error.startswith(f"{LOST_INPUT}a value of 0.29 MiB on node a is lost: the store file://")
            with pytest.raises(LostValueError, match="cannot be written"):
                await asyncio.to_thread(b.values.read, value)
            folder.unlink()
            b.run(other, 2, "echo", Stored(value))  # neither the instance nor the value is lost
            assert (await b.answer(other, 2)).results[0].ok
            await b.provider.close()

    run(test)


def test_a_lost_node_fails_what_waits_for_its_value(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            b = await opened(made, tmp_path)
            value = await made_on(b, "a")
            other = await b.start("echo", node="b")
            made._services[0]._passing.share = lambda order: None  # it never answers
            b.run(other, 1, "echo", Stored(value))
            await asyncio.sleep(0.1)
            await made._services[0].close_now()
            (result,) = (await b.answer(other, 1)).results
            assert "node a was lost" in result.error
            await b.provider.close()

    run(test)


def test_what_a_former_gateway_left_is_deleted_and_nothing_else(tmp_path):
    store = tmp_path / "store"
    ours, others = f"{OURS}/{OWNER}/17/1", (f"{OURS}/fedcba9876543210/17/1", "17/1", f"{OURS}/note.txt")
    for name in (ours, *others):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text("left")

    async def test():
        async with world(tmp_path) as made:
            b = await opened(made, tmp_path)
            await until(lambda: ours not in kept(store))
            await b.provider.close()

    run(test)
    assert kept(store) == sorted(others)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/folder",
        "file://host/folder",
        "file:///",
        "file:///a/../b",
        "s3:///prefix",
        "s3://bucket/../other",
        "s3://bucket/a//b",
        "s3://Bucket_/a",
        "s3://id:secret@bucket/a",
        "s3://bucket/a?x=1",
    ],
)
def test_a_url_that_names_no_store_is_refused(url):
    with pytest.raises(ConfigError) as caught:
        place_of(url, None, OWNER, KEYS)
    assert "secret@" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["http://10.0.0.1:9000", "ftp://127.0.0.1", "https://id:key@host"])
def test_an_endpoint_must_be_safe(endpoint):
    with pytest.raises(ConfigError):
        place_of("s3://bucket/a", endpoint, OWNER, KEYS)


def test_credentials_are_asked_for_and_never_shown(monkeypatch):
    with pytest.raises(ConfigError, match=VALUES_KEY):
        place_of("s3://bucket/a", None, OWNER, {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"})
    place = place_of("s3://bucket/a", "http://127.0.0.1:1", OWNER, KEYS)
    assert "a-secret" not in f"{place} {place!r}"
    assert place.without_secrets("no: a-secret of an-id\nsecond line") == "no: *** of ***"
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    assert not set(KEYS) & set(public_environment())


def test_a_store_that_is_not_there_is_told_in_bounded_time():
    async def test():
        objects = Objects(place_of("s3://bucket/a", "http://127.0.0.1:1", OWNER, KEYS))
        with pytest.raises(StoreError, match=r"s3://bucket/a at http://127\.0\.0\.1:1 cannot be written"):
            async with asyncio.timeout(25):
                await objects.check()

    run(test)


def test_a_state_folder_has_one_name_in_stores(tmp_path):
    first = owner_id(tmp_path)
    assert owner_id(tmp_path) == first
    (tmp_path / "values.id").write_text("../other")
    with pytest.raises(StoreError):
        owner_id(tmp_path)


TWO_NODES = """
@app.function
def make(size):
    return "x" * size

@app.function
def count(text):
    return [len(text), sorted(name for name in os.environ if name.startswith("FAIRLEAD_VALUES"))]

app.workflow("two", make >> count)
app.workflow("large", make)
"""


def test_agents_as_processes_pass_values_through_a_folder_and_tell_when_they_cannot(tmp_path):
    store = tmp_path / "store"
    with cluster(tmp_path, ("a", "b"), "--values", store.as_uri(), code=TWO_NODES) as made:
        served = made.served
        for function, node in (("make", "a"), ("count", "b")):
            reply = served.ask("POST", f"/v1/apps/demo/functions/{function}/move", {"node": node})
            assert reply.status < 300, reply.json
        wait_for(lambda: served.call("two", 200_000).json["output"] == [200_000, []])
        assert len(served.call("large", 200_000).json["output"]) == 200_000
        wait_for(lambda: kept(store) == [])
        (store / OURS).rename(store / "away")
        (store / OURS).write_text("in the way")
        refused = served.call("large", 200_000)
        assert (refused.status, refused.json["error"]["code"]) == (503, "value_lost")
        assert "cannot be written" in refused.json["error"]["message"]
        accepted = served.send("large", 200_000).json["id"]
        (store / OURS).unlink()
        (store / "away").rename(store / OURS)
        assert served.wait_for_end(accepted)["state"] == "completed"  # it was tried again
