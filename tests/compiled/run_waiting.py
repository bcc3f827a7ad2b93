"""Runs a placement that lets requests wait for ever, and prints the error that must come of it."""

import sys
from math import inf

from fairlead.engine import simulate
from fairlead.engine.sim import compiled
from fairlead.errors import PolicyError
from fairlead.testing import declared, scenario


def never(now, function, deadline, free, warm):
    return -1


def after_the_first(now, function, deadline, free, warm):
    return 0 if now == 0 else -1


def main() -> None:
    tier = getattr(compiled, sys.argv[1])
    pick = {"never": never, "after_the_first": after_the_first}[sys.argv[2]]
    where = scenario(declared(1.0, keep_alive_s=inf), arrivals=(0, 2, 3), duration_s=5)
    try:
        simulate(where, tier(pick), engine="compiled")
    except PolicyError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")


if __name__ == "__main__":
    main()
