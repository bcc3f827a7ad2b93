"""A kernel graph from a model written in tinygrad: its kernels as OpenCL source, its weights as constants.

Offline: a served graph needs no tinygrad. tinygrad's capture has no stable interface, so exactly one version is
supported. What it captures must be kernels alone: no symbolic sizes, no copies between devices.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fairlead.errors import MissingExtraError
from fairlead.kaas.devices.pocl import name_processor
from fairlead.kaas.errors import ExportError
from fairlead.kaas.graph import ITEM_BYTES, VERSION, Access, Argument, Buffer, Graph, Kernel, Source
from fairlead.kaas.parse import check_graph

TINYGRAD = "0.14.0"
_INSTALL = "pip install 'fairlead[kaas-export]'"
_FUNCTION = re.compile(r"__kernel\s+void\s+(?:__attribute__\s*\(\([^)]*\)+\)\s*)?(\w+)\s*\(")


@dataclass(frozen=True)
class Exported:
    """A graph, its constants by buffer, and what the model itself answered to the sample inputs."""

    graph: Graph
    constants: dict[str, npt.NDArray[np.generic]]
    outputs: dict[str, npt.NDArray[np.generic]]


def export_graph(
    model: Callable[..., Any], inputs: Mapping[str, npt.NDArray[np.generic]], name: str = "model"
) -> Exported:
    """The graph of a function of tinygrad tensors, which is called with these arrays as tensors.

    Its outputs are called `output`, or `output0`, `output1` and so on if it gives a tuple. ExportError if what
    it does cannot be a graph.
    """
    for each, array in inputs.items():
        if str(array.dtype) not in ITEM_BYTES:
            raise ExportError(f"Input {each!r} has elements of type {array.dtype}, which a graph cannot have.")
        if not array.size:
            raise ExportError(f"Input {each!r} has the shape {list(array.shape)}, which has no elements.")
    grad = open_tinygrad()
    from tinygrad.engine.jit import JitError as jit_error  # noqa: N813, PLC0415 - an optional library

    jitted = grad.TinyJit(lambda *tensors: _realized(model(*tensors), grad.Tensor))
    try:
        for _ in range(3):  # the first call runs, the second captures, the third replays
            returned = jitted(*(grad.Tensor(array).realize() for array in inputs.values()))
    except jit_error as error:
        raise ExportError(f"tinygrad cannot capture the model: {error}") from error
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(f"The model failed: {type(error).__name__}: {error}") from error
    outputs = {"output": returned[0]} if len(returned) == 1 else {f"output{i}": t for i, t in enumerate(returned)}
    parts = _Parts(inputs, {_place(tensor.uop.base.buffer): n for n, tensor in outputs.items()})
    kernels = tuple(parts.kernel(call) for call in jitted.captured.linear.src)
    shapes = {n: tuple(tensor.shape) or (1,) for n, tensor in outputs.items()}
    missing = sorted(set(outputs) - parts.written)
    if missing:
        raise ExportError(f"No kernel writes {', '.join(missing)}: an output must be computed, not passed through.")
    graph = Graph(
        version=VERSION, name=name, sources=parts.sources, buffers=tuple(parts.buffers(shapes)), kernels=kernels
    )  # fmt: skip
    check_graph(graph, name)
    return Exported(graph, parts.constants(), {n: tensor.numpy() for n, tensor in outputs.items()})


def _place(buffer: Any) -> tuple[int, int, int]:
    """What makes two views of device memory the same."""
    return id(buffer.base), buffer.offset, buffer.nbytes


@dataclass
class _Parts:
    """Collects buffers and sources from captured calls."""

    inputs: Mapping[str, npt.NDArray[np.generic]]
    outputs: dict[tuple[int, int, int], str]
    sources: dict[str, Source] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    used: dict[str, Any] = field(default_factory=dict)  # by name: tinygrad's buffer, None for an input
    types: dict[str, str] = field(default_factory=dict)

    def kernel(self, call: Any) -> Kernel:
        """A captured call as a kernel."""
        program, *arguments = call.src
        info = program.arg
        code = [each.arg for each in program.src if each.op.name == "SOURCE"]
        if program.op.name != "PROGRAM" or len(code) != 1:
            raise ExportError(f"The model needs {program.op.name}, which is no kernel.")
        sizes = (*info.global_size, *(info.local_size or (1, 1, 1)))
        if info.vars or not all(isinstance(size, int) for size in sizes):
            raise ExportError("The model has sizes that change from call to call; fix them.")
        found = _FUNCTION.search(code[0])
        if found is None:
            raise ExportError("tinygrad wrote a kernel without a name.")
        names = [self._name(argument) for argument in arguments]
        self.written |= {names[i] for i in info.outs}
        source = next((n for n, each in self.sources.items() if each.opencl == code[0]), f"kernel{len(self.sources)}")
        self.sources[source] = Source(opencl=code[0])
        access: dict[int, Access] = {i: "update" if i in info.ins else "write" for i in info.outs}
        taken = tuple(Argument(buffer=n, access=access.get(i, "read")) for i, n in enumerate(names))
        return Kernel(name=found.group(1), source=source, grid=sizes[:3], block=sizes[3:], arguments=taken)

    def buffers(self, shapes: Mapping[str, tuple[int, ...]]) -> list[Buffer]:
        """The graph's buffers: the inputs first."""
        unused = sorted(set(self.inputs) - set(self.used))
        if unused:
            raise ExportError(f"The model does not use its input {', '.join(unused)}.")
        found = [
            Buffer(name=n, kind="input", type=str(a.dtype), shape=a.shape or (1,))  # type: ignore[arg-type]
            for n, a in self.inputs.items()
        ]
        for name, buffer in self.used.items():
            if buffer is None:
                continue
            kind = "output" if name in shapes else "temporary" if name in self.written else "constant"
            shape = shapes.get(name, (buffer.nbytes // np.dtype(self.types[name]).itemsize,))
            found.append(Buffer(name=name, kind=kind, type=self.types[name], shape=shape))  # type: ignore[arg-type]
        return found

    def constants(self) -> dict[str, npt.NDArray[np.generic]]:
        """The values of what no kernel writes."""
        return {
            name: np.frombuffer(buffer.as_memoryview(), self.types[name]).copy()
            for name, buffer in self.used.items()
            if buffer is not None and name not in self.written
        }

    def _name(self, argument: Any) -> str:
        if argument.op.name == "PARAM":
            slot: int = argument.arg.slot
            name = list(self.inputs)[slot]
            self.used[name] = None
            return name
        if argument.op.name != "BUFFER":
            raise ExportError(f"A kernel takes {argument.op.name}, which is no buffer.")
        buffer = argument.buffer
        name = self.outputs.get(_place(buffer), "")
        if not name:
            known = (n for n, each in self.used.items() if each is not None and _place(each) == _place(buffer))
            name = next(known, f"b{len(self.used)}")
        self.used[name] = buffer
        self.types[name] = _element_type(argument.dtype)
        return name


def _element_type(dtype: Any) -> str:
    name: str = dtype.name
    known = {"float": "float32", "half": "float16", "double": "float64", "int": "int32", "unsigned int": "uint32",
             "long": "int64", "unsigned long": "uint64", "char": "int8", "signed char": "int8",
             "unsigned char": "uint8", "bool": "uint8", "short": "int16", "unsigned short": "uint16"}  # fmt: skip
    if name not in known:
        raise ExportError(f"The model has elements of type {name}, which a graph cannot have.")
    return known[name]


def _realized(returned: Any, kind: type) -> tuple[Any, ...]:
    tensors: Sequence[Any] = returned if isinstance(returned, tuple | list) else (returned,)
    other = next((type(each).__name__ for each in tensors if not isinstance(each, kind)), None)
    if other is not None or not tensors:
        raise ExportError(f"The model must give a tensor or several; it gave {other or 'none'}.")
    return tuple(tensor.contiguous().realize() for tensor in tensors)


def open_tinygrad() -> Any:
    """tinygrad, on its OpenCL device: call this before a model makes its tensors.

    pyopencl's loader serves where the system has none. MissingExtraError if a library is not installed.
    """
    os.environ["DEV"] = "CL"
    try:
        import pyopencl  # noqa: PLC0415 - an optional library
    except ImportError as error:
        raise MissingExtraError("Exporting", "tinygrad and pyopencl", "kaas-export") from error
    loaders = sorted((Path(pyopencl.__file__).parent / ".libs").glob("libOpenCL*"))
    if loaders:
        os.environ.setdefault("OPENCL_PATH", str(loaders[0]))
    try:
        import tinygrad  # noqa: PLC0415 - an optional library
    except ImportError as error:
        raise MissingExtraError("Exporting", "tinygrad and pyopencl", "kaas-export") from error
    found = version("tinygrad")
    if found != TINYGRAD:
        raise ExportError(f"tinygrad {found} is installed, and exporting needs {TINYGRAD}: {_INSTALL}.")
    try:
        device = tinygrad.Device["CL"]
    except Exception as error:  # of any type: it depends on how loading the driver failed
        raise ExportError(f"tinygrad finds no OpenCL device: {type(error).__name__}: {error}") from error
    handle = ctypes.cast(device.cl_dev, ctypes.c_void_p).value
    if handle is not None and device.driver_version.startswith("3.") and "-" in device.device_name:
        name_processor(handle)  # of PoCL, whose devices are called "basic-..." and "pthread-..."
    return tinygrad
