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
from zlib import crc32

import msgspec

from fairlead.app.current import About

_SIZE = 1 << 14
_HEAD = Struct("<II")  # the checksum of what follows, and its length
_MOST = _SIZE - _HEAD.size
_NOTHING = _HEAD.pack(0, 0)
_encode = msgspec.msgpack.Encoder().encode
_abouts = msgspec.msgpack.Decoder(tuple[About, ...])


class Present:
    """The requests in work: their ids, and what the records of the run call them where that differs.

    Args:
        descriptor: Of the shared memory. Stays open.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)

    def clear(self) -> None:
        """Say that nothing is run now."""
        self._memory[: _HEAD.size] = _NOTHING

    def show(self, about: Sequence[About]) -> None:
        """Say what is run now."""
        data = _encode(about)
        if len(data) > _MOST:  # of a very large batch, not which
            data = b""
        self._memory[: _HEAD.size + len(data)] = _HEAD.pack(crc32(data), len(data)) + data

    def read(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What is run now; empty for nothing, and where it changes at this very moment: then its checksum is wrong."""
        check, length = _HEAD.unpack_from(self._memory)
        data = self._memory[_HEAD.size : _HEAD.size + length]
        try:
            about = _abouts.decode(data) if data and crc32(data) == check else ()
        except (msgspec.DecodeError, UnicodeDecodeError):  # an instance that writes nonsense has no names
            about = ()
        return tuple(one.id for one in about), tuple(one.run for one in about if one.run is not None)

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
