"""Four workflows of image functions, in the shape of those that ESG (HPDC 2024) was evaluated with.

Six functions, each a real convolutional network on the CPU, over batch size and vCPUs. See README.md.
"""

import binascii
import os
from base64 import b64decode
from math import isqrt
from pathlib import Path

import numpy as np
from networks import Network

from fairlead import App
from fairlead.model import Configuration
from fairlead.profile.measured import read_profiles

VCPUS = (1, 2)
LEVELS = {"strict": 0.8, "moderate": 1.0, "relaxed": 1.2}
NOT_MEASURED_MS = {  # a run of one on one core, on the machine where the networks were made
    "super_resolution": 3,
    "segmentation": 10,
    "deblur": 10,
    "classification": 5,
    "background_removal": 34,
    "depth_recognition": 26,
}

app = App("esg")


def function(name, side=96):
    """Declares a function whose network takes square pictures of that side."""

    def declare(finish):
        def run(network, pictures):
            found = [pixels_of(picture) for picture in pictures]
            batch = np.stack([resized(pixels, side) for pixels in found]).transpose(0, 3, 1, 2)
            results = network(np.ascontiguousarray(batch, dtype=np.float32) / np.float32(255))
            return [finish(result, pixels) for result, pixels in zip(results, found, strict=True)]

        run.__doc__ = finish.__doc__
        weights = name.replace("_", "-")
        return app.function(name=name, batch=8, vcpus=VCPUS, setup=lambda: Network(weights, VCPUS))(run)

    return declare


@function("super_resolution", side=48)
def super_resolution(result, _pixels):
    """The picture, twice as large as the 48 x 48 pixels that it is taken at."""
    return picture_of(result)


@function("deblur")
def deblur(result, _pixels):
    """The picture, sharper."""
    return picture_of(result)


@function("segmentation")
def segmentation(result, pixels):
    """The picture with nothing left but its brightest segment."""
    segments = resized(result.argmax(axis=0), len(pixels))
    brightest = np.bincount(segments.ravel(), weights=pixels.sum(axis=2).ravel()).argmax()
    return packed(np.where((segments == brightest)[..., None], pixels, 0))


@function("background_removal")
def background_removal(result, pixels):
    """The picture without its background."""
    return packed(pixels * resized(result[0] > np.median(result[0]), len(pixels))[..., None])


@function("classification")
def classification(result, _pixels):
    """The likeliest of ten classes."""
    scores = np.exp(result.ravel() - result.max())
    return {"class": int(scores.argmax()), "score": round(float(scores.max() / scores.sum()), 6)}


@function("depth_recognition")
def depth_recognition(result, _pixels):
    """How far away each pixel is, from 0 to 255."""
    return {"side": result.shape[1], "depth": (result[0] * 255).astype(np.uint8).tobytes()}


def pixels_of(picture):
    """The pixels of a picture: height, width, colour. They come as bytes, or from outside as base64."""
    data = picture.get("pixels") if isinstance(picture, dict) else None
    try:
        data = b64decode(data, validate=True) if isinstance(data, str) else data
    except binascii.Error:
        data = None
    if not isinstance(data, bytes):
        raise ValueError('a picture is {"pixels": ...}: the bytes of a square RGB picture, in JSON as base64.')
    side = isqrt(len(data) // 3)
    if side == 0 or len(data) != side * side * 3:
        raise ValueError(f"a picture is square and has three bytes per pixel; got {len(data)} bytes.")
    return np.frombuffer(data, np.uint8).reshape(side, side, 3)


def packed(pixels):
    """A picture as it goes to the next function."""
    return {"pixels": np.ascontiguousarray(pixels, dtype=np.uint8).tobytes()}


def picture_of(result):
    """What a network gave as a picture: colour first, from 0 to 1."""
    return packed((result.transpose(1, 2, 0) * 255).round())


def resized(pixels, side):
    """To another width and height, by the nearest pixel."""
    rows = np.arange(side) * len(pixels) // side
    return pixels[np.ix_(rows, rows)]


def slo_s(*functions):
    """The objective of a chain: a multiple of what one request takes alone, with one vCPU per stage.

    Those times are what `fairlead profile` measured here; before it was run, they are those of another machine.
    """
    level = os.environ.get("ESG_SLO", "relaxed")
    try:
        factor = LEVELS[level] if level in LEVELS else float(level)
    except ValueError:
        raise ValueError(f"ESG_SLO must be {', '.join(LEVELS)} or a number; got {level!r}.") from None
    beside = Path(__file__).with_name("app.profile.json")
    measured = read_profiles(beside) if beside.is_file() else {}
    smallest = Configuration(batch=1, vcpus=1.0)
    alone_s = sum(
        measured[one.name].latency_s(smallest, "local") if one.name in measured else NOT_MEASURED_MS[one.name] / 1000
        for one in functions
    )
    return round(factor * alone_s, 4)


def workflow(name, *functions):
    """One after the other."""
    body = functions[0]
    for following in functions[1:]:
        body = body >> following
    app.workflow(name, body, slo=slo_s(*functions), example=EXAMPLE)


ramp = np.arange(48)
EXAMPLE = packed(np.stack(np.broadcast_arrays(ramp[:, None] * 5, ramp * 5, (ramp[:, None] ^ ramp) * 4), axis=2))

workflow("image-classification", super_resolution, segmentation, classification)
workflow("depth-recognition", deblur, super_resolution, depth_recognition)
workflow("background-elimination", super_resolution, deblur, background_removal)
workflow("expanded-image-classification", deblur, super_resolution, background_removal, segmentation, classification)
