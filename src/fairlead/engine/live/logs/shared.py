"""What an instance runs at present, where the process that started it can see it.

A function's `print` is captured inside its process. What C libraries and child processes write goes through a pipe to
the process that started the instance, which learns here to which requests it belongs: a page of shared memory costs an
instance a microsecond per batch, a message would cost both ends a system call.
"""

import mmap
import os
from collections.abc import Sequence
from fcntl import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, fcntl
from struct import Struct

import msgspec

_SIZE = 1 << 14
_HEAD = Struct("<II")  # a counter, odd while it is written; length
_names = msgspec.json.Decoder(tuple[tuple[str, ...], tuple[str, ...]])


class Present:
    """The names of the requests in work: their ids, and what the records of the run call them where that differs.

    Args:
        descriptor: Of the shared memory. Stays open.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._count = 0

    def show(self, ids: Sequence[str], runs: Sequence[str] = ()) -> None:
        """Say what is run now; empty for nothing."""
        data = msgspec.json.encode((ids, runs)) if ids else b""
        if len(data) > _SIZE - _HEAD.size:  # of a very large batch, not which
            data = b""
        count = self._count = self._count + 2
        memory = self._memory
        _HEAD.pack_into(memory, 0, (count - 1) & 0xFFFFFFFF, len(data))
        memory[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(memory, 0, count & 0xFFFFFFFF, len(data))

    def read(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What is run now; empty for nothing, and where it changes at this very moment."""
        memory = self._memory
        before, length = _HEAD.unpack_from(memory)
        if before % 2 or not 0 < length <= _SIZE - _HEAD.size:
            return (), ()
        data = memory[_HEAD.size : _HEAD.size + length]
        if _HEAD.unpack_from(memory)[0] != before:
            return (), ()
        try:
            return _names.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):  # an instance that writes nonsense has no names
            return (), ()

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()


def shared_memory() -> int:
    """Memory for one `Present`: a descriptor that a child process may inherit."""
    descriptor = os.memfd_create("fairlead-present", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, _SIZE)
    # A child that made it smaller would end the process that reads it, by SIGBUS.
    fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
    return descriptor
