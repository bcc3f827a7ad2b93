"""A scenario at another load: its arrivals multiplied, everything else as it is."""

from dataclasses import replace

import msgspec

from fairlead.workload import Arrivals, ClosedLoop, Listed, Scenario, Share, Window
from fairlead.workload.streams import OpenLoop


def at_load(scenario: Scenario, load: float) -> Scenario:
    """The scenario with `load` times its arrivals; 1 is the scenario itself.

    Rates and counts are multiplied, a trace's counts minute by minute. A closed loop gets `load` times its users,
    rounded, and at least one. Listed instants are divided by `load`: the same requests come faster or slower. A window
    in time stays where it is.
    """
    if load == 1:
        return scenario
    return replace(scenario, arrivals=tuple(_scaled(process, load) for process in scenario.arrivals))


def expected_requests(scenario: Scenario) -> float:
    """Requests that the open-loop arrivals bring from the end of the warm-up to the end of the run, about."""
    return offered_rps(scenario) * (scenario.duration_s - scenario.warmup_s)


def offered_rps(scenario: Scenario) -> float:
    """Mean rate of all open-loop arrivals over the whole run, in requests per second. Closed loops count as 0."""
    expected = sum(one.expected(scenario.duration_s) for one in scenario.arrivals if not isinstance(one, ClosedLoop))
    return expected / scenario.duration_s


def _scaled(process: Arrivals | ClosedLoop, load: float) -> Arrivals | ClosedLoop:
    if isinstance(process, ClosedLoop):
        return ClosedLoop(process.workflow, max(1, round(process.users * load)), process.think_s, process.think)
    if isinstance(process, Listed):
        return Listed(process.workflow, tuple(instant / load for instant in process.at))
    assert isinstance(process, OpenLoop), process
    if isinstance(process, Share | Window):
        return msgspec.structs.replace(process, process=_scaled(process.process, load))
    return process.scaled(load)
