"""Trained agents as a file: safetensors, with what they were trained for in its header.

Nothing in a file is run, and nothing is taken on trust: names, shapes, numbers and a digest are checked before use.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from fairlead.errors import ConfigError, Fault
from fairlead.policy.simppo.network import Activation, Array, Layer, layers_of
from fairlead.policy.simppo.observation import Encoding, Others, Own

VERSION = 1
LARGEST_BYTES = 256 * 1024 * 1024


class Trained(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of one agent: whose it is, and the reward per step at which its training ended."""

    function: str
    time_s: float  # mean of a run on one vCPU; a newcomer takes after who is nearest
    slo_s: float
    reward: float
    reward_deviation: float


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to read the arrays, and how they came about."""

    own: Own
    others: Others
    slots: int
    is_workflow_aware: bool
    actions: int
    activation: Activation
    is_shared: bool
    slo_weight: float
    period_s: float
    most_replicas: int
    preset: str
    scenario: str
    seed: int
    episodes: int
    agents: tuple[Trained, ...]

    @property
    def encoding(self) -> Encoding:
        """What the agents see."""
        return Encoding(own=self.own, others=self.others, slots=self.slots, is_workflow_aware=self.is_workflow_aware)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Trained agents: their description, and the arrays of their networks."""

    description: Description
    arrays: Mapping[str, Array]

    @property
    def actor(self) -> list[Layer]:
        """The layers that choose."""
        return layers_of(self.arrays, "actor")

    @property
    def critic(self) -> list[Layer]:
        """The layers that judge."""
        return layers_of(self.arrays, "critic")


def write_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a file, whole or not at all."""
    arrays = {name: np.ascontiguousarray(array) for name, array in checkpoint.arrays.items()}
    header = {
        "format": "fairlead-simppo",
        "version": str(VERSION),
        "digest": _digest(arrays),
        "description": msgspec.json.encode(checkpoint.description).decode(),
    }
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(save_arrays(arrays, metadata=header))
    partial.replace(path)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file. Raises `ConfigError`, which says what is wrong with it."""
    source = str(path)
    try:
        if path.stat().st_size > LARGEST_BYTES:
            _fail(source, f"is larger than {LARGEST_BYTES // 1024**2} MiB.")
        content = path.read_bytes()
    except OSError as error:
        _fail(source, f"cannot be read: {error.strerror or error}.")
    try:
        arrays = load_arrays(content)
        header = _header(content)
    except (SafetensorError, ValueError, KeyError) as error:
        _fail(source, f"is not a safetensors file, or is cut off: {str(error).splitlines()[0]}.")
    if header.get("format") != "fairlead-simppo":
        _fail(source, "holds no agents of simppo; train some with: fairlead train simppo")
    if header.get("version") != str(VERSION):
        _fail(source, f"has version {header.get('version')!r} of the format; this Fairlead reads {VERSION}.")
    if header.get("digest") != _digest(arrays):
        _fail(source, "is damaged: its numbers are not those that were written.")
    try:
        description = msgspec.json.decode(header.get("description", ""), type=Description)
        _ = description.encoding
    except (msgspec.MsgspecError, ValueError) as error:
        _fail(source, f"has a description that cannot be read: {error}")
    _check(source, description, arrays)
    return Checkpoint(description=description, arrays=arrays)


def _header(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    metadata: dict[str, str] = msgspec.json.decode(content[8 : 8 + length]).get("__metadata__", {})
    return metadata


def _check(source: str, description: Description, arrays: Mapping[str, Any]) -> None:
    agents = 1 if description.is_shared else len(description.agents)
    if not description.agents:
        _fail(source, "describes no agent.")
    for name, array in arrays.items():
        if name.endswith(".weight") and name.removesuffix("weight") + "bias" not in arrays:
            _fail(source, f"has {name}, but not the bias.")
        if name.startswith("returns.") and array.shape != (agents,):
            _fail(source, f"does not fit its description: {name} is {array.shape}.")
    for network, outputs in (("actor", description.actions), ("critic", 1)):
        layers = layers_of(arrays, network)
        width = description.encoding.size
        if not layers:
            _fail(source, f"has no {network}.")
        for number, (weight, bias) in enumerate(layers):
            if weight.dtype != np.float32 or weight.ndim != 3 or weight.shape[:2] != (agents, width):
                _fail(
                    source,
                    f"does not fit its description: {network}.{number}.weight is {weight.dtype} {weight.shape}, "
                    f"and {agents} agents that see {width} numbers need ({agents}, {width}, ...).",
                )
            width = weight.shape[2]
            if bias.shape != (agents, width):
                _fail(source, f"does not fit its description: {network}.{number}.bias is {bias.shape}.")
        if width != outputs:
            _fail(source, f"does not fit its description: the {network} gives {width} numbers instead of {outputs}.")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            _fail(source, f"holds numbers that are not finite, in {name}.")


def _digest(arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _fail(source: str, message: str) -> NoReturn:
    raise ConfigError(source, [Fault("", message)])
