"""A back end of your own: instances are threads of the gateway's process. It passes `fairlead.testing.backends`.

Real ones start processes, Pods or actors; what they must do is the same. Run it to see the suite pass.
"""

# ruff: noqa: D102 - `engine/live/contracts.py` says what each method does
import asyncio
import queue
import tempfile
import threading
from contextlib import asynccontextmanager
from pathlib import Path

from fairlead.app import load_app
from fairlead.engine.live.contracts import Capabilities, Exit, Inventory
from fairlead.engine.live.data import LocalValues
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.store import Store
from fairlead.engine.live.wire import Failed, Ready, frame
from fairlead.engine.live.worker import describe, run
from fairlead.model import Node
from fairlead.testing.backends import BACKEND_CHECKS, Opened, check_backend, write_app


class Thread:
    """An instance and the link to it: batches go in by a queue, messages come out on the event loop."""

    def __init__(self, spec, store, ended):
        self._spec, self._store, self._ended = spec, store, ended
        self._loop = asyncio.get_running_loop()
        self._batches = queue.SimpleQueue()
        self._reports = None
        self.is_over = False  # a thread cannot be killed: what it says afterwards is dropped

    def open(self, reports):
        self._reports = reports
        threading.Thread(target=self._work, daemon=True).start()

    def run(self, batch):
        frame(batch)  # ValueError if it is too large
        self._batches.put(batch)

    def abort(self, batch):
        return False

    def end(self, error):
        if not self.is_over:
            self.is_over = True
            self._batches.put(None)
            self._ended(self._spec.key, Exit(error))

    def _work(self):
        try:
            app = load_app(Path(self._spec.code.file))
            function = app.functions[self._spec.function]
            function.prepare()
        except Exception as error:
            self._say(Failed(describe(error)))
            self._tell(self.end, "it could not start")
            return
        self._say(Ready(0.0, 0.0))
        try:
            while (batch := self._batches.get()) is not None:
                self._say(run(batch, app, function, self._store, self._spec.max_items))
        except SystemExit:
            self._tell(self.end, "it left")

    def _say(self, message):
        self._tell(lambda: self.is_over or self._reports.heard(message))

    def _tell(self, call, *arguments):
        if not self.is_over:  # afterwards the loop may be closed
            self._loop.call_soon_threadsafe(call, *arguments)


class ThreadProvider:
    """Where instances live: one node, whose threads share its cores."""

    capabilities = Capabilities(resizes=False)

    def __init__(self, store):
        self._store, self._threads = store, {}
        self._node = Node(name="threads", kind="threads", vcpus=4)

    async def open(self, reports):
        self._reports, self._loop = reports, asyncio.get_running_loop()
        return Inventory((self._node,))

    def start(self, spec):
        if spec.node != self._node.name:
            self._loop.call_soon(self._reports.gone, spec.key, Exit(f"there is no node {spec.node!r}"))
        elif spec.key not in self._threads:
            thread = self._threads[spec.key] = Thread(spec, self._store, self._gone)
            self._reports.connected(spec.key, thread)

    def stop(self, key, grace_s):
        if key in self._threads:
            self._loop.call_soon(self._threads[key].end, "it was stopped")

    def resize(self, key, vcpus):
        if key in self._threads:
            self._loop.call_soon(self._reports.resize_refused, key, 1.0, "threads have no CPU limit")

    def usage(self, key):
        return Usage()

    def places(self):
        return ()

    async def close(self, *, keep=False):
        for thread in list(self._threads.values()):
            thread.end("the provider was closed")

    def _gone(self, key, how):
        if self._threads.pop(key, None) is not None:
            self._reports.gone(key, how)


class ThreadBench:
    """Opens the back end for the suite."""

    @asynccontextmanager
    async def open(self, heard):
        store, folder = Store.make(), tempfile.TemporaryDirectory()
        provider = ThreadProvider(store)
        inventory = await provider.open(heard)
        with folder:
            yield Opened(provider, LocalValues(store), write_app(Path(folder.name)), heard, inventory)
            await provider.close()
            store.close()

    def run(self, check):
        asyncio.run(check)


if __name__ == "__main__":
    check_backend(ThreadBench())
    print(f"{len(BACKEND_CHECKS)} checks passed")
