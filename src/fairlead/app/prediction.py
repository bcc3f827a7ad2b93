"""The scenario of an app as a machine would serve it, and what of it was never measured.

What the machine itself costs is in its `Host`. The times of functions were measured with wake-ups in them, some of
which were late. The host has these, so a function is taken to need the median of what was measured, and to vary as the
CPU time of its runs does.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import msgspec

from fairlead.app.manifest import Manifest, WorkflowSpec
from fairlead.profile import Host, Profile
from fairlead.profile.measured import MeasuredFunction, MeasuredProfiles, Point
from fairlead.workload.scenario import Scenario


def as_served(scenario: Scenario, manifest: Manifest, measured: MeasuredProfiles | None, host: Host) -> Scenario:
    """The scenario on this host, with what the profile of the app tells of sizes, CPU shares and usual times."""
    functions: Mapping[str, MeasuredFunction] = {} if measured is None else measured.functions
    profiles = {
        name: _usual(profile, functions[name]) if name in functions else profile
        for name, profile in scenario.profiles.items()
    }
    shares = {name: _cpu_share(function) for name, function in functions.items() if name in scenario.functions}
    used = {name: _cores_used(function) for name, function in functions.items() if name in scenario.functions}
    sizes = {spec.name: _values_mb(spec, functions) for spec in manifest.workflows}
    if measured is not None and measured.nodes:
        host = msgspec.structs.replace(host, links={node.name: node.link for node in measured.nodes})
    if measured is not None and measured.served is not None:
        host = measured.served.host(host)
    host = msgspec.structs.replace(host, cpu_share=shares, cores_used=used, values_mb=sizes)
    return replace(scenario, profiles=profiles, host=host)


def extrapolations(scenario: Scenario, measured: MeasuredProfiles | None, cached: Collection[str] = ()) -> list[str]:
    """Returns the assumptions of a prediction that were not measured, as sentences.

    `cached` names the functions that have a prediction cache when they are served.
    """
    host = scenario.host
    functions: Mapping[str, MeasuredFunction] = {} if measured is None else measured.functions
    notes = []
    unknown = [name for name in scenario.functions if name not in functions]
    if unknown:
        notes.append(f"{', '.join(unknown)}: never measured, so times are assumed. Run: fairlead profile")
    for name, function in functions.items():
        if name in scenario.functions:
            sizes = [str(point.configuration()) for point in function.points if point.is_predicted]
            if sizes:
                notes.append(f"{name}: not measured but derived from other sizes: {', '.join(sizes)}.")
    left_out = [name for name in cached if name in scenario.functions and not scenario.functions[name].hit_rate]
    if left_out:
        notes.append(
            f"{', '.join(left_out)}: every request runs here, though a prediction cache would answer some. Say how "
            f"many with: --set functions.{left_out[0]}.hit_rate=0.5"
        )
    if host is None:
        notes.append(
            "This machine was never measured, so what its gateway takes is left out, and every figure is too good by "
            "that. Run: fairlead profile --host"
        )
        return notes
    if host.decision_s and scenario.policy.name not in host.decision_s:
        known = ", ".join(host.decision_s)
        notes.append(f"Decisions of {scenario.policy.name} were not measured; the slowest known is assumed ({known}).")
    rate_rps = sum(process.expected(1.0) for process in scenario.arrivals if hasattr(process, "expected"))
    if host.measured_rps and rate_rps > host.measured_rps:
        notes.append(
            f"{rate_rps:.0f} requests/s are more than this machine was measured with ({host.measured_rps:.0f})."
        )
    return notes


def gateway_s(scenario: Scenario, workflow: str) -> float:
    """What the gateway adds to a request of a workflow that comes alone; 0 without a host."""
    host = scenario.host
    if host is None:
        return 0.0
    graph = scenario.workflows[workflow]
    depth: dict[str, int] = {}
    for stage in graph.stages:  # in order: a stage comes after those that it follows
        depth[stage.name] = 1 + max((depth[name] for name in stage.after), default=0)
    wake_s = sum(host.wake_s) / len(host.wake_s) if host.wake_s else 0.0
    turn_s = host.turn_s + host.decides_s(scenario.policy.name)
    link_s = max((link.cpu_s for link in host.links.values()), default=0.0)
    way_s = host.send_s + host.end_s + link_s + host.invocation_s + turn_s
    stages = max(depth.values())
    cpu_s = host.request_s + host.answer_s + turn_s + stages * way_s + host.mb_s * host.values_mb.get(workflow, 0.0)
    cold = 1 + host.cold_factor
    wakes = 2 * stages + 1 + 2 * (host.client_s > 0)
    return cold * (cpu_s + host.client_s) + wakes * wake_s - stages * host.hop_s


def _usual(profile: Profile, function: MeasuredFunction) -> Profile:
    ratios = [point.p50_s / point.mean_s for point in function.points if point.p50_s and point.mean_s]
    noise = profile.noise
    if function.cpu_noise is not None:
        noise = min(noise, function.cpu_noise * _cpu_share(function))
    bias = sum(ratios) / len(ratios) if ratios else 1.0
    return msgspec.structs.replace(profile, bias=profile.bias * bias, noise=noise)


def _cpu_share(function: MeasuredFunction) -> float:
    used = _busy_cores(function.points)
    return 1.0 if used is None else min(1.0, used)


def _cores_used(function: MeasuredFunction) -> dict[str, float]:
    """How many cores runs keep busy, by vCPUs, where that was measured: several threads use several."""
    by_vcpus: dict[float, list[Point]] = {}
    for point in function.points:
        by_vcpus.setdefault(point.vcpus, []).append(point)
    found = {vcpus: _busy_cores(points) for vcpus, points in by_vcpus.items()}
    return {f"{vcpus:g}": min(max(1.0, vcpus), used) for vcpus, used in found.items() if used is not None}


def _busy_cores(points: Sequence[Point]) -> float | None:
    """CPU time of runs over their usual time; None where neither was measured."""
    known = [(point.cpu_s, point.p50_s or point.mean_s) for point in points if point.cpu_s is not None]
    usual_s = sum(each for _, each in known)
    return sum(cpu_s for cpu_s, _ in known) / usual_s if usual_s else None


def _values_mb(spec: WorkflowSpec, functions: Mapping[str, MeasuredFunction]) -> float:
    """Size of an input like the example, and of what the last stages give."""
    given = 0.0 if spec.example is None else len(spec.example) / 2**20
    followed = {name for stage in spec.stages for name in stage.after}
    last = [stage.function for stage in spec.stages if stage.name not in followed]
    return given + sum(functions[name].output_mb for name in last if name in functions)
