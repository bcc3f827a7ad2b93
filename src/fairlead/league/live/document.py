"""A live league as values: what was asked for, the apps with their capacities, the cells; and its JSON file."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from fairlead.errors import ConfigError, Fault
from fairlead.league.live.cells import WARM_UP_S
from fairlead.league.live.figures import Figures, LiveCell

FORMAT = 1


class Entrant(msgspec.Struct, frozen=True, kw_only=True):
    """An app of a league. `is_given` says that its capacity was given, not measured; `notes` what was not measured."""

    name: str
    path: str
    capacity_rps: float
    is_given: bool = False
    notes: tuple[str, ...] = ()


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one app at one load. Where `live` or `predicted` is missing, `failure` says why."""

    app: str
    load: float
    policy: str
    live: LiveCell | None = None
    predicted: Figures | None = None
    failure: str = ""

    @property
    def key(self) -> tuple[str, float, str]:
        """What tells it from the other cells."""
        return self.app, self.load, self.policy


class League(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known so far. `machine` tells whose predictions these are; empty if it was not measured."""

    format: int = FORMAT
    seconds: float
    seed: int
    warm_up_s: float = WARM_UP_S
    machine: str = ""
    apps: tuple[Entrant, ...] = ()
    cells: tuple[Cell, ...] = ()

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"format must be {FORMAT}, the only one this version reads; got {self.format}.")

    def entrant(self, name: str) -> Entrant | None:
        """The app of this name, if it is in it."""
        return next((app for app in self.apps if app.name == name), None)

    def with_entrant(self, entrant: Entrant) -> Self:
        """The same with this app, in the place of one of its name."""
        if self.entrant(entrant.name) is None:
            return msgspec.structs.replace(self, apps=(*self.apps, entrant))
        apps = tuple(entrant if app.name == entrant.name else app for app in self.apps)
        return msgspec.structs.replace(self, apps=apps)

    def with_cell(self, cell: Cell) -> Self:
        """The same with this cell, in the place of the one with its key."""
        others = tuple(each for each in self.cells if each.key != cell.key)
        return msgspec.structs.replace(self, cells=(*others, cell))

    def done(self) -> set[tuple[str, float, str]]:
        """The keys of the cells that need not be run again."""
        return {cell.key for cell in self.cells if cell.live is not None}

    def rows(self) -> list[tuple[Entrant, float, list[Cell]]]:
        """The cells of each app at each load, apps in their order, loads rising, the best share in time first."""
        found = []
        for app in self.apps:
            for load in sorted({cell.load for cell in self.cells if cell.app == app.name}):
                cells = [cell for cell in self.cells if (cell.app, cell.load) == (app.name, load)]
                found.append((app, load, sorted(cells, key=_rank)))
        return found

    @property
    def policies(self) -> list[str]:
        """Of all cells, in the order of their first."""
        return list(dict.fromkeys(cell.policy for cell in self.cells))


def _rank(cell: Cell) -> tuple[float, str]:
    return (1.0 if cell.live is None else -cell.live.live.share, cell.policy)


def write_league(league: League, path: Path, more: Sequence[tuple[str, object]] = ()) -> None:
    """Write a league, and what else is said of it, in one step: whoever reads meanwhile finds the former file."""
    document = {**msgspec.to_builtins(league), **dict(more)}
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8", newline="\n")
    os.replace(beside, path)


def read_league(path: Path) -> League:
    """The league in a file that `write_league` wrote. Raises `ConfigError`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=League)
    except OSError as error:
        raise ConfigError(str(path), [Fault("", f"cannot be read: {error.strerror or error}.")]) from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(str(path), [Fault("", f"is no live league: {error}")]) from error
