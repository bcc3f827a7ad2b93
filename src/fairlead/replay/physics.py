"""How long things take, as a run has shown it: a stand-in for the simulator's modelled times.

A batch takes what one like it took at about that time of the run: drawn from the nearest in time, so that a
machine's slow minutes stay slow, whatever is decided in them. Those that were drawn least often go first: a stall that
happened once is met about once, not by chance thrice or never. A size or a share that never ran is derived: from the
sizes that did, else from the profile, scaled by how far that was off for the function.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fairlead.engine.core.effects import RunBatch, StartInstance
from fairlead.engine.core.events import Outcome, Recalled
from fairlead.engine.sim.physics import Physics
from fairlead.model import Invocation
from fairlead.replay.observed import Batch, Observations, ShareSpans
from fairlead.workload import Scenario

NEAR = 16  # batches among which one is drawn


class EmpiricalPhysics(Physics):
    """Times and outcomes drawn from observations; `near` is among how many that ran at about the same time."""

    def __init__(self, scenario: Scenario, seed: int, observed: Observations, near: int = NEAR) -> None:
        super().__init__(scenario, seed)
        self.has_interference = False  # it is in what was observed
        self.has_overhead = True
        self.has_hits = bool(observed.recalled)
        self._observed = observed
        self._near = near
        self._rng = np.random.default_rng((seed, 1_000_007))
        self._uses: Counter[int] = Counter()  # by identity: how often each was drawn
        self._drawn: dict[int, tuple[float, float]] = {}  # by batch: work and what is spent besides

    def cold_start_s(self, effect: StartInstance) -> float:
        """As one on that node took; as declared, if none was seen."""
        spans = self._observed.cold_starts.get((effect.function, effect.node))
        if spans is None:
            return super().cold_start_s(effect)
        return self._pick(spans.near(effect.at, self._near)).work_s

    def transfer_s(self, effect: RunBatch) -> float:
        """What a batch takes besides its work: moving its values, and waiting to be heard."""
        return self._draw(effect)[1]

    def work_s(self, effect: RunBatch) -> float:
        """How long the function itself takes."""
        drawn = self._draw(effect)
        del self._drawn[effect.batch]
        return drawn[0]

    def recall(self, ready: Sequence[Invocation]) -> list[Recalled]:
        """As the prediction cache did in the run, whoever decides now: what it has does not depend on that much."""
        found = (self._observed.recalled.get((each.request, each.stage, each.item)) for each in ready)
        return [event for event in found if event is not None]

    def outcomes(self, effect: RunBatch) -> tuple[Outcome, ...] | None:
        """As each ended in the run; what did not run then ends as another of its stage did."""
        return tuple([self._outcome(invocation) for invocation in effect.invocations])

    def _draw(self, effect: RunBatch) -> tuple[float, float]:
        drawn = self._drawn.get(effect.batch)
        if drawn is None:
            drawn = self._drawn[effect.batch] = self._spans(effect)
        return drawn

    def _spans(self, effect: RunBatch) -> tuple[float, float]:
        size = len(effect.invocations)
        share = (effect.function, effect.configuration.vcpus, effect.configuration.vgpus)
        spans = self._observed.shares.get((*share, effect.node)) or self._alike(effect)
        if spans is None:
            declared_s = self._observed.declared_s(*share, effect.node, effect.configuration.batch)
            return declared_s * self._observed.factors.get(effect.function, 1.0), 0.0
        same = spans.by_size.get(size)
        if same is not None and len(same.batches) >= min(self._near, len(spans.all.batches)):
            found = self._pick(same.near(effect.at, self._near))
            return found.work_s, found.overhead_s
        found = self._pick(spans.all.near(effect.at, self._near))
        usual_s = spans.mean_s(found.size)
        relative = found.work_s / usual_s if usual_s > 0 else 1.0
        return spans.mean_s(size) * relative, found.overhead_s

    def _alike(self, effect: RunBatch) -> ShareSpans | None:
        """The same share on another node of the same kind, if it ran on one."""
        kind = self._nodes[effect.node].kind
        for node in self._nodes.values():
            if node.kind == kind:
                configuration = effect.configuration
                found = self._observed.shares.get(
                    (effect.function, configuration.vcpus, configuration.vgpus, node.name)
                )
                if found is not None:
                    return found
        return None

    def _pick(self, batches: list[Batch]) -> Batch:
        uses = self._uses
        least = min([uses[id(batch)] for batch in batches])
        fresh = [batch for batch in batches if uses[id(batch)] == least]
        found = fresh[int(self._rng.integers(len(fresh)))] if len(fresh) > 1 else fresh[0]
        uses[id(found)] += 1
        return found

    def _outcome(self, invocation: Invocation) -> Outcome:
        key = (invocation.request, invocation.stage, invocation.item, invocation.attempt)
        found = self._observed.outcomes.get(key)
        if found is not None:
            return found
        others = self._observed.endings.get((invocation.workflow, invocation.stage))
        if not others:  # the stage never ran: as the scenario declares it
            return super()._outcome(invocation)
        return others[int(self._rng.integers(len(others)))]
