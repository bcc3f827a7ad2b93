"""What the report's text says of its sweeps, held against ours."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from fairlead.experiments.claims import Claim, Rule, above, at_least, below, between, decide
from fairlead.experiments.rows import Row, Rows, difference, quotient, select

Sweep = Mapping[float, Mapping[str, Row]]  # by value and policy

PAPER = ("Round Robin", "Balance", "SRTF", "MLFQS", "Exclusive")  # the policies that the report compares
_NONE = "no effect"
_FACTOR = 1.5


def judge(rows: Rows) -> Iterator[Claim]:
    """Every claim, in the order of the text."""
    load, gpus, execution = _sweep(rows, "load"), _sweep(rows, "gpus"), _sweep(rows, "execution time")
    yield _longest(
        "Round Robin has the longest mean wait at every load",
        load,
        "At low load Exclusive waits longer: a lone request waits for its client's own GPU beside idle ones, since it "
        "takes two to steal. Without stealing it is worse at every load (see the rows).",
    )
    yield _monotone("Mean waits grow with the load", load, above(0, "longer at every next load"), "grow", None)
    yield _unbounded(_sweep(rows, "duration"))
    yield _monotone(
        "Mean waits fall as GPUs are added",
        gpus,
        below(0, "shorter at every next number of GPUs"),
        "fall",
        "They do under the other four policies. Round Robin's grow, see below.",
    )
    yield _longest(
        "Round Robin has the longest mean wait at every number of GPUs above one",
        {count: row for count, row in gpus.items() if count > 1},
        "With one GPU it is the same as Balance.",
    )
    yield _round_robin_and_gpus(gpus)
    yield _no_effect(
        "The cold-start time has no discernible effect on waits",
        _sweep(rows, "cold start"),
        "wait",
        "From none to the stated times the change is within chance. At four times these the eight loads take 240 of "
        "4000 GPU steps, all at the beginning, and the queue that they leave is seen in a run of 1000 steps.",
    )
    yield _no_effect(
        "The cold-start time has no discernible effect on waits as the run gets longer",
        _sweep(rows, "cold start, long run"),
        "wait",
        "Ten times as many steps. The means rise under every policy, by about a fifth.",
    )
    yield _no_effect(
        "The execution time has no effect on waits",
        execution,
        "wait",
        "At a fixed load the waits of a queue are proportional to the execution time. What may be meant is the "
        "wait divided by the execution time: see the next claim.",
    )
    yield _no_effect(
        "The execution time has no effect on wait / execution time",
        execution,
        "wait_per_execution",
        "Our reading of the claim before. It holds under the other four policies. Round Robin cannot carry a load of "
        "0.8 at all: its queue grows as long as requests arrive, so its wait depends on the length of the run.",
    )
    yield _no_effect("The number of clients has no effect on waits", _sweep(rows, "clients"), "wait", None)


def _sweep(rows: Rows, sweep: str) -> Sweep:
    found: dict[float, dict[str, Row]] = {}
    for row in select(rows, sweep=sweep):
        found.setdefault(row["value"], {})[row["policy"]] = row
    return found


def _column(sweep: Sweep, policy: str) -> list[Row]:
    return [row[policy] for row in sweep.values()]


def _columns(sweep: Sweep, figure: str = "wait") -> dict[str, str]:
    """The figures of each policy in words, in the order of the sweep."""
    digits = 2 if figure == "wait_per_execution" else 1
    return {policy: ", ".join(f"{row[figure]:.{digits}f}" for row in _column(sweep, policy)) for policy in PAPER}


def _longest(claim: str, sweep: Sweep, note: str) -> Claim:
    longest = {
        value: max((row[policy] for policy in PAPER), key=lambda one: one["wait"]) for value, row in sweep.items()
    }
    return decide(
        claim,
        above(0, "longer than under every rival, seed by seed"),
        *(
            difference(row["Round Robin"], row[policy], "wait")
            for row in sweep.values()
            for policy in PAPER
            if policy != "Round Robin"
        ),
        paper="Round Robin",
        ours={f"{value:g}": f"{row['policy']} {row['wait']:.1f}" for value, row in longest.items()},
        note=note,
    )


def _monotone(claim: str, sweep: Sweep, rule: Rule, paper: str, note: str | None) -> Claim:
    steps = [difference(b, a, "wait") for policy in PAPER for a, b in pairwise(_column(sweep, policy))]
    return decide(claim, rule, *steps, paper=paper, ours=_columns(sweep), note=note)


def _unbounded(sweep: Sweep) -> Claim:
    """Waits without bound grow in proportion to the length of the run; half of that is asked for."""
    lengths = list(sweep)
    asked = lengths[-1] / lengths[0] / 2
    columns = [_column(sweep, policy) for policy in PAPER]
    return decide(
        "Past saturation waits grow without bound",
        at_least(0, f"at least {asked:g} times as long in a run {2 * asked:g} times as long"),
        *(difference(column[-1], column[0], "wait", asked) for column in columns),
        paper="unbounded",
        ours=_columns(sweep),
        note=f"Mean waits at a load of 1.2 in runs of {', '.join(f'{length:g}' for length in lengths)} steps.",
    )


def _round_robin_and_gpus(sweep: Sweep) -> Claim:
    first, *_, last = (row["Round Robin"] for row in sweep.values())
    balance = _column(sweep, "Balance")[-1]
    return decide(
        "Round Robin performs poorly even with many GPUs",
        above(0, "a longer wait than under Balance with the most GPUs"),
        difference(last, balance, "wait"),
        paper="poorly",
        ours=f"{first['wait']:.1f} with {min(sweep):g}, {last['wait']:.1f} with {max(sweep):g} "
        f"(Balance: {balance['wait']:.1f})",
        note="Its wait even grows: the more GPUs there are, the likelier is it that the next one in turn is busy.",
    )


def _no_effect(claim: str, sweep: Sweep, figure: str, note: str | None) -> Claim:
    """Whether the least and the greatest value give about the same figures, under each policy."""
    first, *_, last = sweep.values()
    return decide(
        claim,
        between(1 / _FACTOR, _FACTOR, f"greatest over least value within a factor of {_FACTOR:g}, every policy"),
        *(quotient(last[policy], first[policy], figure) for policy in PAPER),
        paper=_NONE,
        ours=_columns(sweep, figure),
        note=note,
    )
