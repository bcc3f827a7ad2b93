"""The vocabulary: values, no decisions."""

from fairlead.model.cluster import MIG_SIZES, Cluster, Device, Node, Price, Sharing
from fairlead.model.configuration import Configuration
from fairlead.model.function import Buffer, BufferKind, Function, IdleHolds
from fairlead.model.record import (
    INSTANCE_SCHEMA,
    INVOCATION_SCHEMA,
    REQUEST_SCHEMA,
    DeviceMemoryUse,
    Record,
    Recording,
    Refusal,
)
from fairlead.model.request import Instance, Invocation, Request
from fairlead.model.slo import SLO
from fairlead.model.workflow import Stage, Workflow, workflow_faults

__all__ = [
    "INSTANCE_SCHEMA",
    "INVOCATION_SCHEMA",
    "MIG_SIZES",
    "REQUEST_SCHEMA",
    "SLO",
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
