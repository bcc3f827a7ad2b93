"""The video app: four granularities and one with frames in a store, which gives the same."""

import pytest

from fairlead.errors import ConfigError
from fairlead.video.clip import check_labels, make_clip


@pytest.fixture
def version(load, monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRLEAD_STORE", (tmp_path / "store").as_uri())

    def version(name):
        monkeypatch.setenv("VIDEO_VERSION", name)
        return load("video")

    return version


@pytest.mark.parametrize(
    ("name", "functions"),
    [
        ("1", {"framer", "detector", "analyzer", "recogniser", "uploader"}),
        ("2", {"framer", "detector", "inference", "uploader"}),
        ("3", {"framer", "big-inference", "uploader"}),
        ("4", {"monolith", "uploader"}),
        ("store", {"framer", "detector", "analyzer", "recogniser", "uploader"}),
    ],
)
def test_each_version_has_its_functions(version, name, functions):
    assert set(version(name).functions) == functions


def test_another_version_is_refused(version):
    with pytest.raises(ConfigError, match="VIDEO_VERSION must be 1, 2, 3, 4 or store; got '5'"):
        version("5")


def test_a_frame_is_in_the_store_between_functions_and_only_urls_pass(version, tmp_path):
    import_frames = version("store").functions["detector"]  # loads the module beside the app
    assert import_frames is not None
    import frames  # noqa: PLC0415

    url = frames.put(b"a jpeg")
    assert url.startswith((tmp_path / "store" / "frames").as_uri())
    assert frames.put(b"a jpeg") == url
    given = []
    item = {"jpeg": url, "frame": 3}
    passed_on = frames.with_frame(lambda found: given.append(found) or {**found, "faces": []}, item)
    assert given == [{"jpeg": b"a jpeg", "frame": 3}]
    assert passed_on == {"jpeg": url, "frame": 3, "faces": []}
    assert frames.with_frame(lambda found: {"kind": "object"}, item) == {"kind": "object"}
    with pytest.raises(ValueError, match="is no frame in the store"):
        frames.get("file:///etc/passwd")


@pytest.mark.slow
@pytest.mark.usefixtures("weights")
def test_frames_by_url_give_what_frames_in_memory_give(version, tmp_path, monkeypatch):
    make_clip(tmp_path / "clip.mp4", seconds=6)
    monkeypatch.setenv("FAIRLEAD_VIDEOS", str(tmp_path))
    answers = [version(name).workflows["video"]({"video": "clip.mp4", "frames": 7}) for name in ("1", "store")]
    assert answers[0] == answers[1]
    assert check_labels(answers[0]) == []
    assert len(list((tmp_path / "store" / "frames").iterdir())) == 7
