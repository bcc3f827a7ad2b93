"""What the runs of all contestants come to: rows, and claims."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from fairlead.experiments.darly_live.asking import Asked
from fairlead.experiments.darly_live.serving import Seen, Served
from fairlead.experiments.reproduction import Claim
from fairlead.stress import Schedule

AGENT, STATIC = "darly-any", "static"
POINTS = 20.0
"""By how many points of attainment the agent is to be ahead."""

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
            total = _row(settings, name, repeat, "all", served.asked)
            found.append({**total, "moves": served.moves, "cpu_s": round(sum(served.cpu_s.values()), 1)})
    return found


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


def claims(settings: Mapping[str, Any], schedule: Schedule, runs: Runs) -> list[Claim]:
    """What is to be seen; nothing like it was published."""
    slo_s = settings["slo_s"]
    rates = {name: [attainment(served.asked, slo_s) for served in own] for name, own in runs.items()}
    found = []
    for rival in rates:
        if AGENT in rates and rival != AGENT:
            ahead = 100 * (fmean(rates[AGENT]) - fmean(rates[rival]))
            found.append(
                Claim(
                    claim=f"The agent meets at least {POINTS:g} points more of the requests than {rival}",
                    paper=_NOT_PUBLISHED,
                    ours={AGENT: _spread(rates[AGENT]), rival: _spread(rates[rival]), "points": round(ahead, 1)},
                    met=ahead >= POINTS,
                    note=_busy_note(runs),
                )
            )
    return [*found, _labels_claim(runs), _signals_claim(schedule, runs)]


def _labels_claim(runs: Runs) -> Claim:
    answers = [one for own in runs.values() for served in own for one in served.asked if one.latency_s is not None]
    wrong = [difference for one in answers for difference in one.differences]
    return Claim(
        claim="Every answer has the labels that were noted by looking at the clip",
        paper="required of the workflow",
        ours={"answers": len(answers), "differences": len(wrong)},
        met=bool(answers) and not wrong,
        note=wrong[0] if wrong else None,
    )


def _signals_claim(schedule: Schedule, runs: Runs) -> Claim:
    served = [one for own in runs.values() for one in own]
    correlations = [correlation(schedule, one.seen) for one in served]
    ours: dict[str, object] = {"correlation of pressure made and seen, at least": round(min(correlations), 3)}
    is_visible = min(correlations) >= _LEAST_CORRELATION
    for name, (still, pressed) in effects(schedule, [s for one in runs.get(STATIC, ()) for s in one.seen]).items():
        ours[name] = f"{still:.2f} without, {pressed:.2f} under pressure"
        is_visible = is_visible and pressed - still >= _LEAST_RISE
    return Claim(
        claim="Pressure is visible in the monitor's signals: of a node at rest in C0, of a busy one in its waiting",
        paper="required of the monitor",
        ours=ours,
        met=is_visible,
    )


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


def effects(schedule: Schedule, seen: Sequence[Seen]) -> dict[str, tuple[float, float]]:
    """What pressure does to signals that are not about it, where all functions are on w01: means without and with it.

    Two of them: C0 of a node where no function is, and how much of the time functions wait where all of them are.
    """
    found = {}
    for name, signal, is_ours in (("C0 of a node at rest", "c0", False), ("waiting on w01", "wait_share", True)):
        by_pressed: tuple[list[float], list[float]] = ([], [])
        for one in seen:
            for node, signals in one.nodes.items():
                if signal in signals and (node == "w01") == is_ours and _is_settled(schedule, one.at_s):
                    by_pressed[_asked(schedule, node, one.at_s) > 0].append(signals[signal])
        if all(by_pressed):
            found[name] = fmean(by_pressed[0]), fmean(by_pressed[1])
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
    if len(values) == 1:
        return f"{values[0]:.3g}"
    return f"{fmean(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def _busy_note(runs: Runs) -> str | None:
    busy = max(served.busy_before for own in runs.values() for served in own)
    if busy <= BUSY:
        return None
    return f"Of all cores' time up to {busy:.0%} was in use before the schedules: others worked, and latencies suffer."
