"""Builds the shipped graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from fairlead.kaas.graph import VERSION, Access, Argument, Buffer, BufferKind, Graph, Kernel, Literal, Source
from fairlead.kaas.parse import check_graph

Floats = npt.NDArray[np.float32]
_SIDE = 16  # work items along each side of a square work group
_ROW = 64  # work items of a work group in a row


@dataclass(frozen=True)
class Example:
    """A graph with values for its constants, by buffer, and for its inputs."""

    graph: Graph
    constants: Mapping[str, Floats]
    inputs: Mapping[str, Floats]

    def values(self) -> dict[str, Floats]:
        """The constants by key, as `Values.put` takes them."""
        return {self.graph.key_of(self.graph.by_name[name]): value for name, value in self.constants.items()}


def gemm_chain(size: int = 128, depth: int = 4, seed: int = 0) -> Example:
    """The product of `depth` + 1 square matrices, the first of which is the input."""
    rng = np.random.default_rng(seed)
    constants = {f"w{i}": _normal(rng, size, size, scale=size**-0.5) for i in range(depth)}
    names = ["x", *(f"t{i}" for i in range(depth - 1)), "y"]
    kernels = [_gemm(size, size, size, a, f"w{i}", b) for i, (a, b) in enumerate(pairwise(names))]
    inputs = {"x": _normal(rng, size, size)}
    return _example(f"gemm-chain-{size}x{depth}", kernels, constants, inputs, {"y": (size, size)})


def mlp(sizes: tuple[int, ...] = (256, 512, 512, 10), rows: int = 16, seed: int = 0) -> Example:
    """A perceptron: dense layers with ReLU, then softmax."""
    rng = np.random.default_rng(seed)
    constants, kernels, at = {}, [], "x"
    for layer, (k, n) in enumerate(pairwise(sizes)):
        is_last = layer == len(sizes) - 2
        constants[f"w{layer}"] = _normal(rng, k, n, scale=k**-0.5)
        constants[f"b{layer}"] = _normal(rng, n)
        kernels.append(_gemm(rows, n, k, at, f"w{layer}", f"s{layer}"))
        at = "y" if is_last else f"h{layer}"
        kernels.append(_biased("bias_softmax" if is_last else "bias_relu", rows, n, f"s{layer}", f"b{layer}", at))
    name = "mlp-" + "x".join(map(str, (rows, *sizes)))
    return _example(name, kernels, constants, {"x": _normal(rng, rows, sizes[0])}, {"y": (rows, sizes[-1])})


def digits(seed: int = 0) -> Example:
    """A small convolutional network that tells handwritten digits (8 x 8, values 0 to 16) apart. The input is noise."""
    loaded = load(files(__package__).joinpath("digits.safetensors").read_bytes())
    constants = dict(sorted(loaded.items()))  # they come in another order each time
    filters = len(constants["b0"])
    features = filters * 16
    kernels = [
        _kernel("conv3x3_relu", (1, 1, filters), (8, 8, 1), [1, 8, 8, filters], "x w0 b0 > h0"),
        _kernel("maxpool2", (1, 1, filters), (4, 4, 1), [filters, 8, 8], "h0 > h1"),
        _gemm(1, 10, features, "h1", "w1", "s"),
        _biased("bias_softmax", 1, 10, "s", "b1", "y"),
    ]
    inputs = {"x": np.random.default_rng(seed).uniform(0, 16, (8, 8)).astype(np.float32)}
    return _example("digits", kernels, constants, inputs, {"y": (1, 10)})


def jacobi(n: int = 128, iterations: int = 20, seed: int = 0) -> Example:
    """A solver for A x = b: every iteration takes two Jacobi steps, there and back between two buffers."""
    rng = np.random.default_rng(seed)
    a = _normal(rng, n, n, scale=1 / n) + 2 * np.eye(n, dtype=np.float32)
    kernels = [_kernel("jacobi", _groups(n), (_ROW,), [n], f"a b {x} > {y}") for x, y in (("x", "t"), ("t", "x"))]
    inputs = {"b": _normal(rng, n), "x": np.zeros(n, np.float32)}
    return _example(f"jacobi-{n}", kernels, {"a": a}, inputs, {"x": (n,)}, iterations)


def scaling(n: int = 64, factor: float = 2.0) -> Example:
    """The smallest graph: y = factor x."""
    kernel = _kernel("scale", _groups(n), (_ROW,), [n, factor], "x > y")
    return _example(f"scaling-{n}", [kernel], {}, {"x": np.arange(n, dtype=np.float32)}, {"y": (n,)})


SHIPPED: dict[str, Callable[[], Example]] = {
    "gemm-chain": gemm_chain, "mlp": mlp, "digits": digits, "jacobi": jacobi, "scaling": scaling
}  # fmt: skip


def _example(
    name: str,
    kernels: list[Kernel],
    constants: Mapping[str, Floats],
    inputs: Mapping[str, Floats],
    outputs: Mapping[str, tuple[int, ...]],
    iterations: int = 1,
) -> Example:
    """An example from its parts. A buffer that is none of these is temporary, as large as its writer makes it."""
    shapes: dict[str, tuple[int, ...]] = {n: a.shape for n, a in (*constants.items(), *inputs.items())}
    shapes.update(outputs)
    for kernel in kernels:
        for argument in kernel.arguments:
            shapes.setdefault(argument.buffer, (_written(kernel),))

    def kind(buffer: str) -> BufferKind:
        if buffer in inputs:
            return "inout" if buffer in outputs else "input"
        return "constant" if buffer in constants else "output" if buffer in outputs else "temporary"

    buffers = tuple(Buffer(name=n, kind=kind(n), shape=shape) for n, shape in shapes.items())
    graph = Graph(
        version=VERSION, name=name, iterations=iterations, sources={"kernels": _source()}, buffers=buffers,
        kernels=tuple(kernels),
    )  # fmt: skip
    check_graph(graph, name)
    return Example(graph, constants, inputs)


def _written(kernel: Kernel) -> int:
    """How many elements a kernel writes."""
    sizes = [int(literal.value) for literal in kernel.literals]
    if kernel.name == "conv3x3_relu":
        return sizes[3] * sizes[1] * sizes[2]
    if kernel.name == "maxpool2":
        return sizes[0] * sizes[1] * sizes[2] // 4
    return sizes[0] if kernel.name in ("jacobi", "scale") else sizes[0] * sizes[1]


def _gemm(m: int, n: int, k: int, a: str, b: str, c: str) -> Kernel:
    grid = (*_groups(n, _SIDE), *_groups(m, _SIDE))
    return _kernel("gemm", grid, (_SIDE, _SIDE), [m, n, k], f"{a} {b} > {c}")


def _biased(name: str, rows: int, columns: int, x: str, bias: str, y: str) -> Kernel:
    items = rows if name == "bias_softmax" else rows * columns
    return _kernel(name, _groups(items), (_ROW,), [rows, columns], f"{x} {bias} > {y}")


def _kernel(
    name: str, grid: tuple[int, ...], block: tuple[int, ...], literals: list[int | float], arguments: str
) -> Kernel:
    """A kernel of `kernels.c`; `arguments` are the buffers that it reads, then after ">" the one that it writes."""
    access: Access = "read"
    taken = []
    for word in arguments.split():
        if word == ">":
            access = "write"
        else:
            taken.append(Argument(buffer=word, access=access))
    typed = tuple(Literal(type="float32" if isinstance(v, float) else "int32", value=v) for v in literals)
    return Kernel(
        name=name, source="kernels", reference=name, grid=grid, block=block, literals=typed, arguments=tuple(taken)
    )


def _groups(items: int, size: int = _ROW) -> tuple[int]:
    return (-(-items // size),)


def _normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Floats:
    return (scale * rng.standard_normal(shape)).astype(np.float32)


@cache
def _source() -> Source:
    folder = files(__package__)
    body, opencl, cuda = (folder.joinpath(name).read_text("utf-8") for name in ("kernels.c", "opencl.h", "cuda.h"))
    return Source(opencl=opencl + body, cuda=cuda + body)
