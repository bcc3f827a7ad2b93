"""A simulation that somebody else brings from instant to instant: an environment, in which an agent acts in between.

```python
run = Stepped(scenario, seed=0)
run.order(Scale("framer", 1), Move("framer", "w02"))
request = run.send("video", at=run.now + 18)
end = run.wait(request, most_s=600)
```
"""

from collections import Counter
from math import inf

from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.sim.driver import Simulation
from fairlead.model import Refusal, Request
from fairlead.policy import make_policy
from fairlead.policy.base import Move, Resize, Retire, Scale, View, Warm
from fairlead.workload import Scenario


class Stepped:
    """One run of a scenario under its dispatcher; whoever holds it scales, sends requests and sets pressure.

    The scenario's own scaler and arrivals are left out.
    """

    def __init__(self, scenario: Scenario, *, seed: int = 0) -> None:
        choice = scenario.policy
        policy = make_policy(choice.name, choice.parameters)
        self._run = run = Simulation(scenario, (choice.name, policy), (None, None), seed, None, ())
        self._ends: dict[int, float] = {}
        self._sent: Counter[str] = Counter()  # by workflow
        for effect in (fx.Answer, fx.Refuse):
            run.act[effect] = self._ended
        run.loops, run.arrivals = [], iter(())
        run.open()
        run.coming = 1  # there may always come another

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self._run.controller.now

    @property
    def view(self) -> View:
        """The cluster as a policy sees it."""
        return self._run.controller.decisions.view

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Orders that could not be carried out, with the reason."""
        return tuple(self._run.controller.decisions.refusals)

    def order(self, *actions: Warm | Retire | Scale | Resize | Move) -> None:
        """Carry these out now, one after the other."""
        for action in actions:
            self._run.push(self.now, ev.Ordered(action))
        self.advance(self.now)

    def press(self, node: str, pressure: float) -> None:
        """From now on, load from outside takes this share of a node."""
        self._run.faults += 1
        self._run.push(self.now, ev.Pressure(node, pressure))
        self.advance(self.now)

    def send(self, workflow: str, at: float, slo_s: float | None = None) -> int:
        """Let a request come at an instant, with an objective of its own or that of its workflow; gives its id.

        Instants must not fall from one request of a workflow to the next: their luck is that of their numbers.
        """
        if at < self.now:
            raise ValueError(f"at must not be before now, {self.now}; got {at}.")
        run, slo = self._run, self._run.scenario.workflows[workflow].slo
        id, run.next_request = run.next_request, run.next_request + 1
        deadline = at + (slo.latency_s if slo_s is None else slo_s)
        run.coming += 1
        items = run.physics.admit(id, self._sent[workflow], workflow)
        self._sent[workflow] += 1
        run.push(at, ev.Arrived(Request(id, workflow, at, deadline, slo.cost_usd), items))
        return id

    def advance(self, until: float) -> None:
        """Let everything happen up to and at an instant."""
        self._run.loop(None, until)
        self._run.controller.now = max(self._run.controller.now, until)

    def wait(self, request: int, most_s: float = inf) -> float | None:
        """Let everything happen until a request has ended, or so long; gives the instant of its end.

        None where it has not: time has then passed, unless without a limit there was nothing left to happen.
        """
        limit = self.now + most_s
        while request not in self._ends:
            at = min(self._run.heap[0][0], self._run.controller.next_wake)
            if at > limit or at == inf:
                if limit < inf:
                    self.advance(limit)
                break
            self._run.loop(None, at)
        return self._ends.pop(request, None)

    def _ended(self, effect: fx.Answer | fx.Refuse) -> None:
        self._ends[effect.request] = effect.at
