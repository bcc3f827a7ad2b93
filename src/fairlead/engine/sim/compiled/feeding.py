"""The arrivals of a scenario as chunks: the very instants and random factors that the Python engine sees."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fairlead.engine.sim.arrivals import open_arrivals
from fairlead.engine.sim.draws import Stream
from fairlead.engine.sim.physics import Physics
from fairlead.workload import Scenario
from fairlead.workload.chunks import Chunk

_CHUNK = 1 << 16


def scenario_chunks(
    scenario: Scenario, seed: int, draws: Mapping[str, Sequence[tuple[str, str]]], size: int = _CHUNK
) -> Iterator[Chunk]:
    """The open-loop arrivals of a run; `draws` says what each workflow's requests bring, as `lower` found it."""
    physics = Physics(scenario, seed)
    columns = [[_Column(scenario, physics, name, stage, what) for stage, what in own] for name, own in draws.items()]
    widths = np.array([len(own) for own in columns])
    ordinals = np.zeros(len(columns), np.int64)
    times, workflows = open_arrivals(scenario, seed)
    for first in range(0, len(times), size):
        part = workflows[first : first + size]
        offsets = np.cumsum(widths[part]) - widths[part]
        values = np.empty(int(widths[part].sum()))
        order = np.argsort(part, kind="stable")
        counts = np.bincount(part, minlength=len(columns))
        ends = np.cumsum(counts)
        for workflow in np.flatnonzero(counts):
            mine = order[ends[workflow] - counts[workflow] : ends[workflow]]
            for i, column in enumerate(columns[workflow]):
                values[offsets[mine] + i] = column.take(int(ordinals[workflow]), len(mine))
            ordinals[workflow] += len(mine)
        yield Chunk(times[first : first + size], part, values)


class _Column:
    """One random factor of a workflow's requests, in the order in which they come."""

    def __init__(self, scenario: Scenario, physics: Physics, workflow: str, stage: str, what: str) -> None:
        truth = physics.stage(workflow, stage)
        function = next(s.function for s in scenario.workflows[workflow].stages if s.name == stage)
        stream = truth.spread if what == "spread" else truth.noise
        assert stream is not None
        self._stream: Stream = stream
        self._sigma = scenario.profiles[function].noise if what == "noise" else None

    def take(self, start: int, count: int) -> np.ndarray:
        values = self._stream.take(start, count)
        return values if self._sigma is None else np.maximum(0.05, 1 + self._sigma * values)
