"""The same instants to a fresh controller: it must write the same rows, to the last digit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.engine.core.books import Rows
from fairlead.engine.core.controller import Controller
from fairlead.engine.core.site import prepare
from fairlead.engine.live.fallback import fall_back
from fairlead.errors import ConfigError, Fault, PolicyError
from fairlead.model import INSTANCE_SCHEMA, INVOCATION_SCHEMA, REQUEST_SCHEMA
from fairlead.policy import Policy, make_policy
from fairlead.replay.logged import LoggedRun, Row
from fairlead.workload import PolicyChoice

_COLUMNS: Mapping[str, Sequence[str]] = {
    "requests": tuple(REQUEST_SCHEMA),
    "invocations": tuple(INVOCATION_SCHEMA),
    "instances": tuple(INSTANCE_SCHEMA),
}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first row that is not the same: in which table, at which place, and what each says (None: no such row)."""

    table: str
    place: int
    column: str
    recorded: object
    replayed: object

    def __str__(self) -> str:
        where = f"{self.table}, row {self.place}"
        if self.column:
            return f"{where}, {self.column}: recorded {self.recorded!r}, replayed {self.replayed!r}"
        missing = "replay" if self.replayed is None else "recording"
        return f"{where}: not in the {missing}: {self.replayed if self.recorded is None else self.recorded!r}"


def check_exactly(run: LoggedRun) -> Difference | None:
    """The first difference between what was recorded and what a fresh controller does with the same events.

    Raises ConfigError if the run has lost its beginning. Of a run that was killed, what is on disk is compared.
    """
    if not run.is_whole:
        message = (
            "its oldest segments are gone, and an exact replay begins at the beginning. Replay it without --exact."
        )
        raise ConfigError(str(run.folder), [Fault("", message)])
    rows = Rows()
    controller = _controller(run, rows)
    for now, events in run.instants:
        try:
            controller.handle(now, events)
        except PolicyError as error:  # the live runtime let another policy take over, and so must this
            fall_back(controller, error)
    tables = {
        "requests": (run.requests, rows.requests),
        "invocations": (run.invocations, rows.invocations),
        "instances": (run.instances, rows.instances),
    }
    if run.has_ended and any(len(replayed) < len(recorded) for recorded, replayed in tables.values()):
        controller.finish()  # what was open when the run ended has a row as well
    for name, (recorded, replayed) in tables.items():
        found = _difference(name, recorded, replayed, run.has_ended)
        if found is not None:
            return found
    return None


def _controller(run: LoggedRun, rows: Rows) -> Controller:
    scenario, seed = run.head.scenario, run.head.seed
    dispatcher = _made(scenario.policy)
    scaler = _made(scenario.scaler) if scenario.scaler else None
    names = (scenario.policy.name, scenario.scaler.name if scenario.scaler else "scaler")
    prepare((dispatcher, scaler), names, scenario, seed)
    return Controller(
        scenario, dispatcher, scaler, None, names, rows, growable=(), awaits_end=run.head.awaits_end, seed=seed
    )


def _made(choice: PolicyChoice) -> Policy:
    return make_policy(choice.name, choice.parameters)


def _difference(table: str, recorded: Sequence[Row], replayed: Sequence[Row], has_ended: bool) -> Difference | None:
    for place, (was, came) in enumerate(zip(recorded, replayed, strict=False)):
        if was != came:
            for column, old, new in zip(_COLUMNS[table], was, came, strict=False):
                if old != new:
                    return Difference(table=table, place=place, column=column, recorded=old, replayed=new)
    common = min(len(recorded), len(replayed))
    if len(recorded) == len(replayed) or not has_ended:
        return None
    was_more = recorded[common] if len(recorded) > common else None
    came_more = replayed[common] if len(replayed) > common else None
    return Difference(table=table, place=common, column="", recorded=was_more, replayed=came_more)
