"""What a caller may give as the input of a graph, and what it costs to look at what may not be."""

import tracemalloc

import numpy as np
import pytest

from fairlead.kaas import RequestError, parse_graph
from fairlead.kaas.tensors import inputs_of_value


def graph(kind: str = "float32", shape: str = "[2]"):
    buffer = f'{{"name": "x", "kind": "inout", "type": "{kind}", "shape": {shape}}}'
    kernel = (
        '{"name": "k", "source": "s", "grid": [1], "block": [1], "arguments": [{"buffer": "x", "access": "update"}]}'
    )
    sources = '{"s": {"opencl": "kernel void k(global float *x) {}"}}'
    return parse_graph(
        f'{{"version": 1, "name": "g", "sources": {sources}, "buffers": [{buffer}], "kernels": [{kernel}]}}'
    )


@pytest.mark.parametrize(
    ("kind", "shape", "value", "expected"),
    [
        ("float32", "[2]", [1, 2.5], [1, 2.5]),
        ("float32", "[2]", [np.float32(1.5), np.int64(2)], [1.5, 2]),
        ("float32", "[2]", [1e39, -1e39], [np.inf, -np.inf]),
        ("float64", "[2, 2]", [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ("float64", "[2, 2]", [np.array([1.0, 2.0]), [3, 4]], [[1, 2], [3, 4]]),
        ("uint8", "[2]", (0, 255), [0, 255]),
        ("uint64", "[2]", [0, 2**64 - 1], [0, 2**64 - 1]),
        ("int64", "[2]", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
    ],
)
def test_numbers_get_the_type_of_the_buffer(kind, shape, value, expected):
    found = inputs_of_value(graph(kind, shape), value)["x"]
    assert found.dtype == kind
    np.testing.assert_array_equal(found, np.array(expected, kind))


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("float32", ["1", "2"], "values of type str"),
        ("float32", [1.0, None], "values of type NoneType"),
        ("float32", [True, False], "values of type bool"),
        ("float32", [1j, 1], "values of type complex"),
        ("float32", [1, 10**400], "a number that is too large"),
        ("float32", [1.0], "values of shape [1]"),
        ("float32", 1.0, "values of shape []"),
        ("float32", "12", "values of shape []"),
        ("float32", [[1.0], [1.0, 2.0]], "a value of type list that is no array of numbers"),
        ("uint8", [0, 256], "values below 0 or above 255"),
        ("uint8", [-1, 0], "values below 0 or above 255"),
        ("int32", [1, 2.0], "values of type float"),
        ("int32", [0, 10**400], "values below -2147483648 or above 2147483647"),
    ],
)
def test_what_is_no_such_number_is_refused(kind, value, said):
    with pytest.raises(RequestError) as caught:
        inputs_of_value(graph(kind), value)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_long_text_among_many_short_ones_takes_no_room():
    value = ["x" * 1_000_000, *["a"] * 999]  # as an array of text, 4 GB
    tracemalloc.start()
    for shape in ("[2]", "[1000]"):
        with pytest.raises(RequestError):
            inputs_of_value(graph(shape=shape), value)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
