"""What an agent goes through: objectives and pressure, phase by phase.

The fixed lists are those of D. Giagkos's thesis (6.1); the paper says that pressure is altered at random, which is
`drawn`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LOOSE_S, STRICT_S = 35.0, 26.0
LEVELS = (0.0, 0.25, 0.5, 0.75)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """So many steps with one objective and one pressure on each node; nodes that are not named have none."""

    steps: int
    slo_s: float
    pressures: Mapping[str, float]

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1; got {self.steps}.")
        if not self.slo_s > 0:
            raise ValueError(f"slo_s must be positive; got {self.slo_s}.")


Schedule = Sequence[Phase]

_PHASES: tuple[tuple[float, Mapping[str, float]], ...] = (
    (LOOSE_S, {"w01": 0.25, "w04": 0.5}),
    (LOOSE_S, {"w01": 0.5, "w04": 0.25}),
    (LOOSE_S, {"w02": 0.5, "w03": 0.25}),
    (STRICT_S, {}),
    (STRICT_S, {"w01": 0.5, "w02": 0.25, "w03": 0.75}),
)


_SEEN: Mapping[str, float] = {"w02": 0.5}
"""What the logs of the authors' runs show in the last phase: w01 and w03 as quick as without pressure, w02 slowed."""


def published(steps: int, *, is_as_logged: bool = False) -> tuple[Phase, ...]:
    """The five phases of the thesis, each of so many steps: 100 in training, 50 in inference.

    As logged, the last phase has the pressure that latencies in the authors' logs show, which is not the one printed.
    """
    *others, (slo_s, pressures) = _PHASES
    last = (slo_s, _SEEN if is_as_logged else pressures)
    return tuple(Phase(steps=steps, slo_s=slo_s, pressures=pressures) for slo_s, pressures in (*others, last))


def drawn(
    rng: np.random.Generator,
    nodes: Sequence[str],
    phases: int,
    *,
    steps: int = 25,
    slos_s: Sequence[float] = (LOOSE_S, STRICT_S),
    levels: Sequence[float] = LEVELS,
) -> tuple[Phase, ...]:
    """Phases with objectives and levels of pressure at random, each as likely as another."""
    return tuple(
        Phase(
            steps=steps,
            slo_s=float(rng.choice(slos_s)),
            pressures={node: float(rng.choice(levels)) for node in nodes},
        )
        for _ in range(phases)
    )
