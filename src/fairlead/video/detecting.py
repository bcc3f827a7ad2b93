"""The detector: where there are faces in a frame."""

from functools import cache
from pathlib import Path

import cv2

from fairlead.errors import MissingExtraError
from fairlead.video.framing import from_jpeg

Box = tuple[int, int, int, int]
"""Left, top, width and height, in pixels."""

_CASCADE = "haarcascade_frontalface_alt.xml"  # the one that Darly's detector used
_SCALE, _NEIGHBOURS, _LEAST = 1.1, 3, 40


def detector(jpeg: bytes) -> list[Box]:
    """The faces in a frame, the largest first; those of less than 40 pixels are not looked for."""
    cv2.setNumThreads(1)
    grey = cv2.cvtColor(from_jpeg(jpeg), cv2.COLOR_BGR2GRAY)
    found = cascade().detectMultiScale(grey, scaleFactor=_SCALE, minNeighbors=_NEIGHBOURS, minSize=(_LEAST, _LEAST))
    boxes: list[Box] = [(int(x), int(y), int(w), int(h)) for x, y, w, h in found]
    return sorted(boxes, key=lambda box: (-box[2] * box[3], box))


@cache
def cascade() -> cv2.CascadeClassifier:
    """The classifier, loaded once per process. OpenCV 5 ships none."""
    data = getattr(cv2, "data", None)
    path = Path(getattr(data, "haarcascades", "")) / _CASCADE
    if not hasattr(cv2, "CascadeClassifier") or not path.is_file():
        needs = f"OpenCV 4 with its {_CASCADE}, and this is OpenCV {cv2.__version__}"
        raise MissingExtraError("The face detector", needs, "video")
    return cv2.CascadeClassifier(str(path))
