"""An instance: a process that loads one function of an app, runs its `setup`, and then batch after batch.

Started as `python -m fairlead.engine.live.worker FD PID`. It ends with its gateway: by the end of the channel, and by a
signal of the kernel where the function hangs. What the function prints goes to the gateway's log, never to the channel.
"""

import ctypes
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from traceback import TracebackException

import fairlead
from fairlead.app import App, AppFunction, load_app
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import Result, Value, encode
from fairlead.engine.live.wire import Batch, Begin, Channel, Done, Failed, Ready
from fairlead.errors import FairleadError

_PR_SET_PDEATHSIG = 1
_MOST_ERROR = 2000  # characters of an error message
_PACKAGE = str(Path(fairlead.__file__).parent)


def main(descriptor: int, gateway: int) -> None:
    """Serve the gateway of this process id until it is gone."""
    _die_with(gateway)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal; it is for the gateway to drain
    with socket.socket(fileno=descriptor) as connection:
        channel = Channel(connection)
        begin = channel.receive()
        if not isinstance(begin, Begin):
            return
        began = perf_counter()
        try:
            app = load_app(Path(begin.app))
            loaded = perf_counter()
            function = app.functions[begin.function]
            function.prepare()
        except FairleadError as error:  # it already shows the user's own line
            channel.send(Failed(str(error)[:_MOST_ERROR]))
            return
        except Exception as error:
            traceback.print_exc()
            channel.send(Failed(f"setup of {begin.function} raised {describe(error)}"))
            return
        gc.collect()
        gc.freeze()  # what is loaded stays: a collection need not look at it again
        channel.send(Ready(loaded - began, perf_counter() - loaded))
        serve(channel, app, function, Store(Path(begin.store)))


def serve(channel: Channel, app: App, function: AppFunction, store: Store) -> None:
    """Run what comes, until nothing comes any more."""
    while (batch := channel.receive()) is not None:
        if isinstance(batch, Batch):
            channel.send(run(batch, app, function, store))


def run(batch: Batch, app: App, function: AppFunction, store: Store) -> Done:
    """One batch: every invocation gets a result of its own, whatever happens."""
    began = perf_counter()
    try:
        arguments = [store.read(value) for value in batch.inputs]
        began = perf_counter()
        outputs = call(function, arguments)
    except Exception as error:
        work_s = perf_counter() - began
        traceback.print_exc()
        return Done(batch.batch, work_s, (Result(False, error=describe(error)),) * len(batch.inputs))
    work_s = perf_counter() - began
    results = [_result(app, stage, output, store) for stage, output in zip(batch.stages, outputs, strict=True)]
    return Done(batch.batch, work_s, tuple(results))


def call(function: AppFunction, arguments: list[object]) -> Sequence[object]:
    """One output per argument."""
    if not function.is_batched:
        return [function(argument) for argument in arguments]
    outputs = function(arguments)
    if not isinstance(outputs, list | tuple):
        raise TypeError(f"{function.name} is batched and must return a list; got {type(outputs).__name__}.")
    if len(outputs) != len(arguments):
        raise ValueError(f"{function.name} was called with {len(arguments)} and returned {len(outputs)} results.")
    return outputs


def _result(app: App, key: str, output: object, store: Store) -> Result:
    """What an output means to the stages after it; an exception in the place of an output is that one's failure."""
    if isinstance(output, Exception):
        return Result(False, error=describe(output))
    try:
        stage = app.stage(key)
        arm = stage.choose(output)
        if not stage.splits:
            return Result(True, store.put(encode(output)), arm)
        if not isinstance(output, list | tuple):
            raise TypeError(f"the next stage maps over its output, which must be a list; got {type(output).__name__}.")
        parts: Sequence[Value] = [store.put(encode(item)) for item in output]
        return Result(True, parts, arm, len(parts))
    except Exception as error:
        traceback.print_exc()
        return Result(False, error=describe(error))


def describe(error: BaseException) -> str:
    """An exception in one line, with the last line of the user's own code that it went through."""
    text = f"{type(error).__name__}: {error}"
    frames = [f for f in TracebackException.from_exception(error).stack if not f.filename.startswith(_PACKAGE)]
    if frames:
        text += f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    return text[:_MOST_ERROR]


def _die_with(gateway: int) -> None:
    """Have the kernel end this process when its gateway ends, also while the function hangs."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != gateway:  # it ended before it could be watched
        sys.exit("the gateway is gone")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
