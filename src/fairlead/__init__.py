"""Keep serverless workflows on their deadline: simulate, compare and run scheduling policies."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.app import INPUT, App, Context, ContextError, context, contexts, each, fork, switch
    from fairlead.client import AsyncClient, Client
    from fairlead.engine import simulate
    from fairlead.model import SLO, Cluster, Configuration, Workflow
    from fairlead.policy import Policy, make_policy
    from fairlead.workload import Scenario

__all__ = [
    "INPUT",
    "SLO",
    "App",
    "AsyncClient",
    "Client",
    "Cluster",
    "Configuration",
    "Context",
    "ContextError",
    "Policy",
    "Scenario",
    "Workflow",
    "context",
    "contexts",
    "each",
    "fork",
    "make_policy",
    "simulate",
    "switch",
]

_HOMES = {
    "INPUT": "fairlead.app",
    "SLO": "fairlead.model",
    "App": "fairlead.app",
    "AsyncClient": "fairlead.client",
    "Client": "fairlead.client",
    "Cluster": "fairlead.model",
    "Configuration": "fairlead.model",
    "Context": "fairlead.app",
    "ContextError": "fairlead.app",
    "Policy": "fairlead.policy",
    "Scenario": "fairlead.workload",
    "Workflow": "fairlead.model",
    "context": "fairlead.app",
    "contexts": "fairlead.app",
    "each": "fairlead.app",
    "fork": "fairlead.app",
    "make_policy": "fairlead.policy",
    "simulate": "fairlead.engine",
    "switch": "fairlead.app",
}

if not TYPE_CHECKING:  # a checker would take every name for one that exists

    def __getattr__(name: str) -> object:
        """Load a name when it is first used: the command line starts without the engine and the table library."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
