"""Kernels as a service: graphs of kernels, run on devices whose memory the system manages."""

from fairlead.kaas.errors import (
    BuildError,
    DeviceLostError,
    DeviceMemoryError,
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
    "Answer", "Argument", "Buffer", "BuildError", "Counts", "DeviceLostError", "DeviceMemoryError", "Executor",
    "ExecutorSettings", "Graph", "GraphError", "Kernel", "KernelError", "LaunchError", "Limits", "Literal", "Memory",
    "Request", "RequestError", "Source", "Status", "TimeLimitError", "Timings", "ValueMissingError", "Values",
    "check_graph", "graph_json", "parse_graph",
]  # fmt: skip
