"""A schedule carried out on real nodes."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from time import monotonic

from fairlead.errors import UnknownNameError
from fairlead.monitor import Place
from fairlead.stress.holding import StressError
from fairlead.stress.schedule import Phase, Schedule
from fairlead.stress.stressor import Stressor

_LOOK_EVERY_S = 0.5


def run_schedule(
    schedule: Schedule,
    places: Sequence[Place],
    *,
    burner: str = "stress-ng",
    with_groups: bool = True,
    stop: threading.Event | None = None,
    on_phase: Callable[[int, Phase], None] = lambda i, phase: None,
) -> None:
    """Press as the schedule says; returns after its last phase, or soon after `stop` is set.

    Phases begin on time, measured from the start: what a change takes is part of its phase. Nothing is left behind,
    however this ends. Raises `FairleadError` for a node that there is not, and where a burner ends by itself.
    """
    by_name = {place.name: place for place in places}
    for node in schedule.nodes:
        if node not in by_name:
            raise UnknownNameError("node", node, by_name)
    halt = stop or threading.Event()
    with ExitStack() as stack:
        stressors = {
            node: stack.enter_context(Stressor(by_name[node], burner=burner, with_groups=with_groups))
            for node in schedule.nodes
        }
        due = monotonic()
        for i, phase in enumerate(schedule.phases):
            for node, stressor in stressors.items():
                stressor.set(phase.on(node))
            on_phase(i, phase)
            due += phase.seconds
            if _wait(stressors, due, halt):
                return


def _wait(stressors: Mapping[str, Stressor], due: float, halt: threading.Event) -> bool:
    """Until the phase is over; whether to stop. Looks whether the burners are still there."""
    while (left_s := due - monotonic()) > 0:
        if halt.wait(min(left_s, _LOOK_EVERY_S)):
            return True
        for stressor in stressors.values():
            if stressor.pressure.share > 0 and not stressor.is_running:
                raise StressError(stressor.ending())
    return halt.is_set()
