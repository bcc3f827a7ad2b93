"""The GPUs of this machine, as its node agent has them: found once, given out by the book, looked at every second.

NVML is spoken to on a thread of its own, so that a driver in trouble never stops the agent: one that has not answered
for long counts as lost, with all its GPUs.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic

from fairlead.engine.live.gpus.book import GpuBook, clothed, device_of
from fairlead.engine.live.gpus.choice import GpuChoice, assigned, pipes_of
from fairlead.engine.live.gpus.found import Gpu, GpuUse
from fairlead.engine.live.gpus.nvml import Nvml, NvmlError
from fairlead.model import Device

PERIOD_S = 1.0
"""How often GPUs are looked at."""

_SILENCE_S = 30.0  # of the driver, after which its GPUs count as lost


class MachineGpus:
    """What the agent has of GPUs. Made by `find` or `given`, which block; the rest belongs to the event loop's thread.

    Args:
        book: Who has what.
        gpus: The GPUs of the book, in its order.
        nvml: By which they are watched; None where they cannot be.
        lines: What is worth knowing of what was found.
    """

    def __init__(self, book: GpuBook, gpus: Sequence[Gpu], nvml: Nvml | None, lines: Sequence[str]) -> None:
        self.lines = tuple(lines)
        self.book = book
        self._gpus = tuple(gpus)
        self._nvml = nvml
        self._uses: Mapping[int, GpuUse] = {}
        self._is_ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answered_at = monotonic()
        self.silence_s = _SILENCE_S

    @classmethod
    def find(cls, choice: GpuChoice) -> "MachineGpus":
        """Look for the GPUs of this machine. Raises `UnknownGpuError` where one that was named is not there."""
        choice.check()
        if choice.gpus == "none":
            return cls(GpuBook((), (), ""), (), None, ["no GPU is offered: --gpus none"])
        nvml, found, lines = _scan()
        try:
            gpus = choice.chosen(found, os.environ)
        except BaseException:
            if nvml is not None:
                nvml.close()
            raise
        return cls._of(gpus, choice, nvml, lines)

    @classmethod
    def given(cls) -> "MachineGpus":
        """The GPUs that Ray gave this process. Each counts as one vGPU, as Ray counts them."""
        nvml, found, lines = _scan()
        gpus = assigned(os.environ, found)
        return cls._of(gpus, GpuChoice(vgpus=1.0), nvml, lines if gpus else [])

    @classmethod
    def _of(cls, gpus: Sequence[Gpu], choice: GpuChoice, nvml: Nvml | None, lines: list[str]) -> "MachineGpus":
        is_mps = choice.is_mps(os.environ)
        offered: list[tuple[Gpu, Device]] = []
        for gpu in gpus:
            try:
                offered.append((gpu, device_of(gpu, choice.vgpus, is_mps=is_mps)))
            except ValueError as error:
                lines.append(f"GPU {gpu.index} ({gpu.uuid}) is left out: {error}")
        if not offered and not lines:
            lines.append("the NVIDIA driver lists no GPU" if not gpus else "no GPU can be offered")
        watched = {gpu.uuid: gpu for gpu, _ in offered if gpu.index >= 0}
        if nvml is not None and watched:
            nvml.watch(watched)
        elif nvml is not None:
            nvml.close()
            nvml = None
        kept = [gpu for gpu, _ in offered]
        return cls(GpuBook(kept, [device for _, device in offered], pipes_of(os.environ)), kept, nvml, lines)

    @property
    def devices(self) -> tuple[Device, ...]:
        """What the node offers now."""
        return self.book.devices

    def environment(self, environment: Mapping[str, str], key: str, device: int, vgpus: float) -> dict[str, str]:
        """The environment of an instance, which has its share from now on. Raises `NoShareError`.

        Where there are GPUs, an instance without a share sees none. Where there are none, nothing is hidden.
        """
        if vgpus > 0:
            return clothed(environment, self.book.take(key, device, vgpus))
        return clothed(environment, None) if self._gpus else dict(environment)

    def free(self, key: str) -> None:
        """An instance has ended."""
        self.book.free(key)

    def use(self, pid: int) -> GpuUse | None:
        """What an instance had at the last look; None if it had nothing, or nothing is known."""
        return self._uses.get(pid)

    def open(self, lost: Callable[[list[str], str], None], changed: Callable[[], None]) -> None:
        """Watch from now on. `lost` gets instances whose GPU is lost, and why; `changed` follows if devices differ."""
        self._lost, self._changed = lost, changed
        if self._nvml is None:
            return
        loop = asyncio.get_running_loop()
        self._answered_at = monotonic()
        self._thread = threading.Thread(target=self._watch, args=(self._nvml, loop), daemon=True, name="gpus")
        self._thread.start()
        self._timer = loop.call_later(self.silence_s, self._look, loop)

    def close(self) -> None:
        """Watch no more. A thread that the driver holds is left behind."""
        self._is_ending.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join(PERIOD_S)
        elif self._nvml is not None:
            self._nvml.close()
        self._nvml = None

    def _watch(self, nvml: Nvml, loop: asyncio.AbstractEventLoop) -> None:
        """On the thread: look, tell, and wait."""
        while not self._is_ending.wait(PERIOD_S):
            lost, uses = nvml.lost(), nvml.uses()
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(self._heard, lost, uses)
        nvml.close()

    def _heard(self, lost: Mapping[str, str], uses: Mapping[int, GpuUse]) -> None:
        self._answered_at = monotonic()
        if not self._is_ending.is_set():
            self._uses = uses
            self._settle(lost)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Whether NVML still answers."""
        silence_s = monotonic() - self._answered_at
        if silence_s >= self.silence_s:
            self._settle(
                {
                    gpu.uuid: f"the NVIDIA driver has not answered for {silence_s:.0f} s"
                    for gpu in self._gpus
                    if gpu.index >= 0
                }
            )
        self._timer = loop.call_later(PERIOD_S, self._look, loop)

    def _settle(self, lost: Mapping[str, str]) -> None:
        """Take devices out of the offer that are lost now, and those in again that are back."""
        was = set(self.book.lost)
        for number, gpu in enumerate(self._gpus):
            why = lost.get(gpu.uuid)
            if why is not None and number not in was:
                keys = self.book.lose(number, why)
                self._lost(keys, f"GPU {number} ({gpu.uuid}) is lost: {why}")
            elif why is None and number in was:
                self.book.restore(number)
        if was != set(self.book.lost):
            self._changed()


def _scan() -> tuple[Nvml | None, list[Gpu], list[str]]:
    """NVML, the GPUs that it finds, and what is worth knowing."""
    try:
        nvml = Nvml()
    except NvmlError as error:
        return None, [], [f"NVML finds no GPU: {error}"]
    found, lines = nvml.scan()
    return nvml, found, lines
