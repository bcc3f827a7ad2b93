"""The resource manager: for a workflow and its SLO, the configurations that Bayesian optimisation finds."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf, log

import numpy as np

from fairlead.model import Configuration, Workflow
from fairlead.planning.bayesian import Choice, Effort, Space, optimise
from fairlead.policy.aquatope.trial import P95_DEVIATIONS, Option, Subject, run
from fairlead.policy.base import Site
from fairlead.policy.kit.options import Options

_TINY = 1e-12  # logarithms are taken of times and costs, which may be declared as 0


@dataclass(frozen=True)
class Trained:
    """What was chosen: a configuration for each function of the workflow, and the latency that was seen with them."""

    configurations: tuple[Configuration, ...]
    latency_s: float


def subject(workflow: Workflow, site: Site, known: Mapping[str, Options]) -> Subject:
    """What there is to know of a workflow before it runs: declared times and costs, in every configuration."""
    options = []
    for name in workflow.functions:
        estimate, own = site.profiles[name], known[name]
        rows = zip(own.configurations, own.latency_s, own.cost_usd, strict=True)
        means = [estimate.latency_s(configuration) for configuration in own.configurations]
        options.append(
            tuple(
                Option(configuration, mean_s, (upper_s - mean_s) / P95_DEVIATIONS, cost_usd)
                for mean_s, (configuration, upper_s, cost_usd) in zip(means, rows, strict=True)
            )
        )
    return Subject(workflow, tuple(options))


def space_of(subject: Subject) -> Space:
    """Batch, vCPUs and vGPUs of every function as coordinates."""
    return Space.of(
        [
            [(o.configuration.batch, o.configuration.vcpus, o.configuration.vgpus) for o in options]
            for options in subject.options
        ]
    )


@lru_cache(maxsize=256)  # pure: the same workflow is trained again for every load that it is run under
def train(subject: Subject, effort: Effort, samples: int, seed: int) -> Trained:
    """The cheapest configurations seen with which the 95th percentile of latency meets the SLO."""
    rng = np.random.default_rng(seed)
    slo_s = subject.workflow.slo.latency_s

    seen_s: dict[Choice, float] = {}

    def observe(choice: Choice) -> tuple[float, float]:
        seen = run(subject, choice, samples, rng)
        seen_s[choice] = seen.latency_s
        excess = -1.0 if slo_s == inf else log(max(seen.latency_s, _TINY) / slo_s)
        return log(max(seen.cost_usd, _TINY)), excess

    best = optimise(observe, space_of(subject), rng, effort).best
    chosen = tuple(options[i].configuration for options, i in zip(subject.options, best.choice, strict=True))
    return Trained(chosen, seen_s[best.choice])
