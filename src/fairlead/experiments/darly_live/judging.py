"""What the runs of all contestants come to: rows, and claims."""

from collections.abc import Iterator, Mapping, Sequence
from math import nan
from statistics import fmean, median
from typing import Any

import numpy as np

from fairlead.experiments.claims import Claim, Measured, around, at_least, decide, decide_all, fact, paired, sampled
from fairlead.experiments.darly_live.asking import Asked
from fairlead.experiments.darly_live.serving import Seen, Served
from fairlead.experiments.rows import Rows, select
from fairlead.stress import Schedule

AGENT, STATIC = "darly-any", "static"
LEAD = 0.2
"""By how much attainment the agent is to be ahead."""

ALL = "all"
RISES = ("c0_rise_at_rest", "waiting_rise_on_w01")

BUSY = 0.25
"""Share of all cores' time in use by others from which on a live comparison says little."""

_NOT_PUBLISHED = "not published: required of a live run here"
_SETTLED_S = 3.0  # signals are means of the last 2.5 s
_LEAST_CORRELATION = 0.8
_LEAST_RISE = 0.1

Runs = Mapping[str, Sequence[Served]]  # by contestant, in the order of the repeats


def phase_of(schedule: Schedule, at_s: float) -> int:
    """The phase at an instant, by its number from 0; after the last, the last."""
    end_s = 0.0
    for number, phase in enumerate(schedule.phases):
        end_s += phase.seconds
        if at_s < end_s:
            return number
    return len(schedule.phases) - 1


def attainment(asked: Sequence[Asked], slo_s: float) -> float:
    """Share of the requests that were answered in time."""
    return sum(one.is_met(slo_s) for one in asked) / max(1, len(asked))


def rows(settings: Mapping[str, Any], schedule: Schedule, runs: Runs) -> list[dict[str, object]]:
    """One row per contestant, repeat and phase, and one for all phases together."""
    found = []
    for name, own in runs.items():
        for repeat, served in enumerate(own):
            for number, phase in enumerate(schedule.phases):
                asked = [one for one in served.asked if phase_of(schedule, one.due_s) == number]
                pressed = " ".join(f"{node} {pressure}" for node, pressure in phase.pressure.items()) or "none"
                found.append(_row(settings, name, repeat, f"{number + 1}: {pressed}", asked))
            found.append(_row(settings, name, repeat, ALL, served.asked) | _totals(schedule, name, served))
    return found


def _totals(schedule: Schedule, name: str, served: Served) -> dict[str, object]:
    """What is known of a run as a whole. All functions of the static contestant are on w01."""
    seen = effects(schedule, served.seen) if name == STATIC else {}
    return {
        "moves": served.moves,
        "cpu_s": round(sum(served.cpu_s.values()), 1),
        "wrong_labels": sum(len(one.differences) for one in served.asked if one.latency_s is not None),
        "busy_before": round(served.busy_before, 3),
        "correlation": round(correlation(schedule, served.seen), 3),
        **{key: None if key not in seen else round(seen[key], 3) for key in RISES},
    }


def _row(settings: Mapping[str, Any], name: str, repeat: int, phase: str, asked: Sequence[Asked]) -> dict[str, object]:
    answered = [one.latency_s for one in asked if one.latency_s is not None]
    return {
        "contestant": name,
        "repeat": repeat,
        "phase": phase,
        "asked": len(asked),
        "attainment": round(attainment(asked, settings["slo_s"]), 3),
        "median_s": round(median(answered), 2) if answered else None,
        "given_up": len(asked) - len(answered),
    }


