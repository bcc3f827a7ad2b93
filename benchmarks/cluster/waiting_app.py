"""Three stages that wait as for an accelerator, a batch of n for 4 + n ms, with one of them per node of one vCPU."""

from time import sleep

from fairlead import App

app = App("waiting")
BATCHES = (1, 2, 4, 8)


@app.function(batch=BATCHES)
def detect(values: list[object]) -> list[object]:
    sleep(0.004 + 0.001 * len(values))
    return values


@app.function(batch=BATCHES)
def crop(values: list[object]) -> list[object]:
    sleep(0.004 + 0.001 * len(values))
    return values


@app.function(batch=BATCHES)
def classify(values: list[object]) -> list[object]:
    sleep(0.004 + 0.001 * len(values))
    return values


app.workflow("waiting", detect >> crop >> classify, slo="80ms", example=1)
