"""Why a request went as it did, in plain words."""

from __future__ import annotations

from math import inf

from fairlead.model import CACHED
from fairlead.report import why
from fairlead.report.numbers import show
from fairlead.report.story import StageStory, Story

_MATES = 8  # requests of a batch that are named


def in_words(story: Story) -> list[str]:
    """The story as paragraphs of plain text; what belongs to the one before it is indented."""
    lines = [_headline(story), _came(story)]
    is_dropped_at_once = story.admitted is not None and story.outcome == "rejected"  # so no promise was given
    if story.admitted is not None and not is_dropped_at_once:
        lines += why.promise(story, story.admitted)
    if story.promised is not None and not is_dropped_at_once:
        plan = f": {story.plan}" if story.plan and story.admitted is None else ""
        lines.append(f"{story.policy} promised an answer {_after(story, story.promised)}{plan}.{_kept(story)}")
    for stage in story.stages:
        lines.append(_stage_words(stage, story))
        if stage.outcome != CACHED:
            lines += [f"  {line}" for line in (*_waited(stage), *why.choice(stage, story))]
    if not story.stages:
        lines.append("Nothing of it was run.")
    lines += why.delays(story)
    lines += _ending(story)
    return lines


def _headline(story: Story) -> str:
    took = "" if story.end is None else f" after {_s(story.end - story.arrival)}"
    verdict = {
        "completed": f"answered{took}, {'in time' if story.is_in_time else 'too late'}",
        "rejected": f"refused at arrival{took}"
        if took and story.end != story.arrival
        else "refused at arrival, at once",
        "dropped": f"given up{took}, after it had been admitted",
        "failed": f"failed{took}",
        "cancelled": f"withdrawn by its client{took}",
    }.get(story.outcome, "still open when the records end")
    return f"Request {story.request} of {story.workflow}, under {story.policy}: {verdict}."


def _came(story: Story) -> str:
    text = f"It came at {_at(story.arrival)}"
    if story.deadline < inf:
        text += f" and was to be answered by {_at(story.deadline)} ({_s(story.deadline - story.arrival)} later)"
    if story.budget_usd < inf:
        text += f", for at most {show(story.budget_usd, 'usd')}"
    if not story.open_before:
        return f"{text}. Nothing else was open."
    were = "other requests were" if story.open_before != 1 else "other request was"
    text += f". {story.open_before} {were} open"
    if story.deadline < inf:
        text += f", {story.more_urgent} of them more urgent"
    return f"{text}; {story.running_before} invocations were running and {story.waiting_before} were waiting."


def _kept(story: Story) -> str:
    if story.outcome in ("dropped", "failed"):
        return " It was not kept."
    if story.end is None or story.outcome != "completed" or story.promised is None:
        return ""
    off = story.end - story.promised
    return (
        f" The answer came {_s(abs(off))} {'later' if off > 0 else 'earlier'}." if abs(off) >= 1e-6 else " It was kept."
    )


def _stage_words(stage: StageStory, story: Story) -> str:
    name = stage.stage if stage.stage == stage.function else f"{stage.stage} ({stage.function})"
    if stage.item or any(other.item for other in story.stages if other.stage == stage.stage):
        name += f", item {stage.item}"
    if stage.attempt > 1:
        name += f", attempt {stage.attempt}"
    if stage.outcome == CACHED:
        how = f"waited {_s(stage.wait_s)} until an equal input had run, and was " if stage.wait_s > 0 else ""
        return f"{name}: {how}answered from the prediction cache; nothing was run."
    parts = []
    if stage.wait_s > 0:
        busy = " while its instance was busy with another batch" if stage.busy_before else ""
        parts.append(f"waited {_s(stage.wait_s)}{busy}")
    if stage.cold_s > 0:
        why = "its instance had to be started" if stage.is_cold else "its instance was still starting"
        parts.append(f"{_s(stage.cold_s)} until ready ({why})")
    if stage.transfer_s > 0:
        parts.append(f"{_s(stage.transfer_s)} to move its input")
    parts.append(f"ran {_s(stage.run_s)}{_expected(stage)}")
    where = f"on instance {stage.instance} of {stage.node} ({_resources(stage)}), {_company(stage)}"
    ending = "" if stage.outcome == "done" else f" It ended as {stage.outcome}."
    return f"{name}: {', '.join(parts)}, {where}.{ending}"


