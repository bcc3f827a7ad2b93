"""What is found of a GPU: plain values, whoever found them."""

import msgspec


class Slice(msgspec.Struct, frozen=True):
    """One MIG instance of a GPU: its compute slices are its vGPUs."""

    uuid: str
    vgpus: int
    memory_bytes: int


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. `uuid` is what `CUDA_VISIBLE_DEVICES` calls it; `slices` are its MIG instances, None without MIG.

    `is_exclusive`: its compute mode lets one process use it at a time, which under MPS is the server. Where NVML knows
    nothing of a GPU, `index` is -1 and the memory is 0.
    """

    index: int
    uuid: str
    name: str = "GPU"
    memory_bytes: int = 0
    slices: tuple[Slice, ...] | None = None
    is_exclusive: bool = False


class GpuUse(msgspec.Struct, frozen=True):
    """What one instance has of the GPUs: bytes, and the share of a GPU's multiprocessors; None where not told."""

    memory_bytes: int
    utilisation: float | None
