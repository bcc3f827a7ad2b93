"""One batched stage that waits: a batch of n takes 8 + 2n ms, and no CPU time."""

import time

from fairlead.app import App

app = App("sleeping")


@app.function(batch=(1, 2, 4, 8), batched=True)
def work(values: list[int]) -> list[int]:
    """As an accelerator would: the CPU is free meanwhile."""
    time.sleep(0.008 + 0.002 * len(values))
    return values


app.workflow("main", work, slo="100ms", example=1)
