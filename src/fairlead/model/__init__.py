"""The vocabulary: values, no decisions."""

from typing import TYPE_CHECKING

from fairlead.model.cluster import Bounds, Cluster, Device, Node, Price, Sharing
from fairlead.model.configuration import Configuration
from fairlead.model.function import Buffer, BufferKind, Function, IdleHolds
from fairlead.model.mig import MIG_SIZES
from fairlead.model.record import DeviceMemoryUse, NodeLife, Record, Recording, Refusal
from fairlead.model.request import CACHED, Instance, Invocation, Request
from fairlead.model.slo import SLO
from fairlead.model.workflow import Stage, Workflow, workflow_faults

if TYPE_CHECKING:
    from fairlead.model.tables import INSTANCE_SCHEMA, INVOCATION_SCHEMA, REQUEST_SCHEMA

__all__ = [
    "CACHED",
    "INSTANCE_SCHEMA",
    "INVOCATION_SCHEMA",
    "MIG_SIZES",
    "REQUEST_SCHEMA",
    "SLO",
    "Bounds",
    "Buffer",
    "BufferKind",
    "Cluster",
    "Configuration",
    "Device",
    "DeviceMemoryUse",
    "Function",
    "IdleHolds",
    "Instance",
    "Invocation",
    "Node",
    "NodeLife",
    "Price",
    "Record",
    "Recording",
    "Refusal",
    "Request",
    "Sharing",
    "Stage",
    "Workflow",
    "workflow_faults",
]

if not TYPE_CHECKING:  # a checker would take every name for one that exists

    def __getattr__(name: str) -> object:
        """Load the tables' columns, and with them the table library, when they are first asked for."""
        if not name.endswith("_SCHEMA") or name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from fairlead.model import tables  # noqa: PLC0415 - on demand: see above

        return getattr(tables, name)
