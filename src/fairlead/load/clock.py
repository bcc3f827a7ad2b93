"""The instant to send at, to some microseconds.

An event loop's own timers are rounded to whole milliseconds, which is as long as a fast server takes to answer; a
timer of the kernel that the loop watches like a socket is not.
"""

import ctypes
import os
import sys
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from time import monotonic

_CLOCK_MONOTONIC = 1  # the clock of time.monotonic
_AT_AN_INSTANT = 1  # TFD_TIMER_ABSTIME
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC if sys.platform == "linux" else 0


class Alarm:
    """Calls back at an instant of `time.monotonic`. One at a time: setting it again forgets the last."""

    def __init__(self, loop: AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: TimerHandle | None = None
        self._fd = _open_timer()
        if self._fd is not None:
            loop.add_reader(self._fd, self._rang)

    def set(self, instant: float) -> None:
        """Ring then; at once if that is past."""
        if self._fd is not None:
            _set_timer(self._fd, max(instant, 1e-6))  # zero would turn it off
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(0.0, instant - monotonic()), self._ring)

    def close(self) -> None:
        """Never ring again."""
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
        if self._handle is not None:
            self._handle.cancel()

    def _rang(self) -> None:
        assert self._fd is not None
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set again between ringing and this call
            return
        self._ring()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def _open_timer() -> int | None:
    """A kernel timer, or None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        fd = int(_libc().timerfd_create(_CLOCK_MONOTONIC, _FLAGS))
    except (OSError, AttributeError):
        return None
    return fd if fd >= 0 else None


def _set_timer(fd: int, instant: float) -> None:
    seconds = int(instant)
    timer = _Timer(_Timespec(0, 0), _Timespec(seconds, int((instant - seconds) * 1e9)))
    _libc().timerfd_settime(fd, _AT_AN_INSTANT, ctypes.byref(timer), None)


_LIBRARY: ctypes.CDLL | None = None


def _libc() -> ctypes.CDLL:
    global _LIBRARY
    if _LIBRARY is None:
        _LIBRARY = ctypes.CDLL(None, use_errno=True)
    return _LIBRARY
