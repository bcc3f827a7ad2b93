"""The video app: four granularities, each with frames in memory and through a store, which give the same."""

import pytest

from fairlead.errors import ConfigError
from fairlead.video.clip import check_labels, make_clip

FUNCTIONS = {
    "1": {"framer", "detector", "analyzer", "recogniser", "uploader"},
    "2": {"framer", "detector", "inference", "uploader"},
    "3": {"framer", "big-inference", "uploader"},
    "4": {"monolith", "uploader"},
}


@pytest.fixture
def version(load, monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRLEAD_STORE", (tmp_path / "store").as_uri())

    def version(name, passing="memory"):
        monkeypatch.setenv("VIDEO_VERSION", name)
        monkeypatch.setenv("VIDEO_PASSING", passing)
        return load("video")

    return version


@pytest.mark.parametrize("passing", ["memory", "store"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_version_has_its_functions(version, name, passing):
    assert set(version(name, passing).functions) == FUNCTIONS[name]


def test_others_are_refused(version):
    with pytest.raises(ConfigError, match="VIDEO_VERSION must be 1, 2, 3 or 4; got '5'"):
        version("5")
    with pytest.raises(ConfigError, match="VIDEO_PASSING must be memory or store; got 'queue'"):
        version("1", "queue")


@pytest.mark.slow
@pytest.mark.usefixtures("weights")
def test_what_passes_by_url_gives_what_passes_in_memory(version, tmp_path, monkeypatch):
    make_clip(tmp_path / "clip.mp4", seconds=6)
    monkeypatch.setenv("FAIRLEAD_VIDEOS", str(tmp_path))
    request = {"video": "clip.mp4", "frames": 7}
    answers = [version(name, passing).workflows["video"](request) for name in "1234" for passing in ("memory", "store")]
    assert all(answer == answers[0] for answer in answers)
    assert check_labels(answers[0]) == []
    assert len(list((tmp_path / "store" / "frames").iterdir())) == 7  # the same objects, whichever version put them
    assert len(list((tmp_path / "store" / "found").iterdir())) == 8  # one per frame, and that of version 4
