"""Simulated runs that leave the folder of a live one: the same controller, and every instant it handles is logged."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from fairlead.engine.core import Controller
from fairlead.engine.core.effects import Effect
from fairlead.engine.core.events import Event
from fairlead.engine.live.records import RunHead, RunLog
from fairlead.engine.sim import simulate
from fairlead.policy import make_policy
from fairlead.workload import PolicyChoice, Scenario


def log_run(scenario: Scenario, folder: Path, policy: str = "fifo", seed: int = 0, **parameters: object) -> Path:
    """Simulate, and leave in the folder what the live runtime would have."""
    world = replace(scenario, policy=PolicyChoice(name=policy, parameters=parameters))
    log = RunLog(folder, RunHead(app=world.name, scenario=world, seed=seed))
    last = 0.0
    recalled: list[Event] = []

    class Logged(Controller):
        def __init__(self, scenario, dispatcher, scaler, stopwatch, names, recorder, recall=None, **settings):
            def noted(ready):
                found = recall(ready)
                recalled.extend(found)
                return found

            hook = None if recall is None else noted
            super().__init__(scenario, dispatcher, scaler, stopwatch, names, log, recall=hook, **settings)

        def handle(self, now: float, events: Sequence[Event]) -> list[Effect]:
            nonlocal last
            last = now
            recalled.clear()
            try:
                return super().handle(now, events)
            finally:
                log.log(now, (*events, *recalled))

    try:
        with patch.object(sys.modules["fairlead.engine.sim.driver"], "Controller", Logged):
            recording = simulate(world, make_policy(policy, parameters), seed=seed)
        for refusal in recording.refusals:
            log.refused(refusal)
    finally:
        log.close(last)
    return folder
