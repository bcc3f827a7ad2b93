"""Why the policy `fairlead` promised, chose and placed as it did: sentences from the notes that it left."""

from __future__ import annotations

from math import inf

from fairlead.model import Configuration
from fairlead.policy.fairlead.reasons import RESOURCES, Admitted, Planned, Started, amounts
from fairlead.report.numbers import show
from fairlead.report.story import StageStory, Story

_SHORT = 1.02  # price from which on a resource is called short
_CHANGED = 1.2  # factor from which on a change of prices is told
_SLOW = 1.15  # pace from which on a node is called slow
_NOTICEABLE = 0.02  # share of an objective by which the time left must differ from the plan to be told


def promise(story: Story, note: Admitted) -> list[str]:
    """Why a request was admitted, and why with this plan."""
    work = [ahead + need for ahead, need in zip(note.ahead, note.need, strict=True)]
    matters = [need > 0 for need in note.need]
    fullest = max(
        (done / most for done, most, counts in zip(work, note.room, matters, strict=True) if counts and most > 0),
        default=0.0,
    )
    share = fullest if note.share is None else note.share
    had = f"it had {_s(story.deadline - story.arrival)}, and its plan takes {_s(note.planned_s)}"
    if any(note.ahead):
        what = "All work promised so far" if note.share is None else "The work due before it"
        figures = amounts(work, note.room, matters, is_either=note.is_either)
        makes = f"make {show(share, 'share')} of what may be promised until its deadline ({figures})"
        load = f"{what} and its own {makes}"
    else:
        load = "Nothing that is due before it had been promised"
    steps = [f"{one.stage} with {_share(one.configuration)} on {one.kind} ({_s(one.run_s)})" for one in note.steps]
    return [
        f"Admitted: {had}. {load}.",
        f"Plan: {', '.join(steps)}. {_basis(note.prices, has_budget=story.budget_usd < inf)}",
    ]


def choice(stage: StageStory, story: Story) -> list[str]:
    """Why an attempt got its configuration and its node; nothing without a note on it."""
    note = stage.note
    if note is None:
        return []
    lines = []
    if note.was_kept:
        lines.append("It had to wait because some room is kept for requests of other workflows that cannot wait.")
    if note.skipped:
        passed = f"{note.skipped} more urgent ones of {stage.function} were"
        one = f"1 more urgent one of {stage.function} was"
        lines.append(f"{passed if note.skipped > 1 else one} passed over, since this batch serves more in time.")
    if stage.planned is not None:
        lines.append(f"Configuration: {_configuration(stage, story, note, stage.planned)}.")
    lines.append(f"Node: {_why_here(stage, note)}.")
    return lines


def delays(story: Story) -> list[str]:
    """What went otherwise than planned, for a request that was given up or came later than promised."""
    is_late = story.end is not None and story.promised is not None and story.end > story.promised + 1e-6
    if not story.delays or not (is_late or story.outcome == "dropped"):
        return []
    told = []
    for one in story.delays:
        if one.met is None:
            waited = f", of which it waited {_s(one.wait_s)}" if one.wait_s > 0 else ""
            told.append(f"{one.stage} took {_s(one.took_s)}{waited}, where {_s(one.planned_s)} was planned")
        else:
            first = f" ({one.met.went_first} others of {one.met.function} were)" if one.met.went_first > 1 else ""
            waited = f"waited {_s(one.took_s)} and" if one.took_s > 1e-6 else "was ready, but"
            told.append(f"{one.stage} {waited} was not started{first}")
    return [f"What went otherwise than planned: {'; '.join(told)}."]


def _basis(prices: list[float], *, has_budget: bool) -> str:
    in_time = f"in time{' and within the budget' if has_budget else ''}"
    short = [(name, price) for name, price in zip(RESOURCES, prices, strict=True) if price > _SHORT]
    if not short:
        return f"Nothing was short, so these are the cheapest configurations that are {in_time}."
    names, times = " and ".join(f"{name}s" for name, _ in short), " and ".join(f"{price:.3g}" for _, price in short)
    spare = f"the plan uses as little of them per answer as is possible {in_time}"
    return f"{names} were short and counted at {times} times their price, so {spare}."


