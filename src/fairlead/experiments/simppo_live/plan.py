"""When requests come: rates that wander, drawn once and the same for every scaler."""

from collections.abc import Mapping
from math import pi
from typing import Any

import numpy as np

from fairlead.load import Listed


def arrivals(settings: Mapping[str, Any], duration_s: float, repeat: int) -> dict[str, Listed]:
    """The instants at which each function is called, by its name.

    A Poisson process whose rate is a sine around its mean, a quarter of a period later for each function of four: the
    functions want more in turn, and all of them together about the same all along. Drawn by thinning.
    """
    found = {}
    for place, (name, mean) in enumerate(settings["rates_rps"].items()):
        rng = np.random.default_rng((settings["seed"] + repeat, place))
        most = mean * (1 + settings["swing"])
        times = np.sort(rng.uniform(0.0, duration_s, rng.poisson(most * duration_s)))
        rates = rate_rps(settings, name, times)
        found[name] = Listed(tuple(times[rng.uniform(0.0, most, times.size) < rates].tolist()))
    return found


def rate_rps(settings: Mapping[str, Any], function: str, times: np.ndarray) -> np.ndarray:
    """Requests per second of a function at these instants."""
    names = list(settings["rates_rps"])
    phase = times / settings["swing_s"] - names.index(function) / len(names)
    mean = settings["rates_rps"][function]
    return np.asarray(mean * (1 + settings["swing"] * np.sin(2 * pi * phase)))
