"""The logs of the instances that this process starts: what each is told, and what is heard of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from fairlead.engine.live.contracts import InstanceSpec
from fairlead.engine.live.logs.capture import VARIABLE, Where
from fairlead.engine.live.logs.folder import LogFolder
from fairlead.engine.live.logs.lines import Wanted, unpack
from fairlead.engine.live.logs.pipe import Pen, RawOutput
from fairlead.engine.live.logs.shared import Present, shared_memory

_LAST_LINES = 100  # of the function of an instance that has died


@dataclass(frozen=True)
class Captured:
    """What an instance is started with: variables, an inherited descriptor, and who reads its pipe."""

    environment: dict[str, str]
    descriptor: int
    raw: RawOutput


class InstanceLogs:
    """Has the instances of this process keep their lines in a folder."""

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder
        self._pen = Pen()

    @contextmanager
    def captured(self, spec: InstanceSpec) -> Iterator[Captured]:
        """What this instance is to be started with, inside the context."""
        descriptor = shared_memory()
        try:
            where = Where(
                folder=str(self._folder.path),
                most_bytes=self._folder.most_bytes,
                app=spec.code.app,
                function=spec.function,
                instance=spec.key,
                node=spec.node,
                present=descriptor,
            )
            raw = RawOutput(where, Present(descriptor), self._pen)
            yield Captured({VARIABLE: msgspec.json.encode(where).decode()}, descriptor, raw)
        finally:
            os.close(descriptor)

    def last_words(self, spec: InstanceSpec, raw: str, most: int) -> str:
        """The end of what an instance said: through Python, as it is in the folder, and past it (`raw`)."""
        wanted = Wanted(instance=spec.key)
        kept = map(unpack, self._folder.recent(wanted, _LAST_LINES))
        said = [line.text for line in kept if line is not None]
        heard = set(said)
        said += [line for line in raw.splitlines() if line not in heard]
        return "\n".join(said)[-most:].strip()

    def close(self) -> None:
        """Write what was heard."""
        self._pen.close()
