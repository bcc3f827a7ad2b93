"""The stages of the live benchmark as two apps: nothing, three times nothing; and a batch of n that takes 8 + 2n ms.

The batched stage has a node of one vCPU to itself, and so one instance, as the other systems have one replica.
"""

from time import sleep

from fairlead import App

noops = App("noops")
batches = App("batches")
batches.node("one", vcpus=1)


@noops.function(batch=(1, 2, 4, 8, 16, 32))
def first(values: list[object]) -> list[object]:
    return values


@noops.function(batch=(1, 2, 4, 8, 16, 32))
def second(values: list[object]) -> list[object]:
    return values


@noops.function(batch=(1, 2, 4, 8, 16, 32))
def third(values: list[object]) -> list[object]:
    return values


@batches.function(batch=range(1, 9))
def stage(values: list[object]) -> list[object]:
    sleep(0.008 + 0.002 * len(values))  # as an accelerator would take: a wait, no work
    return values


noops.workflow("noop", first, example=1)
noops.workflow("noop3", first >> second >> third, example=1)
batches.workflow("batched", stage, example=1)
