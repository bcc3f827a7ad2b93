"""Shipped agents with frozen weights: on the cluster of Darly, and the agnostic one on others that it never saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import nan
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fairlead.experiments.cases import Progress, each, read_settings
from fairlead.experiments.claims import Claim, above, at_least, decide, decide_all, paired, sampled
from fairlead.experiments.darly_bench import SCHEDULERS, STATIC, Step, band, rounded, shipped_layers, steps_of
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, columns, difference, measured, pick, select
from fairlead.report.figure import line_figure

if TYPE_CHECKING:
    from fairlead.learn.darly.schedules import Schedule
    from fairlead.learn.darly.world import Deployment, Outcome
    from fairlead.planning.deployment import Problem

ANY, PLANNER, CORRECTED = "any", "the planner alone", "the planner, corrected"
PRESSURES = ("as printed", "as logged", "random")
UNSEEN, MISJUDGED = "unseen", "unseen, misjudged"
ANYWHERE = (ANY, PLANNER, CORRECTED, STATIC)
_DRAWN = {UNSEEN: "unseen", MISJUDGED: "misjudged"}  # the setting that says how many
_MET = "met_of_doable"
Job = tuple[str, str, int]


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Shares of objectives met, of those that the planner calls doable."""
    settings = read_settings(__package__)
    seeds: Sequence[int] = settings["quick_seeds" if quick else "seeds"]
    labels = [*SCHEDULERS, *ANYWHERE]
    jobs: list[Job] = [(pressure, label, seed) for pressure in PRESSURES for label in labels for seed in seeds]
    first = settings["first_unseen_seed"]
    drawn = {kind: settings[f"quick_{name}" if quick else name] for kind, name in _DRAWN.items()}
    jobs += [(kind, label, first + i) for kind, count in drawn.items() for i in range(count) for label in ANYWHERE]
    found: dict[Job, tuple[tuple[Step, bool], ...]] = {}
    for position, result in each(partial(_work, settings=settings, quick=quick), jobs, in_parallel=True):
        found[jobs[position]] = result
        progress(len(found) / len(jobs), f"{jobs[position][1]}, {jobs[position][0]}")
    runs = {
        (pressure, label): [found[pressure, label, seed] for seed in seeds]
        for pressure in PRESSURES
        for label in labels
    }
    others = {
        (kind, label): [found[kind, label, first + i] for i in range(count)]
        for kind, count in drawn.items()
        for label in ANYWHERE
    }
    return Reproduction(
        name="darly-inference",
        title="Darly: frozen agents, and one for any workflow",
        rows=(*_rows(runs), *_unseen_rows(others)),
        figures=_figures(runs),
        notes=(
            "Doable: by the planner's estimate some placement meets the objective under the pressure at hand, with "
            f"{settings['slack']:.0%} to spare. Shares are of steps that are doable; each step is one request "
            "and at most one move.",
            "Pressure as printed and as logged: see darly-training. Random: five phases with a level of 0, 25, 50 or "
            "75 % on each node and a loose or strict objective.",
            "The agents are those that come with Fairlead: the four schedulers trained on Darly's cluster, `any` on "
            "workflows and clusters drawn at random, none of which is Darly's. They decide as in training, one move "
            "before each request; served as scalers they decide at control periods, and `darly-any` also checks a move "
            "before it is made.",
            "The planner alone is no agent: it goes by the same estimates that `any` sees, and corrected also by what "
            "the last request took. Points of doable objectives met by which `any` is ahead: "
            f"{_ahead({**runs, **others}, PLANNER)} of the planner alone; {_ahead({**runs, **others}, CORRECTED)} of "
            "the corrected one.",
            f"Misjudged: what a function takes on a kind of node is estimated wrong by a factor whose logarithm has a "
            f"standard deviation of {settings['error']:g}. What is doable is still told by exact estimates.",
            f"{len(seeds)} seeds of noise; ± is the 95 % interval over them.",
        ),
    )


