"""`python -m fairlead.testing.virtual --seeds 10000`: simulate faults, seed by seed, until one breaks something.

Ends with 1 if an invariant did not hold. The seed is printed then, with the smallest plan that was found to break it
and the trace of that.
"""

import argparse
import logging
import sys
from collections import Counter

from fairlead.testing.virtual.plans import Plan, plan_of
from fairlead.testing.virtual.shrinking import shrink
from fairlead.testing.virtual.simulation import simulate_faults

_PROGRESS = 500


def main(arguments: list[str]) -> int:
    """Run the seeds; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fairlead.testing.virtual", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--lines", type=int, default=80, help="of the trace of a seed that fails (default 80)")
    parser.add_argument("--all", action="store_true", help="go on after a seed that fails")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    endings: Counter[str] = Counter()
    cpu_s, lives, steps = 0.0, 0, 0
    failed = []
    for seed in range(given.first, given.first + given.seeds):
        outcome = simulate_faults(seed)
        endings.update(outcome.endings)
        cpu_s, lives, steps = cpu_s + outcome.cpu_s, lives + outcome.lives, steps + outcome.steps
        if outcome.violations:
            failed.append(seed)
            if given.all:
                _say(f"seed {seed}: {outcome.violations[0]}")
            else:
                _show(seed, given.lines)
                break
        done = seed - given.first + 1
        if done % _PROGRESS == 0:
            _say(f"{done} of {given.seeds} seeds, {len(failed)} failed, {cpu_s:.0f} s of CPU time")
    done = seed - given.first + 1
    _say(f"{done} seeds: {len(failed)} failed {failed[:20] or ''}")
    _say(f"{endings.total()} requests: {dict(endings.most_common())}")
    _say(f"{lives} lives of gateways, {steps} steps, {cpu_s / done * 1e3:.0f} ms of CPU time per seed")
    return 1 if failed else 0


def _show(seed: int, lines: int) -> None:
    def fails(plan: Plan) -> bool:
        return bool(simulate_faults(seed, plan=plan).violations)

    plan = shrink(plan_of(seed), fails)
    _say(simulate_faults(seed, plan=plan).report(lines))
    _say(f"the smallest plan that was found to fail:\n{plan}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
