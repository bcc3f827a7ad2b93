"""The analyzer: which of seven emotions a face shows."""

from collections.abc import Sequence

import cv2
import numpy as np

from fairlead.video.detecting import Box
from fairlead.video.framing import from_jpeg
from fairlead.video.networks import network

EMOTIONS = ("angry", "disgust", "fear", "happy", "sad", "surprise", "neutral")

_SIDE = 64


def analyzer(jpeg: bytes, faces: Sequence[Box]) -> dict[str, float]:
    """The share of each emotion in the largest of the faces, the greatest first; they sum to 1."""
    if not faces:
        raise ValueError("a frame without faces has no emotions; give it to the recogniser.")
    cv2.setNumThreads(1)
    left, top, width, height = max(faces, key=lambda box: box[2] * box[3])
    grey = cv2.cvtColor(from_jpeg(jpeg), cv2.COLOR_BGR2GRAY)
    face = cv2.resize(grey[top : top + height, left : left + width], (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    scaled = (np.asarray(face, dtype=np.float32) / 255 - 0.5) * 2  # to -1..1, as the network learnt it
    shares = network("emotions")(np.asarray(scaled, dtype=np.float32)[None, None])[0]
    order = sorted(range(len(EMOTIONS)), key=lambda i: (-shares[i], i))
    return {EMOTIONS[i]: round(float(shares[i]), 4) for i in order}
