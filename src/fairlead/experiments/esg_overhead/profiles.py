"""Made-up profiles of plausible shape: what each configuration of a function takes and costs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]  # a row of (latency_s, cost_usd per job) for each configuration


def draw_profiles(settings: Mapping[str, Any], execution_s: Sequence[float], rng: np.random.Generator) -> list[Table]:
    """One table for each function, which takes so long with batch 1, one vCPU and one vGPU.

    `settings` has `configurations`, the ranges of the `law`, and the price, as in experiment.yaml.
    """
    axes = [np.array(settings["configurations"][name], dtype=np.float64) for name in ("batch", "vcpus", "vgpus")]
    batch, vcpus, vgpus = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
    price = settings["price_usd_per_s"]
    tables = []
    for each_s in execution_s:
        a, beta, gamma, delta = (rng.uniform(*settings["law"][name]) for name in ("a", "beta", "gamma", "delta"))
        latency_s = each_s * (a + (1 - a) * batch**beta * vcpus**-gamma * vgpus**-delta)
        cost_usd = latency_s * (vcpus * price["vcpu"] + vgpus * price["vgpu"]) / batch
        tables.append(np.column_stack([latency_s, cost_usd]))
    return tables
