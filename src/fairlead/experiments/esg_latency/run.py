"""Latency over objective, per application and policy."""

from collections.abc import Iterator, Mapping, Sequence

from fairlead.experiments.cases import Progress, origin, read_settings
from fairlead.experiments.claims import Claim, above, between, decide
from fairlead.experiments.esg_bench import Cell, cells, run_trials, trials
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, by_seed, difference, measured
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
        rows=tuple(_rows(table, boxes)),
        notes=(origin(seeds), "Latency over objective: 1 is the deadline. Requests that never end are left out."),
        figures=(Figure(name="esg-latency", title=title, svg=box_figure(title, boxes, limit=1.0, most=2.5)),),
    )


def _rows(table: Mapping[str, Cell], boxes: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[dict[str, object]]:
    for workflow, own in boxes.items():
        for label, quantiles in own.items():
            names = ("p5", "p25", "p50", "p75", "p95")
            yield {
                "workflow": workflow,
                "policy": label,
                **{name: round(value, 3) for name, value in zip(names, quantiles, strict=True)},
                "cost_usd_per_1000": round(table[label].mean("cost_usd"), 4),  # of all workflows together
                "p50_by_seed": by_seed(table[label].medians(workflow)),
                "cost_usd_per_1000_by_seed": by_seed(table[label].by_seed("cost_usd")),
            }


def judge(rows: Rows) -> Iterator[Claim]:
    """What the slides' figures show, by the medians."""
    by = {(row["workflow"], row["policy"]): row for row in rows}
    workflows = list(dict.fromkeys(workflow for workflow, _ in by))
    for workflow in workflows:
        esg = by[workflow, "esg"]
        yield decide(
            f"{workflow}: ESG is just below the objective",
            between(0.75, 1.0, "median between 0.75 and 1 of the objective"),
            measured(esg, "p50"),
            paper="close below",
            ours=f"median {esg['p50']:.2f}, 95 % {esg['p95']:.2f} of it",
        )
    pairs = {workflow: (by[workflow, "fast-gshare"], by[workflow, "esg"]) for workflow in workflows}
    yield decide(
        "FaST-GShare's jobs are slower than ESG's",
        above(0, "a longer median for every application, seed by seed"),
        *(difference(theirs, own, "p50") for theirs, own in pairs.values()),
        paper="slower",
        ours=", ".join(f"{w} {theirs['p50']:.2f} against {own['p50']:.2f}" for w, (theirs, own) in pairs.items()),
        note="Medians over the objective. FaST-GShare takes the most throughput per resource within its stage's share.",
    )
    infless, esg = (by[workflows[0], policy] for policy in ("infless", "esg"))
    yield decide(
        "INFless takes more resources than ESG",
        above(0, "a higher cost, seed by seed"),
        difference(infless, esg, "cost_usd_per_1000"),
        paper="higher",
        ours=f"{infless['cost_usd_per_1000'] / esg['cost_usd_per_1000']:.2f} times ESG's cost",
    )
