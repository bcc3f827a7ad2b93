"""Environments: steps per second of one `Env`, and of a `VectorEnv` that steps many in one call.

A step is one decision of one environment. Actions are drawn beforehand; an environment that ends begins again by
itself. The limit is the rule of `fifo` inside the compiled loop, which no caller can pass. Part of `make bench`; alone:
`python benchmarks/bench.py --only environments`.
"""

import numpy as np
from groups import Group, best
from measure import Gate, Program, Row, Sample, UnavailableError, timed

from fairlead.errors import MissingExtraError

SIZES = (1, 64, 1024)
LIMIT, SINGLE, SINGLE_BARE = "the rule inside the loop", "Env.step", "Env.step, copy=False"


WHOLE = "VectorEnv, 1,024 environments, whole episodes"
EPISODE = 2000


_FIRST = "from the beginning of episodes"
_QUEUED = "random actions: soon hundreds wait, and most actions do not fit"


def vector(count: int) -> str:
    return f"VectorEnv, {count:,} environments"


def environments(steps: int) -> Group:
    """One environment, and 1, 64 and 1,024 at once."""
    programs = [
        Program(LIMIT, lambda: _rehearse(steps)),
        Program(SINGLE, lambda: _step_one(steps, copy=True)),
        Program(SINGLE_BARE, lambda: _step_one(steps, copy=False)),
    ]
    programs += [
        Program(vector(n), lambda n=n: _step_many(n, min(EPISODE, max(20, steps // n))), note=_FIRST) for n in SIZES
    ]
    programs.append(Program(WHOLE, lambda: _step_many(SIZES[-1], EPISODE), repeats=2, note=_QUEUED))
    return Group(f"Environments, {steps:,} steps", "steps", tuple(programs), _gates, (LIMIT,))


def _gates(rows: list[Row]) -> list[Gate]:
    most = SIZES[-1]
    return [
        Gate(name=f"{vector(most)}, steps/s", figure=best(rows, vector(most)), limit=3e6),
        Gate(name=f"{SINGLE}, steps/s", figure=best(rows, SINGLE), limit=0.8e6),
    ]


def _made(count: int | None, copy: bool = True):
    """So many environments, or a single one, with a first episode begun."""
    try:
        from fairlead.learn.environments import PlacementEnv, PlacementVectorEnv  # noqa: PLC0415 - may be missing
    except MissingExtraError as error:
        raise UnavailableError(str(error)) from error
    env = PlacementEnv(copy=copy) if count is None else PlacementVectorEnv(count, copy=copy)
    env.reset(seed=1)
    return env


def _rehearse(steps: int) -> Sample:
    world = _made(None).world
    return timed(lambda: world.program.rehearse(world.pack.address(0), steps) and None, steps)


def _step_one(steps: int, *, copy: bool) -> Sample:
    env = _made(None, copy)
    actions = np.random.default_rng(0).integers(0, 16, steps).tolist()

    def run() -> None:
        step = env.step
        for action in actions:
            _, _, is_over, is_cut, _ = step(action)
            if is_over or is_cut:
                env.reset()

    return timed(run, steps)


def _step_many(count: int, rounds: int) -> Sample:
    env = _made(count)
    actions = np.random.default_rng(0).integers(0, 16, (rounds, count))

    def run() -> None:
        for row in actions:
            env.step(row)

    return timed(run, count * rounds)
