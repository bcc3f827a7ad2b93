"""Run the nine settings of the fork family under five policies."""

from collections.abc import Iterator

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import Claim
from fairlead.experiments.esg_table import judge_table, reproduce
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """The table of esg-hit-rate, on graphs that are no chains."""
    return reproduce(
        "esg-forks",
        "ESG and its rivals on forks, joins and branches: three objectives, three loads",
        read_settings(__package__),
        quick,
        progress,
        (
            "The published applications are chains. These workflows are ours: the shapes that are claimed are those "
            "of the chains, and no paper has claimed them here.",
            "Loads keep as many vGPUs busy, at the minimum configuration, as those of esg-hit-rate.",
        ),
    )


def judge(rows: Rows) -> Iterator[Claim]:
    """The same shapes; no paper has them for these workflows."""
    return judge_table(read_settings(__package__), rows, "own")
