"""The memory of light environments: see `light`."""

from math import inf

import numpy as np
from numpy.typing import NDArray

from fairlead.engine.sim.compiled import layout as at
from fairlead.engine.sim.compiled import light
from fairlead.engine.sim.compiled.lower import Lowered
from fairlead.engine.sim.compiled.memory import Array, Memory
from fairlead.engine.sim.compiled.packing import Drawing, random_state, zeros

_LINE = 8
_HEAP_FROM = 6  # words: so that the four children of an entry lie in one cache line


def why_not_light(lowered: Lowered) -> str | None:
    """Why a scenario needs the whole core; None if it does not."""
    memory = lowered.memory
    c = memory[at.COUNT]
    flavours = memory[at.SHAPE_FLAVOUR][memory[at.FUNCTION_SHAPE]]
    stages = int(np.diff(memory[at.WORKFLOW_FIRST]).max())
    if c[at.IS_SHARED]:
        return "runs slow each other down"
    if c[at.MOVES_DATA]:
        return "outputs have to be moved"
    if not memory[at.FLAVOUR_WEIGHTLESS][flavours].all():
        return "idle instances hold memory, vCPUs or a slice of a device"
    if len(lowered.nodes) > 1 << light.NODE_BITS:
        return "there are too many nodes"
    if len(lowered.stages) > 1 << light.STAGE_BITS or stages > 64:
        return "there are too many stages"
    if int(c[at.REQUEST_SLOTS]) > 1 << light.SLOT_BITS:
        return "too many requests may be open"
    return None


