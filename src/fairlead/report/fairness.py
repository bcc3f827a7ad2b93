"""How evenly a run treats its clients: how much longer each waits than it has to, and how much each gets done.

A client is a workflow. Jain's index is 1 when all are equal, and 1/n when one of n has everything.
"""

from collections.abc import Iterable

import numpy as np
import polars as pl


def jain(values: Iterable[float]) -> float | None:
    """(sum x)² / (n · sum x²); None for fewer than two values, or if all are 0."""
    array = np.asarray(list(values), dtype=np.float64)
    squares = float(np.dot(array, array))
    return float(array.sum()) ** 2 / (array.size * squares) if array.size > 1 and squares > 0 else None


def slowdowns(requests: pl.DataFrame, invocations: pl.DataFrame) -> pl.DataFrame:
    """`workflow` and `slowdown` of each completed request: its latency over the time that its own runs took.

    That time is what the answer would have taken with no wait, no cold start and no transfer: the longest chain of runs
    that the records show, where the run before an invocation is the one whose end made it ready. For a chain of stages
    it is the sum of all runs. Where branches meet, the run that ended last counts as the one before, even if another
    branch worked for longer and waited less; then the time is a little short. A request whose runs took no time has
    no slowdown.

    Args:
        requests: The counted requests, with their `latency_s`.
        invocations: The attempts of their invocations.
    """
    own = pl.DataFrame({"request": invocations["request"], "work_s": _chain_s(invocations)})
    longest = own.group_by("request", maintain_order=True).agg(pl.col("work_s").max())
    return (
        requests.filter(pl.col("latency_s").is_not_null())
        .join(longest, on="request", how="inner", maintain_order="left")
        .filter(pl.col("work_s") > 0)
        .select("workflow", slowdown=pl.col("latency_s") / pl.col("work_s"))
    )


def throughputs(requests: pl.DataFrame, until: float) -> dict[str, int]:
    """Requests of each workflow that were answered by an instant, such as the end of arrivals."""
    answered = ((pl.col("outcome") == "completed") & (pl.col("end") <= until)).sum()
    return dict(requests.group_by("workflow", maintain_order=True).agg(answered).iter_rows())


def _chain_s(invocations: pl.DataFrame) -> pl.Series:
    """For each attempt, the time of its run and of those before it, back to the arrival; 0 for what was not done."""
    first_ready = pl.col("ready").min().over("request", "stage", "item")  # a retry is ready late, but was so before
    rows = invocations.with_columns(
        row=pl.int_range(pl.len(), dtype=pl.Int64),
        first_ready=first_ready,
        run_s=(pl.col("end") - pl.col("start") - pl.col("cold_s") - pl.col("transfer_s")).clip(lower_bound=0.0),
    )
    # A run without length neither adds to a chain nor may it be its own predecessor.
    done = rows.filter((pl.col("outcome") == "done") & (pl.col("end") > pl.col("first_ready")))
    ends = done.select("request", pl.col("end").alias("first_ready"), before="row").sort(
        "first_ready", maintain_order=True
    )
    linked = done.sort("first_ready", maintain_order=True).join_asof(
        ends, on="first_ready", by="request", strategy="backward", check_sortedness=False
    )
    run_s = np.zeros(invocations.height)
    before = np.full(invocations.height, -1)
    places = linked["row"].to_numpy()
    run_s[places] = linked["run_s"].fill_null(0.0).to_numpy()
    before[places] = linked["before"].fill_null(-1).to_numpy()
    chain_s = run_s.copy()
    while (has_more := before >= 0).any():  # each time, chains reach twice as far back
        chain_s[has_more] += chain_s[before[has_more]]
        before[has_more] = before[before[has_more]]
    return pl.Series("work_s", chain_s)
