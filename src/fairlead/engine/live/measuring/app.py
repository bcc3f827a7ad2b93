"""Measuring an app on this machine, with a provider of its own that is closed afterwards."""

from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from fairlead.app.describe import requirements_of
from fairlead.app.manifest import Manifest
from fairlead.app.scenario import cluster_of
from fairlead.engine.live.contracts import AppCode
from fairlead.engine.live.data import LocalValues
from fairlead.engine.live.instances import Instances, SharedProvider
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
    try:
        code = AppCode(str(Path(app).resolve()), requirements=requirements_of(app))
        provider = LocalProvider(store, limits=limits)
        shared = SharedProvider(provider)
        await shared.open()
        shared.declare(cluster_of(msgspec.structs.replace(manifest, nodes=())).nodes)
        instances = Instances(shared, LocalValues(store), code, 0, log)
        try:
            return await measure(
                manifest, instances, effort=effort, functions=functions, limits=limits or "", watch=watch
            )
        finally:
            await shared.close()
    finally:
        store.close()
