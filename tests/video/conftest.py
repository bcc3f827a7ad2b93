"""A short clip for all tests of the video workflow; a served app is looked into as the live tests do."""

import sys
from pathlib import Path

import pytest

from fairlead.video.clip import make_clip

sys.path.append(str(Path(__file__).parents[1] / "live"))


@pytest.fixture(scope="session")
def clip(tmp_path_factory):
    return make_clip(tmp_path_factory.mktemp("clip") / "clip.mp4", seconds=12)


@pytest.fixture
def workplace(tmp_path, monkeypatch, clip, weights):
    """Requests may name the clip, and results go to the folder that this is."""
    monkeypatch.setenv("FAIRLEAD_VIDEOS", str(clip.parent))
    monkeypatch.setenv("FAIRLEAD_STORE", (tmp_path / "results").as_uri())
    return tmp_path / "results"
