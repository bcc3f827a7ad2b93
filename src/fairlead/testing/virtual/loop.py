"""An event loop on virtual time: when nothing is ready, the clock jumps to the next timer.

It does no I/O and has no threads: what is given to an executor runs at once, on the spot. Callbacks run in the order in
which they became due, so the same program takes the same steps every time. A program that waits for something that can
never come is told so by `StuckError`, and does not hang.

Parts of a program can be given a `Life`, as if they were processes: whatever such a part schedules belongs to its life,
and is dropped when that ends. So a gateway can crash between any two steps while the world around it goes on.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from contextvars import Context, ContextVar
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BEGIN_S = 1000.0
"""What a new loop's clock shows: not 0, which code may take for "never"."""

_SHOWN_TASKS = 12
_MOST_LAST_WAITS = 100
_CANCELLED_SLACK = 1024  # cancelled timers that are not worth looking for

_life: ContextVar["Life | None"] = ContextVar("fairlead_virtual_life", default=None)


class StuckError(RuntimeError):
    """The program waits for something that can never come, or not within its limit."""


class LifeEndedError(ConnectionError):
    """The other side's life ended before it had answered."""


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs callbacks and tasks on virtual time.

    Args:
        executor_delay_s: Gives the time after which the result of work for an executor is there; the work itself is
            done at once. Without it, the result is there at once too.
    """

    def __init__(self, executor_delay_s: Callable[[], float] | None = None) -> None:
        self._now = BEGIN_S
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._cancelled_timers = 0
        self._numbers = count()
        self._executor_delay_s = executor_delay_s
        self._is_running = self._is_stopping = self._is_closed = self._is_debug = False
        self._is_burying = self._has_buried = False
        self._steps_now = 0  # callbacks since the clock last moved
        self.most_steps = 1_000_000  # without any time going by: more are an error
        self.ends_at = inf  # the instant at which a program that still runs is stuck
        self.steps = 0  # callbacks that have run
        self.errors: list[dict[str, Any]] = []  # what callbacks raised, as asyncio reports it

    # --- time ------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Let time go by within a callback, as if it had taken this long. Timers that are due meanwhile come late."""
        self._now += seconds

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Have something called in the next round."""
        self._check_open()
        handle = asyncio.Handle(callback, args, self, context)
        if not self._is_burying:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """The same: there are no other threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Have something called after a time."""
        return self.call_at(self._now + max(0.0, delay), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Have something called at an instant."""
        self._check_open()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._is_burying:
            heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > _CANCELLED_SLACK and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapify(self._timers)
            self._cancelled_timers = 0

    # --- futures, tasks, executors ---------------------------------------------------------------------------------

    def create_future(self) -> "asyncio.Future[Any]":
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: Context | None = None, **_: object
    ) -> "asyncio.Task[T]":
        """Run a coroutine; as a part of whichever life the context belongs to."""
        self._check_open()
        if self._is_burying:  # what is left of a life that has ended can begin nothing
            coro.close()
            return self.create_future()  # type: ignore[return-value]
        task = asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)
        life = _life.get() if context is None else context.get(_life)
        if life is not None:
            life.tasks[task] = None
            task.add_done_callback(life.task_ended)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Do the work now, whatever the executor; its result comes after the loop's delay for executors."""
        future: asyncio.Future[T] = self.create_future()
        if self._is_burying:
            return future

        def settle() -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        result: T
        error: BaseException | None = None
        try:
            result = func(*args)
        except Exception as raised:
            error = raised
        if self._executor_delay_s is None:
            settle()
        else:
            self.call_later(self._executor_delay_s(), settle)
        return future

    # --- running ---------------------------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until stopped. StuckError if there is nothing left that could ever happen."""
        self._check_open()
        if self._is_running:
            raise RuntimeError("This event loop is already running")
        self._is_running = True
        asyncio._set_running_loop(self)
        try:
            while not self._is_stopping:
                self._run_round()
        finally:
            self._is_running = self._is_stopping = False
            asyncio._set_running_loop(None)

    def run_until_complete(self, future: Any) -> Any:
        """What a coroutine or future gives."""
        waiting = asyncio.ensure_future(future, loop=self)
        waiting.add_done_callback(self._stop_after)
        try:
            self.run_forever()
        except BaseException:
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # it was retrieved: nothing else is to be said of it
            raise
        finally:
            waiting.remove_done_callback(self._stop_after)
        if not waiting.done():
            raise RuntimeError("The event loop was stopped before the future was done.")
        return waiting.result()

    def _stop_after(self, _: object) -> None:
        self.stop()

    def _run_round(self) -> None:
        ready, timers = self._ready, self._timers
        while timers and (timers[0][2].cancelled() or (timers[0][0] <= self._now)):
            timer = heappop(timers)[2]
            if timer.cancelled():
                self._cancelled_timers -= 1
            else:
                ready.append(timer)
        if not ready:
            self._jump()
            return
        for _ in range(len(ready)):
            self._step(ready.popleft())
            if self._is_stopping:
                return
        if self._steps_now > self.most_steps:
            raise StuckError(f"Time stands still at {self._now:.6f}: {self._steps_now} callbacks.{self._waiting()}")

    def _jump(self) -> None:
        if not self._timers:
            raise StuckError(f"Nothing can happen any more at {self._now:.6f}.{self._waiting()}")
        if self._timers[0][0] > self.ends_at:
            raise StuckError(f"It has not ended by {self.ends_at:.6f}.{self._waiting()}")
        self._now = self._timers[0][0]
        self._steps_now = 0

    def _step(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        life: Life | None = handle._context.get(_life)  # type: ignore[attr-defined]
        if life is not None and not life.goes_on():
            return
        self.steps += 1
        self._steps_now += 1
        handle._run()

    def _waiting(self) -> str:
        """Which tasks wait, and where."""
        found = self.open_tasks()
        lines = []
        for task in found[:_SHOWN_TASKS]:
            stack = task.get_stack(limit=1)
            where = f"{stack[-1].f_code.co_filename}:{stack[-1].f_lineno}" if stack else "?"
            name = getattr(task.get_coro(), "__qualname__", "?")
            lines.append(f"\n  {task.get_name()}: {name} at {where}")
        more = f"\n  and {len(found) - len(lines)} more" if len(found) > len(lines) else ""
        return f" {len(found)} tasks wait:{''.join(lines)}{more}" if found else ""

    def open_tasks(self) -> list["asyncio.Task[Any]"]:
        """The tasks that may still go on, oldest first."""
        found = [task for task in asyncio.all_tasks(self) if not task.done() and _is_open(task)]
        return sorted(found, key=lambda task: (len(task.get_name()), task.get_name()))

    def stop(self) -> None:
        """End `run_forever` after what runs now."""
        self._is_stopping = True

    def is_running(self) -> bool:
        """Whether it runs now."""
        return self._is_running

    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._is_closed

    def close(self) -> None:
        """Drop whatever is scheduled."""
        self._ready.clear()
        self._timers.clear()
        self._is_closed = True

    async def shutdown_asyncgens(self) -> None:
        """Nothing: generators end with their references."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing: there is none."""

    def get_debug(self) -> bool:
        """Whether asyncio's own checks are on."""
        return self._is_debug

    def set_debug(self, enabled: bool) -> None:
        """Turn asyncio's own checks on or off."""
        self._is_debug = enabled

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what went wrong; `run` raises it at the end.

        An exception that was meant for a life that has ended is never retrieved, and is no error.
        """
        is_unread = "never retrieved" in context.get("message", "")
        if not self._is_burying and not (is_unread and self._has_buried):
            self.errors.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """The same."""
        self.call_exception_handler(context)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Event loop is closed")

    # --- lives -----------------------------------------------------------------------------------------------------

    def bury(self, tasks: Iterable["asyncio.Task[Any]"], context: Context) -> None:
        """End tasks whose life is over. What their code does on the way out has no effect any more."""
        self._is_burying = self._has_buried = True
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for task in list(tasks):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine: Any = task.get_coro()
                for _ in range(_MOST_LAST_WAITS):  # it may wait for something on its way out, and again
                    with suppress(BaseException):
                        context.run(coroutine.close)
                    if not _is_open(task):
                        break
        finally:
            self._is_burying = False
            asyncio._set_running_loop(before)


class Life:
    """A part of the program that can end at any step, as a process does.

    Args:
        loop: Where it runs.
        name: For messages.
        dies_after: Its end comes before the step of this number; None for never.
    """

    def __init__(self, loop: VirtualLoop, name: str, dies_after: int | None = None) -> None:
        self._loop = loop
        self.name = name
        self.context = contextvars.copy_context()
        self.context.run(_life.set, self)
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.steps = 0
        self.dies_after = dies_after
        self.is_over = False
        self._at_end: list[Callable[[], None]] = []

    def at_end(self, call: Callable[[], None]) -> None:
        """Have something called when it ends, on the outside: the operating system's part, so to speak."""
        self._at_end.append(call)

    def goes_on(self) -> bool:
        """Count a step; False if it has ended, or ends here."""
        if self.is_over:
            return False
        self.steps += 1
        if self.dies_after is not None and self.steps > self.dies_after:
            self.end()
            return False
        return True

    def end(self) -> None:
        """End it between two steps: nothing of it runs any more. Not to be called by its own code."""
        if self.is_over:
            return
        self.is_over = True
        self._loop.bury(self.tasks, self.context.copy())
        self.tasks.clear()
        for call in self._at_end:
            call()
        self._at_end.clear()

    def start(self, coroutine: Coroutine[Any, Any, T], name: str | None = None) -> "asyncio.Task[T]":
        """Run a coroutine as a part of it."""
        return self._loop.create_task(coroutine, name=name, context=self.context.copy())

    def call(self, callback: Callable[..., object], *args: object, delay_s: float = 0.0) -> None:
        """Have something called as a part of it, after a time."""
        self._loop.call_later(delay_s, callback, *args, context=self.context.copy())

    async def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives that runs as a part of it; LifeEndedError if it ends before.

        Cancelling this is what a client does that leaves: the coroutine is cancelled too.
        """
        if self.is_over:
            coroutine.close()
            raise LifeEndedError(f"{self.name} has ended")
        answer: asyncio.Future[T] = self._loop.create_future()
        task = self.start(coroutine)

        def ended(done: "asyncio.Task[T]") -> None:
            if answer.done():
                if not done.cancelled():
                    done.exception()
            elif done.cancelled():
                answer.cancel()
            elif (error := done.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(done.result())

        def gone() -> None:
            if not answer.done():
                answer.set_exception(LifeEndedError(f"{self.name} has ended"))

        task.add_done_callback(ended)
        self.at_end(gone)
        try:
            return await answer
        except asyncio.CancelledError:
            if not self.is_over:
                task.cancel()
            raise
        finally:
            with suppress(ValueError):
                self._at_end.remove(gone)

    def task_ended(self, task: "asyncio.Task[Any]") -> None:
        """One of its tasks is done."""
        self.tasks.pop(task, None)


def _is_open(task: "asyncio.Task[Any]") -> bool:
    """Whether a task's coroutine has not been closed with its life."""
    return getattr(task.get_coro(), "cr_frame", task) is not None


def run(
    main: Coroutine[Any, Any, T],
    *,
    limit_s: float = inf,
    executor_delay_s: Callable[[], float] | None = None,
) -> T:
    """What a coroutine gives that runs on a virtual loop of its own.

    Tasks that are left are cancelled. Raises StuckError if it has not ended after `limit_s` of virtual time, and
    RuntimeError if a callback raised an exception that was not handled.
    """
    loop = VirtualLoop(executor_delay_s)  # type: ignore[abstract]
    loop.ends_at = BEGIN_S + limit_s
    try:
        result: T = loop.run_until_complete(main)
        left = loop.open_tasks()
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    finally:
        loop.bury(loop.open_tasks(), contextvars.copy_context())
        loop.close()
    if loop.errors:
        first = loop.errors[0]
        message = f"{len(loop.errors)} callbacks failed; the first: {first.get('message')}"
        raise RuntimeError(message) from first.get("exception")
    return result
