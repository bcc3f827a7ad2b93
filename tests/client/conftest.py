"""The servers of these tests are those of `tests/live`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "live"))
