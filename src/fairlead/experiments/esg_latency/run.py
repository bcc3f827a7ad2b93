"""Latency over objective, per application and policy."""

from collections.abc import Iterator, Mapping, Sequence

from fairlead.experiments.cases import Progress, origin, read_settings
from fairlead.experiments.esg_bench import Cell, cells, run_trials, trials
from fairlead.experiments.reproduction import Claim, Figure, Reproduction
from fairlead.report.figure import box_figure


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """The distribution of each application's latency in the relaxed-heavy setting."""
    settings = read_settings(__package__)
    seeds = range(settings["quick_seeds" if quick else "seeds"])
    found = cells(run_trials(trials([settings["scenario"]], settings["policies"], seeds), progress))
    table = {label: cell for (_, label), cell in found.items()}
    workflows = [name for name in next(iter(table.values())).outcomes[0].shares if name != "all"]
    boxes = {workflow: {label: cell.share(workflow) for label, cell in table.items()} for workflow in workflows}
    title = f"Latency over objective, {settings['scenario']}"
    return Reproduction(
        name="esg-latency",
        title="ESG and its rivals: end-to-end latency of each application, relaxed objectives, heavy load",
        claims=tuple(_claims(table, workflows)),
        rows=tuple(_rows(boxes)),
        notes=(origin(seeds), "Latency over objective: 1 is the deadline. Requests that never end are left out."),
        figures=(Figure(name="esg-latency", title=title, svg=box_figure(title, boxes, limit=1.0, most=2.5)),),
    )


def _rows(boxes: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[dict[str, object]]:
    for workflow, own in boxes.items():
        for label, quantiles in own.items():
            names = ("p5", "p25", "p50", "p75", "p95")
            values = {name: round(value, 3) for name, value in zip(names, quantiles, strict=True)}
            yield {"workflow": workflow, "policy": label, **values}


def _claims(table: Mapping[str, Cell], workflows: Sequence[str]) -> Iterator[Claim]:
    for workflow in workflows:
        median, top = table["esg"].share(workflow)[2], table["esg"].share(workflow)[4]
        yield Claim(
            claim=f"{workflow}: ESG is just below the objective",
            paper="close below",
            ours=f"median {median:.2f}, 95 % {top:.2f} of it",
            met=0.75 <= median <= 1.0,
        )
    slower = {w: (table["fast-gshare"].share(w)[2], table["esg"].share(w)[2]) for w in workflows}
    yield Claim(
        claim="FaST-GShare's jobs are slower than ESG's",
        paper="slower",
        ours=", ".join(f"{w} {theirs:.2f} against {own:.2f}" for w, (theirs, own) in slower.items()),
        met=all(theirs > own for theirs, own in slower.values()),
        note="Medians over the objective. FaST-GShare takes the most throughput per resource within its stage's share.",
    )
    costs = {label: cell.mean("cost_usd") / table["esg"].mean("cost_usd") for label, cell in table.items()}
    yield Claim(
        claim="INFless takes more resources than ESG",
        paper="higher",
        ours=f"{costs['infless']:.2f} times ESG's cost",
        met=costs["infless"] > 1,
    )
