"""Where the shipped apps are, and copies of them that a test may change."""

import shutil
from pathlib import Path

APPS = Path(__file__).resolve().parents[2] / "examples" / "apps"
NAMES = sorted(file.parent.name for file in APPS.glob("*/app.py"))


def copied(name: str, to: Path) -> Path:
    """The folder of an app as it is shipped, without what was measured here."""
    return Path(shutil.copytree(APPS / name, to / name, ignore=shutil.ignore_patterns("*.profile.json", "__pycache__")))
