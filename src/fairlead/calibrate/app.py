"""What is served to measure a machine: functions that do nothing, and one that only computes."""

from fairlead.app import App

app = App("calibration")


@app.function()
def one(value: object) -> object:
    """Nothing."""
    return value


@app.function()
def two(value: object) -> object:
    """Nothing."""
    return value


@app.function()
def three(value: object) -> object:
    """Nothing."""
    return value


@app.function()
def four(value: object) -> object:
    """Nothing."""
    return value


@app.function(batch=(1, 8, 32), batched=True)
def many(values: list[object]) -> list[object]:
    """Nothing, to several at once."""
    return values


@app.function()
def spin(rounds: int) -> int:
    """About 0.05 microseconds of one core for each round."""
    total = 0
    for i in range(rounds):
        total = (total * 31 + i) % 1_000_003
    return total


app.workflow("single", one, slo="10s", example=1)
app.workflow("chain", one >> two >> three >> four, slo="10s", example=1)
app.workflow("many", many, slo="10s", example=1)
app.workflow("spin", spin, slo="10s", example=40_000)
