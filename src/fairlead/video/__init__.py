"""A video workflow that really runs: frames, faces, emotions or objects, and what was found in an object store.

The workflow of the Darly papers, from parts that carry their weights. Needs the extra `video`, and the weights that
`fairlead models pull` gets. Importing this package loads neither.
"""

from pathlib import Path

__all__ = ["APP", "VERSIONS"]

APP = Path(__file__).parent / "app.py"
"""The app with five functions, for `fairlead serve` and `fairlead profile`."""

VERSIONS = Path(__file__).parent / "versions.py"
"""The same in four granularities; serve one as `versions.py:version4`."""
