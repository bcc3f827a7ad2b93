"""The local back end passes the conformance suite."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

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
