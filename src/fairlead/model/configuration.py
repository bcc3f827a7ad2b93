"""What a run of a function is given: batch size, vCPUs, vGPUs, memory."""

import msgspec


class Configuration(msgspec.Struct, frozen=True, order=True, cache_hash=True, gc=False):
    """The share of a node that one instance gets, and how many invocations it takes at once.

    A batch may hold fewer invocations than `batch`; it then still costs what `batch` costs.
    `memory_gb` of 0 stands for the function's own `memory_gb`.
    """

    batch: int = 1
    vcpus: float = 1.0
    vgpus: float = 0.0
    memory_gb: float = 0.0

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1; got {self.batch}.")
        if not (0 <= self.vcpus < float("inf") and 0 <= self.vgpus < float("inf")):
            raise ValueError(f"vcpus and vgpus must be finite and not negative; got {self.vcpus} and {self.vgpus}.")
        if self.vcpus == 0 and self.vgpus == 0:
            raise ValueError("a configuration needs vcpus or vgpus; got 0 of both.")
        if not 0 <= self.memory_gb < float("inf"):
            raise ValueError(f"memory_gb must be finite and not negative; got {self.memory_gb}.")

    def __str__(self) -> str:
        parts = [f"{self.batch}x", f"{self.vcpus:g} vCPU"]
        if self.vgpus:
            parts.append(f"{self.vgpus:g} vGPU")
        if self.memory_gb:
            parts.append(f"{self.memory_gb:g} GB")
        return " ".join(parts)
