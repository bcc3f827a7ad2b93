"""A process with one thread on a machine's cores: the gateway, or the load generator.

It sleeps until there is something to do, takes a while to wake, and then does one step after the other. Each step takes
CPU time and has its effect when it ends. After a pause its code is out of the caches, and its steps take longer until
it sleeps again, or has been at work for as long as it takes to leave the caches.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf

from fairlead.engine.sim.cores import Cores
from fairlead.profile import Host

Step = tuple[float, Callable[[float], None]]
"""CPU seconds, and what is called with the instant when they are over."""


class Process:
    """Steps in order.

    Args:
        key: Of its task on the cores.
        host: What wake-ups and pauses cost.
        cores: Where it runs.
        at: Has a call made at an instant.
        luck: Draws in [0, 1).
        more: Called with the instant when all steps are done, for more of them; none if there is nothing to do.
    """

    __slots__ = (
        "_at",
        "_cores",
        "_factor",
        "_host",
        "_key",
        "_luck",
        "_more",
        "_slept",
        "_warm",
        "cpu_s",
        "is_asleep",
        "steps",
    )

    def __init__(
        self,
        key: int,
        host: Host,
        cores: Cores,
        at: Callable[[float, Callable[[float], None]], None],
        luck: Callable[[], float],
        more: Callable[[float], None] = lambda now: None,
    ) -> None:
        self._key = key
        self._host = host
        self._cores = cores
        self._at = at
        self._luck = luck
        self._more = more
        self._factor = 1.0
        self._slept = -inf  # since when it sleeps
        self._warm = inf  # from when on its code is in the caches, whatever its last pause was
        self.is_asleep = True
        self.cpu_s = 0.0  # used so far
        self.steps: deque[Step] = deque()

    def rouse(self, now: float) -> None:
        """Let it see what there is to do, as soon as it is awake."""
        if self.is_asleep:
            self.is_asleep = False
            cold = 1 + self._host.cold_factor * self._host.coldness(now - self._slept)
            self._factor = cold * self._host.slowness
            self._warm = now + (self._host.cold_after_s or inf)
            self._at(now + self._host.wakes_s(self._luck(), is_busy=self._cores.is_full), self._next)

    def _next(self, now: float) -> None:
        """Begin the next step; those without CPU time take place at once."""
        while True:
            if not self.steps:
                self._more(now)
                if not self.steps:
                    self.is_asleep, self._slept = True, now
                    return
            cpu_s, call = self.steps.popleft()
            if cpu_s > 0:
                cpu_s *= self._factor if now < self._warm else self._host.slowness
                self.cpu_s += cpu_s
                self._cores.begin(now, self._key, cpu_s, 1.0, partial(self._end, call))
                return
            call(now)

    def _end(self, call: Callable[[float], None], now: float) -> None:
        call(now)
        self._next(now)
