"""The functions of the video workflow, each by itself."""

import functools
import http.server
import threading
from contextlib import contextmanager

import cv2
import numpy as np
import pytest

from fairlead.video import framing
from fairlead.video.analysing import EMOTIONS, analyzer
from fairlead.video.clip import FRAMES_PER_S, check_labels, make_clip
from fairlead.video.detecting import detector
from fairlead.video.errors import UnreadableVideoError, WeightsError
from fairlead.video.framing import framer, from_jpeg, to_jpeg
from fairlead.video.jobs import job_of, video_of
from fairlead.video.recognising import recogniser

FACE, CAT, COFFEE = 0.05, 0.13, 0.2  # shares of the clip


@pytest.fixture(scope="module")
def shown(clip):
    """The JPEG at a share of the clip."""
    frames = framer(clip, frames=24)
    return lambda share: min(frames, key=lambda frame: abs(frame.share - share)).jpeg


# --- the framer


def test_frames_are_the_middles_of_equal_parts(clip):
    kept = framer(clip, frames=4)
    assert [frame.frame for frame in kept] == [36, 108, 180, 252]  # of 288
    assert [frame.time_s for frame in kept] == [1.5, 4.5, 7.5, 10.5]
    assert [frame.share for frame in kept] == pytest.approx([1 / 8, 3 / 8, 5 / 8, 7 / 8], abs=0.002)


def test_one_frame_every_so_many_seconds_begins_with_the_first(clip):
    assert [frame.time_s for frame in framer(clip, every_s=5)] == [0.0, 5.0, 10.0]


@pytest.mark.parametrize("frames", [7, 16, 32, 65])
def test_as_many_frames_are_kept_as_were_asked_for(clip, frames):
    kept = framer(clip, frames=frames)
    assert len({frame.frame for frame in kept}) == frames
    assert all(frame.jpeg.startswith(b"\xff\xd8") for frame in kept)


