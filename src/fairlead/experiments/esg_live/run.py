"""Serve the four workflows of ESG together under each policy in turn, with the same arrivals, and compare."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from fairlead.errors import FairleadError
from fairlead.experiments.cases import Progress, Settings, read_settings
from fairlead.experiments.claims import Claim, at_least, at_most, below, decide, paired
from fairlead.experiments.live_apps import Setting, busy_note, compare, figures
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows, columns, measured, quotient, select, values_of
from fairlead.experiments.shipped_apps import profiled_copy
from fairlead.league.live import LiveApp, LiveCell, measure_capacity, run_cell

ESG, OURS = "esg", "fairlead"
LOADS = "FAIRLEAD_ESG_LOADS"
"""Variable with the loads that are run instead of those in experiment.yaml, separated by commas."""


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Share in time, cost and decision time of every policy under every objective."""
    settings = read_settings(__package__)
    objectives, seeds, seconds = (
        settings[f"quick_{key}" if quick else key] for key in ("objectives", "seeds", "seconds")
    )
    loads = chosen_loads(settings, os.environ.get(LOADS))
    with TemporaryDirectory(prefix="fairlead-esg-live-") as folder:
        progress(0.0, "profiling the app")
        path = profiled_copy(settings["app"], Path(folder))
        capacity_rps = measure_capacity(LiveApp(path), seconds=settings["capacity_s"])
        asked = [
            Setting(
                name=f"{objective}-{load}",
                app=LiveApp(path, env={"ESG_SLO": objective}),
                rate_rps=share * capacity_rps,
                labels={"objective": objective, "load": load},
            )
            for objective in objectives
            for load, share in loads.items()
        ]

        def serve(one: Setting, policy: str, seed: int) -> LiveCell:
            return run_cell(one.app, policy, one.rate_rps, seconds, seed, warm_up_s=settings["warm_up_s"])

        rows = tuple(row(*each) for each in compare(asked, settings["policies"], seeds, serve, progress))
    return Reproduction(
        name="esg-live",
        title="ESG live: four workflows of six networks on this machine's CPUs, ESG, its rivals and `fairlead`",
        rows=rows,
        notes=tuple(_notes(capacity_rps, loads, seeds, seconds)),
    )


def chosen_loads(settings: Settings, given: str | None) -> dict[str, float]:
    """The loads to run, by name; `given` names others than those of the settings.

    Raises:
        FairleadError: There is no such load.
    """
    names = [name.strip() for name in given.split(",")] if given else settings["run_loads"]
    known: Mapping[str, float] = settings["loads"]
    for name in names:
        if name not in known:
            raise FairleadError(f"{LOADS}: no load is named {name!r}. Available: {', '.join(known)}.")
    return {name: known[name] for name in names}


def row(setting: Setting, policy: str, cells: Sequence[LiveCell]) -> dict[str, object]:
    """A policy under a setting. Costs are in USD per 1,000 requests, and per 1,000 answers in time."""
    found: dict[str, object] = {**setting.labels, "policy": policy, "rate_rps": round(setting.rate_rps, 2)}
    found |= figures(cells)
    costs = [1000 * (cell.live.cost_usd or 0.0) / max(1, cell.live.requests) for cell in cells]
    found |= columns("cost_usd", costs, 7)
    answers = sum(cell.live.in_time for cell in cells)
    spent = sum(cell.live.cost_usd or 0.0 for cell in cells)
    found["cost_in_time_usd"] = round(1000 * spent / answers, 7) if answers else None
    return found


def judge(rows: Rows) -> Iterator[Claim]:
    """The slides' statements under each objective and load that was run, and two of ours."""
    settings = read_settings(__package__)
    paper, own = settings["paper"], settings["own"]
    for objective, load in dict.fromkeys((row["objective"], row["load"]) for row in rows):
        here = {row["policy"]: row for row in select(rows, objective=objective, load=load)}
        yield from _judge_setting(f"{objective}-{load}", here, paper, own, busy_note(list(here.values())))
    note = busy_note(rows)
    yield decide(
        "A decision of ESG, with its search, takes less than 10 ms",
        below(paper["search_ms"], "99th percentile below 10 ms, over the repeats, in every setting"),
        *(measured(row, "decision_p99_ms") for row in select(rows, policy=ESG)),
        paper="below 10 ms (groups of three, distribution plotted)",
        note=note,
    )
    yield decide(
        "A decision of `fairlead` takes far less than a search may",
        below(own["decision_ms"], f"mean below {own['decision_ms']:g} ms, over the repeats, in every setting"),
        *(measured(row, "decision_ms") for row in select(rows, policy=OURS)),
        paper="not published",
        kind="own",
        note=note,
    )


def _judge_setting(
    name: str, here: Mapping[str, Mapping[str, object]], paper: Settings, own: Settings, note: str | None
) -> Iterator[Claim]:
    esg = here[ESG]
    rivals = [policy for policy in here if policy not in (ESG, OURS)]
    shares = {policy: values_of(row, "in_time") for policy, row in here.items()}
    lead = paper["lead"]
    yield decide(
        f"{name}: ESG answers 36 to 80 % more requests in time than each of its rivals",
        at_least(0, f"ESG's share less {lead:g} times a rival's is at least 0, repeat by repeat, for every rival"),
        *(paired(shares[ESG], shares[rival], lead) for rival in rivals),
        paper="1.36 to 1.61 times INFless and FaST-GShare, 1.46 to 1.80 times Orion and Aquatope",
        ours={policy: measured(row, "in_time").text(3) for policy, row in here.items()},
        note=note,
    )
    similar = paper["similar_cost"]
    yield decide(
        f"{name}: ESG costs less than each of its rivals, or about as much",
        at_most(similar, f"at most {similar:g} times as much per request, for every rival"),
        *(quotient(esg, here[rival], "cost_usd") for rival in rivals),
        paper="lower or similar (normalised to ESG, rivals 1.47 to 2.87 in the abstract)",
        ours={rival: quotient(here[rival], esg, "cost_usd").text() for rival in rivals},
        note=note,
    )
    yield decide(
        f"{name}: `fairlead` answers as many in time as ESG",
        at_least(-own["behind"], f"at most {own['behind']:g} behind, repeat by repeat"),
        paired(shares[OURS], shares[ESG]),
        paper="not published",
        kind="own",
        note=note,
    )


def _notes(capacity_rps: float, loads: Mapping[str, float], seeds: Sequence[int], seconds: float) -> Iterator[str]:
    shares = ", ".join(f"{name} is {share:.0%}" for name, share in loads.items())
    yield (
        f"Measured on real processes: {len(seeds)} repeat(s) of {seconds:g} s per cell. Of a capacity of "
        f"{capacity_rps:.1f} requests per second, {shares}. All policies get the same arrivals in a repeat."
    )
    yield (
        "Not comparable with the slides: hardware (16 nodes with a GPU each there, CPUs of one machine here), vGPUs, "
        "cold starts of seconds, and absolute times and prices. A configuration is a batch and vCPUs, so the search "
        "has 8 options per function where theirs has up to 256. Comparable: who leads, the ratio, and the search time."
    )
    yield "Decision times are CPU time of the gateway per call of the policy, with carrying out what it decided."
