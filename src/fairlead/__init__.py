"""Keep serverless workflows on their deadline: simulate, compare and run scheduling policies."""

from fairlead.engine import simulate
from fairlead.model import SLO, Cluster, Configuration, Workflow
from fairlead.policy import Policy, make_policy
from fairlead.workload import Scenario

__all__ = ["SLO", "Cluster", "Configuration", "Policy", "Scenario", "Workflow", "make_policy", "simulate"]
