"""Runs random worlds on both engines and compares the records; run as a program, it prints what it tried as JSON.

A program of its own since numba reads NUMBA_BOUNDSCHECK when it is first loaded.
"""

import argparse
import json
import sys
from collections import Counter

from agreement import assert_same
from covered_worlds import World, long_worlds, worlds
from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from numba import njit
from numpy import zeros
from world_features import features, unsettled

from fairlead.engine import simulate
from fairlead.engine.sim.compiled import coverage
from fairlead.model import Recording

TELLS_BOUNDS = "bounds are checked"
COMPARED = "compared"
REFUSED = "refused"


def run(world: World, engine: str) -> Recording:
    """One run of a world, with policies of its own."""
    policy, scaler = world.policies() if world.by_object else (None, None)
    return simulate(world.scenario, policy, scaler=scaler, seed=world.seed, engine=engine)


def compare(world: World, engine: str, tally: Counter[str]) -> None:
    """Compare an engine with the Python one on a world that is covered; count what it tried."""
    reason = coverage(world.scenario, *world.policies())
    if reason is not None:
        assert unsettled(world.scenario), f"a run that should be covered is not: {reason}"
        tally[REFUSED] += 1
        tally[f"{REFUSED}: {reason}"] += 1
        reject()
    python, other = run(world, "python"), run(world, engine)
    assert (python.engine, other.engine) == ("python", engine)
    assert_same(python, other)
    tally[COMPARED] += 1
    tally.update(features(world.scenario, python))


def compare_random(examples: int, first_seed: int, engine: str, tally: Counter[str]) -> None:
    """So many different random worlds, the same ones for the same seed.

    Each is drawn on its own: a single search over all of them spends most of its examples on variations of a few.
    """
    one = settings(
        max_examples=1,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    passed: set[str] = set()

    def body(world: World) -> None:
        if repr(world) in passed:  # as is the simplest world, with which every search begins
            reject()
        compare(world, engine, tally)
        passed.add(repr(world))

    for i in range(examples):
        seed(first_seed + i)(one(given(worlds())(body)))()


def checks_bounds() -> bool:
    """Whether compiled code notices an index that is out of bounds."""

    @njit
    def beyond(values, index):
        return values[index]

    try:
        beyond(zeros(1), 1)
    except IndexError:
        return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", default="compiled")
    options = parser.parse_args()
    tally: Counter[str] = Counter()
    tally[TELLS_BOUNDS] = checks_bounds()
    compare_random(options.examples, options.seed, options.engine, tally)
    for world in long_worlds():
        compare(world, options.engine, Counter())
    sys.stdout.write(json.dumps(tally) + "\n")


if __name__ == "__main__":
    main()
