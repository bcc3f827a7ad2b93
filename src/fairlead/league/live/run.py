"""Runs the cells of a live league in turn, and keeps each when it is done."""

from collections.abc import Callable, Sequence

import msgspec

from fairlead.app.prediction import extrapolations
from fairlead.calibrate.serving import ServingError
from fairlead.errors import FairleadError
from fairlead.league.live.app import LiveApp
from fairlead.league.live.cells import check_app, measure_capacity, predict_cell, run_cell, scenario_under
from fairlead.league.live.document import Cell, Entrant, League
from fairlead.profile import Host

Tell = Callable[[float, str], None]
"""Is told the share of the league that is done, and what is being done."""

Keep = Callable[[League], None]
"""Is given the league whenever something new is in it."""


def unmeasured(app: LiveApp, policies: Sequence[str], host: Host | None) -> list[str]:
    """What the predictions for an app assume because it was never measured, as sentences."""
    found = (extrapolations(scenario_under(app, policy, host), app.measured) for policy in policies)
    return list(dict.fromkeys(note for notes in found for note in notes))


class LiveLeague:
    """A league to be run.

    Args:
        apps: What is served. Their names must differ.
        policies: Who dispatches, one after the other at each load, so that a slow drift of the machine meets all.
        loads: Factors of each app's capacity, the same for all policies.
        league: What is there already, with the settings of all cells; its cells are not run again.
        host: The machine, for the predictions; None where it was not measured.
        capacity_rps: Of every app, instead of measuring it.
    """

    def __init__(
        self,
        apps: Sequence[LiveApp],
        policies: Sequence[str],
        loads: Sequence[float],
        league: League,
        *,
        host: Host | None,
        capacity_rps: float | None = None,
    ) -> None:
        self.league = league
        self._apps = apps
        self._policies = policies
        self._loads = loads
        self._host = host
        self._capacity_rps = capacity_rps
        done = league.done()
        self._to_do = {
            app.name: [
                (load, policy) for load in sorted(loads) for policy in policies if (app.name, load, policy) not in done
            ]
            for app in apps
        }

    @property
    def count(self) -> int:
        """How many cells are to be run."""
        return sum(len(cells) for cells in self._to_do.values())

    def run(self, tell: Tell, keep: Keep) -> None:
        """Run what is not there yet. `league` has what is done, also after an interruption.

        Raises:
            ServingError: An app is not served at all, or one of its workflows does not answer.
        """
        for app in self._apps:  # all of them before the first cell, so that one that cannot be served is told at once
            if self._to_do[app.name]:
                tell(0.0, f"{app.name}: capacity")
                self.league = self.league.with_entrant(self._entrant(app))
                keep(self.league)
        todo = [(app, load, policy) for app in self._apps for load, policy in self._to_do[app.name]]
        for done, (app, load, policy) in enumerate(todo):

            def part(share: float, before: int = done, text: str = f"{app.name} x{load:g} {policy}") -> None:
                tell((before + share) / len(todo), text)

            part(0.0)
            self.league = self.league.with_cell(self._cell(app, load, policy, part))
            keep(self.league)

    def _entrant(self, app: LiveApp) -> Entrant:
        known = self.league.entrant(app.name)
        given = self._capacity_rps
        if known is not None and given in (None, known.capacity_rps):
            return known
        if given is None:
            capacity_rps = measure_capacity(app)
        else:
            check_app(app)
            capacity_rps = given
        notes = tuple(unmeasured(app, self._policies, self._host))
        return Entrant(name=app.name, path=app.path, capacity_rps=capacity_rps, is_given=given is not None, notes=notes)

    def _cell(self, app: LiveApp, load: float, policy: str, part: Callable[[float], None]) -> Cell:
        league = self.league
        entrant = league.entrant(app.name)
        assert entrant is not None
        rate_rps = load * entrant.capacity_rps
        cell = Cell(app=app.name, load=load, policy=policy)
        try:
            live = run_cell(
                app, policy, rate_rps, league.seconds, league.seed, warm_up_s=league.warm_up_s, progress=part
            )
            cell = msgspec.structs.replace(cell, live=live)
        except ServingError as error:
            return msgspec.structs.replace(cell, failure=str(error))
        try:
            predicted = predict_cell(
                app,
                policy,
                rate_rps,
                league.seconds,
                league.seed,
                host=self._host,
                spin_s=live.spin_s,
                warm_up_s=league.warm_up_s,
            )
        except FairleadError as error:
            return msgspec.structs.replace(cell, failure=f"not predicted: {error}")
        return msgspec.structs.replace(cell, predicted=predicted)
