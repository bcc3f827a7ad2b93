"""The shipped apps, loaded as an instance loads them; a served app is looked into as the live tests do."""

import sys
from pathlib import Path

import pytest
from shipped_apps import APPS, NAMES

from fairlead.app import load_app

sys.path.append(str(Path(__file__).parents[1] / "live"))


@pytest.fixture
def load(monkeypatch):
    """Gives the app of a shipped folder, or of any; what loading does to this process is undone."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def load(folder):
        forget(before)
        return load_app(APPS / folder)

    yield load
    forget(before)


def forget(before):
    """The modules of one folder must not be taken for those of the next."""
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if name.startswith("fairlead_app_") or Path(file).parent.name in NAMES:
            del sys.modules[name]
