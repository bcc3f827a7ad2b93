"""The workflow served: real processes, a real video, and failures that say what mends them."""

import pytest
from serving import Serving, serving

from fairlead.video import APP
from fairlead.video.clip import check_labels


def test_the_clip_is_understood_end_to_end_and_failures_are_answers(workplace, tmp_path):
    with serving(APP, tmp_path / "state") as served:
        answer = served.call("video", {"video": "clip.mp4", "frames": 7}, timeout_s=60)
        assert answer.status == 200, answer.body
        assert check_labels(answer.json["output"]) == []
        assert answer.json["output"]["faces"] == 2
        assert len(list(workplace.iterdir())) == 1

        (app,) = served.ask("GET", "/v1/status").json["apps"]
        ran = {function["name"]: function["invocations"] for function in app["functions"]}
        assert ran == {"framer": 1, "detector": 7, "analyzer": 2, "recogniser": 5, "uploader": 1}

        missing = served.call("video", {"video": "missing.mp4"}, timeout_s=60)
        assert missing.status == 502
        assert missing.json["error"]["reason"].startswith("UnreadableVideoError: The video ")
        assert missing.json["error"]["reason"].endswith("missing.mp4 cannot be read: No such file or directory.")

        for kept in workplace.iterdir():
            kept.unlink()
        workplace.rmdir()
        workplace.write_text("a file where the folder was")
        refused = served.call("video", {"video": "clip.mp4", "frames": 1}, timeout_s=60)
        assert refused.status == 502
        assert "StoreError: The store file://" in refused.json["error"]["reason"]
        assert "FAIRLEAD_STORE=" in refused.json["error"]["reason"]


@pytest.mark.usefixtures("workplace")
def test_a_store_that_cannot_be_is_told_before_it_is_served(tmp_path):
    served = Serving(APP, tmp_path / "state", env={"FAIRLEAD_STORE": "results"})
    try:
        assert served.process.wait(60) != 0
        assert "The store 'results' is none that can be written. Name a folder, such as FAIRLEAD_STORE=" in served.err
        assert "Traceback" not in served.own_err
    finally:
        served.end()


@pytest.mark.usefixtures("workplace")
def test_without_weights_it_is_not_served_and_the_command_is_named(tmp_path):
    served = Serving(APP, tmp_path / "state", env={"FAIRLEAD_MODELS": str(tmp_path / "empty")})
    try:
        assert served.process.wait(60) != 0
        assert "Get them with: fairlead models pull" in served.err
        assert "Traceback" not in served.own_err
    finally:
        served.end()
