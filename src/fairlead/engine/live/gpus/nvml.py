"""NVML, the library of the NVIDIA driver by which GPUs are found and watched: the one module that speaks to it.

Whatever NVML answers wrongly, or not at all, costs at most the GPU that it is about. All calls block, and with a driver
in trouble they may block for long: they belong on a thread of their own.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from ctypes import c_void_p, cast
from time import monotonic
from typing import Any, TypeVar

from fairlead.engine.live.gpus.found import Gpu, GpuUse, Slice
from fairlead.errors import FairleadError

_T = TypeVar("_T")

_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{1,90}")
_MOST_GPUS = 64
_MOST_BYTES = 1 << 50
_MOST_EVENTS = 100  # that are taken at a time
_AGAIN_S = 10.0  # between two looks whether a GPU that was lost is there again
# Errors of a program that uses the GPU, by which the GPU itself is none the worse.
_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})


class NvmlError(FairleadError):
    """NVML cannot be used on this machine; the message says why, as half a sentence."""


class Nvml:
    """The NVML library, initialised. Raises `NvmlError` where there is none, or no driver."""

    def __init__(self) -> None:
        try:
            import pynvml  # noqa: PLC0415 - an extra, and of no use without a GPU
        except ImportError:
            raise NvmlError("the package nvidia-ml-py is missing: pip install 'fairlead[nvml]'") from None
        self._nvml: Any = pynvml
        self._handles: dict[str, Any] = {}  # by UUID
        self._known: dict[str, Gpu] = {}  # what is watched, as it was found
        self._events: Any = None
        self._xids: dict[str, int] = {}  # by UUID: the error that condemned it
        self._seen_us: defaultdict[str, int] = defaultdict(int)  # by UUID: time of its last sample
        self._looked_at = monotonic()
        self._begin()

    def scan(self) -> tuple[list[Gpu], list[str]]:
        """The GPUs that can be used, in NVML's order, and a line for each that cannot."""
        found: list[Gpu] = []
        lines: list[str] = []
        for index in range(min(_MOST_GPUS, self._ask(self._nvml.nvmlDeviceGetCount) or 0)):
            try:
                gpu, handle = self._gpu(index)
            except (self._nvml.NVMLError, ValueError) as error:
                lines.append(f"GPU {index} is left out: {_said(error)}")
                continue
            if any(other.uuid == gpu.uuid for other in found):
                lines.append(f"GPU {index} is left out: another one has its UUID {gpu.uuid}")
                continue
            self._handles[gpu.uuid] = handle
            found.append(gpu)
        return found, lines

    def watch(self, gpus: Mapping[str, Gpu]) -> None:
        """Watch these GPUs from now on, by UUID."""
        self._known = dict(gpus)
        self._register()

    def lost(self) -> dict[str, str]:
        """The watched GPUs that cannot be used now, by UUID: why."""
        self._take_events()
        found = self._missing()
        if found and monotonic() - self._looked_at > _AGAIN_S:
            self._looked_at = monotonic()
            self._begin_again()
            found = {uuid: found.get(uuid, why) for uuid, why in self._missing().items()}
        for uuid, xid in self._xids.items():
            found.setdefault(uuid, f"the driver reported the critical error XID {xid}")
        return found

    def uses(self) -> dict[int, GpuUse]:
        """What the processes of each session have of the watched GPUs, by the id of the session."""
        memory: defaultdict[int, int] = defaultdict(int)
        busy: defaultdict[int, float] = defaultdict(float)
        is_told: defaultdict[int, bool] = defaultdict(bool)
        for uuid, gpu in self._known.items():
            handles = [self._handles.get(uuid)] if gpu.slices is None else list(self._slice_handles(uuid))
            shares = self._utilisation(uuid) if gpu.slices is None else None
            for handle in handles:
                for process in self._processes(handle):
                    session = _session(process.pid)
                    if session is None:
                        continue
                    used = process.usedGpuMemory
                    memory[session] += used if used is not None and 0 <= used <= _MOST_BYTES else 0
                    if shares is not None:
                        is_told[session] = True
                        busy[session] += shares.get(process.pid, 0.0)
        return {
            session: GpuUse(used, min(1.0, busy[session]) if is_told[session] else None)
            for session, used in memory.items()
        }

    def close(self) -> None:
        """Speak to NVML no more."""
        if self._events is not None:
            self._ask(self._nvml.nvmlEventSetFree, self._events)
        self._ask(self._nvml.nvmlShutdown)

    # --- finding ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise NvmlError(_said(error)) from None

    def _gpu(self, index: int) -> tuple[Gpu, Any]:
        """One GPU. NVMLError or ValueError where it cannot be used."""
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _uuid(nvml.nvmlDeviceGetUUID(handle))
        memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
        if not 0 < memory <= _MOST_BYTES:
            raise ValueError(f"it says that it has {memory} bytes of memory")
        mode = self._ask(nvml.nvmlDeviceGetComputeMode, handle)
        if mode == nvml.NVML_COMPUTEMODE_PROHIBITED:
            raise ValueError("its compute mode prohibits programs")
        slices = self._slices(handle)
        gpu = Gpu(
            index=index,
            uuid=uuid,
            name=_plain(self._ask(nvml.nvmlDeviceGetName, handle)),
            memory_bytes=memory,
            slices=slices,
            is_exclusive=mode in (nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, nvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD),
        )
        return gpu, handle

    def _slices(self, handle: Any) -> tuple[Slice, ...] | None:
        """The MIG instances of a GPU; None where it is not under MIG. One that NVML cannot describe is left out."""
        mode = self._ask(self._nvml.nvmlDeviceGetMigMode, handle)
        if not mode or mode[0] != 1:
            return None
        found: list[Slice] = []
        for part in self._parts(handle):
            attributes = self._ask(self._nvml.nvmlDeviceGetAttributes, part)
            name = self._ask(self._nvml.nvmlDeviceGetUUID, part)
            if attributes is None or name is None:
                continue
            try:
                uuid = _uuid(name)
            except ValueError:
                continue
            size, memory_mb = int(attributes.computeInstanceSliceCount), int(attributes.memorySizeMB)
            if 0 < size <= 8 and uuid not in {one.uuid for one in found}:
                found.append(Slice(uuid, size, max(0, memory_mb) * 2**20))
        return tuple(found)

    def _parts(self, handle: Any) -> Iterator[Any]:
        """The handles of a GPU's MIG instances."""
        for number in range(min(_MOST_GPUS, self._ask(self._nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0)):
            part = self._ask(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
            if part is not None:
                yield part

    # --- health ----------------------------------------------------------------------------------------------------

    def _missing(self) -> dict[str, str]:
        """The watched GPUs that do not answer, or are not what they were."""
        found = {}
        for uuid, gpu in self._known.items():
            handle = self._handles.get(uuid)
            if handle is None:
                found[uuid] = "NVML does not list it any more"
                continue
            try:
                self._nvml.nvmlDeviceGetMemoryInfo(handle)
            except self._nvml.NVMLError as error:
                found[uuid] = _said(error)
                continue
            now = self._slices(handle)
            there = None if now is None else {part.uuid: part.vgpus for part in now}
            if (gpu.slices is None) != (there is None):
                found[uuid] = f"MIG was turned {'off' if there is None else 'on'}; start the agent again to use it so"
            elif any((there or {}).get(part.uuid) != part.vgpus for part in gpu.slices or ()):
                found[uuid] = "its MIG instances have changed; start the agent again to use those that it has now"
        return found

    def _begin_again(self) -> None:
        """Look at all GPUs anew: handles of one that was lost are of no use, also when it is back."""
        if self._events is not None:
            self._ask(self._nvml.nvmlEventSetFree, self._events)
            self._events = None
        self._ask(self._nvml.nvmlShutdown)
        self._handles.clear()
        self._seen_us.clear()
        try:
            self._begin()
        except NvmlError:
            return
        self.scan()
        self._register()

    def _register(self) -> None:
        """Ask to be told of critical errors, by GPUs that can tell."""
        self._events = self._ask(self._nvml.nvmlEventSetCreate)
        for uuid in self._known:
            if self._events is not None and uuid in self._handles:
                kind = self._nvml.nvmlEventTypeXidCriticalError
                self._ask(self._nvml.nvmlDeviceRegisterEvents, self._handles[uuid], kind, self._events)

    def _take_events(self) -> None:
        """Note the critical errors since the last look."""
        by_address = {_address(handle): uuid for uuid, handle in self._handles.items()}
        for _ in range(_MOST_EVENTS if self._events is not None else 0):
            event = self._ask(self._nvml.nvmlEventSetWait, self._events, 0)
            if event is None:  # none is left
                return
            if event.eventType != self._nvml.nvmlEventTypeXidCriticalError or event.eventData in _OF_PROGRAMS:
                continue
            uuid = by_address.get(_address(event.device))
            for one in self._known if uuid is None else (uuid,):  # an event that does not say of which is of all
                self._xids.setdefault(one, int(event.eventData))

    # --- use -------------------------------------------------------------------------------------------------------

    def _slice_handles(self, uuid: str) -> Iterator[Any]:
        handle = self._handles.get(uuid)
        if handle is not None:
            yield from self._parts(handle)

    def _processes(self, handle: Any) -> list[Any]:
        found = None if handle is None else self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        return found or []

    def _utilisation(self, uuid: str) -> dict[int, float] | None:
        """By process: its share of the multiprocessors, by its last sample since the last look; None if unknown."""
        handle = self._handles.get(uuid)
        if handle is None:
            return None
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(handle, self._seen_us[uuid])
        except self._nvml.NVMLError as error:
            return {} if getattr(error, "value", None) == self._nvml.NVML_ERROR_NOT_FOUND else None  # no process ran
        latest: dict[int, tuple[int, float]] = {}
        for sample in samples:
            at, share = int(sample.timeStamp), min(100, max(0, int(sample.smUtil))) / 100
            if at >= latest.get(sample.pid, (0, 0.0))[0]:
                latest[sample.pid] = at, share
            self._seen_us[uuid] = max(self._seen_us[uuid], at)
        return {pid: share for pid, (_, share) in latest.items()}

    def _ask(self, call: Callable[..., _T], *arguments: Any) -> _T | None:
        """What NVML answers; None where it says that it cannot, or says it in no known words."""
        try:
            return call(*arguments)
        except (self._nvml.NVMLError, UnicodeDecodeError):
            return None


def _uuid(found: object) -> str:
    text = found.decode("ascii", "replace") if isinstance(found, bytes) else str(found)
    if not _UUID.fullmatch(text):
        raise ValueError(f"{text[:100]!r} is no UUID of a GPU")
    return text


def _plain(found: object) -> str:
    text = found.decode("utf-8", "replace") if isinstance(found, bytes) else "GPU" if found is None else str(found)
    return "".join(c if c.isprintable() else " " for c in text)[:64].strip() or "GPU"


def _said(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def _session(pid: int) -> int | None:
    """The session of a process: every instance has one of its own, with all that it starts."""
    try:
        return os.getsid(pid) if pid > 0 else None
    except (OSError, OverflowError):
        return None


def _address(handle: Any) -> int:
    return cast(handle, c_void_p).value or 0
