"""Workflows as documents of the CNCF Serverless Workflow DSL 1.0, read and written.

A subset: sequences (`do`), `call`, `fork`, `switch`, `for`, and the workflow's `timeout`, which is our SLO. What is
outside of it is refused by name.
"""

from fairlead.app.dsl.read import ReadWorkflow, read_workflow
from fairlead.app.dsl.write import write_workflow

__all__ = ["ReadWorkflow", "read_workflow", "write_workflow"]
