"""How long the invocations of each stage waited and ran."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from fairlead.model import Recording
from fairlead.report.counted import counted_invocations

_BAR_PX = 150


class StageTimes(NamedTuple):
    """The invocations of one stage that are done: how many, and seconds."""

    runs: int
    wait_mean_s: float
    wait_p95_s: float
    cold_mean_s: float
    transfer_mean_s: float
    run_mean_s: float
    run_p95_s: float

    @property
    def total_s(self) -> float:
        """The means together."""
        return self.wait_mean_s + self.cold_mean_s + self.transfer_mean_s + self.run_mean_s

    def bar(self, longest_s: float) -> str:
        """The means beside each other as HTML, where all stages have one scale, as the dashboard shows them."""
        means = {
            "wait_s": self.wait_mean_s,
            "cold_s": self.cold_mean_s,
            "transfer_s": self.transfer_mean_s,
            "run_s": self.run_mean_s,
        }
        widths = ((name, _BAR_PX * mean / longest_s) for name, mean in means.items() if longest_s > 0)
        shapes = "".join(
            f'<i class="{name}" style="width:{width:.1f}px"></i>' for name, width in widths if width >= 0.1
        )
        return f'<span class="bar" aria-hidden="true">{shapes}</span>'


def stage_times(recordings: Iterable[Recording]) -> dict[tuple[str, str], StageTimes]:
    """By workflow and stage, over the counted requests of these runs.

    The run time is what is left between start and end without cold start and transfer.
    """
    rows = pl.concat(
        counted_invocations(recording)
        .filter(pl.col("outcome") == "done")
        .select("workflow", "stage", "wait_s", "cold_s", "transfer_s", span_s=pl.col("end") - pl.col("start"))
        for recording in recordings
    ).with_columns(run_s=(pl.col("span_s") - pl.col("cold_s") - pl.col("transfer_s")).clip(lower_bound=0))
    found = rows.group_by("workflow", "stage", maintain_order=True).agg(
        pl.len(),
        pl.col("wait_s").mean().alias("wait_mean_s"),
        pl.col("wait_s").quantile(0.95, "linear").alias("wait_p95_s"),
        pl.col("cold_s").mean(),
        pl.col("transfer_s").mean(),
        pl.col("run_s").mean().alias("run_mean_s"),
        pl.col("run_s").quantile(0.95, "linear").alias("run_p95_s"),
    )
    return {(str(workflow), str(stage)): StageTimes(*values) for workflow, stage, *values in found.iter_rows()}
