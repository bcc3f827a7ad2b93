"""What is computed of a photograph before a model sees it; the same in training and in the app."""

import numpy as np

SIDE = 64
BINS = 8


def levelled(pixels: np.ndarray) -> np.ndarray:
    """The same brightness and contrast for all: models are to know textures, not lighting."""
    return ((pixels - pixels.mean()) / (pixels.std() + 1e-6)).astype(np.float32)


def describe(pixels: np.ndarray) -> np.ndarray:
    """Fourteen numbers: how often edges point which way, and how much is left of the picture when it is blurred."""
    down, across = np.gradient(pixels)
    strength, angle = np.hypot(down, across), np.arctan2(down, across) % np.pi
    edges, _ = np.histogram(angle, BINS, range=(0, np.pi), weights=strength)
    blurred = [pixels.reshape(SIDE // n, n, SIDE // n, n).mean(axis=(1, 3)).std() for n in (2, 4, 8, 16)]
    rest = [strength.mean(), (pixels**3).mean()]
    return np.array([*(edges / edges.sum()), *blurred, *rest], dtype=np.float32)
