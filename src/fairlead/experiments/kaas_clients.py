"""Clients of live KaaS experiments: a perceptron each, beside constants that a request does not read in full."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from fairlead.kaas import check_graph
from fairlead.kaas.graphs import Example, mlp

Model = Mapping[str, Any]
"""`layers` of the perceptron, and `constants_mb` in all. What its layers leave is a table in the buffer of its first
weights, as a model has experts or embeddings of which a request needs few."""


def clients_of(models: Sequence[Model], count: int) -> dict[str, Example]:
    """So many clients by name, the models dealt in turn; each has constants of its own."""
    return {f"client-{i + 1}": client_of(models[i % len(models)], i) for i in range(count)}


def client_of(model: Model, seed: int) -> Example:
    """One client; clients of other seeds have other constants and the same graph."""
    example = mlp(tuple(model["layers"]), rows=1, seed=seed)
    kept = sum(value.nbytes for value in example.constants.values())
    more = max(0, int(model["constants_mb"] * 2**20) - kept) // 4
    first, *_ = example.constants
    table = np.concatenate([example.constants[first].ravel(), np.full(more, seed, np.float32)])
    buffers = tuple(replace(b, shape=table.shape) if b.name == first else b for b in example.graph.buffers)
    graph = replace(example.graph, buffers=buffers)
    check_graph(graph, graph.name)
    return Example(graph, {**example.constants, first: table}, example.inputs)
