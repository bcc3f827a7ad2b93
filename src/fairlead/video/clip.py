"""The test video: a camera that pans over photographs, the same frame by frame on every machine.

The photographs are those that scikit-image's package carries (the astronaut is NASA's, in the public domain; the others
are under CC0 or comparably free). What is to be seen at which part of the clip was noted by looking at it, in
`clip-labels.json`: labels go by the share of the clip, so a shorter clip has the same ones.

    python -m fairlead.video.clip clip.mp4
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from fairlead.errors import FairleadError, MissingExtraError
from fairlead.video.errors import WeightsError
from fairlead.video.weights import CLIP

SECONDS = 60.0
SIZE = (640, 480)
FRAMES_PER_S = 24

_PICTURES = {  # SHA-256 of the files, lest another version of the package has others
    "astronaut.png": "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5",
    "chelsea.png": "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
    "coffee.png": "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
    "motorcycle_left.png": "db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179",
    "rocket.jpg": "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c",
}


@dataclass(frozen=True)
class Pan:
    """One of the twelve parts of the clip: a window that goes over a photograph.

    `window` is its width as a share of the greatest that fits; `start` and `end` are where its upper left corner is, as
    shares of the room that it has.
    """

    picture: str
    window: float
    start: tuple[float, float]
    end: tuple[float, float]


PANS = (
    Pan("astronaut.png", 0.80, (0.1, 0.0), (0.6, 0.30)),
    Pan("chelsea.png", 0.85, (0.0, 0.5), (1.0, 0.5)),
    Pan("coffee.png", 0.85, (0.0, 0.5), (1.0, 0.5)),
    Pan("rocket.jpg", 0.85, (0.0, 0.5), (1.0, 0.5)),
    Pan("astronaut.png", 0.70, (0.6, 0.2), (0.1, 0.0)),
    Pan("motorcycle_left.png", 0.85, (0.0, 0.5), (1.0, 0.5)),
    Pan("coffee.png", 0.90, (1.0, 0.2), (0.0, 0.2)),
    Pan("chelsea.png", 0.90, (1.0, 0.2), (0.0, 0.8)),
    Pan("astronaut.png", 0.85, (0.5, 0.25), (0.3, 0.0)),
    Pan("motorcycle_left.png", 0.90, (1.0, 0.2), (0.0, 0.8)),
    Pan("rocket.jpg", 0.90, (1.0, 0.2), (0.0, 0.8)),
    Pan("coffee.png", 0.80, (0.3, 1.0), (0.7, 0.0)),
)
"""What the clip shows, each for a twelfth of it."""


def make_clip(path: str | Path, seconds: float = SECONDS, size: tuple[int, int] = SIZE) -> Path:
    """Write the clip as mp4 (MPEG-4 part 2), at 24 frames per second; the file appears when it is whole.

    Needs scikit-image's pictures (the extra `video-clip`).
    """
    total = round(seconds * FRAMES_PER_S)
    if total < len(PANS):
        raise ValueError(f"seconds must be at least {len(PANS) / FRAMES_PER_S:g}; got {seconds:g}.")
    pictures = {name: _picture(name) for name in _PICTURES}
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".clip-", dir=path.parent) as folder:
            draft = Path(folder) / CLIP
            _write(draft, pictures, total, size)
            draft.replace(path)
    except OSError as error:
        raise WeightsError(f"{path} cannot be written: {error.strerror or error}.") from None
    return path


def _write(path: Path, pictures: Mapping[str, NDArray[np.uint8]], total: int, size: tuple[int, int]) -> None:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), FRAMES_PER_S, size)
    if not writer.isOpened():
        raise WeightsError(f"{path} cannot be written: this build of OpenCV cannot encode mp4.")
    try:
        for index in range(total):
            writer.write(frame_at((index + 0.5) / total, pictures, size))
    finally:
        writer.release()


def frame_at(share: float, pictures: Mapping[str, NDArray[np.uint8]], size: tuple[int, int]) -> NDArray[np.uint8]:
    """What is to be seen at this share of the clip, in [0, 1)."""
    part = share * len(PANS)
    pan = PANS[int(part)]
    along = part - int(part)
    picture = pictures[pan.picture]
    height, width = picture.shape[:2]
    wide = pan.window * min(width, height * size[0] / size[1])
    high = wide * size[1] / size[0]
    x, y = (start + along * (end - start) for start, end in zip(pan.start, pan.end, strict=True))
    left, top = x * (width - wide), y * (height - high)
    zoom = size[0] / wide
    matrix = np.array([[zoom, 0, -left * zoom], [0, zoom, -top * zoom]])  # sub-pixel: a pan does not jump
    shown = cv2.warpAffine(picture, matrix, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(shown, dtype=np.uint8)


def _picture(name: str) -> NDArray[np.uint8]:
    spec = find_spec("skimage")  # found, not imported: only its files are wanted
    if spec is None or spec.origin is None:
        raise MissingExtraError("Making the test clip", "the photographs of scikit-image", "video-clip")
    path = Path(spec.origin).parent / "data" / name
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}. Install scikit-image 0.26.") from None
    if hashlib.sha256(data).hexdigest() != _PICTURES[name]:
        raise WeightsError(f"{path} is not the photograph that the clip is made of. Install scikit-image 0.26.")
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return np.asarray(decoded, dtype=np.uint8)


@cache
def labels() -> tuple[Mapping[str, Any], ...]:
    """What is to be seen: parts of the clip, by share, each with `shows` and the labels that are right."""
    parts = json.loads((Path(__file__).parent / "clip-labels.json").read_text(encoding="utf-8"))["parts"]
    return tuple({**part, "from": Fraction(part["from"]), "to": Fraction(part["to"])} for part in parts)


def check_labels(result: Mapping[str, Any]) -> list[str]:
    """Where a result of the workflow on the clip differs from what is to be seen; empty if nowhere.

    Of an object, one of the first three names must be right: what is a moped, and what a scooter, is no matter here.
    """
    found = []
    for frame in result["frames"]:
        share = frame["share"]
        part = next(each for each in labels() if each["from"] <= share < each["to"])
        where = f"frame {frame['frame']} ({share:.1%} of the clip, {part['shows']})"
        right = " or ".join(part["labels"])
        if (part["shows"] == "face") != (frame["kind"] == "face"):
            found.append(f"{where}: {'a' if frame['kind'] == 'face' else 'no'} face was found.")
        elif frame["kind"] == "face":
            if frame["emotion"] not in part["labels"]:
                found.append(f"{where}: {frame['emotion']}, and not {right}.")
        else:
            names = [each["name"] for each in frame["objects"]][:3]
            if not set(names) & set(part["labels"]):
                found.append(f"{where}: {', '.join(names)}, and not {right}.")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the clip from the command line."""
    parser = argparse.ArgumentParser(prog="python -m fairlead.video.clip", description="Make the test clip.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    asked = parser.parse_args(arguments)
    try:
        path = make_clip(asked.path, asked.seconds)
    except (FairleadError, ValueError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    sys.stdout.write(f"Wrote {path}, {os.path.getsize(path) / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