def _work(job: Job, *, settings: Mapping[str, Any], quick: bool) -> tuple[tuple[Step, bool], ...]:
    import numpy as np  # noqa: PLC0415 - beside the next

    from fairlead.learn.darly.family import (  # noqa: PLC0415 - an extra
        drawn_deployment,
        drawn_schedule,
        misjudged,
        problem_of,
    )
    from fairlead.learn.darly.schedules import drawn, published  # noqa: PLC0415 - an extra
    from fairlead.learn.darly.scheduling import deployment  # noqa: PLC0415 - an extra
    from fairlead.planning.deployment import quickest  # noqa: PLC0415 - beside the others

    pressure, label, seed = job
    problem: Problem | None = None
    if pressure in (UNSEEN, MISJUDGED):
        rng = np.random.default_rng(seed)
        made = drawn_deployment(rng, f"unseen-{seed}")
        schedule: Schedule = drawn_schedule(rng, made, settings["unseen_phases"], settings["unseen_steps"])
        made = replace(made, first=quickest(problem_of(made))[1])  # all begin where it is quickest with no pressure
        if pressure == MISJUDGED:
            problem = misjudged(rng, made, settings["error"])
    else:
        made, steps = deployment(), settings["quick_steps" if quick else "steps"]
        if pressure == "random":
            schedule = drawn(np.random.default_rng(seed), made.nodes, 5, steps=steps)
        else:
            schedule = published(steps, is_as_logged=pressure == "as logged")
    outcomes = _outcomes(label, made, schedule, seed, settings["slack"], problem)
    is_doable = _doable(made, schedule, settings["slack"])
    return tuple((step, is_doable[step.phase]) for step in steps_of(outcomes))


def _outcomes(
    label: str, made: Deployment, schedule: Schedule, seed: int, slack: float, problem: Problem | None
) -> Sequence[Outcome]:
    from fairlead.learn.darly.agnostic import by_estimate, by_network, keeping, run_any  # noqa: PLC0415 - an extra
    from fairlead.learn.darly.scheduling import Scheduling, chooser  # noqa: PLC0415 - an extra

    if label in SCHEDULERS:
        scheduling = Scheduling(made, label, lambda rng: schedule)  # type: ignore[arg-type] # one of SCHEDULERS
        return scheduling.run(seed, chooser(shipped_layers(label)))
    rules = {STATIC: keeping, PLANNER: by_estimate(slack), CORRECTED: by_estimate(slack, is_corrected=True)}
    choose = rules.get(label) or by_network(shipped_layers(label))
    return run_any(choose, made, schedule, seed=seed, problem=problem)


def _doable(made: Deployment, schedule: Schedule, slack: float) -> list[bool]:
    from fairlead.learn.darly.family import problem_of  # noqa: PLC0415 - an extra
    from fairlead.planning.deployment import is_doable  # noqa: PLC0415 - beside the others

    problem = problem_of(made)
    return [is_doable(problem, phase.slo_s, phase.pressures, slack=slack) for phase in schedule]


Run = Sequence[tuple[Step, bool]]


def _met(runs: Sequence[Run], *, slo_s: float | None = None) -> list[float]:
    """By run, the share of doable steps met, of those with this objective or of all; without runs that had none."""
    shares = []
    for one in runs:
        flags = [step.is_met for step, is_doable in one if is_doable and (slo_s is None or step.slo_s == slo_s)]
        if flags:
            shares.append(fmean(flags))
    return shares


def judge(rows: Rows) -> Iterator[Claim]:
    """Shares of doable objectives: of the best agent, and of the agnostic one beside others."""
    printed, behind = (read_settings(__package__)[key] for key in ("printed", "behind"))
    of = {(row["pressure"], row["agent"]): row for row in rows if row["pressure"] in PRESSURES}
    means = {label: fmean(of[p, label][_MET] for p in PRESSURES) for label in (*SCHEDULERS, ANY)}
    best, special = max(means, key=means.__getitem__), max(SCHEDULERS, key=means.__getitem__)
    for pressure in PRESSURES:
        row = of[pressure, best]
        yield decide_all(
            f"the best agent ({best}), pressure {pressure}: doable objectives met, loose and strict",
            f"at least {printed['loose']:g} and {printed['strict']:g}",
            [(at_least(printed[name]), measured(row, name)) for name in ("loose", "strict")],
            paper=f"{printed['loose']:.0%} and {printed['strict']:.0%}",
            ours=f"{row['loose']:.1%} and {row['strict']:.1%}",
        )
    for pressure in PRESSURES:
        own, theirs = of[pressure, ANY], of[pressure, special]
        yield decide(
            f"the agnostic agent is within 3 points of the specialised one ({special}), pressure {pressure}",
            at_least(-behind, f"at most {behind:g} behind, seed by seed"),
            difference(own, theirs, _MET),
            paper="open in the thesis (7.2.2)",
            ours=f"{own[_MET]:.1%} against {theirs[_MET]:.1%}",
            kind="own",
        )
    yield _elsewhere(
        rows,
        UNSEEN,
        STATIC,
        "the agnostic agent is above the static rival on {} workflows and clusters it never saw",
        "open in the thesis",
        "Judged on average; where the static placement is good under all pressure, there is nothing to gain.",
    )
    yield _elsewhere(
        rows,
        MISJUDGED,
        PLANNER,
        "where estimates are wrong, it is above the planner alone on {} that it never saw",
        "ours",
        None,
    )