def _configuration(stage: StageStory, story: Story, note: Started, planned: Planned) -> str:
    chosen, wanted = note.configuration, planned.configuration
    if (chosen.vcpus, chosen.vgpus, note.kind) == (wanted.vcpus, wanted.vgpus, planned.kind):
        if stage.batch_size >= wanted.batch:
            return "as planned"
        text = f"as planned, though in a batch of {stage.batch_size} instead of {wanted.batch}"
        if note.waiting <= stage.batch_size:
            return f"{text}: nothing else was waiting"
    elif (chosen.vcpus, chosen.vgpus) == (wanted.vcpus, wanted.vgpus):
        text = f"as planned, but on {note.kind} instead of {planned.kind}"
    else:
        text = f"{_on(chosen, note.kind, planned.kind)} instead of {_share(wanted)} as planned"
    return f"{text}: {_why_other(story, note, planned)}"


def _why_other(story: Story, note: Started, planned: Planned) -> str:
    if note.is_rushed:
        return f"with {_s(note.left_s)} left none was safely in time, so a quick one was taken"
    if note.better is not None:
        better, kind = note.better
        is_planned = (better, kind) == (planned.configuration, planned.kind)
        named = "the planned one" if is_planned else f"the first choice by then, {_share(better)} on {kind},"
        budget = ", or it would have exceeded the budget" if story.budget_usd < inf else ""
        return f"{named} had no idle instance with room, and a new one could not be started in time{budget}"
    objective_s = story.deadline - story.arrival
    less_s = objective_s - planned.start_s - note.left_s
    left = f"with {_s(note.left_s)} left"
    if abs(less_s) > _NOTICEABLE * objective_s:
        left += f", {_s(abs(less_s))} {'less' if less_s > 0 else 'more'} than planned,"
    waiting = f" and {note.waiting} waiting" if note.waiting > 1 or planned.configuration.batch > 1 else ""
    return f"it was the cheapest in time {left}{waiting}{_new_prices(story, note)}".rstrip(",")


def _new_prices(story: Story, note: Started) -> str:
    before = story.admitted.prices if story.admitted else note.prices
    changed = [
        f"{name}s from {old:.3g} to {new:.3g} times"
        for name, old, new in zip(RESOURCES, before, note.prices, strict=True)
        if not 1 / _CHANGED < new / old < _CHANGED
    ]
    return f"; since the plan, prices had changed, {' and '.join(changed)}" if changed else ""


def _why_here(stage: StageStory, note: Started) -> str:
    busy = f"{100 * note.busy:.0f} % in use" if note.busy > 0.005 else "otherwise idle"
    idle = f"an idle instance{size(stage)}"
    if stage.is_cold:
        text = f"no idle instance{size(stage)} could be used, and {stage.node} ({busy}) had room for a new one"
    elif stage.cold_s > 0:
        text = f"an instance{size(stage)} was being started on {stage.node} ({busy})"
    elif stage.idle_elsewhere:
        number = f"{stage.idle_elsewhere + 1} nodes of kind {note.kind}"
        text = f"{number} had {idle}; {stage.node} ({busy}) was the least busy with room"
    else:
        text = f"{stage.node} ({busy}) was the only one of kind {note.kind} with {idle}"
    if note.pace > _SLOW:
        text += f", although its last runs took {note.pace:.3g} times the expected time"
    if note.slow is not None:
        name, pace = note.slow
        text += f"; {name} is used last, since its last runs took {pace:.3g} times the expected time"
    return text


def size(stage: StageStory) -> str:
    """The share that tells instances of a function apart."""
    return f" with {stage.vgpus:g} vGPU" if stage.vgpus else ""


def _on(configuration: Configuration, kind: str, planned: str) -> str:
    return _share(configuration) + (f" on {kind}" if kind != planned else "")


def _share(configuration: Configuration) -> str:
    gpus = f", {configuration.vgpus:g} vGPU" if configuration.vgpus else ""
    batch = f" in batches of {configuration.batch}" if configuration.batch > 1 else ""
    return f"{configuration.vcpus:g} vCPU{gpus}{batch}"


def _s(seconds: float) -> str:
    return show(seconds, "seconds")
