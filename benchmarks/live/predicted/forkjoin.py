"""A fork and a join around two stages of about 3 ms of numpy work each."""

import numpy as np

from fairlead.app import App, fork

app = App("forkjoin")


def _sorted(seed: int) -> float:
    values = np.random.default_rng(seed).random(60_000)
    values.sort()
    return float(values[1000])


@app.function()
def spread(seed: int) -> int:
    """Almost nothing."""
    return seed + 1


@app.function()
def left(seed: int) -> float:
    """About 3 ms."""
    return _sorted(seed)


@app.function()
def right(seed: int) -> float:
    """About 3 ms."""
    return _sorted(seed + 7)


@app.function()
def merge(parts: list[float]) -> float:
    """Almost nothing."""
    return sum(parts)


app.workflow("main", spread >> fork(left, right) >> merge, slo="60ms", example=3)
