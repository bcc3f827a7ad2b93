"""The controller: queues, instances, capacities, deadlines; no clock and no I/O."""

from fairlead.engine.core.controller import Controller

__all__ = ["Controller"]
