"""What runs on a node: the agent, and the processes of instances."""

from fairlead.engine.live.node.agent import NodeAgent
from fairlead.engine.live.node.process import InstanceProcess

__all__ = ["InstanceProcess", "NodeAgent"]
