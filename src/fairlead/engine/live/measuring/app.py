"""Measuring an app on this machine, with a provider of its own that is closed afterwards."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from fairlead.app.describe import requirements_of, take_snapshot
from fairlead.app.manifest import Manifest
from fairlead.app.scenario import declared_nodes
from fairlead.app.snapshot import keep_snapshot
from fairlead.engine.live.contracts import AppCode
from fairlead.engine.live.data import LocalValues
from fairlead.engine.live.instances import Instances, SharedProvider
from fairlead.engine.live.kernels.finding import DeviceChoice, DeviceFinder
from fairlead.engine.live.measuring.kernels import measure_devices, with_cold_starts
from fairlead.engine.live.measuring.measure import Effort, Measurement, Watch, measure
from fairlead.engine.live.providers.local import LocalProvider
from fairlead.engine.live.store import Store


async def measure_app(
    app: str,
    manifest: Manifest,
    *,
    effort: Effort = Effort(),
    functions: Collection[str] | None = None,
    limits: str | None = None,
    watch: Watch = lambda share, doing: None,
    log: Callable[[str], None] = lambda line: None,
) -> Measurement:
    """Measure the app of a file on the whole of this machine, at full speed: other speeds follow from it.

    See `measure`. `limits` is a kind of limiter, None for the best that works here. `log` gets what instances say.
    """
    store = Store.make()
    with TemporaryDirectory(prefix="fairlead-profile-") as scratch:
        folder = Path(scratch)
        try:
            provider = LocalProvider(store, limits=limits, folder=folder / "kernels", log=log)
            shared = SharedProvider(provider)
            await shared.open()
            nodes, code = declared_nodes(msgspec.structs.replace(manifest, nodes=())), Path(app).resolve()
            if manifest.has_kernels:  # they are read from a snapshot, and run on the devices that the app names
                code = keep_snapshot(folder, await asyncio.to_thread(take_snapshot, app))
                names = tuple(dict.fromkeys(name for node in manifest.nodes for name in node.devices))
                finder = DeviceFinder(folder / "cache", DeviceChoice(names), log)
                nodes = await asyncio.to_thread(partial(finder.complete, nodes, is_needed=True))
            shared.declare(nodes)
            instances = Instances(
                shared, LocalValues(store), AppCode(str(code), requirements=requirements_of(app)), 0, log
            )
            try:
                found = await measure(
                    manifest, instances, effort=effort, functions=functions, limits=limits or "", watch=watch
                )
            finally:
                await shared.close()
            if not manifest.has_kernels:
                return found
            watch(0.99, "devices")
            devices = await measure_devices(nodes[0].devices, code, folder / "devices")
            functions_found = with_cold_starts(found.profiles.functions, devices)
            profiles = msgspec.structs.replace(found.profiles, functions=functions_found, devices=devices)
            return msgspec.structs.replace(found, profiles=profiles)
        finally:
            store.close()
