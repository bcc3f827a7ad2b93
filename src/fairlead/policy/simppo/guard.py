"""Which functions their agents may scale, and which fall back to a rule for now.

The published slides leave faults open. Ours: an agent that gives no usable answer, whose function was not measured, or
that no longer knows how the others are, loses its function to the rule at once; it gets it back after some periods in a
row without a fault. A fault of one function is no fault of the others.
"""

from dataclasses import fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.kit.measuring import Measures
from fairlead.policy.simppo.agents import NO_ANSWER
from fairlead.policy.simppo.reward import Actions

Flags = NDArray[np.bool_]


class Fault(IntEnum):
    """What is wrong with an agent in a control period."""

    NONE = 0
    SILENT = 1  # no answer: it stopped, is frozen or cut off, or its network gives no number
    ILLEGAL = 2  # an action that is none, or out of bounds
    UNMEASURED = 3  # nothing is known of its own function: a lost transition
    BLIND = 4  # too little is known of the others
    LOST = 5  # its function is far over its SLO and stays there


Faults = NDArray[np.int64]


def faults_of(answers: Actions, allowed: Flags, is_measured: Flags, is_known: Flags) -> Faults:
    """The fault of each agent, the last of those in `Fault` where there are several.

    Blind is who knows of fewer than half of the others: what it sees as the virtual agent is then not what the cluster
    does. `is_known` says of whom something is known that is not too old.
    """
    actions = allowed.shape[1]
    is_action = (answers >= 0) & (answers < actions)
    is_legal = is_action & allowed[np.arange(len(answers)), np.where(is_action, answers, 0)]
    is_blind = 2 * (is_known.sum() - is_known) < len(answers) - 1
    found = np.where(is_legal, Fault.NONE, Fault.ILLEGAL)
    found = np.where(answers == NO_ANSWER, Fault.SILENT, found)
    found = np.where(is_measured, found, Fault.UNMEASURED)
    return np.where(is_blind, Fault.BLIND, found).astype(np.int64)


class Guard:
    """Faults of the agents, one by one.

    Args:
        agents: How many there are.
        recover_periods: After how many good periods in a row an agent decides again; at least 1.
    """

    def __init__(self, agents: int, recover_periods: int) -> None:
        self._good = np.zeros(agents, np.int64)
        self._recover = recover_periods
        self.is_trusted: Flags = np.ones(agents, np.bool_)
        self.faults = 0

    def judge(self, is_good: Flags) -> Flags:
        """Note who did well in this period; says whose decision counts."""
        self._good = np.where(is_good, self._good + 1, 0)
        self.faults += int((~is_good).sum())
        self.is_trusted = is_good & (self.is_trusted | (self._good >= self._recover))
        return self.is_trusted


class Rescue:
    """Which functions are in a state that their agents do not get them out of.

    Where a long queue has built up, what an agent earns hardly depends on what it does, and it may never have learnt to
    leave. Who is over `times` its SLO for two periods in a row falls to the rule, until it is within the SLO again.

    Args:
        functions: How many there are.
        times: See above; 0 rescues nobody.
    """

    def __init__(self, functions: int, times: float) -> None:
        self._times = times
        self._was_late: Flags = np.zeros(functions, np.bool_)
        self.is_rescued: Flags = np.zeros(functions, np.bool_)

    def judge(self, over_slo: NDArray[np.float64]) -> Flags:
        """Note each function's latency over its SLO; says who is rescued."""
        is_late = (over_slo > self._times) & (self._times > 0)
        self.is_rescued = (self.is_rescued & (over_slo > 1)) | (is_late & self._was_late)
        self._was_late = is_late
        return self.is_rescued


class Recall:
    """What was last measured of each function: it stands in for a while where a measure is missing.

    Args:
        functions: How many there are.
        stale_periods: For how many periods a measure can stand in; at least 0.
    """

    def __init__(self, functions: int, stale_periods: int) -> None:
        self._last = np.zeros((len(fields(Measures)), functions))
        self._age = np.full(functions, stale_periods + 1)
        self._stale = stale_periods

    def fill(self, measures: Measures) -> tuple[Measures, Flags, Flags]:
        """The measures with what is remembered in the gaps; who was measured now; of whom anything is known.

        A gap is a number that is not finite. All numbers of a function of which nothing is known are zero.
        """
        names = [field.name for field in fields(Measures)]
        rows = np.stack([getattr(measures, name) for name in names]).astype(float)
        is_measured: Flags = np.isfinite(rows).all(axis=0)
        self._age = np.where(is_measured, 0, self._age + 1)
        self._last = np.where(is_measured, rows, self._last)
        is_known: Flags = self._age <= self._stale
        filled = np.where(is_known, self._last, 0.0)
        return Measures(**dict(zip(names, filled, strict=True))), is_measured, is_known
