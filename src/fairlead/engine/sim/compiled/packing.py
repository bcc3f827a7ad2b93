"""Many environments in one block of memory: a table of addresses each, and a row each of what a run changes.

What is declared is shared. A row begins with its *head*, which a reset copies back from the pristine one; behind it lie
the arrays that need no cleaning: events, arrivals, instances, requests.
"""

from dataclasses import dataclass
from itertools import count as _numbers
from math import inf

import numpy as np
from numpy.typing import NDArray

from fairlead.engine.sim.compiled import layout as at
from fairlead.engine.sim.compiled.lower import Lowered
from fairlead.engine.sim.compiled.memory import Array

_f = _numbers(at.FIELDS)

# --- fields that an environment has beside those of `layout`
OWN = next(_f)  # whole numbers by the positions below; a reset leaves them
OWN_REALS = next(_f)  # likewise real numbers
HEAD = next(_f)
HEAD_REALS = next(_f)
PRISTINE = next(_f)
PRISTINE_REALS = next(_f)
FIRST_AT = next(_f)  # events that every episode begins with
FIRST_ORDER = next(_f)
FIRST_WHAT = next(_f)
CHANCES = next(_f)  # by workflow: share of the arrivals that are its own or of one before it
DRAW_KIND = next(_f)  # by (workflow, draw): how it is drawn
DRAW_SIGMA = next(_f)
FREE_SCALE = next(_f)  # by node: one over its vCPUs
GPU_SCALE = next(_f)  # by node: one over its vGPUs; empty without devices
SLO_SCALE = next(_f)  # by workflow: one over its SLO
WARM_SCALE = next(_f)  # by (function, node): one over how many instances fit there
OBSERVATION = next(_f)  # of single precision
ENVIRONMENT_FIELDS = next(_f)

# --- positions in OWN
_c = _numbers()
RANDOM = next(_c)  # state of the generator
SEED = next(_c)
STEPS = next(_c)
MOST_STEPS = next(_c)
IS_OVER = next(_c)  # the next step begins a new episode
EPISODE = next(_c)
REWARDS = next(_c)  # which reward is given
FRONTIER = next(_c)  # instances from here on are not yet linked
INSTANCES = next(_c)  # how many there is room for
REQUESTS = next(_c)
CHUNK = next(_c)  # arrivals that are drawn at once; 0 where they are given
OWN_COUNTS = next(_c)

# --- positions in OWN_REALS
_x = _numbers()
GAP = next(_x)  # mean time between arrivals
DRAWN_UNTIL = next(_x)
PENALTY = next(_x)
OWN_CLOCKS = next(_x)

OPEN_TIME, IN_TIME = range(2)  # rewards
ENDED, CUT_OFF, OUT_OF_ROOM = 1, 2, 3  # how an episode ended
LONGEST = 10.0  # waiting, and being late, are shown up to so many SLOs
CROWD = 16.0  # when so many wait, the queue is shown as one half

_LINE = 8  # words of a cache line
_CHUNK = 16  # arrivals drawn at once

_ARRIVALS = (at.ARRIVAL_AT, at.ARRIVAL_WORKFLOW, at.ARRIVAL_DRAWS)
_UNCLEANED = {  # what is read of them was written in the same episode
    *(field for field in at.COLUMN if at.COLUMN[field][0][0] in (at.I_STATE, at.R_ID, at.T_STAGE, at.EVENT_AT)),
    *(at.READY_NOW, at.FINISHED_NOW, at.EXPIRED_NOW, at.PREWARM_NOW, at.FRESH, at.R_DRAWS, *_ARRIVALS),
}
_DECLARED = {
    *range(at.NODE_TOTAL, at.QUEUE_SIBLING + 1),
    *(at.SHAPE_CLOCK, at.CLOCK_LOAD, at.KEY_FUNCTION, at.NODE_CORES, at.PRESSURE_NODE, at.PRESSURE),
} - {at.SHAPE_BLOCKED, at.SHAPE_CORRECTION, at.SHAPE_SEEN}


@dataclass(frozen=True, eq=False, kw_only=True)
class Drawing:
    """How arrivals are drawn: mean gap, which workflow's, and the factors of each. Rows are laid end to end."""

    gap_s: float
    chances: NDArray[np.float64]
    kinds: NDArray[np.int64]
    sigmas: NDArray[np.float64]


