"""The share of stages that ran with another configuration than was planned when their request began."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from fairlead.experiments.cases import Progress, origin, read_settings
from fairlead.experiments.claims import Claim, above, between, decide
from fairlead.experiments.esg_bench import Cell, cells, run_trials, trials
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, by_seed, difference, measured, pick
from fairlead.report.figure import bar_figure

_NEAR = 10.0  # percentage points
_MISSED = "missed_percent"


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Orion and Aquatope in the three settings that the slides print."""
    settings = read_settings(__package__)
    seeds = range(settings["quick_seeds" if quick else "seeds"])
    names = {scenario: setting for setting, scenario in settings["scenarios"].items()}
    found = cells(run_trials(trials(list(names), settings["policies"], seeds), progress))
    table = {(names[scenario], label): cell for (scenario, label), cell in found.items()}
    rates = {
        setting: {label: 100 * table[setting, label].mean("plan_misses") for label in settings["policies"]}
        for setting in settings["scenarios"]
    }
    title = "Stages whose plan was not kept (%)"
    return Reproduction(
        name="esg-miss-rate",
        title="Plans made in advance: how often they cannot be kept",
        rows=tuple(_rows(table, settings)),
        notes=(
            origin(seeds),
            "A stage misses its plan if it ran with another batch size, number of vCPUs or of vGPUs than was planned "
            "when its request's first stage was scheduled. The slides do not say what counts as a miss.",
        ),
        figures=(Figure(name="esg-miss-rate", title=title, svg=bar_figure(title, rates)),),
    )


def _rows(table: Mapping[tuple[str, str], Cell], settings: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    for (setting, label), cell in table.items():
        yield {
            "setting": setting,
            "policy": label,
            "printed_percent": settings["printed"][label][setting],
            "missed_percent": round(100 * cell.mean("plan_misses"), 2),
            "missed_percent_by_seed": by_seed((100 * share for share in cell.by_seed("plan_misses")), 2),
            "attainment": round(cell.mean("attainment"), 4),
        }


def judge(rows: Rows) -> Iterator[Claim]:
    """The printed shares, and how they go with the load."""
    settings = read_settings(__package__)
    of = {label: [pick(rows, setting=s, policy=label) for s in settings["scenarios"]] for label in settings["policies"]}
    for label, own in of.items():
        for row in own:
            percent = row["printed_percent"]
            yield decide(
                f"{label}, {row['setting']}: share of stages that miss their plan (%)",
                between(percent - _NEAR, percent + _NEAR, f"within {_NEAR:g} points of the printed"),
                measured(row, _MISSED),
                paper=percent,
                note=None if abs(row[_MISSED] - percent) <= _NEAR else _WHY[label],
            )
    yield decide(
        "orion: the share rises with the load",
        above(0, "higher in every next setting, seed by seed"),
        *(difference(after, before, _MISSED) for before, after in pairwise(of["orion"])),
        paper="rises",
        ours=", ".join(f"{row[_MISSED]:.1f} %" for row in of["orion"]),
        note=_WHY["orion"],
    )
    yield decide(
        "aquatope: more than half, in every setting",
        above(50, "more than 50 % in every setting"),
        *(measured(row, _MISSED) for row in of["aquatope"]),
        paper="> 50 %",
        ours=", ".join(f"{row[_MISSED]:.1f} %" for row in of["aquatope"]),
        note=_WHY["aquatope"],
    )


_WHY = {
    "orion": "Orion plans without batches, so a plan fails only where there is no room for it.",
    "aquatope": "Aquatope plans batches, since they are cheap; a plan fails where fewer wait than it has planned for.",
}
