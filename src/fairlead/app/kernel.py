"""A kernel of an app: a graph that runs on a device, in the place of a function.

The graph is read and checked when the app is described. Its file and its constants travel with the app, under names
that the manifest has, so whatever runs the kernel needs none of the app's code.
"""

from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b
from os import PathLike
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fairlead.app.function import AppFunction
from fairlead.app.manifest import FunctionSpec, KernelBuffer, KernelSpec
from fairlead.errors import ConfigError
from fairlead.kaas.errors import KernelError
from fairlead.kaas.graph import Buffer, Graph, graph_json
from fairlead.kaas.parse import check_graph, parse_graph
from fairlead.kaas.tensors import inputs_of_value, run_here, value_of_outputs

Array = npt.NDArray[np.generic]
Constants = str | PathLike[str] | Mapping[str, npt.ArrayLike] | None

MOST_CONSTANT_BYTES = 128 << 20
"""Size limit of the constants of one kernel."""

_FOLDER = ".kernels"  # in the bundle, for what was no file


class AppKernel(AppFunction):
    """A kernel as declared. Called in a unit test it runs on the NumPy reference of its graph, in this process.

    Args:
        graph: What it computes, checked.
        graph_file: Its file, relative to the app's folder; None for one that was made in the app.
        constants: Their values, or the file that holds them.
        folder: That of the app.
        spec: How it is run.
    """

    def __init__(
        self, graph: Graph, graph_file: str | None, constants: Constants, folder: Path, spec: FunctionSpec
    ) -> None:
        self.graph = graph
        self._constants = constants
        self._folder = folder
        kernel = KernelSpec(
            graph=graph_file or f"{_FOLDER}/{spec.name}.json",
            constants=self._constants_file(spec.name),
            buffers=tuple(_described(buffer) for buffer in graph.buffers),
        )
        super().__init__(self._run, None, msgspec.structs.replace(spec, kernel=kernel))
        self.__doc__ = f"The kernel graph {graph.name}."

    def bundle(self) -> dict[str, bytes]:
        """The files that run it, by their names in the bundle of the app. Raises `ValueError`."""
        kernel = self.spec.kernel
        assert kernel is not None
        values = self.constants  # checked
        found = {kernel.graph: graph_json(self.graph)}
        if kernel.constants is not None:
            is_file = isinstance(self._constants, str | PathLike)
            found[kernel.constants] = (self._folder / kernel.constants).read_bytes() if is_file else save(values)
        return found

    @cached_property
    def constants(self) -> dict[str, Array]:
        """The values of its constants, by buffer or key. Raises `ValueError`."""
        given = self._constants
        if isinstance(given, str | PathLike):
            try:
                values = read_constants(self._folder / Path(given), str(given))
            except ValueError as error:
                raise ValueError(f"kernel {self.name!r}: {error}") from None
        else:
            values = {str(name): np.ascontiguousarray(value) for name, value in (given or {}).items()}
        try:
            assign_constants(self.graph, values)
        except ValueError as error:
            raise ValueError(f"kernel {self.name!r}: constants: {error}") from None
        return values

    def _constants_file(self, name: str) -> str | None:
        if self._constants is None:
            return None
        if isinstance(self._constants, str | PathLike):
            return _below(self._constants, f"constants of kernel {name!r}")
        return f"{_FOLDER}/{name}.safetensors"

    def _run(self, argument: object) -> object:
        without = [kernel.name for kernel in self.graph.kernels if kernel.reference is None]
        if without:
            raise KernelError(
                f"Kernel {self.name!r} cannot be called here: {without[0]!r} of its graph has no NumPy reference. "
                "Serve the app on a device, or test it with fairlead.kaas.Executor."
            )
        values = assign_constants(self.graph, self.constants)
        by_buffer = {name: _part(self.graph.by_name[name], value) for name, (_, value) in values.items()}
        outputs = run_here(self.graph, inputs_of_value(self.graph, argument), by_buffer)
        return value_of_outputs(self.graph, outputs)


