"""Why a workflow cannot run now: an operator holds one of its functions at zero instances, or one cannot start."""

from collections.abc import Mapping

from fairlead.app.manifest import Manifest
from fairlead.engine.core.controller import Controller
from fairlead.engine.core.progress import RequestState
from fairlead.engine.live.pool import WarmPool
from fairlead.errors import HeldAtZeroError


class Obstacles:
    """Looks for functions of one app that cannot run."""

    def __init__(self, manifest: Manifest, controller: Controller, pool: WarmPool) -> None:
        self._app = manifest.name
        self._controller = controller
        self._pool = pool
        self._functions = {w.name: frozenset(stage.function for stage in w.stages) for w in manifest.workflows}

    def held_at_zero(self, workflow: str) -> str | None:
        """A function of this workflow that an operator holds at zero instances; None if there is none."""
        if not self._controller.holds:
            return None
        functions = self._functions[workflow]
        return next((function for function in self._controller.holds.at_zero() if function in functions), None)

    def require_instances(self, workflow: str) -> None:
        """Raise HeldAtZeroError if an operator holds a function of this workflow at zero instances."""
        function = self.held_at_zero(workflow)
        if function is not None:
            raise HeldAtZeroError(self._app, workflow, function)

    def of(self, request: RequestState) -> str | None:
        """Why this request cannot go on; None if it can."""
        unable = self._unable()
        if not unable:
            return None
        controller = self._controller
        waiting = controller.waiting.tasks
        for invocation in request.invocations:
            if invocation.function in unable and invocation in waiting:
                return unable[invocation.function]
        for instance in controller.running.values():  # it may also wait for an instance that keeps failing to start
            function = instance.flavour.function.name
            if function in unable and not instance.is_ready and any(task[1] is request for task in instance.tasks):
                return unable[function]
        return None

    def all(self) -> tuple[str, ...]:
        """Every workflow that cannot run now, with the reason, as sentences."""
        unable = self._unable(is_kept=True)
        if not unable:
            return ()
        return tuple(
            f"Workflow {self._app}.{workflow} cannot run: {unable[function]}."
            for workflow, functions in self._functions.items()
            for function in sorted(functions & unable.keys())
        )

    def _unable(self, *, is_kept: bool = False) -> Mapping[str, str]:
        """Why functions cannot run, by name; with `is_kept` only of functions that are started again and again."""
        failing = self._pool.failing(is_kept=is_kept)
        unable = {function: f"function {function} cannot start: {error}" for function, error in failing.items()}
        for function in self._controller.holds.at_zero():
            unable[function] = f"function {function} is held at 0 instances by an operator"
        return unable
