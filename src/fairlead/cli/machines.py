"""The machine that a prediction is for: which file describes it, and which assumptions were not measured."""

from collections.abc import Sequence
from typing import Annotated

import typer

from fairlead.app.load import split_address
from fairlead.app.scenario import measured_beside
from fairlead.app.serving import unmeasured
from fairlead.cli.errors import warn
from fairlead.profile.host import MachineProfile, machine_file, read_machine
from fairlead.workload import Scenario

NO_MACHINE = "none"

Machine = Annotated[
    str | None,
    typer.Option(
        "--machine",
        metavar="FILE",
        show_default=False,
        help="The machine that would serve an app, as `fairlead profile --host` measured it; "
        f"'{NO_MACHINE}' leaves out what a machine costs. Default: this one, if it was measured.",
    ),
]


def machine_of(named: str | None, source: str | None) -> MachineProfile | None:
    """The machine that `--machine` names, or this one where it was measured; none for what is no app."""
    if named == NO_MACHINE or source is None or not is_app(source):
        return None
    if named is not None:
        return read_machine(named)
    here = machine_file()
    return read_machine(here) if here.is_file() else None


def is_app(source: str) -> bool:
    """Whether this names an app file, and no scenario."""
    return split_address(source)[0].suffix == ".py"


def warn_of_extrapolation(source: str, named: str | None, scenarios: Sequence[Scenario]) -> None:
    """Warn of unmeasured assumptions behind the predictions for an app; of the machine, unless it was left out."""
    if is_app(source):
        measured, is_left_out = measured_beside(source), named == NO_MACHINE
        is_known = is_left_out or machine_of(named, source) is not None
        found = (unmeasured(one, measured, is_host_known=is_known) for one in scenarios)
        for note in dict.fromkeys(note for notes in found for note in notes):
            warn(note)
