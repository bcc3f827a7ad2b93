"""Export: a tinygrad model as a graph that gives the same bits."""

import asyncio

import numpy as np
import pytest

pytest.importorskip("tinygrad", reason="needs the extra kaas-export: pip install 'fairlead[kaas-export]'")

from fairlead.kaas import Request, graph_json, parse_graph
from fairlead.kaas.errors import ExportError
from fairlead.kaas.export import export_graph

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def tensors(*arrays):
    from tinygrad import Tensor  # noqa: PLC0415 - an optional library, and its device must be chosen before

    return [Tensor(array).realize() for array in arrays]


WEIGHTS = floats(64, 32), floats(32), floats(32, 10), floats(4, 1, 3, 3)


def dense(x, z):
    w, b, v, _ = tensors(*WEIGHTS)
    return (((x @ w + b).relu() + z) @ v).softmax()


def convolution(image):
    filters = tensors(WEIGHTS[3])[0]
    return image.conv2d(filters, padding=1).relu().max_pool2d().flatten(1), image.sum()


@pytest.mark.parametrize(
    ("model", "inputs"),
    [(dense, {"x": floats(8, 64), "z": floats(8, 32)}), (convolution, {"image": floats(1, 1, 16, 16)})],
    ids=["dense", "convolution"],
)
def test_exported_graph_gives_the_bits_of_the_library(desk, model, inputs):
    exported = export_graph(model, inputs, model.__name__)
    graph = parse_graph(graph_json(exported.graph))
    for name, value in exported.constants.items():
        desk.values.put("t", graph.key_of(graph.by_name[name]), value)

    async def go():
        async with desk.executor("opencl:0") as executor:
            return await executor.run(Request(tenant="t", graph=graph, inputs=inputs, limit_s=120))

    answer = asyncio.run(go())
    for name, value in exported.outputs.items():
        np.testing.assert_array_equal(answer.array(name).ravel(), value.ravel())


def test_model_that_computes_nothing_is_refused():
    with pytest.raises(ExportError):
        export_graph(lambda x: x, {"x": floats(4)})