def _waited(stage: StageStory) -> list[str]:
    """What it waited for, by what was there when it became ready."""
    met = stage.met
    if met is None or stage.wait_s < 1e-6:
        return []
    idle, size = met.instances - met.busy, why.size(stage)
    if not met.instances:
        text = f"there was no instance{size}"
        if met.starting:
            text = f"{_are(met.starting, f'instance{size}', f'instances{size}')} still starting"
    else:
        number = f"{idle} of {met.instances}" if 0 < idle < met.instances else f"all {met.instances}"
        of_them = f"{number} instances{size} {'was' if idle == 1 else 'were'}"
        text = f"{of_them if met.instances > 1 else f'the only instance{size} was'} {'idle' if idle else 'busy'}"
        if idle and not met.usable:
            text += (
                f", but not where {_resources(stage)} {'was' if stage.vcpus <= 1 and not stage.vgpus else 'were'} free"
            )
    used = [
        f"{100 * share:.0f} % of all {name}s"
        for name, share in (("vCPU", met.vcpus_in_use), ("vGPU", met.vgpus_in_use))
        if share is not None
    ]
    first = f"; {_are(met.went_first, 'other', 'others')} started before it" if met.went_first else ""
    number = f"{met.starting_elsewhere} instance{'s' if met.starting_elsewhere > 1 else ''}"
    others = f", with {number} of other functions starting" if met.starting_elsewhere else ""
    return [f"Wait: when it became ready, {text}; {' and '.join(used)} were in use{others}{first}."]


def _resources(stage: StageStory) -> str:
    return f"{stage.vcpus:g} vCPU" + (f", {stage.vgpus:g} vGPU" if stage.vgpus else "")


def _are(count: int, one: str, several: str) -> str:
    return f"{count} {one} was" if count == 1 else f"{count} {several} were"


def _expected(stage: StageStory) -> str:
    if stage.expected_s is None:
        return ""
    text = f" where {_s(stage.expected_s)} was to be expected"
    if stage.declared_s and abs(stage.expected_s - stage.declared_s) > 0.05 * stage.declared_s:
        text += f" (profile: {_s(stage.declared_s)})"
    return text


def _company(stage: StageStory) -> str:
    if stage.batch_size == 1:
        return "alone"
    others = [f"{mate}" for mate in stage.mates[:_MATES]]
    more = len(stage.mates) - len(others)
    word = "request" if len(stage.mates) == 1 else "requests"
    named = f" with {word} {', '.join(others)}{f' and {more} more' if more > 0 else ''}" if others else ""
    return f"in a batch of {stage.batch_size}{named}"


def _ending(story: Story) -> list[str]:
    lines = []
    if story.reason:
        lines.append(f"Why: {story.reason}.")
    if story.retry_after_s is not None:
        lines.append(f"It was told to try again in {_s(story.retry_after_s)}.")
    if story.offer_latency_s is not None or story.offer_cost_usd is not None:
        within = f" within {_s(story.offer_latency_s)}" if story.offer_latency_s is not None else ""
        cost = f" for {show(story.offer_cost_usd, 'usd')}" if story.offer_cost_usd is not None else ""
        lines.append(f"What could have been promised: an answer{within}{cost}.")
    if story.outcome == "dropped" and story.cost_usd > 0:
        lines.append(f"The {show(story.cost_usd, 'usd')} that had been spent on it were lost.")
    if story.outcome == "completed" and story.end is not None:
        total = {
            "waiting": sum(stage.wait_s for stage in story.stages),
            "cold starts": sum(stage.cold_s for stage in story.stages),
            "moving data": sum(stage.transfer_s for stage in story.stages),
            "running": sum(stage.run_s for stage in story.stages),
        }
        spent = ", ".join(f"{_s(seconds)} {name}" for name, seconds in total.items() if seconds > 0)
        left = story.deadline - story.end
        if left < inf:
            slack = f"{_s(left)} before" if left >= 0 else f"{_s(-left)} after"
            lines.append(f"In all: {spent}; answered {slack} its deadline, for {show(story.cost_usd, 'usd')}.")
        else:
            lines.append(f"In all: {spent}, for {show(story.cost_usd, 'usd')}.")
    return lines


def _after(story: Story, instant: float) -> str:
    return f"by {_at(instant)} ({_s(instant - story.arrival)} after it came)"


def _s(seconds: float) -> str:
    return show(seconds, "seconds")


def _at(instant: float) -> str:
    return f"{instant:.3f} s"
