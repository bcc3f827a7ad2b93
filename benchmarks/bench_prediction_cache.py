"""What the prediction cache costs: a lookup by size of the input, and an instant of a controller without any cache.

`python benchmarks/bench_prediction_cache.py`; a few seconds.
"""

from collections.abc import Callable
from time import perf_counter

from fairlead.app import App
from fairlead.engine.core import Controller
from fairlead.engine.core.events import Pressure
from fairlead.engine.live.data import LocalValues
from fairlead.engine.live.predictions import predictions_of
from fairlead.engine.live.routes import Route
from fairlead.engine.live.store import Store
from fairlead.engine.live.transit import OpenRequest, Transit
from fairlead.model import Invocation, Request
from fairlead.policy import make_policy
from fairlead.testing import SCENARIOS, prepared

SIZES = (100, 1_000, 10_000, 60_000, 1_000_000)


def lookup_s(size: int, store: Store) -> float:
    """Seconds of one lookup that finds nothing, of an input of this many bytes."""
    app = App("bench")
    function = app.function(cache=1000, name="f")(abs)
    app.workflow("w", function)
    manifest, values = app.manifest(), LocalValues(store)
    transit = Transit(values)
    predictions = predictions_of(manifest, transit, values)
    assert predictions is not None
    request, given = Request(0, "w", 0.0), values.put(b"x" * size)
    transit.open[0] = OpenRequest(request, Route(manifest.workflows[0]), given, 1, lambda ending: None)
    invocation = Invocation(0, 0, "w", "f", "f", 0.0, 1.0)
    waiting = {invocation}
    return _each_s(lambda: predictions.recall((invocation,), waiting, 0.0), 2000 if size < 100_000 else 200)


def instant_s(recall: bool) -> float:
    """Seconds of an instant at which next to nothing happens."""
    world = SCENARIOS["chain"]()
    dispatcher = prepared(make_policy("fifo"), world)
    controller = Controller(world, dispatcher, recall=(lambda ready: ()) if recall else None)
    events = (Pressure("n0", 0.0),)
    return _each_s(lambda: controller.handle(0.0, events), 100_000)


def _each_s(call: Callable[[], object], times: int) -> float:
    best = float("inf")
    for _ in range(5):
        began = perf_counter()
        for _ in range(times):
            call()
        best = min(best, (perf_counter() - began) / times)
    return best


def main() -> None:
    """Print both."""
    store = Store.make()
    try:
        for size in SIZES:
            print(f"lookup of {size:>9,} bytes: {1e6 * lookup_s(size, store):8.1f} us")
    finally:
        store.close()
    print(f"instant without a cache:  {1e9 * instant_s(False):8.0f} ns")
    print(f"instant with a cache:     {1e9 * instant_s(True):8.0f} ns")


if __name__ == "__main__":
    main()
