"""The workflow in its four granularities: they say the same, and what they say is right."""

import json
import subprocess
import sys
from urllib.request import url2pathname

import pytest

from fairlead.app import load_app
from fairlead.video import APP, VERSIONS
from fairlead.video.clip import check_labels
from fairlead.video.errors import StoreError, UnreadableVideoError, WeightsError
from fairlead.video.versions import cut, make_app

FUNCTIONS = {
    1: {"framer", "detector", "analyzer", "recogniser", "uploader"},
    2: {"framer", "detector", "inference", "uploader"},
    3: {"framer", "big-inference", "uploader"},
    4: {"monolith", "uploader"},
}


@pytest.mark.parametrize("version", FUNCTIONS)
def test_a_version_has_the_functions_of_the_thesis(version):
    assert set(make_app(version).functions) == FUNCTIONS[version]


def test_all_versions_give_the_same_result_and_store_it_once(workplace):
    request = {"video": "clip.mp4", "frames": 7}
    answers = [make_app(version).workflows["video"](request) for version in FUNCTIONS]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["faces"] == 2
    assert check_labels(answers[0]) == []
    (stored,) = workplace.iterdir()
    assert url2pathname(answers[0]["stored"].removeprefix("file://")) == str(stored)
    kept = json.loads(stored.read_bytes())
    assert kept == {key: value for key, value in answers[0].items() if key != "stored"}


def test_sixteen_frames_show_what_is_to_be_seen(workplace):
    answer = make_app(4).workflows["video"]({"video": "clip.mp4", "frames": 16, "name": "mine"})
    assert check_labels(answer) == []
    assert [frame["kind"] for frame in answer["frames"]].count("face") == 4  # as in the papers' input of 16
    assert [path.name for path in workplace.iterdir()] == ["mine.json"]


def test_an_unknown_version_is_refused():
    with pytest.raises(ValueError, match="version must be one of 1, 2, 3, 4; got 5"):
        make_app(5)


def test_apps_can_be_served_by_their_files():
    assert load_app(APP).name == "video"
    assert load_app(f"{VERSIONS}:version3").name == "video-3"


@pytest.mark.usefixtures("workplace")
def test_a_workflow_fails_with_the_reason(monkeypatch):
    workflow = make_app(4).workflows["video"]
    with pytest.raises(UnreadableVideoError, match="cannot be read"):
        workflow({"video": "missing.mp4"})
    monkeypatch.setenv("FAIRLEAD_STORE", "ftp://somewhere")
    with pytest.raises(StoreError, match="'ftp://somewhere' is none that can be written"):
        workflow({"video": "clip.mp4", "frames": 1})


def test_a_damaged_test_clip_is_told_with_the_command_that_mends_it(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRLEAD_MODELS", str(tmp_path))
    (tmp_path / "clip.mp4").write_text("no video")
    with pytest.raises(WeightsError, match=r"clip\.mp4 is damaged\. Make it anew with: fairlead models pull"):
        cut({})
    monkeypatch.setenv("FAIRLEAD_VIDEOS", str(tmp_path))
    with pytest.raises(UnreadableVideoError, match="is no mp4 video"):
        cut({"video": "clip.mp4"})


def test_the_package_loads_no_library_of_its_extras():
    code = "import sys, fairlead, fairlead.video, fairlead.video.versions, fairlead.cli.models\n"
    code += "print([m for m in ('cv2', 'onnxruntime', 'onnx', 'h5py', 'skimage', 'obstore') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
