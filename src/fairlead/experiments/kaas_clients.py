"""Clients of live KaaS experiments: a vector that goes through one matrix again and again, beside a large table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairlead.kaas import Argument, Buffer, Graph, Kernel, Literal, check_graph
from fairlead.kaas.graph import VERSION
from fairlead.kaas.graphs import Example, gemm_chain

Model = Mapping[str, Any]
"""`n`, the length of the vector; `iterations`, of two products each; `constants_mb`, the size of the one constant.

The matrix is its beginning. The rest is read by no kernel: as of a model with experts, a request needs a part, but all
of it must be there.
"""

_SIDE = 16  # work items along each side of a work group of the shipped gemm


def clients_of(models: Sequence[Model], count: int) -> dict[str, Example]:
    """A number of clients by name, the models dealt in turn; each has a constant of its own."""
    return {f"client-{i + 1}": client_of(models[i % len(models)], i) for i in range(count)}


def client_of(model: Model, seed: int) -> Example:
    """One client; clients of other seeds have another constant and the same graph."""
    n, rng = int(model["n"]), np.random.default_rng(seed)
    table = np.full(int(model["constants_mb"] * 2**20) // 4, seed, np.float32)
    table[: n * n] = (n**-0.5 * rng.standard_normal(n * n)).astype(np.float32)
    sizes = tuple(Literal(type="int32", value=value) for value in (1, n, n))
    products = tuple(
        Kernel(
            name="gemm",
            source="kernels",
            reference="gemm",
            grid=(-(-n // _SIDE), 1),
            block=(_SIDE, _SIDE),
            literals=sizes,
            arguments=(
                Argument(buffer=before, access="read"),
                Argument(buffer="table", access="read"),
                Argument(buffer=after, access="write"),
            ),
        )
        for before, after in (("x", "t"), ("t", "x"))
    )
    graph = Graph(
        version=VERSION,
        name=f"vector-{n}x{model['iterations']}",
        iterations=int(model["iterations"]),
        sources=gemm_chain(size=_SIDE, depth=1).graph.sources,
        buffers=(
            Buffer(name="x", kind="inout", shape=(1, n)),
            Buffer(name="table", kind="constant", shape=table.shape),
            Buffer(name="t", kind="temporary", shape=(1, n)),
        ),
        kernels=products,
    )
    check_graph(graph, graph.name)
    return Example(graph, {"table": table}, {"x": rng.standard_normal((1, n)).astype(np.float32).round(3)})
