"""Export: a tinygrad model as a graph that gives the same bits."""

import asyncio

import numpy as np
import pytest

pytest.importorskip("tinygrad", reason="needs the extra kaas-export: pip install 'fairlead[kaas-export]'")

from fairlead.kaas import Request, graph_json, parse_graph
from fairlead.kaas.errors import ExportError
from fairlead.kaas.export import export_graph, open_tinygrad

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


@pytest.fixture(scope="module")
def models():
    """Two models whose weights are on tinygrad's device."""
    tensor = open_tinygrad().Tensor
    w, b, v, filters = (tensor(floats(*shape)).realize() for shape in ((64, 32), (32,), (32, 10), (4, 1, 3, 3)))
    return {
        "dense": lambda x, z: (((x @ w + b).relu() + z) @ v).softmax(),
        "convolution": lambda i: (i.conv2d(filters, padding=1).relu().max_pool2d().flatten(1), i.sum()),
    }


@pytest.mark.parametrize(
    ("name", "inputs"),
    [("dense", {"x": floats(8, 64), "z": floats(8, 32)}), ("convolution", {"image": floats(1, 1, 16, 16)})],
)
def test_exported_graph_gives_the_bits_of_the_library(desk, models, name, inputs):
    exported = export_graph(models[name], inputs, name)
    graph = parse_graph(graph_json(exported.graph))
    for buffer, value in exported.constants.items():
        desk.values.put("t", graph.key_of(graph.by_name[buffer]), value)

    async def go():
        async with desk.executor("opencl:0") as executor:
            return await executor.run(Request(tenant="t", graph=graph, inputs=inputs, limit_s=120))

    answer = asyncio.run(go())
    for output, value in exported.outputs.items():
        np.testing.assert_array_equal(answer.array(output).ravel(), value.ravel())


def test_model_that_computes_nothing_is_refused():
    with pytest.raises(ExportError):
        export_graph(lambda x: x, {"x": floats(4)})


def test_input_without_elements_is_refused():
    with pytest.raises(ExportError, match="has the shape \\[0, 3\\], which has no elements"):
        export_graph(lambda x: x * 2, {"x": floats(0, 3)})
