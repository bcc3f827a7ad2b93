"""`Client`: the same for code that is not `async`, from any thread: its calls run on an event loop of its own."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from fairlead.client.answers import Answer, RequestState
from fairlead.client.asynchronous import AsyncClient, AsyncHandle, Duration

T = TypeVar("T")


class Client:
    """Calls the workflows of one gateway, from any number of threads, over connections that are kept.

    See `AsyncClient` for the arguments, and for those of `call`, `infer` and `submit`.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        cacert: str | Path | None = None,
        retries: int = 3,
        timeout: Duration = 60.0,
        connections: int = 100,
    ) -> None:
        self._client = AsyncClient(
            url, token=token, cacert=cacert, retries=retries, timeout=timeout, connections=connections
        )
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._is_closed = False

    def call(
        self,
        workflow: str,
        input: object = None,
        *,
        app: str | None = None,
        deadline: Duration | None = None,
        budget_usd: float | None = None,
        idempotency_key: str | None = None,
        idempotent: bool = False,
        traceparent: str | None = None,
    ) -> Answer:
        """Run a workflow and wait for its answer; see `AsyncClient.call`. Interrupted, it cancels the request."""
        return self._run(
            self._client.call(
                workflow,
                input,
                app=app,
                deadline=deadline,
                budget_usd=budget_usd,
                idempotency_key=idempotency_key,
                idempotent=idempotent,
                traceparent=traceparent,
            )
        )

    def infer(
        self,
        workflow: str,
        inputs: object,
        *,
        app: str | None = None,
        deadline: Duration | None = None,
        idempotent: bool = False,
        traceparent: str | None = None,
    ) -> Answer:
        """Run a workflow on NumPy arrays; see `AsyncClient.infer`."""
        return self._run(
            self._client.infer(
                workflow, inputs, app=app, deadline=deadline, idempotent=idempotent, traceparent=traceparent
            )
        )

    def submit(
        self,
        workflow: str,
        input: object = None,
        *,
        app: str | None = None,
        deadline: Duration | None = None,
        budget_usd: float | None = None,
        idempotency_key: str | None = None,
        callback_url: str | None = None,
        traceparent: str | None = None,
    ) -> "Handle":
        """Have a request accepted, without waiting for its answer; see `AsyncClient.submit`."""
        return Handle(
            self,
            self._run(
                self._client.submit(
                    workflow,
                    input,
                    app=app,
                    deadline=deadline,
                    budget_usd=budget_usd,
                    idempotency_key=idempotency_key,
                    callback_url=callback_url,
                    traceparent=traceparent,
                )
            ),
        )

    def request(self, id: str) -> "Handle":
        """The handle of a request that was accepted before, perhaps by another program."""
        return Handle(self, self._client.request(id))

    def close(self) -> None:
        """Hang up. Calls under way are not answered any more."""
        with self._lock:
            self._is_closed = True
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None and self._process == os.getpid():
            asyncio.run_coroutine_threadsafe(self._end(), loop)
            thread.join()
            loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._client).removeprefix("Async")

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._started())
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except BaseException:
            future.cancel()  # does nothing once it has ended; otherwise it hangs up
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        """The loop on which calls run. Its thread begins with the first call."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("this client is closed.")
            if self._process != os.getpid():
                raise RuntimeError("this client was made by the parent of this process; make one in each process.")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="fairlead-client", daemon=True)
                self._thread.start()
            return self._loop

    async def _end(self) -> None:
        """Cancel what is under way, and stop the loop once that is done."""
        loop = asyncio.get_running_loop()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.close()
        loop.call_soon(loop.stop)


class Handle:
    """An asynchronous request: its state, its result, and how to cancel it."""

    def __init__(self, client: Client, handle: AsyncHandle) -> None:
        self._client = client
        self._handle = handle

    @property
    def id(self) -> str:
        """By which it is found again, also by other programs: `Client.request(id)`."""
        return self._handle.id

    @property
    def workflow(self) -> str | None:
        """What was called; None of a handle that was made from an id."""
        return self._handle.workflow

    def status(self) -> RequestState:
        """How it stands."""
        return self._client._run(self._handle.status())

    def result(self, timeout: Duration | None = None) -> Any:
        """Its output, once it has ended. LateError if that takes longer than `timeout`; the request goes on."""
        return self._client._run(self._handle.result(timeout))

    def cancel(self) -> bool:
        """Cancel it: True once that is on the gateway's disk, False if it had ended already."""
        return self._client._run(self._handle.cancel())

    def __repr__(self) -> str:
        return f"Handle({self.id!r})"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()
