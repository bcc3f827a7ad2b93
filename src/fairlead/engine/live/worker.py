"""An instance: a process that loads one function of an app, runs its `setup`, and then batch after batch.

Started as `python -m fairlead.engine.live.worker FD PID`. It ends with its gateway: by the end of the channel, and by a
signal of the kernel where the function hangs. What the function prints is kept by `logs/`, and not on the channel.
`links/instance.py` is the same for instances that dial their gateway.
"""

import ctypes
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from traceback import StackSummary, TracebackException, extract_tb
from typing import Protocol

import msgspec

import fairlead
from fairlead.app import App, AppFunction, load_app
from fairlead.app.current import Run, entered
from fairlead.engine.live.calling import PartError, call
from fairlead.engine.live.logs.capture import Capture, begin_capture
from fairlead.engine.live.store import Elsewhere, Store
from fairlead.engine.live.values import LOST_INPUT, MOST_ITEMS, LostValueError, Result, Value, encode
from fairlead.engine.live.wire import Batch, Begin, Channel, Dial, Done, Failed, Ready
from fairlead.errors import FairleadError

_PR_SET_PDEATHSIG = 1
_MOST_ERROR = 2000  # characters of an error message
_PACKAGE = str(Path(fairlead.__file__).parent)


class Talk(Protocol):
    """An instance's end of a channel."""

    def receive(self) -> Begin | Batch | Dial | None:
        """The next message; None once the instance is to end."""
        ...

    def send(self, message: Ready | Failed | Done) -> None:
        """Pass a message on. ValueError if it is too large."""
        ...


def main(descriptor: int, gateway: int) -> None:
    """Serve the gateway of this process id until it is gone."""
    die_with(gateway)
    with socket.socket(fileno=descriptor) as connection:
        channel = Channel(connection)
        begin = channel.receive()
        if isinstance(begin, Begin):
            work(channel, begin)


def work(channel: Talk, begin: Begin, home: str = "", elsewhere: Elsewhere | None = None) -> None:
    """Load the function, and run batches until nothing comes any more. For `home` and `elsewhere` see `Store`."""
    begin_capture()
    began = perf_counter()
    preparing = begin.function
    try:
        with _OnlyThisProcess():
            app = load_app(Path(begin.app))
            loaded = perf_counter()
            function = app.functions[begin.function]
            for part in function.parts or (function,):
                preparing = part.name
                part.prepare()
    except FairleadError as error:  # it already shows the user's own line
        channel.send(Failed(_sendable(str(error))))
        return
    except Exception as error:
        _tell(error)
        channel.send(Failed(f"setup of {preparing} raised {describe(error)}"))
        return
    _follow_traces()
    gc.collect()
    gc.freeze()  # what is loaded stays: a collection need not look at it again
    channel.send(Ready(loaded - began, perf_counter() - loaded))
    store = Store(Path(begin.store), None if begin.spill is None else Path(begin.spill), home, elsewhere)
    serve(channel, app, function, store, begin.max_items)


def _follow_traces() -> None:
    """Where the app uses OpenTelemetry, let its spans be children of the span of the run."""
    if "opentelemetry.trace" in sys.modules:
        entered.on_trace = import_module("fairlead.engine.live.tracing.inside").entered


def serve(channel: Talk, app: App, function: AppFunction, store: Store, max_items: int = MOST_ITEMS) -> None:
    """Run what comes, until nothing comes any more."""
    used_s = _cpu_s()
    while (batch := channel.receive()) is not None:
        if isinstance(batch, Batch):
            about = Run(app.name, batch.stages, batch.about)
            capture = Capture.current
            if capture is not None:
                capture.begin(about)
            done = run(batch, app, function, store, max_items, about)
            if capture is not None:
                capture.end()  # whoever has the answer finds the lines
            if not batch.about:  # no request waits for it: it is measured
                before_s, used_s = used_s, _cpu_s()
                done = msgspec.structs.replace(done, cpu_s=used_s - before_s)
            try:
                channel.send(done)
            except ValueError as error:  # too large for a message, and there was no room elsewhere
                for result in done.results:
                    store.drop(result.value)
                channel.send(_all_failed(batch, done.work_s, str(error)))


