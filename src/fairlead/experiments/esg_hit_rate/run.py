"""Run the nine settings under five policies."""

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.esg_table import reproduce
from fairlead.experiments.reproduction import Reproduction


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
