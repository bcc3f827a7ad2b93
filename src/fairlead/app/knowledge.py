"""What is known of an app before its first request: which functions were measured, when, where, and of which source.

`fairlead serve` shows it when it starts, so that an assumption is not taken for a measurement.
"""

from collections.abc import Mapping

from fairlead.app.manifest import FunctionSpec
from fairlead.app.scenario import PRIOR_S, place_of_profile
from fairlead.app.snapshot import Snapshot, source_digest
from fairlead.profile import space
from fairlead.profile.measured import MeasuredFunction, MeasuredProfiles, parse_measured


def knowledge(snapshot: Snapshot, cpu: str, tried: Mapping[str, int], *, has_machine: bool) -> list[str]:
    """What is known of the times of an app's functions, in a few lines; functions of which the same is known share one.

    Args:
        snapshot: The app as it is served.
        cpu: The model of this machine's CPU.
        tried: How often functions that were never measured have run on examples before the first request.
        has_machine: Whether this machine was measured too (`fairlead profile --host`).
    """
    measured = None
    if snapshot.profile is not None:
        measured = parse_measured(snapshot.profile.encode(), str(place_of_profile(snapshot.path)))
    known: Mapping[str, MeasuredFunction] = {} if measured is None else measured.functions
    now = source_digest(snapshot.files)
    groups: dict[str, list[str]] = {}
    for spec in snapshot.manifest.functions:
        what = _said(spec, known.get(spec.name), tried.get(spec.name), now)
        groups.setdefault(what, []).append(spec.name)
    lines = [f"{', '.join(names)}: {what}" for what, names in groups.items()]
    command = f"fairlead profile {snapshot.address}"
    if measured is not None and measured.machine.cpu != cpu:
        lines.append(f"measured on another CPU ({measured.machine.cpu}), not on this one ({cpu})")
    if any(_is_doubtful(spec, measured, now) for spec in snapshot.manifest.functions):
        lines.append(f"to measure: {command}" + ("" if has_machine else " --host"))
    elif not has_machine:
        lines.append("this machine was never measured, which predictions need: fairlead profile --host")
    return lines


def _said(spec: FunctionSpec, function: MeasuredFunction | None, runs: int | None, source: str) -> str:
    """What is known of one function."""
    if function is None and runs is not None:
        return f"never measured; tried out on the examples at this start, {runs} runs"
    if function is None:
        return f"assumed to take {PRIOR_S * 1e3:g} ms, until runs show what it takes"
    wanted = space(spec.batch, spec.vcpus, spec.vgpus)
    derived = sum(point.is_predicted for point in function.points if point.configuration() in wanted)
    text = "measured"
    if derived:
        text += f" in {len(wanted) - derived} of {len(wanted)} configurations, the others derived"
    if function.measured_at is not None:
        text += f", {function.measured_at[:10]}"
    if function.source is not None and function.source != source:
        text += "; the source of the app has changed since"
    return text


def _is_doubtful(spec: FunctionSpec, measured: MeasuredProfiles | None, source: str) -> bool:
    function = None if measured is None else measured.functions.get(spec.name)
    return function is None or (function.source is not None and function.source != source)