def run(
    batch: Batch,
    app: App,
    function: AppFunction,
    store: Store,
    max_items: int = MOST_ITEMS,
    about: Run | None = None,
) -> Done:
    """One batch: every invocation gets a result of its own, whatever happens."""
    began, fetched_s = perf_counter(), store.fetched_s
    try:
        arguments = [store.read(value) for value in batch.inputs]
        began = perf_counter()
        with _OnlyThisProcess():
            outputs = call(function, arguments, app.bindings(batch.stages), about)
    except LostValueError as error:
        return _all_failed(batch, 0.0, _sendable(f"{LOST_INPUT}{error}"), lost_at=error.node)
    except Exception as error:
        work_s = perf_counter() - began
        return _all_failed(batch, work_s, describe(error), traceback=_tell(error))
    work_s = perf_counter() - began
    with _OnlyThisProcess():  # a rule of a switch is the user's code too
        results = [
            _result(app, stage, output, store, max_items) for stage, output in zip(batch.stages, outputs, strict=True)
        ]
    return Done(batch.batch, work_s, tuple(results), batch.generation, store.fetched_s - fetched_s)


def _cpu_s() -> float:
    """CPU time of this process so far, and of those that it has started and waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + ended.ru_utime + ended.ru_stime


def _all_failed(batch: Batch, work_s: float, error: str, *, lost_at: str = "", traceback: str | None = None) -> Done:
    failed = Result(False, error=error, lost_at=lost_at, traceback=traceback)
    return Done(batch.batch, work_s, (failed,) * len(batch.inputs), batch.generation)


class _OnlyThisProcess:
    """Runs the user's code. A child that this code forks and that returns ends here: the channel is its parent's."""

    __slots__ = ("_process",)

    def __enter__(self) -> None:
        self._process = os.getpid()

    def __exit__(self, *exception: object) -> None:
        if os.getpid() != self._process:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(0)


def _result(app: App, key: str, output: object, store: Store, max_items: int) -> Result:
    """What an output means to the stages after it; an exception in the place of an output is that one's failure."""
    if isinstance(output, Exception):
        cause = output.cause if isinstance(output, PartError) else output
        return Result(False, error=describe(output), traceback=_tell(cause) if cause.__traceback__ else None)
    try:
        stage = app.stage(key)
        arm = stage.choose(output)
        if not stage.splits:
            return Result(True, store.put(encode(output)), arm)
        if not isinstance(output, list | tuple):
            raise TypeError(f"the next stage maps over its output, which must be a list; got {type(output).__name__}.")
        if len(output) > max_items:
            found = f"may have at most {max_items} items (max_items); got {len(output)}"
            raise ValueError(f"the next stage maps over its output, which {found}.")
        encoded = [encode(item) for item in output]  # all of them first: what cannot be sent must leave no files
        parts: Sequence[Value] = [store.put(item) for item in encoded]
        return Result(True, parts, arm, len(parts))
    except Exception as error:
        return Result(False, error=describe(error), traceback=_tell(error))


def _tell(error: Exception) -> str:
    """Have the function's own log say what it raised; gives the text."""
    text = traceback_of(error)
    if Capture.current is None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - for whoever started this process
    else:
        Capture.current.write("log", "ERROR", text)
    return text


def traceback_of(error: BaseException) -> str:
    """The traceback of an exception, without the calls that led to the user's own code."""
    try:
        told = TracebackException.from_exception(error)
        found: TracebackException | None = told
        while found is not None:
            own = [frame for frame in found.stack if not frame.filename.startswith(_PACKAGE)]
            found.stack = StackSummary.from_list(own or found.stack)
            found = found.__cause__ or found.__context__
        return _sendable("".join(told.format()).rstrip()[-2 * _MOST_ERROR :])
    except Exception:  # the user's own `__str__`
        return describe(error)


def describe(error: BaseException) -> str:
    """An exception in one line, with the last line of the user's own code that it went through.

    That of a fused function begins with the name of the part that failed.
    """
    if isinstance(error, PartError):
        return _sendable(f"{error.part}: {describe(error.cause)}")
    try:
        message = str(error)
    except Exception:  # the user's own `__str__`
        message = "(its message cannot be shown)"
    text = f"{type(error).__name__}: {message}"
    frames = [f for f in extract_tb(error.__traceback__) if not f.filename.startswith(_PACKAGE)]
    if frames:
        text = f"{text[:_MOST_ERROR]} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    return _sendable(text)


def _sendable(text: str) -> str:
    """A text that fits into a message: not too long, and with code points that UTF-8 has no form for escaped."""
    return text[: 2 * _MOST_ERROR].encode("utf-8", "backslashreplace").decode()


def die_with(gateway: int) -> None:
    """Have the kernel end this process when its gateway or agent ends, also while the function hangs."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != gateway:  # it ended before it could be watched
        sys.exit("the gateway is gone")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal; it is for the gateway to drain


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
