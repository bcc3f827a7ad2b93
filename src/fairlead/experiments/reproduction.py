"""What an experiment gives: the rows it measured, the claims judged from them, notes and figures."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from fairlead.experiments.claims import Claim
from fairlead.experiments.rows import to_csv


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture of some rows: a file name without its ending, a title, and the SVG text."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A paper's results beside ours. `notes` says how they were obtained and what they depend on.

    An experiment gives everything but the claims; `run_experiment` has them judged from the rows.
    """

    name: str
    title: str
    rows: tuple[Mapping[str, object], ...]
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The result as JSON values, in the shape that `fairlead reproduce --json` writes."""
        return {
            "name": self.name,
            "claims": [asdict(claim) for claim in self.claims],
            "rows": [dict(row) for row in self.rows],
        }

    def to_csv(self) -> str:
        """The rows as a table with a header; what a row does not have is empty."""
        return to_csv(self.rows)