def read_constants(file: Path, shown: str) -> dict[str, Array]:
    """The values in a safetensors file, by name. Raises `ValueError`, which calls the file as `shown`."""
    try:
        if file.stat().st_size > MOST_CONSTANT_BYTES:
            raise ValueError(f"constants {shown!r} has more than {MOST_CONSTANT_BYTES >> 20} MB.")
        values: dict[str, Array] = load(file.read_bytes())
    except OSError as error:
        raise ValueError(f"constants {shown!r} cannot be read: {error.strerror}.") from None
    except SafetensorError as error:
        raise ValueError(f"constants {shown!r} is no safetensors file: {error}.") from None
    except KeyError as error:  # a type of elements that NumPy does not have
        raise ValueError(f"constants {shown!r} has elements of type {error}: convert them to one of NumPy.") from None
    return values


def assign_constants(graph: Graph, values: Mapping[str, Array]) -> dict[str, tuple[str, Array]]:
    """The value of each constant of a graph: the name under which it was given, and the value.

    A constant is given by the name of its buffer, or by its key, which several constants may share as parts of one
    value. Raises `ValueError` where one is missing, too short, or of another type, and for values that nothing takes.
    """
    found: dict[str, tuple[str, Array]] = {}
    for buffer in graph.buffers:
        if buffer.kind != "constant":
            continue
        key = graph.key_of(buffer)
        name = next((each for each in (buffer.name, key) if each in values), None)
        if name is None:
            known = ", ".join(map(repr, list(values)[:8])) or "nothing"
            raise ValueError(f"there is no value for buffer {buffer.name!r} (key {key!r}); given: {known}.")
        value = values[name]
        is_whole = buffer.offset == 0 and value.nbytes == buffer.size
        if is_whole and value.dtype not in (np.dtype(buffer.type), np.dtype(np.uint8)):
            raise ValueError(f"buffer {buffer.name!r} must be {buffer.type}; got {value.dtype}.")
        if buffer.offset + buffer.size > value.nbytes or (name == buffer.name and key != name and not is_whole):
            where = f" from byte {buffer.offset} on" if buffer.offset else ""
            raise ValueError(f"buffer {buffer.name!r} must have {buffer.size} bytes{where}; got {value.nbytes}.")
        found[buffer.name] = name, value
    unused = sorted(set(values) - {name for name, _ in found.values()})
    if unused:
        raise ValueError(f"nothing takes the value {unused[0]!r}; the constants are {', '.join(found) or 'none'}.")
    return found


def keyed(function: str, graph: Graph, values: Mapping[str, Array]) -> tuple[Graph, dict[str, Array]]:
    """The graph with keys that name the content of its constants, and the values by these keys.

    Another value gets another key, so a new version of an app never finds the constants of the former one in its
    place, and an equal value is found on the device where it lies.
    """
    given = assign_constants(graph, values)
    names = {name: f"{function}/{name}/{_digest(value)}" for name, value in dict(given.values()).items()}
    by_key = {names[name]: value for name, value in given.values()}
    return graph.rekey({buffer: names[name] for buffer, (name, _) in given.items()}), by_key


def read_graph(graph: object, folder: Path) -> tuple[Graph, str | None]:
    """A checked graph, and its path below the app's folder if it was a file. Raises `ValueError` with every fault."""
    try:
        if isinstance(graph, Graph):
            check_graph(graph)
            return graph, None
        if not isinstance(graph, str | PathLike):
            raise ValueError(f"graph must be a path or a fairlead.kaas.Graph; got {type(graph).__name__}.")
        name = _below(graph, "graph")
        return parse_graph((folder / name).read_bytes(), name), name
    except OSError as error:
        raise ValueError(f"graph {str(graph)!r} cannot be read: {error.strerror}.") from None
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _below(path: str | PathLike[str], what: str) -> str:
    found = Path(path)
    if found.is_absolute() or ".." in found.parts:
        raise ValueError(f"{what} must be a file below the app's folder; got {str(path)!r}.")
    return found.as_posix()


def _part(buffer: Buffer, value: Array) -> Array:
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return data[buffer.offset : buffer.offset + buffer.size]


def _digest(value: Array) -> str:
    return blake2b(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data, digest_size=12).hexdigest()


def _described(buffer: Buffer) -> KernelBuffer:
    """What the scheduler needs to know: a constant that is loaded with each request is an input to it."""
    kind = "input" if buffer.kind == "inout" or (buffer.kind == "constant" and not buffer.is_cached) else buffer.kind
    return KernelBuffer(name=buffer.name, kind=kind, type=buffer.type, shape=buffer.shape, bytes=buffer.size)
