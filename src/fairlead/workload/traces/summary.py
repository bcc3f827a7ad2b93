"""What a trace is like: how many, how often, how long, how large."""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from fairlead.workload.traces.trace import Trace

QUANTILES = {"p1": 0.01, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Figures of a trace. Quantiles are over functions, whatever their calls; shares are in [0, 1].

    `busy_vcpus` is the mean number of calls that run at a time if none waits, by the recorded means: what a cluster
    needs at least. `top_1` and `top_10` are the calls of the most popular 1 % and 10 % of the functions.
    """

    source: str
    functions: int
    apps: int
    owners: int
    first_minute: int
    minutes: int
    invocations: int
    mean_rps: float
    peak_minute_rps: float
    busy_vcpus: float
    functions_by_trigger: dict[str, int]
    invocations_by_trigger: dict[str, int]
    calls_per_minute: dict[str, float]
    below_one_a_minute: float
    top_1: float
    top_10: float
    mean_s: dict[str, float]
    sigma: dict[str, float]
    memory_mb: dict[str, float]
    notes: dict[str, int]

    def as_json(self) -> dict[str, object]:
        """The figures as JSON values."""
        return asdict(self)


def summarise(trace: Trace) -> Summary:
    """The figures of a trace."""
    calls = trace.calls
    ordered = np.sort(calls)[::-1]
    triggers = trace.functions["trigger"].to_numpy()
    kinds = sorted(set(triggers.tolist()), key=lambda kind: (-int((triggers == kind).sum()), kind))
    seconds = trace.minutes * 60.0
    return Summary(
        source=trace.source,
        functions=len(trace),
        apps=trace.functions.select("owner", "app").n_unique(),
        owners=trace.functions["owner"].n_unique(),
        first_minute=trace.first_minute,
        minutes=trace.minutes,
        invocations=trace.invocations,
        mean_rps=trace.invocations / seconds,
        peak_minute_rps=float(np.diff(trace.calls_before).max()) / 60.0,
        busy_vcpus=float(calls @ trace.column("mean_s")) / seconds,
        functions_by_trigger={kind: int((triggers == kind).sum()) for kind in kinds},
        invocations_by_trigger={kind: int(calls[triggers == kind].sum()) for kind in kinds},
        calls_per_minute=_quantiles(calls / trace.minutes),
        below_one_a_minute=float((calls < trace.minutes).mean()),
        top_1=_share_of_top(ordered, 0.01),
        top_10=_share_of_top(ordered, 0.1),
        mean_s=_quantiles(trace.column("mean_s")),
        sigma=_quantiles(trace.column("sigma")),
        memory_mb=_quantiles(trace.column("memory_mb")),
        notes=dict(trace.notes),
    )


def _quantiles(values: NDArray[np.float64]) -> dict[str, float]:
    return dict(zip(QUANTILES, np.quantile(values, list(QUANTILES.values())).tolist(), strict=True))


def _share_of_top(ordered: NDArray[np.int64], share: float) -> float:
    count = max(1, round(share * ordered.size))
    total = int(ordered.sum())
    return float(ordered[:count].sum()) / total if total else 0.0
