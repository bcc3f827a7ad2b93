"""What the scripts that make the networks of these apps share: ONNX graphs layer by layer, files with their SHA-256.

Only those scripts import it. An app reads the files, and compares each with its line in `SHA256SUMS`, which has the
format of `sha256sum`.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SUMS = "SHA256SUMS"


class Graph:
    """A network as it grows: each method adds a layer to the output of the last, or of the one that `after` names.

    The input is called `input`: a batch of any size, of elements of this shape.
    """

    def __init__(self, *shape: int) -> None:
        self.last = "input"
        self._shape = shape
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        """A layer of any kind of ONNX; gives the name of its output. Further inputs are weights, or other layers."""
        name = f"{kind.lower()}{len(self._nodes)}"
        domain = "ai.onnx.ml" if kind.startswith("TreeEnsemble") else ""
        self._nodes.append(helper.make_node(kind, [self.last, *inputs], [name], domain=domain, **attributes))
        self.last = name
        return name

    def weight(self, name: str, values: np.ndarray) -> str:
        """Keep numbers under a name, under which several layers may use them."""
        self._weights[name] = numpy_helper.from_array(np.ascontiguousarray(values, dtype=np.float32), name)
        return name

    def numbers(self, name: str, values: Sequence[int]) -> str:
        """Keep whole numbers under a name, such as a shape."""
        self._weights[name] = numpy_helper.from_array(np.array(values, dtype=np.int64), name)
        return name

    def conv(self, *weights: str, size: int = 3, stride: int = 1) -> str:
        """A convolution that keeps the size of the picture, but for its stride."""
        return self.add("Conv", *weights, pads=[size // 2] * 4, strides=[stride] * 2)

    def data(self) -> bytes:
        """The file of the network, whose output is the last layer's. The same layers give the same bytes."""
        graph = helper.make_graph(
            self._nodes,
            "network",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", *self._shape])],
            [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)],
            list(self._weights.values()),
        )
        versions = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
        model = helper.make_model(graph, opset_imports=versions, ir_version=8, producer_name="fairlead-examples")
        return model.SerializeToString(deterministic=True)


def main(make: Callable[[], Mapping[str, bytes]], folder: Path, arguments: Sequence[str] | None = None) -> None:
    """Write what `make` gives, and its SHA-256; with --check, compare with what is there, and write nothing."""
    parser = argparse.ArgumentParser(description="Make the weights of this app.")
    parser.add_argument("--check", action="store_true", help="Compare with the files that are there; write nothing.")
    is_check = parser.parse_args(arguments).check
    files = make()
    lines = "".join(f"{sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))
    if is_check:
        is_same = lines == (folder / SUMS).read_text(encoding="utf-8")
        print("the same" if is_same else f"they differ from {folder / SUMS}; made here:\n{lines}", end="\n")
        sys.exit(not is_same)
    for name, data in files.items():
        (folder / name).write_bytes(data)
        print(f"{name}: {len(data) / 1000:.0f} kB")
    (folder / SUMS).write_text(lines, encoding="utf-8")
