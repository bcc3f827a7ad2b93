"""What a fault cost a cluster under load: time to notice, time to recover, attainment meanwhile; tables and bars."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from agent_processes import Load

LOSS_S, RECOVERY_S, ANSWER_S = 2.0, 5.0, 2.0
BEFORE_S = 5.0  # over which the level is taken
THROUGH_S = 10.0  # after a fault, over which attainment is counted
TOLERANCE = 0.05


@dataclass
class Fault:
    """One fault, and what followed."""

    kind: str
    at: float
    level: float | None = None
    corrected_s: float | None = None
    recovered_s: float | None = None
    through: float | None = None  # attainment of what was sent in the seconds after it
    whole_s: float | None = None  # until everything is there again
    adopted: str = ""
    waited_s: float | None = None  # for a CPU that other programs used, of a gateway that started


def judge(faults: Sequence[Fault], load: Load) -> None:
    """Fill in what the load saw of each fault."""
    for fault in faults:
        fault.level = load.attainment(fault.at - BEFORE_S, fault.at)
        fault.through = load.attainment(fault.at, fault.at + THROUGH_S)
        if fault.level is not None:
            fault.recovered_s = load.recovery_s(fault.at, fault.level - TOLERANCE)


def misses(fault: Fault) -> list[str]:
    """The bars that a fault missed."""
    found = []
    corrected_s = fault.corrected_s or 0.0
    if fault.adopted:
        if corrected_s > ANSWER_S:
            found.append(f"the first answer came after {corrected_s:.2f} s")
        kept, _, before = fault.adopted.partition(" of ")
        if kept != before:
            found.append(f"{fault.adopted} instances were adopted")
    elif corrected_s > LOSS_S:
        found.append(f"capacity was corrected after {corrected_s:.2f} s")
    if fault.recovered_s is None or fault.recovered_s > RECOVERY_S:
        found.append(f"attainment was back after {shown(fault.recovered_s)} s")
    return found


def verdict(faults: Sequence[Fault], lost: Sequence[str], twice: Sequence[str]) -> int:
    """Print the bars that were missed; the exit code."""
    missed = [f"{len(lost)} lost, {len(twice)} twice"] if lost or twice else []
    missed += [f"{fault.kind}: {what}" for fault in faults for what in misses(fault)]
    print("\n" + ("\n".join(f"MISSED {line}" for line in missed) or "every bar is met"))
    return 1 if missed else 0


def table(faults: Sequence[Fault]) -> str:
    """A row per fault."""
    lines = [
        "| fault | attainment before | in the 10 s after | corrected, or first answer (s) "
        "| of it, waited for a CPU (s) | attainment back (s) | whole again (s) | adopted |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for fault in faults:
        cells = [
            fault.kind,
            percent(fault.level),
            percent(fault.through),
            "-" if fault.corrected_s is None else shown(fault.corrected_s),
            "-" if fault.waited_s is None else shown(fault.waited_s),
            shown(fault.recovered_s),
            "-" if fault.whole_s is None else shown(fault.whole_s),
            fault.adopted or "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def accounts(load: Load, lost: Sequence[str], twice: Sequence[str], late: int) -> str:
    """What became of the asynchronous requests."""
    return (
        f"accepted asynchronous requests   {len(load.accepted)}\n"
        f"lost                             {len(lost)}\n"
        f"twice or unended in the journal  {len(twice)}\n"
        f"late answers dropped, at least   {late}"
    )


def percent(share: float | None) -> str:
    """A share for a table."""
    return "-" if share is None else f"{100 * share:.1f} %"


def shown(seconds: float | None) -> str:
    """Seconds for a table."""
    return "never" if seconds is None else f"{seconds:.2f}"


def say(line: str) -> None:
    """Tell whoever waits how far it is."""
    print(line, file=sys.stderr, flush=True)
