"""Declaring an app: functions by decorator, workflows made of them, and the manifest that says it all without code.

Light on purpose: every instance of a function imports this when it starts.
"""

from fairlead.app.compose import INPUT, each, fork, switch
from fairlead.app.current import Context, ContextError, context, contexts
from fairlead.app.declare import App, AppWorkflow, BoundStage
from fairlead.app.function import AppFunction
from fairlead.app.load import load_app
from fairlead.app.manifest import FunctionSpec, Manifest, NodeSpec, StageSpec, WorkflowSpec

__all__ = [
    "INPUT",
    "App",
    "AppFunction",
    "AppWorkflow",
    "BoundStage",
    "Context",
    "ContextError",
    "FunctionSpec",
    "Manifest",
    "NodeSpec",
    "StageSpec",
    "WorkflowSpec",
    "context",
    "contexts",
    "each",
    "fork",
    "load_app",
    "switch",
]
