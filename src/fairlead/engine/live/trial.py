"""Tries out a function that was never measured: a few timed runs on examples, before the first request.

The same as a short measurement (`measuring.measure`), on an instance that serves afterwards. What a run would take is
estimated before it is begun, so that a slow function is not run in large batches.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from fairlead.engine.live.measuring.samples import StopRule, percentile
from fairlead.model import Configuration
from fairlead.profile import Profile, Row
from fairlead.profile.predict import complete, next_to_measure

EACH_S = 2.0
"""How long one function is tried out at most; a single run may take longer."""

TOTAL_S = 10.0
"""How long the functions of one app are tried out together."""

Run = Callable[[Configuration], Awaitable[float]]
"""Runs a full batch of examples in a configuration, and gives its seconds at speed 1."""

_RULE = StopRule(tolerance=0.1, least=5, most=30, least_late=1)
_TOLERANCE = 0.1  # what points that are not tried may be off by
_POINTS_AHEAD = 6  # a point gets this part of the time that is left


async def try_out(
    profile: Profile, can_run: Sequence[Configuration], run: Run, now: Callable[[], float], limit_s: float
) -> tuple[tuple[Row, ...], int]:
    """How long a function takes in every configuration, and after how many runs that is known.

    Args:
        profile: What is assumed of it.
        can_run: The configurations that can be tried.
        run: Runs it.
        now: The clock.
        limit_s: After how long no further run is begun, unless nothing was seen yet.
    """
    until = now() + limit_s
    times: dict[Configuration, float] = {}
    runs = 0
    configuration: Configuration | None = min(can_run, key=lambda c: (c.batch, c.vcpus))
    while configuration is not None:
        samples: list[float] = []
        last = now() + (until - now()) / _POINTS_AHEAD
        first_s = await run(configuration)  # the first of a size may be slower than those that follow
        runs += 1
        while now() < until and not _RULE.is_enough(samples, is_late=now() > last):
            samples.append(await run(configuration))
            runs += 1
        times[configuration] = percentile(samples or [first_s], 0.5)
        left_s = until - now()
        short = [c for c in can_run if c in times or 2 * _most_s(c, times) <= left_s]
        configuration = next_to_measure(short, times, _TOLERANCE) if left_s > 0 else None
    return _rows(profile, times), runs


def _most_s(wanted: Configuration, times: Mapping[Configuration, float]) -> float:
    """What a run takes if each invocation of a batch takes as long as the first and fewer vCPUs are slower."""
    return min(
        seconds * max(1.0, wanted.batch / known.batch) * max(1.0, known.vcpus / wanted.vcpus)
        for known, seconds in times.items()
    )


def _rows(profile: Profile, times: Mapping[Configuration, float]) -> tuple[Row, ...]:
    """All configurations: those that were not tried by a law through those that were, or in proportion to the prior."""
    space = profile.configurations
    if len({c.batch for c in times}) > 1 or len({c.batch for c in space}) == 1:
        others, _ = complete(space, times)
    else:
        known, seconds = next(iter(times.items()))
        assumed = {c: profile.law.mean_s(c, "") for c in space}
        others = {c: seconds * assumed[c] / assumed[known] for c in space}
    return tuple(
        Row(seconds=round(times.get(c, others.get(c, 0.0)), 9), batch=c.batch, vcpus=c.vcpus, vgpus=c.vgpus)
        for c in space
    )
