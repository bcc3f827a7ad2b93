"""Run the variants of ESG's setting under five policies."""

from collections.abc import Iterator

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import Claim
from fairlead.experiments.esg_table import judge_table, reproduce
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """The table of esg-hit-rate where GPU shares are MIG slices, MPS fractions or turns, and where the load wanders."""
    return reproduce(
        "esg-sharing",
        "ESG and its rivals on MIG slices, under MPS, by time slicing, and with a load that wanders",
        read_settings(__package__),
        quick,
        progress,
        (
            "MIG: slices of 1, 2, 3, 4 and 7 that are cut anew only while a GPU is idle, in 2 s; a warm container "
            "keeps its slice. MPS: runs on a GPU slow each other down by up to a fifth. Time slicing: they take turns.",
        ),
    )


def judge(rows: Rows) -> Iterator[Claim]:
    """Whether ESG still has the highest hit rate; not published."""
    return judge_table(read_settings(__package__), rows, "own")
