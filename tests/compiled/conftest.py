"""The closed forms of the theory tests serve here as well."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "theory"))
