"""The share of stages that ran with another configuration than was planned when their request began."""

from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.experiments.cases import Progress, origin, read_settings
from fairlead.experiments.esg_bench import Cell, cells, run_trials, trials
from fairlead.experiments.reproduction import Claim, Figure, Reproduction
from fairlead.report.figure import bar_figure

_NEAR = 10.0  # percentage points


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
        claims=tuple(_claims(settings, rates)),
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
            "interval": round(100 * cell.half_width("plan_misses"), 2),
            "attainment": round(cell.mean("attainment"), 4),
        }


def _claims(settings: Mapping[str, Any], rates: Mapping[str, Mapping[str, float]]) -> Iterator[Claim]:
    for label, printed in settings["printed"].items():
        for setting, percent in printed.items():
            ours = rates[setting][label]
            yield Claim(
                claim=f"{label}, {setting}: share of stages that miss their plan, within {_NEAR:g} points",
                paper=f"{percent:g} %",
                ours=f"{ours:.1f} %",
                met=abs(ours - percent) <= _NEAR,
                note=None if abs(ours - percent) <= _NEAR else _WHY[label],
            )
    orion = [rates[setting]["orion"] for setting in settings["scenarios"]]
    yield Claim(
        claim="orion: the share rises with the load",
        paper="rises",
        ours=", ".join(f"{rate:.1f} %" for rate in orion),
        met=orion == sorted(orion) and orion[0] < orion[-1],
        note=_WHY["orion"],
    )
    aquatope = [rates[setting]["aquatope"] for setting in settings["scenarios"]]
    yield Claim(
        claim="aquatope: more than half, in every setting",
        paper="> 50 %",
        ours=", ".join(f"{rate:.1f} %" for rate in aquatope),
        met=all(rate > 50 for rate in aquatope),
        note=_WHY["aquatope"],
    )


_WHY = {
    "orion": "Orion plans without batches, so a plan fails only where there is no room for it.",
    "aquatope": "Aquatope plans batches, since they are cheap; a plan fails where fewer wait than it has planned for.",
}
