"""Functions that work on pictures: a bilinear resize and a thumbnail, on a picture made for the purpose."""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from fairlead.learn.functions.texts import Answer

Picture = NDArray[np.float32]  # height x width x 3, from 0 to 255

_THUMBNAIL_PIXELS = 128  # of its longer side, at most


def picture(pixels: int) -> Picture:
    """A square picture: red grows to the right, green downwards, blue goes in rings."""
    y, x = np.mgrid[0:pixels, 0:pixels].astype(np.float32) / np.float32(max(1, pixels - 1))
    rings = np.sin(40 * np.hypot(x - np.float32(0.5), y - np.float32(0.5))) / 2 + np.float32(0.5)
    return np.asarray(np.stack([x, y, rings], axis=-1) * 255, np.float32)


def resized(image: Picture, height: int, width: int) -> Picture:
    """The picture with so many pixels, each mixed of its four neighbours; corners stay where they are."""
    rows, row_part = _between(image.shape[0], height)
    columns, column_part = _between(image.shape[1], width)
    # One axis after the other: the same as the four neighbours at once, with half the reads.
    tall = image[rows] * (1 - row_part)[:, None, None] + image[rows + 1] * row_part[:, None, None]
    wide = tall[:, columns] * (1 - column_part)[None, :, None] + tall[:, columns + 1] * column_part[None, :, None]
    return np.asarray(wide, np.float32)


def thumbnail(image: Picture, pixels: int = _THUMBNAIL_PIXELS) -> Picture:
    """The means of square boxes, the least ones that make the longer side at most so many pixels.

    What is left of a side that the box does not divide is cut off.
    """
    box = max(1, ceil(max(image.shape[:2]) / pixels))
    height, width = image.shape[0] // box, image.shape[1] // box
    boxes = image[: height * box, : width * box].reshape(height, box, width, box, 3)
    return np.asarray(boxes.mean(axis=(1, 3)), np.float32)


def resize_work(size: int) -> Answer:
    """Make a picture of so many pixels a side, and resize it to three quarters."""
    small = resized(picture(size), 3 * size // 4, 3 * size // 4)
    return {"height": small.shape[0], "width": small.shape[1], "mean": float(small.mean(dtype=np.float64))}


def thumbnail_work(size: int) -> Answer:
    """Make a picture of so many pixels a side, and a thumbnail of it."""
    small = thumbnail(picture(size))
    return {"height": small.shape[0], "width": small.shape[1], "mean": float(small.mean(dtype=np.float64))}


def _between(old: int, new: int) -> tuple[NDArray[np.int64], Picture]:
    """For each new place, the old one before it and how far it lies towards the next."""
    at = np.linspace(0, old - 1, new)
    before = np.minimum(at.astype(np.int64), max(0, old - 2))
    return before, np.asarray(at - before, np.float32)
