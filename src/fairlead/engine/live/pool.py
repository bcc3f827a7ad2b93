"""The warm pool: how many instances of each function are kept ready, whatever the policy does.

A policy starts instances when it needs them; the pool sees to it that there are some before the first request, and
again after a crash. A function that cannot start is tried again, more and more rarely: the back end backs off.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from sortedcontainers import SortedSet

from fairlead.app.manifest import Manifest
from fairlead.engine.core.controller import Controller
from fairlead.engine.live.clock import REAL, Clock
from fairlead.errors import ConfigError, Fault
from fairlead.policy.base import Move, Resize, Retire, Scale, Warm

_ROUNDING_S = 0.05


class Order(Protocol):
    """Has an action carried out; with `holds`, as an operator's order that policies may not undo."""

    def __call__(self, action: Warm | Retire | Scale | Resize | Move, *, holds: bool = False) -> None:
        """Have it carried out in the next turn."""
        ...


class WarmPool:
    """Counts the instances of every function, and orders those that are missing."""

    def __init__(
        self,
        manifest: Manifest,
        controller: Controller,
        order: Order,
        log: Callable[[str], None],
        clock: Clock = REAL,
    ) -> None:
        self._app = manifest.name
        self._now = clock.now
        self._controller = controller
        self._order = order
        self._log = log
        self._wanted = {spec.name: spec.warm for spec in manifest.functions}
        self._declared = dict(self._wanted)
        self._counts = dict.fromkeys(self._wanted, 0)
        self._names = tuple(self._wanted)
        self._place = {name: place for place, name in enumerate(self._names)}
        self._few = SortedSet()  # places of the functions that have fewer instances than are wanted
        for name in self._names:
            self._weigh(name)
        self._function: dict[int, str] = {}  # by instance
        self._starting: dict[int, float] = {}  # by instance that is not ready: when its start began
        self._failures: dict[str, str] = {}  # by function whose last start failed: why
        self.is_short = False  # whether `keep` has something to look at
        self._is_patient = False
        self._is_scaled = False
        self._unready = {name for name, warm in self._wanted.items() if warm}
        self._filled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fill(self, *, is_patient: bool = False, is_scaled: bool = False) -> None:
        """Order what is missing from the start. A patient pool does not wait for a function that fails to start.

        Where there is a scaler, they are replicas from the start: were they not, its first decision would end them and
        start others, and a function would have none for as long as that takes.
        """
        self.is_short, self._is_patient, self._is_scaled = True, is_patient, is_scaled
        if is_scaled:
            wanted = self._want_nothing()
            for function, instances in wanted.items():
                if instances:
                    self._order(Scale(function, instances))
        self._settle()
        self.keep()

    async def is_filled(self) -> None:
        """Wait until every function has had an instance; ConfigError if one could not start."""
        await self._filled

    def scale(self, function: str, instances: int | None) -> None:
        """Fix the number of a function's instances by an operator's order; None gives the function back.

        Until then neither the pool nor a policy changes it.
        """
        configuration = None
        if not self._is_scaled:
            self._wanted[function] = self._declared[function] if instances is None else 0
            self._weigh(function)
            self.is_short = True
            configuration = None if instances is None else self._controller.view.profile(function).cheapest()
        self._order(Scale(function, instances, configuration), holds=True)

    def move(self, function: str, node: str) -> None:
        """Fix a function's node by an operator's order, and with it the number of its instances; at least 1."""
        found = self._controller.replicas.sets.get(function)
        if found is None or (found.target == 0 and function not in self._controller.holds):
            self.scale(function, max(1, self._counts[function]))
        self._order(Move(function, node), holds=True)

    def failing(self, *, is_kept: bool = False) -> dict[str, str]:
        """Why functions cannot start, by name: the last start failed, and no instance is ready.

        With `is_kept`, only of functions that are started again without a request.
        """
        if not self._failures:
            return {}
        sets = self._controller.replicas.sets
        ready = {function for instance, function in self._function.items() if instance not in self._starting}
        return {
            function: error
            for function, error in self._failures.items()
            if function not in ready
            and not (is_kept and not (sets[function].target if function in sets else self._wanted[function]))
        }

    def ready_instances(self, function: str) -> list[int]:
        """The instances of a function that have started, oldest first."""
        return [i for i, name in self._function.items() if name == function and i not in self._starting]

    def started(self, instance: int, function: str) -> None:
        """An instance is being started."""
        self._function[instance] = function
        self._starting[instance] = self._now()
        self._count(function, 1)

    def adopted(self, instance: int, function: str) -> None:
        """An instance of a former gateway is ready."""
        self._function[instance] = function
        self._count(function, 1)
        self._unready.discard(function)

    def ready(self, instance: int) -> None:
        """An instance has started."""
        self._starting.pop(instance, None)
        function = self._function.get(instance, "")
        self._failures.pop(function, None)
        self._unready.discard(function)
        self._settle()

    def stopped(self, instance: int, error: str | None = None) -> None:
        """An instance is no more; `error` says why, unless it was told to stop."""
        function = self._function.pop(instance, None)
        if function is None:
            return
        began = self._starting.pop(instance, None)
        if began is not None:
            limit_s = self._controller.scenario.functions[function].start_limit_s
            if error is None and self._now() - began >= limit_s - _ROUNDING_S:
                error = f"it did not start within {limit_s:g} s"
            if error is not None:
                self._failures[function] = error
        self._count(function, -1)
        self.is_short = True
        if function in self._unready and not self._filled.done():
            if self._is_patient:
                self._unready.discard(function)
                self._settle()
            else:
                fault = Fault(f"functions.{function}", error or "it was stopped before it was ready")
                self._filled.set_exception(ConfigError(self._app, [fault]))

    def keep(self) -> None:
        """Order one instance that is missing, where there is room; called after every turn while `is_short`.

        One at a time: whether there is room for another is known once the first has taken its own.
        """
        if not self.is_short:
            return
        self.is_short = False
        if self._is_scaled:
            self._check_room()
            return
        view = self._controller.view
        for function in self._lacking():
            self.is_short = True
            configuration = view.profile(function).cheapest()
            # Once each function has started, none is evicted for another that no request has asked for.
            node = view.place(function, configuration, "fresh", evicts=function in self._unready)
            if node is not None:
                self._order(Warm(function, configuration, node))
                return

    def missing(self) -> tuple[str, ...]:
        """The functions that have fewer instances than are to be kept, and wait for room."""
        return tuple(self._lacking()) if self.is_short and not self._is_scaled else ()

    def _lacking(self) -> Iterator[str]:
        """The functions that have fewer instances than are to be kept, those included whose start is held back."""
        for place in self._few:
            function = self._names[place]
            if function not in self._controller.replicas.sets:
                held_back = sum(instance.is_held_back for instance in self._controller.pool.of(function))
                if self._counts[function] + held_back < self._wanted[function]:
                    yield function

    def _count(self, function: str, more: int) -> None:
        self._counts[function] += more
        self._weigh(function)

    def _weigh(self, function: str) -> None:
        """Note whether a function has as many instances as are wanted, lest all be looked at for those that do not."""
        if self._counts[function] < self._wanted[function]:
            self._few.add(self._place[function])
        else:
            self._few.discard(self._place[function])

    def _want_nothing(self) -> dict[str, int]:
        """Keep nothing from now on; gives what was kept."""
        wanted, self._wanted = self._wanted, dict.fromkeys(self._wanted, 0)
        self._few.clear()
        return wanted

    def _check_room(self) -> None:
        """Say so, rather than wait for ever, where not even the first replicas fit."""
        if self._filled.done():
            return
        self.is_short = True  # to be looked at again after the next turn
        # Later adjustments may ask for more while the first replicas still start: then there was room for the first.
        if self._controller.replicas.is_short and self._controller.decisions.adjustments <= 1:
            if self._is_patient:
                self._filled.set_result(None)
                return
            nodes = ", ".join(f"{node.vcpus:g} vCPUs" for node in self._controller.view.nodes)
            what = (
                f"there is no room for the first replicas of every function; there is {nodes}. Give functions smaller "
                "configurations, or let the nodes promise more than they have (--overcommit)."
            )
            self._filled.set_exception(ConfigError(self._app, [Fault("functions", what)]))

    def close(self) -> None:
        """Keep nothing any more."""
        self._want_nothing()
        if not self._filled.done():
            self._filled.cancel()

    def _settle(self) -> None:
        if not self._unready and not self._filled.done():
            self._filled.set_result(None)