class LightPack:
    """So many light environments of one scenario.

    Args:
        lowered: The scenario, about to begin; see `why_not_light`.
        environments: How many.
        room: By (function, node), how many instances there can be.
        requests: How many may be open at once.
        observation: How many numbers each shows.
        drawing: How arrivals and their luck are drawn; None where they are listed in `lowered`.
    """

    def __init__(
        self,
        lowered: Lowered,
        environments: int,
        *,
        room: NDArray[np.int64],
        requests: int,
        observation: int,
        drawing: Drawing | None,
        scales: dict[str, NDArray[np.float64]],
    ) -> None:
        memory = lowered.memory
        c = memory[at.COUNT]
        functions, nodes = len(lowered.functions), len(lowered.nodes)
        # Where no stage waits for several others, nobody has to count them.
        words = -(-(1 << int(c[at.STAGE_BITS])) // 8) if memory[at.STAGE_FAN_IN].max() > 1 else 0
        stride = 2 + words + int(c[at.DRAWS])
        stride = -(-stride // _LINE) * _LINE
        line = 1 << (requests * _width(memory)).bit_length()
        running = int(room.max(axis=0).sum())
        self._shared = _shared(lowered, room, words) | scales_by_field(scales)
        if drawing is None:
            self._shared |= {
                light.ARRIVAL_AT: memory[at.ARRIVAL_AT],
                light.ARRIVAL_WORKFLOW: memory[at.ARRIVAL_WORKFLOW],
                light.ARRIVAL_DRAWS: memory[at.ARRIVAL_DRAWS],
            }
        else:
            self._shared |= {
                light.CHANCES: drawing.chances,
                light.DRAW_KIND: drawing.kinds,
                light.DRAW_SIGMA: drawing.sigmas,
            }
        places: dict[int, tuple[int, int]] = {}
        end = -(-2 * (light.FIELDS - light.FIRST_FIELD) // _LINE) * _LINE  # the table itself comes first
        for field, count in (  # what every step looks at comes first
            (light.C, light.COUNTS),
            (light.X, light.CLOCKS),
            (light.FREE, nodes),
            (light.EXPIRY, functions),
            (light.IDLE, functions * nodes),
            (light.OLDEST, functions * nodes),
        ):
            places[field] = (end, count)
            end += -(-count // _LINE) * _LINE
        for one, other, count, offset in (
            (light.LINE_AT, light.LINE_TASK, 2 * line, 0),
            (light.HEAP_AT, light.HEAP_WHAT, 2 * running, _HEAP_FROM),
        ):
            start = end + offset
            places[one], places[other] = (start, count - 1), (start + 1, count - 1)
            end += -(-(count + offset) // _LINE) * _LINE
        for field, count in ((light.SPARE, requests), (light.RING, int(room.sum()))):
            places[field] = (end, count)
            end += -(-count // _LINE) * _LINE
        places[light.R_REALS] = places[light.R_INTS] = (end, requests * stride)
        end += requests * stride
        end += _LINE * (1 - end // _LINE % 2)  # see `packing`
        self._rows = zeros(environments * end).reshape(environments, end)
        self._places = places
        self.observations = np.zeros((environments, observation), np.float32)
        self._fill_tables()
        self.counts = self._rows[:, places[light.C][0] :][:, : light.COUNTS]
        self.clocks = self._rows[:, places[light.X][0] :][:, : light.CLOCKS].view(np.float64)
        for position, value in (
            (light.NODES, nodes),
            (light.FUNCTIONS, functions),
            (light.KINDS, int(c[at.KINDS])),
            (light.UNIT, int(c[at.CPU_UNIT])),
            (light.FACTOR, int(c[at.CPU_FACTOR])),
            (light.DRAWS, int(c[at.DRAWS])),
            (light.STRIDE, stride),
            (light.WORDS, words),
            (light.SLOTS, requests),
            (light.LINE_MASK, line - 1),
            (light.GIVEN, -1 if drawing is not None else int(c[at.ARRIVALS])),
        ):
            self.counts[:, position] = value
        self.clocks[:, light.GAP] = inf if drawing is None else drawing.gap_s
        self.apart = int(self._rows.strides[0])

    def _fill_tables(self) -> None:
        rows, environments, first = self._rows, len(self._rows), light.FIRST_FIELD
        bases = rows.ctypes.data + rows.strides[0] * np.arange(environments)
        for field, array in self._shared.items():
            at_ = 2 * (field - first)
            rows[:, at_], rows[:, at_ + 1] = array.ctypes.data, len(array)
        for field, (start, count) in self._places.items():
            at_ = 2 * (field - first)
            rows[:, at_], rows[:, at_ + 1] = bases + 8 * start, count
        width = self.observations.shape[1]
        at_ = 2 * (light.OBSERVATION - first)
        rows[:, at_] = self.observations.ctypes.data + 4 * width * np.arange(environments)
        rows[:, at_ + 1] = width

    def address(self, environment: int) -> int:
        """What compiled code takes for an environment: where its table would begin if it had the fields of `layout`."""
        return int(self._rows[environment].ctypes.data) - 16 * light.FIRST_FIELD

    def seed(self, environment: int, seed: int) -> None:
        """Begin its random numbers anew."""
        self.counts[environment, light.SEED], self.counts[environment, light.EPISODE] = random_state(seed), 0

    def settle(self, *, steps: int, rewards: int, penalty: float) -> None:
        """How long an episode is, and what is rewarded."""
        self.counts[:, light.MOST_STEPS], self.counts[:, light.REWARDS] = steps, rewards
        self.clocks[:, light.PENALTY] = penalty

    @property
    def endings(self) -> NDArray[np.int64]:
        """How the episode of each environment ended; 0 while it goes on."""
        return self.counts[:, light.IS_OVER]

    @property
    def last_rewards(self) -> NDArray[np.float64]:
        """What each was given last."""
        return self.clocks[:, light.REWARD]

    def totals(self, environment: int) -> tuple[int, int, float]:
        """Of the episode so far: cold starts, requests that were answered, and the sum of their latencies."""
        counts, clocks = self.counts[environment], self.clocks[environment]
        return int(counts[light.COLD_STARTS]), int(counts[light.COMPLETED]), float(clocks[light.LATENCY_SUM])


def scales_by_field(scales: dict[str, NDArray[np.float64]]) -> dict[int, Array]:
    """What turns numbers into shares, as fields."""
    return {light.FREE_SCALE: scales["free"], light.WARM_SCALE: scales["warm"]}


def _width(memory: Memory) -> int:
    """How many stages of a request can wait at once at most: those that are not its only one at a time."""
    width = 1
    for workflow, first in enumerate(memory[at.WORKFLOW_FIRST][:-1]):
        last = memory[at.WORKFLOW_FIRST][workflow + 1]
        is_chain = (memory[at.STAGE_FAN_IN][first:last] <= 1).all() and (
            np.diff(memory[at.STAGE_THEN])[first:last] <= 1
        ).all()
        entries = int(np.diff(memory[at.WORKFLOW_ENTRY])[workflow])
        width = max(width, 1 if is_chain and entries == 1 else int(last - first))
    return width


def _firsts(first: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each stage, the first of its workflow."""
    return np.repeat(first[:-1], np.diff(first))


def _shared(lowered: Lowered, room: NDArray[np.int64], words: int) -> dict[int, Array]:
    memory = lowered.memory
    kinds = int(memory[at.COUNT][at.KINDS])
    shapes = memory[at.FUNCTION_SHAPE]
    first, fan_in = memory[at.WORKFLOW_FIRST], memory[at.STAGE_FAN_IN]
    before = np.zeros((len(first) - 1, words), np.int64)
    for workflow in range(len(first) - 1 if words else 0):
        for i in range(first[workflow + 1] - first[workflow]):
            before[workflow, i >> 3] |= int(fan_in[first[workflow] + i]) << (8 * (i & 7))
    classes = memory[at.FUNCTION_CLASS]
    keep = np.array([inf if c < 0 else memory[at.CLASS_KEEP][c] for c in classes], float)
    shared = {
        light.TOTAL: memory[at.NODE_TOTAL],
        light.KIND: memory[at.NODE_KIND],
        light.RING_FIRST: np.append(0, np.cumsum(room.reshape(-1))),
        light.VCPUS: memory[at.SHAPE_VCPUS][shapes],
        light.BASE: memory[at.SHAPE_BASE].reshape(-1, kinds)[shapes].reshape(-1),
        light.COLD: memory[at.FUNCTION_COLD],
        light.KEEP: keep,
        light.SLO: memory[at.WORKFLOW_SLO],
        light.SLO_SCALE: 1 / memory[at.WORKFLOW_SLO],
        light.FIRST: first,
        light.ENTRY: memory[at.WORKFLOW_ENTRY],
        light.ENTRIES: memory[at.ENTRIES] + np.repeat(first[:-1], np.diff(memory[at.WORKFLOW_ENTRY])),
        light.OPEN_BEFORE: before.reshape(-1),
        light.STAGE_FUNCTION: memory[at.STAGE_FUNCTION],
        light.THEN: memory[at.STAGE_THEN],
        light.SUCCESSORS: memory[at.SUCCESSORS] + np.repeat(_firsts(first), np.diff(memory[at.STAGE_THEN])),
        light.SPREAD: memory[at.STAGE_SPREAD],
        light.NOISE: memory[at.STAGE_NOISE],
        light.WIDTH: memory[at.WORKFLOW_DRAWS],
    }
    return {field: np.ascontiguousarray(array) for field, array in shared.items()}  # columns of records, too
