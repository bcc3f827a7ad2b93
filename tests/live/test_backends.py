"""The local back end and agents pass the conformance suite."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from agent_world import make_certificates, world

from fairlead.engine.live.data import LocalValues
from fairlead.engine.live.providers.local import LocalProvider
from fairlead.engine.live.store import Store
from fairlead.model import Node
from fairlead.testing.backends import BACKEND_CHECKS, Heard, Opened, check_backend, write_app


class LocalBench:
    """Processes of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def open(self, heard: Heard):
        store = Store.make()
        provider = LocalProvider(store)
        inventory = await provider.open(heard)
        nodes = (Node(name="one", kind="small", vcpus=4), Node(name="two", kind="small", vcpus=4))
        provider.declare(nodes)
        try:
            found = type(inventory)(nodes)
            yield Opened(provider, LocalValues(store), write_app(self._folder), heard, found)
        finally:
            await provider.close()
            store.close()

    def run(self, check) -> None:
        asyncio.run(check)


@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.__name__)
def test_the_local_back_end_conforms(check, tmp_path):
    check_backend(LocalBench(tmp_path), [check])


class AgentBench:
    """Two agents that dial a gateway, over one kind of stream; `store` is the URL of an object store for values."""

    def __init__(self, folder: Path, kind: str, pems: Path | None = None, store: str | None = None) -> None:
        self._folder = folder
        self._store = store
        self._kind = kind
        self._pems = pems if kind == "tls" else None

    @asynccontextmanager
    async def open(self, heard: Heard):
        async with world(self._folder, self._kind, self._pems) as made:
            made.agent("one")
            made.agent("two")
            provider = made.provider(store=self._store)
            inventory = await provider.open(heard)
            try:
                yield Opened(provider, provider.values, write_app(self._folder), heard, inventory)
            finally:
                await provider.close()

    def run(self, check) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(check)


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("pems"))


@pytest.mark.parametrize("kind", ["unix", "tls"])
@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.__name__)
def test_agents_conform(check, kind, tmp_path, pems):
    check_backend(AgentBench(tmp_path, kind, pems), [check])


@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.__name__)
def test_agents_with_an_object_store_conform(check, tmp_path):
    store = tmp_path / "store"
    check_backend(AgentBench(tmp_path, "unix", store=store.as_uri()), [check])
    assert not [path for path in store.rglob("*") if path.is_file()], "values are left in the store."
