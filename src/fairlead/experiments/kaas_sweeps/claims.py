"""What the report's text says of its sweeps, held against ours."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from fairlead.experiments.reproduction import Claim

Figures = Mapping[str, float]
Sweep = Mapping[float, Mapping[str, Figures]]  # by value and policy
Sweeps = dict[str, dict[float, dict[str, Figures]]]

PAPER = ("Round Robin", "Balance", "SRTF", "MLFQS", "Exclusive")  # the policies that the report compares
_NONE = "no effect"
_FACTOR = 1.5


def all_claims(sweeps: Sweeps) -> Iterator[Claim]:
    """Every claim, in the order of the text."""
    load, gpus, execution = sweeps["load"], sweeps["gpus"], sweeps["execution time"]
    yield _longest(
        "Round Robin has the longest mean wait at every load",
        load,
        "At low load Exclusive waits longer: a lone request waits for its client's own GPU beside idle ones, since it "
        "takes two to steal. Without stealing it is worse at every load (see the rows).",
    )
    yield _monotone("Mean waits grow with the load", load, PAPER, grows=True, note=None)
    yield _unbounded(sweeps["duration"])
    yield _monotone(
        "Mean waits fall as GPUs are added",
        gpus,
        PAPER,
        grows=False,
        note="They do under the other four policies. Round Robin's grow, see below.",
    )
    yield _longest(
        "Round Robin has the longest mean wait at every number of GPUs above one",
        {count: row for count, row in gpus.items() if count > 1},
        "With one GPU it is the same as Balance.",
    )
    yield _round_robin_and_gpus(gpus)
    yield _no_effect(
        "The cold-start time has no discernible effect on waits",
        sweeps["cold start"],
        PAPER,
        "wait",
        "From none to the stated times the change is within chance. At four times these the eight loads take 240 of "
        "4000 GPU steps, all at the beginning, and the queue that they leave is seen in a run of 1000 steps.",
    )
    yield _no_effect(
        "The cold-start time has no discernible effect on waits as the run gets longer",
        sweeps["cold start, long run"],
        PAPER,
        "wait",
        "Ten times as many steps. The intervals overlap, but the means rise under every policy, by about a fifth; "
        "seeds are shared between points, so a paired comparison may well tell them apart.",
    )
    yield _no_effect(
        "The execution time has no effect on waits",
        execution,
        PAPER,
        "wait",
        "At a fixed load the waits of a queue are proportional to the execution time. What may be meant is the "
        "wait divided by the execution time: see the next claim.",
    )
    yield _no_effect(
        "The execution time has no effect on wait / execution time",
        execution,
        PAPER,
        "wait_per_execution",
        "Our reading of the claim before. It holds under the other four policies. Round Robin cannot carry a load of "
        "0.8 at all: its queue grows as long as requests arrive, so its wait depends on the length of the run.",
    )
    yield _no_effect("The number of clients has no effect on waits", sweeps["clients"], PAPER, "wait", None)


def _column(sweep: Sweep, policy: str, figure: str = "wait") -> list[float]:
    return [row[policy][figure] for row in sweep.values()]


def _columns(sweep: Sweep, policies: Sequence[str], figure: str = "wait") -> dict[str, str]:
    """The figures of each policy in words, in the order of the sweep."""
    digits = 2 if figure == "wait_per_execution" else 1
    return {policy: ", ".join(f"{value:.{digits}f}" for value in _column(sweep, policy, figure)) for policy in policies}


def _longest(claim: str, sweep: Sweep, note: str) -> Claim:
    longest = {value: max(PAPER, key=lambda policy: row[policy]["wait"]) for value, row in sweep.items()}
    ours = {f"{value:g}": f"{policy} {sweep[value][policy]['wait']:.1f}" for value, policy in longest.items()}
    met = set(longest.values()) == {"Round Robin"}
    return Claim(claim=claim, paper="Round Robin", ours=ours, met=met, note=note)


def _monotone(claim: str, sweep: Sweep, policies: Sequence[str], *, grows: bool, note: str | None) -> Claim:
    met = all((after > before) == grows for policy in policies for before, after in pairwise(_column(sweep, policy)))
    return Claim(claim=claim, paper="grow" if grows else "fall", ours=_columns(sweep, policies), met=met, note=note)


def _unbounded(sweep: Sweep) -> Claim:
    """Waits without bound grow in proportion to the length of the run; half of that is asked for."""
    lengths = list(sweep)
    asked = lengths[-1] / lengths[0] / 2
    met = all(_column(sweep, policy)[-1] >= asked * _column(sweep, policy)[0] for policy in PAPER)
    return Claim(
        claim="Past saturation waits grow without bound",
        paper="unbounded",
        ours=_columns(sweep, PAPER),
        met=met,
        note=f"Mean waits at a load of 1.2 in runs of {', '.join(f'{length:g}' for length in lengths)} steps.",
    )


def _round_robin_and_gpus(sweep: Sweep) -> Claim:
    first, *_, last = [row["Round Robin"]["wait"] for row in sweep.values()]
    balance = _column(sweep, "Balance")[-1]
    return Claim(
        claim="Round Robin performs poorly even with many GPUs",
        paper="poorly",
        ours=f"{first:.1f} with {min(sweep):g}, {last:.1f} with {max(sweep):g} (Balance: {balance:.1f})",
        met=last > balance,
        note="Its wait even grows: the more GPUs there are, the likelier is it that the next one in turn is busy.",
    )


def _no_effect(claim: str, sweep: Sweep, policies: Sequence[str], figure: str, note: str | None) -> Claim:
    """Whether the least and the greatest value give about the same figures, under each policy."""
    first, *_, last = sweep.values()
    met = not any(_differ(first[policy], last[policy], figure) for policy in policies)
    return Claim(claim=claim, paper=_NONE, ours=_columns(sweep, policies, figure), met=met, note=note)


def _differ(one: Figures, other: Figures, figure: str) -> bool:
    """Whether intervals do not overlap, or means are so far apart that overlap only says that seeds are few."""
    less, more = sorted((one[figure], other[figure]))
    half_widths = [figures["wait_interval"] * figures[figure] / figures["wait"] for figures in (one, other)]
    return more - less > sum(half_widths) or more > _FACTOR * less
