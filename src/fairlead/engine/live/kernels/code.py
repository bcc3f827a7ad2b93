"""What a device needs of a kernel, out of the snapshot of its app: no code of the app is run for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from fairlead.app.kernel import keyed
from fairlead.app.scenario import scheduled_buffer
from fairlead.app.snapshot import read_snapshot
from fairlead.errors import ConfigError, Fault
from fairlead.kaas.graph import Graph
from fairlead.kaas.parse import parse_graph

Array = npt.NDArray[np.generic]


class KernelCode(msgspec.Struct, frozen=True):
    """A kernel of an app: its graph, the values of its constants by key, and its limit.

    `splits` names the stages ("workflow/stage") over whose output a later stage maps. `buffers` says
    as which buffers each key is scheduled.
    """

    app: str
    graph: Graph
    values: Mapping[str, Array]
    run_limit_s: float
    splits: frozenset[str]
    buffers: Mapping[str, tuple[str, ...]]


def read_kernels(file: Path) -> dict[str, KernelCode]:
    """The kernels of a snapshot, by name. Raises `ConfigError`."""
    snapshot = read_snapshot(file)
    manifest = snapshot.manifest
    splits = frozenset(
        f"{workflow.name}/{stage.name}" for workflow in manifest.workflows for stage in workflow.stages if stage.splits
    )
    found = {}
    for spec in manifest.functions:
        if spec.kernel is None:
            continue
        try:
            text = snapshot.data[spec.kernel.graph]
            values = {} if spec.kernel.constants is None else load(snapshot.data[spec.kernel.constants])
            graph, by_key = keyed(spec.name, parse_graph(text, spec.kernel.graph), values)
            scheduled = {buffer.name: scheduled_buffer(buffer) for buffer in spec.kernel.buffers}
            buffers: dict[str, tuple[str, ...]] = {}
            for buffer in graph.buffers:
                if buffer.is_cached:
                    key = sys.intern(graph.key_of(buffer))
                    buffers[key] = (*buffers.get(key, ()), scheduled[buffer.name])
        except (KeyError, ValueError, SafetensorError) as error:
            raise ConfigError(str(file), [Fault(f"functions.{spec.name}", f"its kernel is broken: {error}")]) from None
        limit_s = spec.run_limit_s or float("inf")
        found[spec.name] = KernelCode(manifest.name, graph, by_key, limit_s, splits, buffers)
    return found
