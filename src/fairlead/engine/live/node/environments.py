"""Builds the environments of apps on a node, beside what the agent does meanwhile."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread

from fairlead.app.environments import python_for
from fairlead.errors import FairleadError

Then = Callable[[str, str], None]
"""Gets the Python of an environment, or the error that says why there is none."""


class Environments:
    """The environments that are being built: each once, by a thread that the agent's end does not wait for."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, ...], list[Then]] = {}

    def want(self, requirements: Sequence[str], then: Then) -> None:
        """Have `then` called, later, with the Python that has these packages, or with the error."""
        key = tuple(requirements)
        if key in self._waiting:
            self._waiting[key].append(then)
            return
        self._waiting[key] = [then]
        loop = asyncio.get_running_loop()
        Thread(target=self._build, args=(key, loop), name="fairlead-environment", daemon=True).start()

    def _build(self, requirements: tuple[str, ...], loop: asyncio.AbstractEventLoop) -> None:
        python = error = ""
        try:
            python = python_for(requirements)
        except (FairleadError, OSError) as fault:
            error = str(fault)
        with suppress(RuntimeError):  # the agent has ended; the environment is there for the next one
            loop.call_soon_threadsafe(self._tell, requirements, python, error)

    def _tell(self, requirements: tuple[str, ...], python: str, error: str) -> None:
        for then in self._waiting.pop(requirements, ()):
            then(python, error)
