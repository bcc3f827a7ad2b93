"""What an experiment gives: claims with the paper's figure and ours, and the tables they come from."""

import csv
import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One published statement. `note` says why it is not met, or under which reading it is."""

    claim: str
    paper: object
    ours: object
    met: bool
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture of some rows: a file name without its ending, a title, and the SVG text."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A paper's results beside ours. `notes` says how they were obtained and what they depend on."""

    name: str
    title: str
    claims: tuple[Claim, ...]
    rows: tuple[Mapping[str, object], ...]
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
        columns = list(dict.fromkeys(key for row in self.rows for key in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()
