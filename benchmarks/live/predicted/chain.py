"""A chain of three short stages that only compute: about 1, 2 and 1 ms of one core."""

from fairlead.app import App

app = App("chain")


def _spin(rounds: int, start: int) -> int:
    total = start
    for i in range(rounds):
        total = (total * 31 + i) % 1_000_003
    return total


@app.function()
def clean(value: int) -> int:
    """About 1 ms."""
    return _spin(22_000, value)


@app.function()
def score(value: int) -> int:
    """About 2 ms."""
    return _spin(44_000, value)


@app.function()
def label(value: int) -> int:
    """About 1 ms."""
    return _spin(22_000, value)


app.workflow("main", clean >> score >> label, slo="40ms", example=1)
