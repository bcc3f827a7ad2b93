"""Shipped apps in live experiments: served under each policy with the same arrivals, and what rows have in common."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fairlead.experiments.cases import Progress
from fairlead.experiments.rows import columns
from fairlead.league.live import LiveApp, LiveCell

BUSY = 0.15
"""Share of the CPUs in use by others from which on a claim says that it says little."""


@dataclass(frozen=True)
class Setting:
    """One comparison: policies under the same app, load and objective; `name` is shown in progress."""

    name: str
    app: LiveApp
    rate_rps: float
    labels: Mapping[str, object]  # the first columns of its rows


Run = Callable[[Setting, str, int], LiveCell]
"""Serves a setting under a policy, with the arrivals of a seed."""


def compare(
    settings: Sequence[Setting], policies: Sequence[str], seeds: Sequence[int], run: Run, progress: Progress
) -> Iterator[tuple[Setting, str, list[LiveCell]]]:
    """Runs every policy under every setting once per seed; gives the cells in the order of the seeds.

    Seeds come first and policies go round from seed to seed: what else the machine does does not always hit the same.
    """
    cells: dict[tuple[str, str], list[LiveCell]] = {(one.name, name): [] for one in settings for name in policies}
    done = 0
    for turn, seed in enumerate(seeds):
        first = turn % len(policies)
        for one in settings:
            for name in (*policies[first:], *policies[:first]):
                cells[one.name, name].append(run(one, name, seed))
                done += 1
                progress(done / (len(cells) * len(seeds)), f"{one.name}, {name}, repeat {turn + 1}")
    for one in settings:
        for name in policies:
            yield one, name, cells[one.name, name]


def figures(cells: Sequence[LiveCell]) -> dict[str, object]:
    """The columns that rows of live experiments have in common."""
    live = [cell.live for cell in cells]
    found: dict[str, object] = {"requests": sum(one.requests for one in live)}
    found |= columns("in_time", [one.share for one in live], 4)
    found |= columns("goodput_rps", [one.goodput_rps for one in live], 2)
    found["p50_ms"] = _mean_ms([one.p50_s for one in live])
    found["p99_ms"] = _mean_ms([one.p99_s for one in live])
    found |= columns("decision_ms", [1000 * (cell.decisions.mean_s or 0.0) for cell in cells], 4)
    found |= columns("decision_p99_ms", [1000 * (cell.decisions.p99_s or 0.0) for cell in cells], 4)
    found["gateway_cpu_s"] = round(fmean(cell.gateway_cpu_s for cell in cells), 2)
    found["instances_cpu_s"] = round(fmean(cell.instances_cpu_s for cell in cells), 2)
    found["others"] = round(max(cell.others for cell in cells), 3)
    found["lag_p99_ms"] = round(1000 * max(cell.lag_p99_s for cell in cells), 1)
    return found


def busy_note(rows: Sequence[Mapping[str, object]]) -> str | None:
    """What claims say where others used the machine; None where it was quiet."""
    most = max((float(str(row["others"])) for row in rows), default=0.0)
    return f"Others used up to {most:.0%} of the CPUs during a run: this says little." if most > BUSY else None


def _mean_ms(values_s: Sequence[float | None]) -> float | None:
    known = [value_s for value_s in values_s if value_s is not None]
    return round(1000 * fmean(known), 2) if known else None