def _elsewhere(rows: Rows, kind: str, rival: str, claim: str, paper: str, note: str | None) -> Claim:
    """The agnostic agent beside a rival, deployment by deployment, without those in which nothing was doable."""
    pairs = []
    number = 1
    while found := select(rows, pressure=f"{kind} {number}"):
        ours, theirs = (pick(found, agent=agent)[_MET] for agent in (ANY, rival))
        if ours is not None and theirs is not None:
            pairs.append((float(ours), float(theirs)))
        number += 1
    own, others = (list(values) for values in zip(*pairs, strict=True))
    more = paired(own, others)
    return decide(
        claim.format(len(pairs)),
        above(0, "higher on average, deployment by deployment"),
        more,
        paper=paper,
        ours=f"{fmean(own):.1%} against {fmean(others):.1%}, {more.text(1, 100)} points more; above in "
        f"{sum(a > b for a, b in pairs)}, level in {sum(a == b for a, b in pairs)}, behind in "
        f"{sum(a < b for a, b in pairs)}",
        kind="own",
        note=note,
    )


def _ahead(runs: Mapping[tuple[str, str], Sequence[Run]], rival: str) -> str:
    """By how many points the agnostic agent is ahead of a rival, in each kind of run."""
    found = []
    for kind in (*PRESSURES, UNSEEN, MISJUDGED):
        pairs = zip(runs[kind, ANY], runs[kind, rival], strict=True)
        shares = [(_met([agent]), _met([other])) for agent, other in pairs]
        more = sampled([a[0] - r[0] for a, r in shares if a and r])
        found.append(f"{more.text(1, 100)} ({kind})")
    return ", ".join(found)


def _rows(runs: Mapping[tuple[str, str], Sequence[Run]]) -> tuple[Mapping[str, object], ...]:
    from fairlead.learn.darly.schedules import LOOSE_S, STRICT_S  # noqa: PLC0415 - an extra

    rows = []
    for (pressure, label), own in runs.items():
        steps = [step for one in own for step, _ in one]
        rows.append(
            {
                "pressure": pressure,
                "agent": label,
                **columns(_MET, _met(own), 4),
                **columns("loose", _met(own, slo_s=LOOSE_S), 4),
                **columns("strict", _met(own, slo_s=STRICT_S), 4),
                "met_of_all": rounded(fmean(step.is_met for step in steps)),
                "doable": rounded(fmean(is_doable for one in own for _, is_doable in one)),
                "quotient_of_met": rounded(fmean([s.quotient for s in steps if s.is_met] or [nan]), 3),
                "moves": rounded(fmean(sum(s.has_moved for s, _ in one) for one in own), 1),
            }
        )
    return tuple(rows)


def _unseen_rows(others: Mapping[tuple[str, str], Sequence[Run]]) -> tuple[Mapping[str, object], ...]:
    return tuple(
        {
            "pressure": f"{kind} {i + 1}",
            "agent": label,
            _MET: rounded(fmean(_met([one]) or [nan])),
            "met_of_all": rounded(fmean(step.is_met for step, _ in one)),
        }
        for (kind, label), own in others.items()
        for i, one in enumerate(own)
    )


def _figures(runs: Mapping[tuple[str, str], Sequence[Run]]) -> tuple[Figure, ...]:
    lines = {
        label: band([[step for step, _ in one] for one in runs["as printed", label]], lambda step: step.quotient, 6)
        for label in (*SCHEDULERS, *ANYWHERE)
    }
    svg = line_figure("QoS quotient, frozen agents", lines, x_label="step", y_label="latency / objective")
    return (Figure(name="quotient", title="QoS quotient", svg=svg),)