class _Row:
    """Hands out places in a row, each at the beginning of a cache line."""

    def __init__(self) -> None:
        self.words = 0
        self.places: dict[int, tuple[int, int, int]] = {}  # by field: first word, length, words from one to the next

    def add(self, group: tuple[int, ...], count: int) -> int:
        """A place for so many records of these fields; gives its first word."""
        first = self.words
        for column, field in enumerate(group):
            self.places[field] = (first + column, count, len(group))
        self.words += -(-count * len(group) // _LINE) * _LINE
        return first


class Pack:
    """So many environments of one scenario. `tables` has a table per environment, for compiled code.

    Args:
        lowered: The scenario, about to begin; its fields that a run changes are copied, the others are used.
        environments: How many.
        observation: How many numbers each shows.
        drawing: How arrivals and their luck are drawn; None where they are listed in `lowered`.
        scales: What turns free vCPUs, free vGPUs and warm instances into shares.
        rows: How many requests can end at one instant, where they are counted; else 0.
    """

    def __init__(
        self,
        lowered: Lowered,
        environments: int,
        *,
        observation: int,
        drawing: Drawing | None,
        scales: dict[str, NDArray[np.float64]],
        rows: int = 0,
    ) -> None:
        chunk = 0 if drawing is None else _CHUNK
        shared: dict[int, Array] = {  # what all environments read
            FREE_SCALE: scales["free"],
            SLO_SCALE: 1 / lowered.memory[at.WORKFLOW_SLO],
            GPU_SCALE: scales["gpu"],
            WARM_SCALE: scales["warm"],
        }
        if drawing is not None:
            shared |= {CHANCES: drawing.chances, DRAW_KIND: drawing.kinds, DRAW_SIGMA: drawing.sigmas}
        memory = lowered.memory
        c, blocks = memory[at.COUNT], memory.blocks()
        events = int(c[at.EVENTS])
        shared |= {
            FIRST_AT: memory[at.EVENT_AT][:events].copy(),
            FIRST_ORDER: memory[at.EVENT_ORDER][:events].copy(),
            FIRST_WHAT: memory[at.EVENT_WHAT][:events].copy(),
        }
        row = _Row()
        row.add((OWN,), OWN_COUNTS)
        row.add((OWN_REALS,), OWN_CLOCKS)
        copied: list[tuple[int, Array]] = []  # what a reset restores: its first word, and how it was
        for mine, pristine, kind in ((HEAD, PRISTINE, "i"), (HEAD_REALS, PRISTINE_REALS, "f")):
            start = row.words
            for group, block in blocks.items():
                if block.dtype.kind == kind and not _UNCLEANED.issuperset(group):
                    if _DECLARED.issuperset(group):
                        shared |= {field: memory[field] for field in group}
                    else:
                        copied.append((row.add(group, len(block)), block.reshape(-1).view(np.int64)))
            row.places[mine] = (start, row.words - start, 1)
            shared[pristine] = np.zeros(row.words - start, f"{kind}8")
            for first, block in copied:
                if first >= start:
                    shared[pristine].view(np.int64)[first - start :][: len(block)] = block
        counts = shared[PRISTINE][row.places[at.COUNT][0] - row.places[HEAD][0] :]
        counts[at.MORE_ARRIVALS] = chunk > 0
        if rows:
            counts[at.RECORDS], counts[at.REQUEST_ROOM] = at.KEEP_REQUESTS, rows
            counts[at.INVOCATION_ROOM] = counts[at.INSTANCE_ROOM] = at.INFINITE  # none is written
            row.add((at.REQUEST_INTS,), rows * at.REQUEST_INT_COLUMNS)
            row.add((at.REQUEST_REALS,), rows * at.REQUEST_REAL_COLUMNS)
        for group, block in blocks.items():
            if _UNCLEANED.issuperset(group) and group[0] not in _ARRIVALS:
                row.add(group, len(block))
        if chunk:
            row.add((at.ARRIVAL_AT,), chunk)
            row.add((at.ARRIVAL_WORKFLOW,), chunk)
            row.add((at.ARRIVAL_DRAWS,), chunk * int(c[at.DRAWS]))
        else:
            shared |= {field: memory[field] for field in _ARRIVALS}
        self._shared, self._blocks = shared, blocks

        # An odd number of lines apart: rows a power of two apart would all fall on the same few lines of a cache.
        self._width = row.words + _LINE * (1 - row.words // _LINE % 2)
        self._places = row.places
        self._rows = zeros(environments * self._width).reshape(environments, self._width)
        self.observations = np.zeros((environments, observation), np.float32)
        for first, block in copied:
            self._rows[:, first : first + len(block)] = block
        self.own = self._rows[:, :OWN_COUNTS]
        start = row.places[OWN_REALS][0]
        self.own_reals = self._rows[:, start : start + OWN_CLOCKS].view(np.float64)
        self.own[:, INSTANCES], self.own[:, REQUESTS] = c[at.INSTANCE_SLOTS], c[at.REQUEST_SLOTS]
        self.own[:, CHUNK] = chunk
        self.own_reals[:, GAP] = inf if drawing is None else drawing.gap_s
        self.tables = self._make_tables(environments)
        self.apart = int(self.tables.strides[0])

    def _make_tables(self, environments: int) -> NDArray[np.int64]:
        words = 2 * ENVIRONMENT_FIELDS
        words = -(-words // _LINE) * _LINE
        words += _LINE * (1 - words // _LINE % 2)
        tables = zeros(environments * words).reshape(environments, words)
        tables[:, : 2 * ENVIRONMENT_FIELDS : 2] = _NOTHING.ctypes.data
        for field, array in self._shared.items():
            tables[:, 2 * field], tables[:, 2 * field + 1] = array.ctypes.data, len(array)
        bases = self._rows.ctypes.data + 8 * self._width * np.arange(environments)
        for field, (start, count, _) in self._places.items():
            tables[:, 2 * field], tables[:, 2 * field + 1] = bases + 8 * start, count
        width = self.observations.shape[1]
        tables[:, 2 * OBSERVATION] = self.observations.ctypes.data + 4 * width * np.arange(environments)
        tables[:, 2 * OBSERVATION + 1] = width
        return tables

    def address(self, environment: int) -> int:
        """What compiled code takes for an environment."""
        return int(self.tables[environment].ctypes.data)

    def read(self, environment: int, field: int) -> Array:
        """A field of an environment as an array, to look at."""
        if field in self._shared:
            return self._shared[field]
        start, count, apart = self._places[field]
        values = self._rows[environment, start : start + count * apart : apart]
        return values.view(np.float64) if field in at.REALS or field == at.CLOCK else values

    def seed(self, environment: int, seed: int) -> None:
        """Begin its random numbers anew."""
        self.own[environment, SEED], self.own[environment, EPISODE] = random_state(seed), 0

    def settle(self, *, steps: int, rewards: int, penalty: float) -> None:
        """How long an episode is, and what is rewarded."""
        self.own[:, MOST_STEPS], self.own[:, REWARDS] = steps, rewards
        self.own_reals[:, PENALTY] = penalty

    @property
    def endings(self) -> NDArray[np.int64]:
        """How the episode of each environment ended; 0 while it goes on."""
        return self.own[:, IS_OVER]

    @property
    def last_rewards(self) -> NDArray[np.float64]:
        """What each was given last."""
        return self._rows[:, self._places[at.CLOCK][0] + at.REWARD].view(np.float64)

    def totals(self, environment: int) -> tuple[int, int, float]:
        """Of the episode so far: cold starts, requests that were answered, and the sum of their latencies."""
        c, x = self.read(environment, at.COUNT), self.read(environment, at.CLOCK)
        return int(c[at.COLD_STARTS]), int(c[at.COMPLETED]), float(x[at.LATENCY_SUM])


def random_state(seed: int | list[int]) -> np.int64:
    """Where the generator of an environment starts."""
    return np.random.SeedSequence(seed).generate_state(1, np.uint64).view(np.int64)[0]


_NOTHING = np.zeros(1, np.int64)


def zeros(words: int) -> NDArray[np.int64]:
    """Zeros that begin with a cache line."""
    raw = np.zeros(words + _LINE, np.int64)
    return raw[-raw.ctypes.data % 64 // 8 :][:words]
