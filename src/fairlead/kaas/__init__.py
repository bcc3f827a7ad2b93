"""Kernels as a service: graphs of kernels, run on devices whose memory the system manages."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.kaas.errors import (
        BuildError,
        DeviceLostError,
        DeviceMemoryError,
        ExportError,
        GraphError,
        KernelError,
        LaunchError,
        RequestError,
        TimeLimitError,
        ValueMissingError,
    )
    from fairlead.kaas.executor import Executor, ExecutorSettings
    from fairlead.kaas.graph import Argument, Buffer, Graph, Kernel, Literal, Source, graph_json
    from fairlead.kaas.memory import Memory
    from fairlead.kaas.parse import Limits, check_graph, parse_graph
    from fairlead.kaas.request import Answer, Request, Status
    from fairlead.kaas.values import Values
    from fairlead.kaas.wire import Counts, Timings

__all__ = [
    "Answer",
    "Argument",
    "Buffer",
    "BuildError",
    "Counts",
    "DeviceLostError",
    "DeviceMemoryError",
    "Executor",
    "ExecutorSettings",
    "ExportError",
    "Graph",
    "GraphError",
    "Kernel",
    "KernelError",
    "LaunchError",
    "Limits",
    "Literal",
    "Memory",
    "Request",
    "RequestError",
    "Source",
    "Status",
    "TimeLimitError",
    "Timings",
    "ValueMissingError",
    "Values",
    "check_graph",
    "graph_json",
    "parse_graph",
]

_HOMES = {
    "BuildError": "errors",
    "DeviceLostError": "errors",
    "DeviceMemoryError": "errors",
    "ExportError": "errors",
    "GraphError": "errors",
    "KernelError": "errors",
    "LaunchError": "errors",
    "RequestError": "errors",
    "TimeLimitError": "errors",
    "ValueMissingError": "errors",
    "Executor": "executor",
    "ExecutorSettings": "executor",
    "Argument": "graph",
    "Buffer": "graph",
    "Graph": "graph",
    "Kernel": "graph",
    "Literal": "graph",
    "Source": "graph",
    "graph_json": "graph",
    "Memory": "memory",
    "Limits": "parse",
    "check_graph": "parse",
    "parse_graph": "parse",
    "Answer": "request",
    "Request": "request",
    "Status": "request",
    "Values": "values",
    "Counts": "wire",
    "Timings": "wire",
}

if not TYPE_CHECKING:  # a checker would take every name for one that exists

    def __getattr__(name: str) -> object:
        """Load a module when a name of it is first asked for: the simulator shares one, and starts without the rest."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"fairlead.kaas.{_HOMES[name]}"), name)
