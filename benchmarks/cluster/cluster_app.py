"""The stages of the cluster benchmark: nothing, three times nothing, and a batch of n that takes 8 + 2n ms.

The nodes have 2, 1 and 1 vCPUs, as the cluster's raylets have: there is room for one instance of each function and no
more, as Ray Serve has one replica of each. A back end that finds its nodes itself does not read them from here.
"""

from time import sleep

from fairlead import App

VCPUS = (2, 1, 1)
BATCHES = (1, 2, 4, 8, 16, 32)

noop, noop3, batched = apps = App("noop"), App("noop3"), App("batched")
for app in apps:
    for number, vcpus in enumerate(VCPUS):
        app.node(f"node-{number}", vcpus=vcpus)


@noop.function(batch=BATCHES, vcpus=2)
def only(values: list[object]) -> list[object]:
    return values


@noop3.function(batch=BATCHES, vcpus=2)
def first(values: list[object]) -> list[object]:
    return values


@noop3.function(batch=BATCHES)
def second(values: list[object]) -> list[object]:
    return values


@noop3.function(batch=BATCHES)
def third(values: list[object]) -> list[object]:
    return values


@batched.function(batch=range(1, 9), vcpus=2)
def stage(values: list[object]) -> list[object]:
    sleep(0.008 + 0.002 * len(values))  # as an accelerator would take: a wait, no work
    return values


noop.workflow("noop", only, example=1)
noop3.workflow("noop3", first >> second >> third, example=1)
batched.workflow("batched", stage, example=1)
