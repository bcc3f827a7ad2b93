"""GPUs of a machine, as its node agent offers them: found through NVML, given to instances in shares, and watched."""

from fairlead.engine.live.gpus.book import GpuBook, NoShareError, Share, offered, shared
from fairlead.engine.live.gpus.choice import GpuChoice, UnknownGpuError
from fairlead.engine.live.gpus.found import Gpu, GpuUse, Slice
from fairlead.engine.live.gpus.machine import MachineGpus

__all__ = [
    "Gpu",
    "GpuBook",
    "GpuChoice",
    "GpuUse",
    "MachineGpus",
    "NoShareError",
    "Share",
    "Slice",
    "UnknownGpuError",
    "offered",
    "shared",
]
