"""Why the policy `fairlead` promised, chose and placed as it did: sentences from the notes that it left."""

from __future__ import annotations

from fairlead.model import Configuration
from fairlead.policy.fairlead.reasons import RESOURCES, Admitted, Started
from fairlead.report.numbers import show
from fairlead.report.story import Delay, StageStory, Story

_SHORT = 1.02  # price from which on a resource is called short
_SLOW = 1.15  # pace from which on a node is called slow
_NOTICEABLE = 0.02  # share of an objective


def promise(story: Story, note: Admitted) -> list[str]:
    """Why a request was admitted, and why with this plan."""
    tightest = max(
        (each for each in range(len(RESOURCES)) if note.need[each] > 0 and note.room[each] > 0),
        key=lambda each: (note.ahead[each] + note.need[each]) / note.room[each],
        default=None,
    )
    had = f"it had {_s(story.deadline - story.arrival)}, and its plan takes {_s(note.planned_s)}"
    lines = []
    if tightest is None:
        lines.append(f"Admitted: {had}.")
    else:
        ahead, need, room = note.ahead[tightest], note.need[tightest], note.room[tightest]
        unit = f"{RESOURCES[tightest]}-seconds"
        before = f"Of {room:.3g} {unit} that may be promised until its deadline, {ahead:.3g} were promised before"
        lines.append(
            f"Admitted: {had}. {before}; it needs {need:.3g}, which makes {show((ahead + need) / room, 'share')}."
        )
    steps = [f"{one.stage} with {_share(one.configuration)} on {one.kind} ({_s(one.run_s)})" for one in note.steps]
    lines.append(f"Plan: {', '.join(steps)}. {_basis(note.prices)}")
    return lines


def choice(stage: StageStory, story: Story) -> list[str]:
    """Why an attempt got its configuration and its node; nothing without a note on it."""
    note, planned = stage.note, stage.planned
    if note is None:
        return []
    lines = []
    if planned is not None:
        chosen, wanted = note.configuration, planned.configuration
        if (chosen.vcpus, chosen.vgpus) != (wanted.vcpus, wanted.vgpus):
            text = f"Configuration: {_share(chosen)} instead of {_share(wanted)} as planned"
            lines.append(f"{text}: {_why_other(stage, story, note, wanted)}.")
        elif stage.batch_size < wanted.batch:
            others = "nothing else" if note.waiting == 1 else f"only {note.waiting}"
            lines.append(f"Configuration: as planned, though not in a batch of {wanted.batch}: {others} waited.")
        else:
            lines.append("Configuration: as planned.")
    lines.append(f"Node: {_why_here(stage, note)}.")
    return lines


def delays(story: Story) -> list[str]:
    """What went otherwise than planned, for a request that was given up or came later than promised."""
    is_late = story.end is not None and story.promised is not None and story.end > story.promised + 1e-6
    if not story.delays or not (is_late or story.outcome == "dropped"):
        return []
    return [f"What went otherwise than planned: {'; '.join(map(_delay, story.delays))}."]


def _basis(prices: list[float]) -> str:
    short = [f"{name}s at {price:.3g} times" for name, price in zip(RESOURCES, prices, strict=True) if price > _SHORT]
    if not short:
        return "There was room, so these are the cheapest configurations that are in time."
    counted = f"What is short is counted above its price, {' and '.join(short)}"
    return f"{counted}: of the configurations that are in time these cost the least so."


def _why_other(stage: StageStory, story: Story, note: Started, wanted: Configuration) -> str:
    if note.is_rushed:
        return f"with {_s(note.left_s)} left none was safely in time, so a quick one was taken"
    if note.better is not None:
        named = "that" if note.better == wanted else f"{_share(note.better)}, the first choice by then"
        return f"for {named} there was neither an idle instance nor room for a new one"
    facts = []
    assert stage.planned is not None
    objective_s = story.deadline - story.arrival
    less_s = objective_s - stage.planned.start_s - note.left_s
    if abs(less_s) > _NOTICEABLE * objective_s:
        facts.append(f"{_s(abs(less_s))} {'less' if less_s > 0 else 'more'} than planned")
    if note.waiting > 1 or wanted.batch > 1:
        facts.append(f"{note.waiting} waiting")
    left = f"with {_s(note.left_s)} left{f' ({facts[0]})' if facts and 'planned' in facts[0] else ''}"
    waiting = f" and {facts[-1]}" if facts and "waiting" in facts[-1] else ""
    at = [f"{n}s at {p:.3g} times their price" for n, p in zip(RESOURCES, note.prices, strict=True) if p > _SHORT]
    counted = f", counting {' and '.join(at)}" if at else ""
    return f"it was the cheapest that was in time {left}{waiting}{counted}"


def _why_here(stage: StageStory, note: Started) -> str:
    busy = f"{show(note.busy, 'share')} of it in use"
    if stage.is_cold:
        text = f"no idle instance of this size was left, and {stage.node} had room for a new one, {busy}"
    elif stage.cold_s > 0:
        text = f"an instance of this size was being started on {stage.node}, {busy}"
    elif stage.idle_elsewhere:
        text = (
            f"of {stage.idle_elsewhere + 1} nodes with an idle instance of this size {stage.node} was preferred, {busy}"
        )
    else:
        text = f"only {stage.node} had an idle instance of this size, {busy}"
    if note.pace > _SLOW:
        text += f", although its last runs took {note.pace:.3g} times the expected time"
    if note.slow is not None:
        name, pace = note.slow
        text += f"; {name} is used last, since its last runs took {pace:.3g} times the expected time"
    return text


def _delay(delay: Delay) -> str:
    if not delay.was_started:
        return f"{delay.stage} waited {_s(delay.took_s)} and was not started"
    waited = f", of which it waited {_s(delay.wait_s)}" if delay.wait_s > 0 else ""
    return f"{delay.stage} took {_s(delay.took_s)}{waited}, where {_s(delay.planned_s)} was planned"


def _share(configuration: Configuration) -> str:
    gpus = f", {configuration.vgpus:g} vGPU" if configuration.vgpus else ""
    batch = f" in batches of {configuration.batch}" if configuration.batch > 1 else ""
    return f"{configuration.vcpus:g} vCPU{gpus}{batch}"


def _s(seconds: float) -> str:
    return show(seconds, "seconds")
