"""The process of one instance: its start under limits, its end as the kernel tells it, and its last output."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress

from fairlead.app.secrets import public_environment
from fairlead.engine.live.contracts import Exit, InstanceSpec
from fairlead.engine.live.limits import Limiter
from fairlead.engine.live.logs.instances import InstanceLogs
from fairlead.engine.live.logs.pipe import FLOOD_PAUSE_S, RawOutput

_MOST_OUTPUT = 8192  # bytes of an instance's last output that are kept for messages
_SLICE = 1 << 16  # bytes that are read at once
_LAST_WORDS_S = 0.002  # between the end of a process and its report: what it said last comes first


class InstanceProcess:
    """A process under the limits of its instance.

    Args:
        spec: The instance.
        number: Its number at the limiter.
        limiter: Holds it to its limits.
        ended: Told once how it ended, when nothing of it is left.
        logs: Where what it writes is kept; None to keep the end of it only.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        number: int,
        limiter: Limiter,
        ended: Callable[["InstanceProcess", Exit], None],
        logs: InstanceLogs | None = None,
    ) -> None:
        self.spec = spec
        self.number = number
        self.limiter = limiter
        self.pid = -1
        self.error: str | None = None  # why it ends, where that is known before the kernel tells
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._popen: subprocess.Popen[bytes] | None = None
        self._logs = logs
        self._raw: RawOutput | None = None
        self._output = bytearray()
        self._end: asyncio.Future[None] = self._loop.create_future()
        self._cpu_s = 0.0
        self._is_refused = False

    def refuse(self, error: str) -> None:
        """End it before it starts."""
        self._is_refused = True
        self._loop.call_soon(self._finish, f"it could not be started: {error}")

    def spawn(
        self, command: Sequence[str], descriptors: Sequence[int] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it, and put it under its limits; whatever goes wrong is its end.

        By default its environment is that of this process, without secrets.
        """
        try:
            given = dict(public_environment() if environment is None else environment)
            with nullcontext() if self._logs is None else self._logs.captured(self.spec) as capture:
                if capture is not None:
                    given |= capture.environment
                    descriptors = (*descriptors, capture.descriptor)
                    self._raw = capture.raw
                popen = subprocess.Popen(
                    command,
                    pass_fds=descriptors,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=given,
                )
        except OSError as error:
            self.refuse(str(error))
            return
        self._popen, self.pid = popen, popen.pid
        self._handle = os.pidfd_open(popen.pid)
        self._loop.add_reader(self._handle, self._exited)
        assert popen.stdout is not None
        os.set_blocking(popen.stdout.fileno(), False)
        self._loop.add_reader(popen.stdout.fileno(), self._hear)
        spec = self.spec
        self.limiter.admit(self.number, popen.pid, spec.node, spec.vcpus, spec.memory_gb)

    def kill(self) -> None:
        """End it with all its own children, which share its session."""
        if self._popen is None:
            self.refuse(self.error or "it was stopped before")
            return
        if self._popen.returncode is None:
            try:
                os.killpg(self._popen.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except PermissionError:
                self._popen.kill()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or will not start."""
        return self._is_refused or self._end.done()

    def kill_after(self, seconds: float, error: str | None = None) -> None:
        """End it by force if it has not ended by then, and say why."""
        if seconds <= 0:
            self._cut_off(error)
        else:
            self._loop.call_later(seconds, self._cut_off, error)

    async def gone(self) -> None:
        """Wait for its end."""
        await self._end

    def _cut_off(self, error: str | None) -> None:
        if self._popen is None or self._popen.returncode is None:
            self.error = self.error or error
            self.kill()

    def _hear(self, *, is_over: bool = False) -> None:
        """Read a slice of what it writes past its own capture; all of it at once where nothing of it is kept."""
        assert self._popen is not None
        assert self._popen.stdout is not None
        pipe = self._popen.stdout.fileno()
        if self._raw is not None and self._raw.is_full() and not is_over:
            self._raw.discard(pipe)
            self._pause(pipe)
            return
        # Whose words they are is asked first: once the pipe is empty, the instance may show something else.
        names = None if self._raw is None else self._raw.names()
        try:
            data = os.read(pipe, _SLICE)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(pipe)
            return
        self._output += data
        del self._output[:-_MOST_OUTPUT]
        if self._raw is not None and names is not None:
            self._raw.heard(data, names)
        if self._raw is None and len(data) == _SLICE:
            self._pause(pipe)

    def _pause(self, pipe: int) -> None:
        """Let the pipe fill before it is looked at again: a flood must not keep the event loop busy."""
        self._loop.remove_reader(pipe)
        self._loop.call_later(FLOOD_PAUSE_S, self._listen)

    def _listen(self) -> None:
        if self._popen is not None and self._popen.stdout is not None and not self._popen.stdout.closed:
            self._loop.add_reader(self._popen.stdout.fileno(), self._hear)

    def _exited(self) -> None:
        """The process has ended; what it said before may still be on its way, and is heard first."""
        popen = self._popen
        assert popen is not None
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        self._cpu_s = self.limiter.usage(self.number).cpu_s or 0.0  # while the kernel still knows
        code = popen.wait()
        with suppress(ProcessLookupError, PermissionError):  # its own children
            os.killpg(popen.pid, signal.SIGKILL)
        self._loop.call_later(_LAST_WORDS_S, self._bury, code)

    def _bury(self, code: int) -> None:
        assert self._popen is not None
        assert self._popen.stdout is not None
        self._hear(is_over=True)
        self._loop.remove_reader(self._popen.stdout.fileno())
        self._popen.stdout.close()
        if self._raw is not None:
            self._raw.ended()
        usage = self.limiter.usage(self.number)
        self.limiter.remove(self.number)
        error = self.error
        if error is None and usage.oom_kills:
            error = f"it was ended for using more memory than its limit of {self.spec.memory_gb:g} GB"
        if error is None:
            error = f"it exited with code {code}" if code >= 0 else f"it was ended by {signal.Signals(-code).name}"
        self._finish(error)

    def _finish(self, error: str) -> None:
        if not self._end.done():
            self._end.set_result(None)
            output = self._output.decode("utf-8", "replace").strip()
            if self._logs is not None:
                output = self._logs.last_words(self.spec, output, _MOST_OUTPUT)
            self._ended(self, Exit(error, output, self._cpu_s, self.pid))
