"""Which GPUs of a machine are offered to functions, and how they are shared: what was asked for, and what follows."""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from fairlead.engine.live.gpus.found import Gpu, Slice
from fairlead.errors import FairleadError

Shares = Literal["auto", "mps", "time"]

VISIBLE = "CUDA_VISIBLE_DEVICES"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"

_PIPES = "/tmp/nvidia-mps"
_NAME = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{1,90}")
_MOST_VGPUS = 1000.0


class UnknownGpuError(FairleadError):
    """A GPU was asked for that this machine does not have, or a setting of GPUs cannot be."""


class GpuChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which GPUs to offer, and how.

    Args:
        gpus: `all` (of `CUDA_VISIBLE_DEVICES`, where it is set), `none`, or indices and UUIDs with commas between.
        sharing: How GPUs without MIG are shared: by `mps`, by turns (`time`), or `auto`: by MPS where its daemon runs.
        vgpus: As how many vGPUs a GPU without MIG counts.
    """

    gpus: str = "all"
    sharing: Shares = "auto"
    vgpus: float = 7.0

    def check(self) -> None:
        """Raise `UnknownGpuError` for values that can never be."""
        if self.sharing not in get_args(Shares):
            raise UnknownGpuError(f"--gpu-sharing must be one of {', '.join(get_args(Shares))}; got {self.sharing!r}.")
        if not 0.001 <= self.vgpus <= _MOST_VGPUS:
            raise UnknownGpuError(f"--vgpus-per-gpu must be from 0.001 to {_MOST_VGPUS:g}; got {self.vgpus:g}.")
        if not self.gpus.strip():
            raise UnknownGpuError("--gpus must be all, none, or indices and UUIDs such as 0,1; got nothing.")

    def chosen(self, found: Sequence[Gpu], environment: Mapping[str, str]) -> list[Gpu]:
        """The GPUs to offer, in the order of their numbers. Raises `UnknownGpuError` where one is not there."""
        if self.gpus == "none":
            return []
        if self.gpus == "all":
            listed = environment.get(VISIBLE)
            return list(found) if listed is None else visible(listed, found)
        chosen, wrong = _pick(self.gpus.split(","), found)
        if wrong:
            there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in found) or "none"
            raise UnknownGpuError(f"--gpus: this machine has no GPU {wrong[0]!r}; there is {there}.")
        return chosen

    def is_mps(self, environment: Mapping[str, str]) -> bool:
        """Whether GPUs without MIG are shared by MPS."""
        return self.sharing == "mps" or (self.sharing == "auto" and has_mps(environment))


def visible(listed: str, found: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` names. As for CUDA, the list ends before the first that is not there."""
    names = [name.strip() for name in listed.split(",")]
    for count in range(len(names), 0, -1):
        chosen, wrong = _pick(names[:count], found)
        if not wrong:
            return chosen
    return []


def assigned(environment: Mapping[str, str], found: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs that Ray gave this process, in its order; those that NVML does not know go by the name that Ray uses.

    Ray counts GPUs as CUDA does, which on a machine with GPUs of several models need not be the order of NVML. There
    the number itself is passed on, and nothing is watched.
    """
    names = [name.strip() for name in environment.get(VISIBLE, "").split(",")]
    is_ordered = len({gpu.name for gpu in found}) <= 1 or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    gpus: list[Gpu] = []
    for name in names:
        if not re.fullmatch(r"[0-9]{1,4}", name) and not _NAME.fullmatch(name):
            break
        chosen, wrong = _pick([name], found) if is_ordered or not name.isdigit() else ([], [name])
        gpus.append(Gpu(index=-1, uuid=name) if wrong else chosen[0])
    return gpus


def pipes_of(environment: Mapping[str, str]) -> str:
    """The folder in which the MPS daemon of this user listens."""
    return environment.get(PIPES) or _PIPES


def has_mps(environment: Mapping[str, str]) -> bool:
    """Whether an MPS daemon runs: its pipe is there, and the process of which it left the number."""
    folder = Path(pipes_of(environment))
    try:
        mode = (folder / "control").stat().st_mode
    except OSError:
        return False
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    try:
        daemon = int((folder / "nvidia-cuda-mps-control.pid").read_text()[:20])
    except (OSError, ValueError):
        return True  # its pipe is all that is known of it
    try:
        os.kill(daemon, 0)
    except ProcessLookupError:
        return False  # it died, and left its files
    except (OSError, OverflowError):
        return True
    return daemon > 0


def _pick(names: Sequence[str], found: Sequence[Gpu]) -> tuple[list[Gpu], list[str]]:
    """The GPUs of these names, with only the MIG instances that were named, where some were; and names of none."""
    whole: dict[int, Gpu] = {}
    parts: dict[int, tuple[Slice, ...]] = {}
    wrong = []
    for name in names:
        name = name.strip()
        near = [gpu for gpu in found if _is_called(gpu, name)]
        owners = [(gpu, part) for gpu in found for part in gpu.slices or () if part.uuid == name]
        if len(near) == 1:
            whole[near[0].index] = near[0]
        elif len(owners) == 1:
            gpu, part = owners[0]
            whole[gpu.index] = gpu
            parts[gpu.index] = (*parts.get(gpu.index, ()), part)
        else:
            wrong.append(name)
    chosen = [msgspec.structs.replace(g, slices=parts[i]) if i in parts else g for i, g in whole.items()]
    return chosen, wrong


def _is_called(gpu: Gpu, name: str) -> bool:
    """Whether a name is the index of a GPU, its UUID, or the beginning of that."""
    return name == str(gpu.index) or (len(name) > 4 and name.startswith("GPU-") and gpu.uuid.startswith(name))
