"""Uses all that is compiled; run as a program, it prints as JSON what was compiled rather than loaded from disk."""

import json
import sys
import tempfile
from pathlib import Path

from numba.core import event

from fairlead.cli.warmup import PARTS, kept_functions


def use_all() -> None:
    """What people do that needs machine code, in as many ways as could ask for code of their own."""
    from fairlead.engine import simulate  # noqa: PLC0415 - what is loaded counts as well
    from fairlead.planning import Search  # noqa: PLC0415
    from fairlead.planning.search import METHODS  # noqa: PLC0415
    from fairlead.policy import make_policy  # noqa: PLC0415
    from fairlead.workload import load_scenario  # noqa: PLC0415
    from fairlead.workload.traces import chunks, generate, read, sample, write  # noqa: PLC0415

    scenario = load_scenario("quickstart", overrides={"duration_s": 5, "warmup_s": 0})
    for policy in ("fifo", "least-loaded", "earliest-deadline"):
        assert simulate(scenario, policy, engine="compiled").engine == "compiled"
    search = Search([[(0.1 * i, 0.1 * (9 - i)) for i in range(10)]] * 3)
    for method in METHODS:
        for k, allowed in ((1, None), (5, [0, 2]), (9, [True] * 10)):
            search.run(1.5, k=k, method=method, allowed=allowed)
    scenario = load_scenario("esg-strict-light", overrides={"duration_s": 1, "warmup_s": 0})
    simulate(scenario, make_policy("aquatope", {"search_rounds": 2}))
    trace = generate(20, minutes=3, invocations=500, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        write(trace, Path(folder))
        for one in (trace, sample(trace, 5), read(Path(folder))):
            assert sum(len(chunk) for chunk in chunks(one, 3)) > 0


def main() -> None:
    with event.install_recorder("numba:compile") as recorder:
        use_all()
    kept = [one for part in PARTS for one in kept_functions(part.package)]
    found = {
        "compiled": sorted({str(one.data["dispatcher"].py_func.__qualname__) for _, one in recorder.buffer}),
        "misses": sum(sum(one.stats.cache_misses.values()) for one in kept),
        "hits": sum(sum(one.stats.cache_hits.values()) for one in kept),
        "folders": sorted({one.stats.cache_path for one in kept}),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
