"""The recogniser: which objects a frame shows."""

import cv2
import msgspec
import numpy as np

from fairlead.video.framing import from_jpeg
from fairlead.video.networks import network, object_names

_SIDE = 224


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One class of objects, and how sure the network is of it, in [0, 1]."""

    index: int
    name: str
    share: float


def recogniser(jpeg: bytes, *, top: int = 3) -> list[Seen]:
    """The likeliest classes for the whole frame, the likeliest first."""
    if top < 1:
        raise ValueError(f"top must be at least 1; got {top}.")
    cv2.setNumThreads(1)
    small = cv2.resize(from_jpeg(jpeg), (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    colours = cv2.cvtColor(small, cv2.COLOR_BGR2RGB).astype(np.float32)
    batch = ((colours - 127) / 128).transpose(2, 0, 1)[None]  # as the Lite networks were trained
    logits = network("objects")(np.ascontiguousarray(batch))[0].astype(np.float64)
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    names = object_names()
    order = np.argsort(-shares, kind="stable")[:top]
    return [Seen(index=int(i), name=names[i], share=round(float(shares[i]), 4)) for i in order]
