"""What a function may know of the request that it runs for: `fairlead.context()` and `fairlead.contexts()`.

An instance says what it runs before it calls the function. Threads that a function starts know it if they are started
with a copy of the context (`contextvars.copy_context().run`, or `asyncio.to_thread`).
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from math import inf
from time import monotonic, time
from typing import ClassVar

import msgspec

from fairlead.errors import FairleadError


class ContextError(FairleadError, RuntimeError):
    """There is no request to tell about, or there are several."""


class About(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an instance is told of one invocation.

    `id` names the request, as its caller was told. `left_s` is the time to its deadline when the batch was sent; None
    without a deadline. `trace` is a W3C `traceparent`. `run` names the request in the records of the run, where that is
    another name.
    """

    id: str
    left_s: float | None = None
    attempt: int = 1
    trace: str | None = None
    run: str | None = None


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as the function that runs for it sees it.

    Attributes:
        id: Names the request: as in its answer, in `fairlead explain` and in `fairlead logs --request`.
        app: The app's name.
        workflow: The workflow that was called.
        stage: The stage of it that runs.
        attempt: Counts from 1; greater where an instance was lost and the stage runs again.
        deadline: When the answer is due, in seconds since 1970 by this machine's clock; infinity without a deadline.
        trace: The W3C `traceparent` to hand on to other services; None where the caller sent none and nothing traces.
        batch_ids: The ids of all requests in the batch, this one included.
    """

    id: str
    app: str
    workflow: str
    stage: str
    attempt: int
    deadline: float
    trace: str | None
    batch_ids: tuple[str, ...]

    @property
    def remaining_s(self) -> float:
        """Seconds to the deadline: negative once it has passed, infinity without one."""
        return self.deadline - time()


class Run:
    """A batch that an instance runs.

    Args:
        app: The app's name.
        stages: "workflow/stage" of each invocation.
        about: What was told of each; empty for a batch that no request asked for.
    """

    __slots__ = ("_began", "_contexts", "about", "app", "stages")

    def __init__(self, app: str = "", stages: Sequence[str] = (), about: Sequence[About] = ()) -> None:
        self.app = app
        self.stages = stages
        self.about = about
        self._began = monotonic()
        self._contexts: tuple[Context, ...] | None = None

    def part(self, places: Sequence[int]) -> "Run":
        """The same for the invocations at these places: a batched part of a fused function gets those that are left."""
        if len(places) == len(self.about) or not self.about:
            return self
        stages, about = [self.stages[place] for place in places], [self.about[place] for place in places]
        part = Run(self.app, stages, about)
        part._began = self._began
        return part

    @property
    def contexts(self) -> tuple[Context, ...]:
        """One for each invocation. Made when they are first asked for: most functions never do."""
        if self._contexts is None:
            began = time() - (monotonic() - self._began)
            ids = tuple(about.id for about in self.about)
            self._contexts = tuple(
                Context(
                    id=about.id,
                    app=self.app,
                    workflow=key.partition("/")[0],
                    stage=key.partition("/")[2],
                    attempt=about.attempt,
                    deadline=inf if about.left_s is None else began + about.left_s,
                    trace=about.trace,
                    batch_ids=ids,
                )
                for about, key in zip(self.about, self.stages, strict=True)
            )
        return self._contexts


_current: ContextVar[tuple[Run, int] | None] = ContextVar("fairlead_run", default=None)  # -1: the whole batch


def running() -> tuple[Run, int] | None:
    """The batch that this thread runs, and the place of the invocation in it; -1 for all of them together."""
    return _current.get()


class entered:  # noqa: N801 - reads as a word where it is used
    """While it is open, the code of an app runs for this batch, or for one invocation of it."""

    __slots__ = ("_found", "_leave", "_token")

    on_trace: ClassVar[Callable[[str], Callable[[], None]] | None] = None
    """Told of the `traceparent` of what begins, the first of a batch; gives what is to be called at the end."""

    def __init__(self, run: Run, place: int = -1) -> None:
        self._found = (run, place)
        self._leave: Callable[[], None] | None = None

    def __enter__(self) -> None:
        self._token = _current.set(self._found)
        if entered.on_trace is not None and self._found[0].about:
            run, place = self._found
            trace = run.about[max(0, place)].trace
            if trace is not None:
                self._leave = entered.on_trace(trace)

    def __exit__(self, *exception: object) -> None:
        if self._leave is not None:
            self._leave()
        _current.reset(self._token)


def context() -> Context:
    """The request that the calling function runs for.

    Raises:
        ContextError: No request is run here, or a batched function asks, which runs for several: see `contexts`.
    """
    run, place = _found("context")
    if place < 0:
        what = f"a batched function runs for several requests at once ({len(run.about)} now)"
        raise ContextError(f"fairlead.context(): {what}. Use fairlead.contexts(), which has one for each argument.")
    return run.contexts[place]


def contexts() -> tuple[Context, ...]:
    """The requests that the calling function runs for, in the order of its arguments; one where it is not batched.

    Raises:
        ContextError: No request is run here.
    """
    run, place = _found("contexts")
    return run.contexts if place < 0 else (run.contexts[place],)


def _found(name: str) -> tuple[Run, int]:
    found = _current.get()
    if found is None or not found[0].about:
        raise ContextError(
            f"fairlead.{name}(): no request is run here. Call it inside a function of an app that is served, not at "
            "import, in setup or in a unit test; a thread of its own needs contextvars.copy_context().run."
        )
    return found
