"""The framer: a video in, some of its frames out, as JPEG."""

import urllib.error
import urllib.request
from http.client import HTTPMessage
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO
from urllib.parse import urlsplit

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead.video.errors import UnreadableVideoError

MOST_KEPT = 1000
MOST_BYTES = 256 << 20
"""Of a video that is fetched or given as bytes."""

_FETCH_LIMIT_S = 60.0


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One frame that was kept. `share` is where its middle lies in the video, in (0, 1)."""

    frame: int
    time_s: float
    share: float
    jpeg: bytes


def framer(
    video: str | Path | bytes, *, frames: int = 16, every_s: float | None = None, is_seeking: bool = False
) -> list[Frame]:
    """Frames of an mp4 file (a path, its bytes, or an http(s) URL), in order.

    Args:
        video: What to cut.
        frames: How many to keep, evenly: of each of so many equal parts, the frame in its middle.
        every_s: Keep one frame every so many seconds instead, the first one first.
        is_seeking: Jump from frame to frame, instead of decoding everything in between. Cheaper where little is kept of
            much; the papers' framer does not.
    """
    if not 1 <= frames <= MOST_KEPT:
        raise ValueError(f"frames must be in 1..{MOST_KEPT}; got {frames}.")
    if every_s is not None and not every_s > 0:
        raise ValueError(f"every_s must be positive; got {every_s}.")
    cv2.setNumThreads(1)
    found, called = _checked(video)
    if isinstance(found, Path):
        return _cut(found, called, frames, every_s, is_seeking)
    with NamedTemporaryFile(suffix=".mp4") as file:
        file.write(found)
        file.flush()
        return _cut(Path(file.name), called, frames, every_s, is_seeking)


def _cut(path: Path, called: str, frames: int, every_s: float | None, is_seeking: bool) -> list[Frame]:
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    try:
        rate, total = capture.get(cv2.CAP_PROP_FPS), int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
        if not capture.isOpened() or not rate > 0 or total < 1:
            raise UnreadableVideoError(f"{called} cannot be read as an mp4 video: it is damaged, or holds no picture.")
        if every_s is None:
            wanted = [(2 * i + 1) * total // (2 * frames) for i in range(frames)]
        else:
            wanted = [round(i * every_s * rate) for i in range(int((total - 1) / (every_s * rate)) + 1)]
        if len(wanted) > MOST_KEPT:
            raise ValueError(f"every_s={every_s} would keep {len(wanted)} frames; {MOST_KEPT} are the most.")
        kept = []
        reached = -1
        for index in wanted:
            if is_seeking and index > reached + 1:
                capture.set(cv2.CAP_PROP_POS_FRAMES, index)
                reached = index - 1
            while reached < index:
                if not capture.grab():
                    raise UnreadableVideoError(f"{called} ends at frame {reached + 1} of {total}: it is not whole.")
                reached += 1
            is_there, picture = capture.retrieve()
            if not is_there:
                raise UnreadableVideoError(f"{called}: frame {index} of {total} cannot be decoded.")
            share = round((index + 0.5) / total, 6)
            kept.append(
                Frame(
                    frame=index,
                    time_s=round(index / rate, 3),
                    share=share,
                    jpeg=to_jpeg(np.asarray(picture, dtype=np.uint8)),
                )
            )
        return kept
    finally:
        capture.release()


def to_jpeg(picture: NDArray[np.uint8]) -> bytes:
    """A picture (blue, green, red) as JPEG, at OpenCV's usual quality of 95."""
    is_done, data = cv2.imencode(".jpg", picture)
    assert is_done
    return data.tobytes()


def from_jpeg(jpeg: bytes) -> NDArray[np.uint8]:
    """The picture (blue, green, red) of a JPEG."""
    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    if picture is None:
        raise UnreadableVideoError("A frame is no picture: it cannot be decoded as JPEG.")
    return np.asarray(picture, dtype=np.uint8)


def _checked(video: str | Path | bytes) -> tuple[Path | bytes, str]:
    """The video as a file that exists, or its bytes, and what it is called. OpenCV itself would open any URL."""
    if isinstance(video, bytes):
        _check_size(video, "The video")
        _check(video[:12], "The video")
        return video, "The video"
    if isinstance(video, str) and urlsplit(video).scheme in ("http", "https"):
        data = _fetched(video)
        _check_size(data, video)
        _check(data[:12], video)
        return data, video
    path = Path(video)
    try:
        with path.open("rb") as file:
            head = file.read(12)
    except OSError as error:
        raise UnreadableVideoError(f"The video {path} cannot be read: {error.strerror or error}.") from None
    _check(head, str(path))
    return path, str(path)


def _check(head: bytes, called: str) -> None:
    # Also because other formats (playlists) can name further files, which a caller must not have read for him.
    if not head:
        raise UnreadableVideoError(f"{called} is empty.")
    if head[4:8] != b"ftyp":
        raise UnreadableVideoError(f"{called} is no mp4 video. Convert it with: ffmpeg -i INPUT OUTPUT.mp4")


def _check_size(data: bytes, called: str) -> None:
    if len(data) > MOST_BYTES:
        raise UnreadableVideoError(f"{called} is larger than {MOST_BYTES >> 20} MB.")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses to be led elsewhere: only the host of the URL itself was allowed."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        reason = f"it redirects to {newurl}, and redirects are not followed. Ask for that URL instead"
        raise urllib.error.HTTPError(req.full_url, code, reason, headers, fp)


def _fetched(url: str) -> bytes:
    """What is there, as far as one byte beyond the most that it may have."""
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(url, timeout=_FETCH_LIMIT_S) as answer:
            data: bytes = answer.read(MOST_BYTES + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UnreadableVideoError(f"{url} cannot be fetched: {reason}.") from None
    return data
