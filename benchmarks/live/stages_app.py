"""Five stages, three short and two long, that all need a core: what a small machine has to share."""

from time import process_time

from fairlead import App


def _work(seconds: float) -> None:
    end = process_time() + seconds
    while process_time() < end:
        pass


app = App("stages")


@app.function()
def parse(value: object) -> object:
    _work(0.0002)
    return value


@app.function(batch=8)
def embed(values: list[object]) -> list[object]:
    _work(0.002 + 0.0005 * len(values))
    return values


@app.function()
def select(value: object) -> object:
    _work(0.0002)
    return value


@app.function(batch=8)
def score(values: list[object]) -> list[object]:
    _work(0.003 + 0.0005 * len(values))
    return values


@app.function()
def render(value: object) -> object:
    _work(0.0001)
    return value


app.workflow("five", parse >> embed >> select >> score >> render, slo="150ms", example=1)
