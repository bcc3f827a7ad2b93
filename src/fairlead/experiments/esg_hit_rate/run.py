"""Run the nine settings under five policies."""

from collections.abc import Iterator

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import Claim
from fairlead.experiments.esg_table import judge_table, reproduce
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Hit rate and cost, normalised to ESG."""
    return reproduce(
        "esg-hit-rate",
        "ESG and its rivals: three objectives, three loads",
        read_settings(__package__),
        quick,
        progress,
        (
            "Models, times, chains, arrival intervals and prices are recalled, not from the paper; see the scenario "
            "esg-recalled. How time scales with batch, vCPUs and vGPUs is ours, in the range of published profiles.",
            "Every policy plans with the same numbers: the time that 95 % of runs keep, the same prices.",
            "Cost is per 1,000 requests, of what runs; neither cold starts nor idle containers are billed, to anyone.",
        ),
    )


def judge(rows: Rows) -> Iterator[Claim]:
    """What the slides claim."""
    return judge_table(read_settings(__package__), rows, "reproduction")
