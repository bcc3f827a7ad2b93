"""Traces of a cloud's functions: read, made up, cut to size, and streamed in bounded memory."""

from fairlead.workload.traces.azure2019 import read_azure_2019
from fairlead.workload.traces.azure2021 import Invocations, read_azure_2021
from fairlead.workload.traces.generator import generate
from fairlead.workload.traces.reading import read
from fairlead.workload.traces.sampling import sample, scale
from fairlead.workload.traces.stream import chunks
from fairlead.workload.traces.summary import Summary, summarise
from fairlead.workload.traces.trace import Trace
from fairlead.workload.traces.writing import write

__all__ = [
    "Invocations",
    "Summary",
    "Trace",
    "chunks",
    "generate",
    "read",
    "read_azure_2019",
    "read_azure_2021",
    "sample",
    "scale",
    "summarise",
    "write",
]
