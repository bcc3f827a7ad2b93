"""The video workflow in its four versions, with frames in memory and through the store: eight workflows of one app.

Versions share functions, as they would be deployed once; those that pass through the store are functions of their own.
One app, so that versions can take turns from request to request, in one run of one gateway.
"""

from fairlead.app import App
from fairlead.video.passing import PASSING
from fairlead.video.versions import VERSIONS, add_workflow

SUFFIX = {"memory": "", "store": "-store"}


def workflow_name(version: int, passing: str) -> str:
    """What the workflow of a version is called."""
    return f"version-{version}-{passing}"


app = App("granularity")
for _passing in PASSING:
    for _version in VERSIONS:
        add_workflow(
            app,
            _version,
            name=workflow_name(_version, _passing),
            suffix=SUFFIX[_passing],
            slo="300s",
            passing=_passing,
            is_timed=True,
        )