def judge(rows: Rows) -> Iterator[Claim]:
    """What is to be seen, over the repeats; nothing like it was published."""
    totals = select(rows, phase=ALL)
    rates: dict[str, list[float]] = {}
    for row in totals:
        rates.setdefault(row["contestant"], []).append(float(row["attainment"]))
    for rival in rates:
        if AGENT in rates and rival != AGENT:
            ahead = paired(rates[AGENT], rates[rival])
            yield decide(
                f"The agent meets at least {100 * LEAD:g} points more of the requests than {rival}",
                at_least(LEAD, f"at least {LEAD:g} more, repeat by repeat"),
                ahead,
                paper=_NOT_PUBLISHED,
                ours={AGENT: _spread(rates[AGENT]), rival: _spread(rates[rival]), "points": round(100 * ahead.mean, 1)},
                kind="own",
                note=_busy_note(totals),
            )
    answers, wrong = sum(row["asked"] - row["given_up"] for row in totals), sum(row["wrong_labels"] for row in totals)
    yield fact(
        "Every answer has the labels that were noted by looking at the clip",
        "at least one answer, no difference",
        answers > 0 and wrong == 0,
        paper="required of the workflow",
        ours={"answers": answers, "differences": wrong},
        kind="own",
    )
    yield _signals_claim(totals)


def _signals_claim(totals: Rows) -> Claim:
    parts = [(at_least(_LEAST_CORRELATION), _over(totals, "correlation"))]
    static = select(totals, contestant=STATIC)
    parts += [(at_least(_LEAST_RISE), _over(static, key)) for key in RISES if static and static[0].get(key) is not None]
    return decide_all(
        "Pressure is visible in the monitor's signals: of a node at rest in C0, of a busy one in its waiting",
        f"correlation of pressure made and seen at least {_LEAST_CORRELATION:g}, each rise at least {_LEAST_RISE:g}",
        parts,
        paper="required of the monitor",
        ours={
            key: _spread([float(r[key]) for r in totals if r.get(key) is not None]) for key in ("correlation", *RISES)
        },
        kind="own",
    )


def _over(rows: Rows, figure: str) -> Measured:
    values = [float(row[figure]) for row in rows if row.get(figure) is not None]
    return sampled(values) if values else around(nan, None)


def correlation(schedule: Schedule, seen: Sequence[Seen]) -> float:
    """Between the share that was pressed on a node and the share that the monitor saw, over nodes and instants."""
    pairs = [
        (_asked(schedule, node, one.at_s), signals["pressure"])
        for one in seen
        if _is_settled(schedule, one.at_s)
        for node, signals in one.nodes.items()
        if "pressure" in signals
    ]
    made, read = np.array(pairs).T if pairs else np.zeros((2, 1))
    return float(np.corrcoef(made, read)[0, 1]) if made.std() > 0 and read.std() > 0 else 0.0


def effects(schedule: Schedule, seen: Sequence[Seen]) -> dict[str, float]:
    """How much pressure raises the means of signals that are not about it, where all functions are on w01.

    Two of them: C0 of a node where no function is, and how much of the time functions wait where all of them are.
    """
    found = {}
    for name, signal, is_ours in ((RISES[0], "c0", False), (RISES[1], "wait_share", True)):
        by_pressed: tuple[list[float], list[float]] = ([], [])
        for one in seen:
            for node, signals in one.nodes.items():
                if signal in signals and (node == "w01") == is_ours and _is_settled(schedule, one.at_s):
                    by_pressed[_asked(schedule, node, one.at_s) > 0].append(signals[signal])
        if all(by_pressed):
            found[name] = fmean(by_pressed[1]) - fmean(by_pressed[0])
    return found


def _asked(schedule: Schedule, node: str, at_s: float) -> float:
    return 0.0 if at_s < 0 else schedule.phases[phase_of(schedule, at_s)].on(node).share


def _is_settled(schedule: Schedule, at_s: float) -> bool:
    """Whether all that a signal is the mean of belongs to one phase."""
    if at_s >= schedule.seconds:
        return False
    before_s = at_s - _SETTLED_S
    return at_s < 0 or (before_s >= 0 and phase_of(schedule, at_s) == phase_of(schedule, before_s))


def _spread(values: Sequence[float]) -> str:
    """The mean, and from what to what it went."""
    if len(values) < 2:
        return f"{values[0]:.3g}" if values else "unknown"
    return f"{fmean(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def _busy_note(totals: Rows) -> str | None:
    busy = max(row.get("busy_before") or 0.0 for row in totals)
    if busy <= BUSY:
        return None
    return f"Of all cores' time up to {busy:.0%} was in use before the schedules: others worked, and latencies suffer."
