"""Measures devices and kernels: executor starts, copies, and compiling with an empty cache and with a filled one."""

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np

from fairlead.engine.live.kernels.code import KernelCode, read_kernels
from fairlead.engine.live.kernels.device import LiveDevice
from fairlead.kaas.errors import KernelError
from fairlead.kaas.graphs import scaling
from fairlead.kaas.request import Request
from fairlead.model import Device
from fairlead.profile.measured import ColdStart, MeasuredDevice, MeasuredFunction

_COPIED = 4 << 20  # numbers of a copy that is measured: 16 MB
_TIMES = 5


async def measure_devices(devices: tuple[Device, ...], snapshot: Path, folder: Path) -> dict[str, MeasuredDevice]:
    """What kernels of a snapshot can expect of each device. What cannot run on a device is left out there."""
    kernels = read_kernels(snapshot)
    found = {}
    for index, device in enumerate(devices):
        place = folder / str(index)
        _, cold = await _open(device, kernels, place)
        start_s, cached = await _open(device, kernels, place)
        both = {name: (cold[name], cached[name]) for name in cold.keys() & cached.keys()}
        allocation_s, load_gb_per_s = await _copies(device, place)
        found[device.name] = MeasuredDevice(
            load_gb_per_s=load_gb_per_s, allocation_s=allocation_s, executor_start_s=start_s, kernels=both
        )
    return found


def with_cold_starts(
    functions: Mapping[str, MeasuredFunction], devices: Mapping[str, MeasuredDevice]
) -> dict[str, MeasuredFunction]:
    """The functions; of a kernel, a start takes what compiling from the cache does, beside the device's own times."""
    found = dict(functions)
    for name in {name for device in devices.values() for name in device.kernels} & found.keys():
        times = [device.kernels[name][1] for device in devices.values() if name in device.kernels]
        cold_start = ColdStart(mean_s=max(times), p95_s=max(times), count=len(times))
        found[name] = msgspec.structs.replace(found[name], cold_start=cold_start)
    return found


async def _open(device: Device, kernels: Mapping[str, KernelCode], folder: Path) -> tuple[float, dict[str, float]]:
    """How long a new executor takes to start, and by kernel how long to compile it and run it for the first time."""
    live = LiveDevice("measured", 0, device, folder, lambda line: None)
    try:
        began = perf_counter()
        await live.open()
        start_s = perf_counter() - began
        times = {}
        for name, code in kernels.items():
            for key, value in code.values.items():
                live.values.put(code.app, key, value)
            inputs = {b.name: bytes(b.size) for b in code.graph.buffers if b.is_sent}
            request = Request(tenant=code.app, graph=code.graph, inputs=inputs)
            try:
                loaded = await live.load(request)
                first, second = await live.run(request), await live.run(request)
            except KernelError:
                continue
            # A driver may compile for a work group at the first launch: that is no part of later runs.
            late_s = max(0.0, first.timings.run_s - second.timings.run_s)
            times[name] = loaded.timings.compile_s + late_s
        return start_s, times
    finally:
        await live.close()


async def _copies(device: Device, folder: Path) -> tuple[float, float]:
    """What every load pays, and how many GB a second are copied: from a copy of nearly nothing and one of 16 MB."""
    live = LiveDevice("measured", 0, device, folder, lambda line: None)
    try:
        times = []
        for count in (64, _COPIED):
            graph = scaling(n=count).graph
            request = Request(tenant="measured", graph=graph, inputs={"x": np.zeros(count, np.float32)})
            runs = [await live.run(request) for _ in range(_TIMES)]
            times.append(min(run.timings.load_s for run in runs))
        small_s, large_s = times
        return small_s, 4 * _COPIED / 2**30 / max(large_s - small_s, 1e-6)
    finally:
        await live.close()
