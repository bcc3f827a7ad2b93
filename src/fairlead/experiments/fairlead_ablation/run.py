"""The policy `fairlead` without one of its mechanisms at a time, over kinds of scenarios and two loads."""

from collections.abc import Iterator
from statistics import fmean

from fairlead.experiments.cases import Progress, origin, read_settings
from fairlead.experiments.claims import Claim, at_least, decide, sampled
from fairlead.experiments.fairlead_bench import (
    OURS,
    Setting,
    deciding,
    failures,
    figures,
    measure,
    measured_columns,
    shipped,
)
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Row, Rows, select, values_of
from fairlead.policy.fairlead.ingredients import INGREDIENTS

_WHOLE = "nothing"
_FIGURE = "attainment"


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Find in the cache or do every run."""
    settings = read_settings(__package__)
    settings = {**settings, **(settings["quick"] if quick else {})}
    points = [
        (name, load, without)
        for without in (_WHOLE, *settings.get("ingredients", INGREDIENTS))
        for name in settings["scenarios"]
        for load in settings["loads"]
    ]
    cases = [
        _setting(name, load, without, settings["scenarios"][name], settings["seeds"]) for name, load, without in points
    ]
    found = measure(cases, settings["limit_s"], progress)
    rows = []
    for (name, load, without), case, own in zip(points, cases, found, strict=True):
        figured = measured_columns(case, own[OURS])
        row: dict[str, object] = {"without": without, "scenario": name, "load": load, **figured}
        if done := figures(own[OURS]):
            row["worst_attainment"] = round(fmean(one.worst_attainment for one in done), 4)
            row["cost_usd"] = float(f"{fmean(one.cost_usd for one in done):.4g}")
        rows.append(row)
    return Reproduction(
        name="fairlead-ablation",
        title="What each mechanism of fairlead is worth",
        rows=tuple(rows),
        notes=(
            origin(range(settings["seeds"])),
            *(f"Without {name}: {text}." for name, text in INGREDIENTS.items()),
            *failures(cases, found),
        ),
    )


def _setting(name: str, load: float, without: str, times_s: dict[str, float] | None, seeds: int) -> Setting:
    scenario = shipped(name, load, times_s)
    if without == _WHOLE:
        return Setting(name=name, load=load, scenario=deciding(scenario, OURS), seeds={OURS: seeds})
    ablated = deciding(scenario, OURS, without=[without])
    return Setting(name=f"{name} without {without}", load=load, scenario=ablated, seeds={OURS: seeds})


def judge(rows: Rows) -> Iterator[Claim]:
    """One claim per mechanism: the policy does not do better without it."""
    nothing = read_settings(__package__)["nothing"]
    done = select(rows, status="done")
    whole = select(done, without=_WHOLE)
    for name in dict.fromkeys(row["without"] for row in done):
        if name == _WHOLE:
            continue
        lost = {
            (row["scenario"], row["load"]): _mean(row) - _mean(other)
            for row in whole
            for other in select(done, without=name, scenario=row["scenario"], load=row["load"])
        }
        cell, most = max(lost.items(), key=lambda item: item[1])
        if max(map(abs, lost.values())) <= nothing:
            note = f"Worth nothing here: no cell changes by more than {100 * nothing:g} point."
        else:
            gained = -min(lost.values())
            note = f"Worth most on {cell[0]} at load {cell[1]:g}: {100 * most:.1f} points."
            note += f" Its absence gains {100 * gained:.1f} at best." if gained > nothing else ""
        yield decide(
            f"Attainment that is lost without {name}, mean over scenarios and loads",
            at_least(0, "not below 0; the interval is that over the cells"),
            sampled(list(lost.values())),
            paper="none: a claim of ours",
            kind="own",
            note=note,
        )


def _mean(row: Row) -> float:
    return fmean(values_of(row, _FIGURE))
