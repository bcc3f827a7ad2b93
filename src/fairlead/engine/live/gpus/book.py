"""The book of a machine's GPUs: what is offered, and which instance has which share. Nothing is promised twice.

Pure: it knows no NVML and no process. The agent asks it before an instance starts, whatever the gateway believes.
"""

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.engine.live.gpus.choice import PIPES, VISIBLE
from fairlead.engine.live.gpus.found import Gpu
from fairlead.model import Device, Sharing
from fairlead.model.mig import mig_layout

PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

_OWN = (VISIBLE, PIPES, PERCENTAGE, MEMORY, "CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_CLIENT_PRIORITY")


class NoShareError(Exception):
    """An instance cannot have the share that it was to have; the message says why, as a clause."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one instance has: a whole GPU or MIG instance (`visible`), or under MPS a part of the GPU.

    `pipes` is the folder of the MPS daemon, None without MPS; `percentage` and `memory_mb` are limits under MPS.
    """

    device: int
    visible: str
    milli: int
    pipes: str | None = None
    percentage: int = 100
    memory_mb: int = 0


def clothed(environment: Mapping[str, str], share: Share | None) -> dict[str, str]:
    """The environment of an instance with this share; without one it sees no GPU at all."""
    found = {name: value for name, value in environment.items() if name not in _OWN}
    found[VISIBLE] = "" if share is None else share.visible
    if share is not None and share.pipes is not None:
        found[PIPES] = share.pipes
        found[PERCENTAGE] = str(share.percentage)
        if share.memory_mb:
            found[MEMORY] = f"0={share.memory_mb}M"  # the only device that it sees is its number 0
    return found


def device_of(gpu: Gpu, vgpus: float, *, is_mps: bool) -> Device:
    """A GPU as a node lists it. ValueError where its MIG instances are none, or none that the model of MIG knows."""
    name = f"{gpu.name} {gpu.uuid}"[:100]
    memory_gb = gpu.memory_bytes / 2**30 if gpu.memory_bytes else float("inf")
    if gpu.slices is None:
        if gpu.is_exclusive and not is_mps:
            raise ValueError(
                "its compute mode lets one process use it at a time; start the MPS daemon, or set the mode with: "
                f"nvidia-smi -i {gpu.index} -c DEFAULT"
            )
        sharing: Sharing = "mps" if is_mps else "time"
        return Device(vgpus=vgpus, memory_gb=memory_gb, sharing=sharing, serves="functions", name=name)
    sizes = tuple(sorted((part.vgpus for part in gpu.slices), reverse=True))
    if not sizes:
        raise ValueError("it is under MIG without any MIG instance; make some with: nvidia-smi mig -cgi ... -C")
    if mig_layout(sizes) is None:
        raise ValueError(f"MIG instances of {', '.join(map(str, sizes))} slices do not lie beside each other")
    return Device(
        vgpus=7,
        memory_gb=memory_gb,
        sharing="mig",
        partition=sizes,
        is_fixed=True,
        serves="functions",
        name=name,
    )


def offered(devices: Sequence[Device]) -> str:
    """What a node has of GPUs, for people: each with how it is shared."""
    return ", ".join(f"{device.name} ({shared(device)})" for device in devices) or "no GPU"


def shared(device: Device) -> str:
    """How a device is shared, in a few words."""
    if device.is_lost:
        return "lost"
    if device.sharing == "mig":
        return f"MIG {'+'.join(map(str, device.partition))}"
    return f"{device.vgpus:g} vGPUs by {'MPS' if device.sharing == 'mps' else 'turns'}"


class GpuBook:
    """Gives out shares of GPUs.

    Args:
        gpus: The GPUs that are offered, each under the number that it has in the node.
        devices: As the node lists them.
        pipes: The folder of the MPS daemon, for those shared by MPS.
    """

    def __init__(self, gpus: Sequence[Gpu], devices: Sequence[Device], pipes: str) -> None:
        self._gpus = tuple(gpus)
        self._whole = tuple(devices)
        self._pipes = pipes
        self._lost: dict[int, str] = {}  # by number: why
        self._shares: dict[str, Share] = {}  # by instance

    @property
    def devices(self) -> tuple[Device, ...]:
        """What the node offers now: one that is lost keeps its number."""
        return tuple(device.lost() if i in self._lost else device for i, device in enumerate(self._whole))

    @property
    def shares(self) -> Mapping[str, Share]:
        """Who has what."""
        return self._shares

    def take(self, key: str, device: int, vgpus: float) -> Share:
        """Give an instance its share of a device. Raises `NoShareError` where it is not there or not free."""
        if not 0 <= device < len(self._gpus):
            raise NoShareError(f"its node has no GPU number {device}")
        if device in self._lost:
            raise NoShareError(f"GPU {device} ({self._gpus[device].uuid}) is lost: {self._lost[device]}")
        if key in self._shares:
            raise NoShareError("it has a share of a GPU already")
        milli = round(vgpus * 1000) if 0 < vgpus < 1e6 else 0
        if not milli:
            raise NoShareError(f"{vgpus} is no share of a GPU")
        share = self._slice(device, milli) if self._gpus[device].slices is not None else self._part(device, milli)
        self._shares[key] = share
        return share

    def free(self, key: str) -> None:
        """An instance has ended; nothing for one without a share."""
        self._shares.pop(key, None)

    def lose(self, device: int, why: str) -> list[str]:
        """Offer a device no more; the instances that have a share of it, which are to end."""
        self._lost[device] = why
        return [key for key, share in self._shares.items() if share.device == device]

    def restore(self, device: int) -> None:
        """Offer a device again. Instances that still end there keep their shares until they are gone."""
        self._lost.pop(device, None)

    @property
    def lost(self) -> Mapping[int, str]:
        """The devices that are lost: why."""
        return self._lost

    def _slice(self, device: int, milli: int) -> Share:
        gpu = self._gpus[device]
        alike = [part for part in gpu.slices or () if part.vgpus * 1000 == milli]
        taken = {share.visible for share in self._shares.values()}
        for part in alike:
            if part.uuid not in taken:
                return Share(device=device, visible=part.uuid, milli=milli)
        raise NoShareError(
            f"GPU {device} ({gpu.uuid}) has no MIG instance of {milli / 1000:g} slices"
            + (" that is free" if alike else "")
        )

    def _part(self, device: int, milli: int) -> Share:
        gpu, offered = self._gpus[device], self._whole[device]
        total = round(offered.vgpus * 1000)
        taken = sum(share.milli for share in self._shares.values() if share.device == device)
        if milli > total - taken:
            raise NoShareError(
                f"GPU {device} ({gpu.uuid}) has {(total - taken) / 1000:g} of {total / 1000:g} vGPUs left, and this "
                f"instance needs {milli / 1000:g}"
            )
        if offered.sharing != "mps":
            return Share(device=device, visible=gpu.uuid, milli=milli)
        return Share(
            device=device,
            visible=gpu.uuid,
            milli=milli,
            pipes=self._pipes,
            percentage=max(1, 100 * milli // total),
            memory_mb=gpu.memory_bytes * milli // total // 2**20,
        )
