"""Profiles of fused functions that were not measured, composed from those of their parts.

A run of all parts takes what they take one after the other, less the hops in between: every measured time contains one
hop, from the gateway to the instance and back. A part that takes one argument runs once per item of a batch. The copies
of values between parts stay in the times, although a value that goes through no gateway is copied less often: a
composed profile is rather too slow than too fast.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import hypot

import msgspec

from fairlead.app.manifest import FunctionSpec, Manifest
from fairlead.model import Configuration
from fairlead.profile.laws import space
from fairlead.profile.measured import ColdStart, MeasuredFunction, MeasuredProfiles, Point

Part = tuple[FunctionSpec, MeasuredFunction]


def with_fused(measured: MeasuredProfiles, manifest: Manifest, hop_s: float = 0.0) -> MeasuredProfiles:
    """The profiles, with composed ones for the fused functions that have none and whose parts all have one."""
    added = composed_functions(measured.functions, manifest, hop_s)
    return msgspec.structs.replace(measured, functions={**measured.functions, **added}) if added else measured


def composed_functions(
    functions: Mapping[str, MeasuredFunction], manifest: Manifest, hop_s: float = 0.0
) -> dict[str, MeasuredFunction]:
    """What `with_fused` adds, by name."""
    specs = {spec.name: spec for spec in manifest.measurable}
    added: dict[str, MeasuredFunction] = {}
    for spec in manifest.functions:
        if spec.parts and spec.name not in functions and all(part in functions for part in spec.parts):
            found = composed(spec, [(specs[part], functions[part]) for part in spec.parts], hop_s)
            if found is not None:
                added[spec.name] = found
    return added


def composed(spec: FunctionSpec, parts: Sequence[Part], hop_s: float = 0.0) -> MeasuredFunction | None:
    """The profile of a fused function; None where the parts were measured in no configuration that it has.

    `hop_s` is the elapsed time of a run that does nothing, as far as it is known.
    """
    points = tuple(_points(spec, parts, hop_s))
    if not points:
        return None
    shares = _shares(parts)
    noises = [function.cpu_noise for _, function in parts]
    known = [noise for noise in noises if noise is not None]
    return MeasuredFunction(
        points=points,
        cold_start=_cold_start([function.cold_start for _, function in parts]),
        memory_gb=sum(function.memory_gb for _, function in parts),
        output_mb=parts[-1][1].output_mb,
        noise=hypot(*(share * function.noise for share, (_, function) in zip(shares, parts, strict=True))),
        cpu_noise=hypot(*(s * n for s, n in zip(shares, known, strict=True))) if len(known) == len(parts) else None,
    )


def _points(spec: FunctionSpec, parts: Sequence[Part], hop_s: float) -> Iterator[Point]:
    kinds = list(dict.fromkeys(point.kind for _, function in parts for point in function.points))
    for configuration in space(spec.batch, spec.vcpus, spec.vgpus):
        for kind in kinds:
            found = [_point(function, _inside(part, configuration), kind) for part, function in parts]
            known = [point for point in found if point is not None]
            if len(known) < len(parts):
                continue
            times = [1 if part.is_batched else configuration.batch for part, _ in parts]
            mean_s = _run_s([point.mean_s for point in known], times, hop_s)
            assert mean_s is not None
            yield Point(
                batch=configuration.batch,
                vcpus=configuration.vcpus,
                vgpus=configuration.vgpus,
                kind=kind,
                mean_s=mean_s,
                p50_s=_run_s([point.p50_s for point in known], times, hop_s),
                cpu_s=_run_s([point.cpu_s for point in known], times, 0.0),
                is_predicted=True,
            )


def _inside(part: FunctionSpec, configuration: Configuration) -> Configuration:
    """The configuration in which a part was measured that runs inside this one."""
    return configuration if part.is_batched else msgspec.structs.replace(configuration, batch=1)


def _point(function: MeasuredFunction, configuration: Configuration, kind: str | None) -> Point | None:
    """What was measured in a configuration on a kind of node, or else on every kind."""
    found = {point.kind: point for point in function.points if point.configuration() == configuration}
    return found.get(kind) or found.get(None)


def _run_s(seconds: Sequence[float | None], times: Sequence[int], hop_s: float) -> float | None:
    """Seconds of the parts one after the other, each as often as it runs, with one hop; None where one is not known."""
    known = [(each, count) for each, count in zip(seconds, times, strict=True) if each is not None]
    if len(known) < len(seconds):
        return None
    return hop_s + sum(max(0.0, each - hop_s) * count for each, count in known)


def _shares(parts: Sequence[Part]) -> list[float]:
    """The part of the time that each takes, in the first configuration in which it was measured."""
    seconds = [function.points[0].mean_s for _, function in parts]
    total_s = sum(seconds)
    return [each / total_s for each in seconds] if total_s else [1 / len(parts)] * len(parts)


def _cold_start(starts: Sequence[ColdStart | None]) -> ColdStart | None:
    """One process that loads the code once and runs every `setup`; the sum where the parts of a start are not known."""
    known = [start for start in starts if start is not None]
    if not known:
        return None
    apart = [(start.process_s, start.load_s, start.setup_s) for start in known]
    process, load, setup = ([each for each in column if each is not None] for column in zip(*apart, strict=True))
    p95 = max(start.p95_s / start.mean_s if start.mean_s else 1.0 for start in known)
    if not len(process) == len(load) == len(setup) == len(known):
        mean_s = sum(start.mean_s for start in known)
        return ColdStart(mean_s=mean_s, p95_s=mean_s * p95, count=0)
    parts = (max(process), max(load), sum(setup))
    mean_s = sum(parts)
    return ColdStart(mean_s=mean_s, p95_s=mean_s * p95, count=0, process_s=parts[0], load_s=parts[1], setup_s=parts[2])