def test_seeking_gives_the_same_frames(clip):
    assert framer(clip, frames=5, is_seeking=True) == framer(clip, frames=5)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and leads from /to/STATUS/X to /X."""

    def do_GET(self):
        if self.path.startswith("/to/"):
            _, _, status, name = self.path.split("/")
            self.send_response(int(status))
            self.send_header("Location", f"/{name}")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


@contextmanager
def serving(folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_bytes_and_a_url_give_what_the_file_gives(clip):
    expected = framer(clip, frames=2)
    assert framer(clip.read_bytes(), frames=2) == expected
    with serving(clip.parent) as url:
        assert framer(f"{url}/clip.mp4", frames=2) == expected
        with pytest.raises(UnreadableVideoError, match=r"no\.mp4 cannot be fetched"):
            framer(f"{url}/no.mp4")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_url_that_leads_elsewhere_is_not_followed(clip, status):
    with serving(clip.parent) as url:
        message = rf"cannot be fetched: it redirects to {url}/clip\.mp4, and redirects are not followed"
        with pytest.raises(UnreadableVideoError, match=message):
            framer(f"{url}/to/{status}/clip.mp4")


def test_a_video_beyond_the_most_that_is_taken_is_refused(clip, monkeypatch):
    monkeypatch.setattr(framing, "MOST_BYTES", 1 << 20)
    large = b"\0\0\0\0ftyp".ljust((1 << 20) + 1, b"\0")
    with pytest.raises(UnreadableVideoError, match=r"The video is larger than 1 MB\."):
        framer(large)
    with serving(clip.parent) as url:
        monkeypatch.setattr(framing, "MOST_BYTES", clip.stat().st_size)
        assert len(framer(f"{url}/clip.mp4", frames=1)) == 1
        monkeypatch.setattr(framing, "MOST_BYTES", clip.stat().st_size - 1)
        with pytest.raises(UnreadableVideoError, match=r"clip\.mp4 is larger than"):
            framer(f"{url}/clip.mp4")


def test_what_is_no_video_says_what_to_do(tmp_path, clip):
    text = tmp_path / "notes.mp4"
    text.write_text("#EXTM3U\nfile:///etc/hostname\n")
    with pytest.raises(UnreadableVideoError, match=r"no mp4 video\. Convert it with: ffmpeg"):
        framer(text)
    with pytest.raises(UnreadableVideoError, match="cannot be read: No such file"):
        framer(tmp_path / "missing.mp4")
    (tmp_path / "empty.mp4").touch()
    for empty in (tmp_path / "empty.mp4", b""):
        with pytest.raises(UnreadableVideoError, match=r" is empty\.$"):
            framer(empty)
    damaged = tmp_path / "damaged.mp4"
    damaged.write_bytes(clip.read_bytes()[:100_000])  # what says where the frames lie is at the end
    with pytest.raises(UnreadableVideoError, match="is damaged, or holds no picture"):
        framer(damaged)


@pytest.mark.parametrize("wrong", [{"frames": 0}, {"frames": 1001}, {"every_s": 0}, {"every_s": 0.001}])
def test_wrong_numbers_are_refused(clip, wrong):
    with pytest.raises(ValueError, match=r"frames|every_s"):
        framer(clip, **wrong)


# --- the detector


def test_the_face_is_found_and_a_cat_is_none(shown):
    (box,) = detector(shown(FACE))
    assert box[2] == box[3]
    assert 100 < box[2] < 250
    assert detector(shown(CAT)) == []


def test_the_largest_face_comes_first(shown):
    face = from_jpeg(shown(FACE))
    small = cv2.resize(face, None, fx=0.6, fy=0.6)
    both = np.zeros((480, 1100, 3), np.uint8)
    both[: small.shape[0], : small.shape[1]] = small
    both[:, 450:] = face[:, -650:] if face.shape[1] >= 650 else np.pad(face, ((0, 0), (0, 10), (0, 0)))
    boxes = detector(to_jpeg(both))
    assert len(boxes) == 2
    assert boxes[0][2] > boxes[1][2]
    assert boxes[0][0] > boxes[1][0]  # the larger one is on the right


# --- the analyzer and the recogniser


@pytest.mark.usefixtures("weights")
def test_the_astronaut_is_happy(shown):
    jpeg = shown(FACE)
    emotions = analyzer(jpeg, detector(jpeg))
    assert next(iter(emotions)) == "happy"
    assert emotions["happy"] > 0.8
    assert set(emotions) == set(EMOTIONS)
    assert sum(emotions.values()) == pytest.approx(1, abs=0.001)


@pytest.mark.usefixtures("weights")
def test_a_frame_without_faces_is_not_analysed(shown):
    with pytest.raises(ValueError, match="give it to the recogniser"):
        analyzer(shown(CAT), [])


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize(("share", "name"), [(CAT, "Egyptian cat"), (COFFEE, "espresso")])
def test_objects_are_named(shown, share, name):
    first, *others = recogniser(shown(share), top=5)
    assert first.name == name
    assert first.share > 0.4
    assert len(others) == 4
    assert all(a.share >= b.share for a, b in zip([first, *others], others, strict=False))


# --- the clip and its labels


def test_the_clip_is_the_same_every_time(tmp_path):
    one, two = (make_clip(tmp_path / name, seconds=1, size=(160, 120)) for name in ("a.mp4", "b.mp4"))
    assert one.read_bytes() == two.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mp4", "b.mp4"]


def test_a_clip_too_short_for_its_parts_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"seconds must be at least 0\.5"):
        make_clip(tmp_path / "clip.mp4", seconds=6 / FRAMES_PER_S)


def test_labels_that_are_wrong_are_told():
    face = {"frame": 1, "share": 0.01, "kind": "face", "emotion": "happy"}
    cup = {"frame": 2, "share": 0.2, "kind": "object", "objects": [{"name": "espresso"}]}
    assert check_labels({"frames": [face, cup]}) == []
    assert check_labels({"frames": [{**face, "emotion": "sad"}]}) == [
        "frame 1 (1.0% of the clip, face): sad, and not happy."
    ]
    assert check_labels({"frames": [{**face, "share": 0.2}, {**cup, "share": 0.01}]}) == [
        "frame 1 (20.0% of the clip, cup of coffee): a face was found.",
        "frame 2 (1.0% of the clip, face): no face was found.",
    ]
    (told,) = check_labels({"frames": [{**cup, "objects": [{"name": "moped"}, {"name": "tabby"}]}]})
    assert told == "frame 2 (20.0% of the clip, cup of coffee): moped, tabby, and not espresso."


# --- what a request may ask for


def test_a_request_reads_only_what_it_may(tmp_path, monkeypatch):
    inside = tmp_path / "videos"
    inside.mkdir()
    monkeypatch.setenv("FAIRLEAD_VIDEOS", str(inside))
    assert video_of(job_of({"video": "a/b.mp4"})) == inside / "a" / "b.mp4"
    for outside in ("../secret.mp4", str(tmp_path / "secret.mp4")):
        with pytest.raises(UnreadableVideoError, match="lies outside of"):
            video_of(job_of({"video": outside}))
    with pytest.raises(UnreadableVideoError, match=r"Allow them with: FAIRLEAD_VIDEO_HOSTS=example\.org"):
        video_of(job_of({"video": "https://example.org/a.mp4"}))
    monkeypatch.setenv("FAIRLEAD_VIDEO_HOSTS", "example.org, other.org")
    assert video_of(job_of({"video": "https://example.org/a.mp4"})) == "https://example.org/a.mp4"
    with pytest.raises(UnreadableVideoError, match="not allowed"):
        video_of(job_of({"video": "file:///etc/hostname"}))


def test_a_request_may_bring_the_video_along():
    assert video_of(job_of(b"\x00video")) == b"\x00video"
    assert video_of(job_of({"base64": "AHZpZGVv"})) == b"\x00video"
    with pytest.raises(UnreadableVideoError, match="not base64"):
        video_of(job_of({"base64": "?"}))
    with pytest.raises(ValueError, match=r"give `video`.*or `base64`, not both"):
        job_of({"base64": "AHZpZGVv", "video": "a.mp4"})
    with pytest.raises(ValueError, match="unknown field `vidoe`"):
        job_of({"vidoe": "a.mp4"})


def test_without_a_clip_the_command_that_makes_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRLEAD_MODELS", str(tmp_path))
    with pytest.raises(WeightsError, match=r"clip\.mp4 is missing. Make it with: fairlead models pull"):
        video_of(job_of({}))
