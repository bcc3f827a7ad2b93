"""The reference kernels: a closed library, in NumPy, of what the shipped graphs compute.

A graph names one with `reference`. Nothing else ever runs on the NumPy device: a graph brings no Python. All work on
float32 arrays. Sizes are literals, in the order of the kernel's parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import sleep

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Reference:
    """A kernel of the library, and how many literals and buffers it takes."""

    run: Callable[..., None]
    literals: int
    buffers: int


REFERENCE: dict[str, Reference] = {}


def _reference(literals: int, buffers: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(run: Callable[..., None]) -> Callable[..., None]:
        REFERENCE[run.__name__] = Reference(run, literals, buffers)
        return run

    return register


@_reference(3, 3)
def gemm(m: int, n: int, k: int, a: Floats, b: Floats, c: Floats) -> None:
    """C (m x n) = A (m x k) B (k x n)."""
    c[: m * n] = (a[: m * k].reshape(m, k) @ b[: k * n].reshape(k, n)).ravel()


@_reference(2, 3)
def bias_relu(rows: int, columns: int, x: Floats, bias: Floats, y: Floats) -> None:
    """Y = max(X + bias, 0), the bias added to each row."""
    y[: rows * columns] = np.maximum(_matrix(x, rows, columns) + bias[:columns], 0).ravel()


@_reference(2, 3)
def bias_softmax(rows: int, columns: int, x: Floats, bias: Floats, y: Floats) -> None:
    """Y = the softmax of each row of X + bias."""
    logits = _matrix(x, rows, columns) + bias[:columns]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    y[: rows * columns] = (powers / powers.sum(axis=1, keepdims=True)).ravel()


@_reference(4, 4)
def conv3x3_relu(
    channels: int, height: int, width: int, filters: int, x: Floats, w: Floats, b: Floats, y: Floats
) -> None:
    """Y (filters x height x width) = max(X * W + b, 0), 3 x 3 filters, zeros around the image."""
    image = np.pad(x[: channels * height * width].reshape(channels, height, width), ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(1, 2))
    weights = w[: filters * channels * 9].reshape(filters, channels, 3, 3)
    sums = np.einsum("chwij,fcij->fhw", windows, weights, optimize=True) + b[:filters, None, None]
    y[: filters * height * width] = np.maximum(sums, 0).ravel()


@_reference(3, 2)
def maxpool2(channels: int, height: int, width: int, x: Floats, y: Floats) -> None:
    """Y = the largest of each 2 x 2 square of X. Height and width are even."""
    squares = x[: channels * height * width].reshape(channels, height // 2, 2, width // 2, 2)
    y[: channels * height * width // 4] = squares.max(axis=(2, 4)).ravel()


@_reference(1, 4)
def jacobi(n: int, a: Floats, b: Floats, x: Floats, y: Floats) -> None:
    """Y = one Jacobi step for A y = b from X: (b - (A - D) x) / D."""
    matrix = _matrix(a, n, n)
    diagonal = matrix.diagonal()
    y[:n] = (b[:n] - (matrix @ x[:n] - diagonal * x[:n])) / diagonal


@_reference(2, 2)
def scale(n: int, factor: float, x: Floats, y: Floats) -> None:
    """Y = factor X."""
    y[:n] = np.float32(factor) * x[:n]


@_reference(2, 1)
def hold(n: int, milliseconds: int, y: Floats) -> None:
    """Keep the device busy for a time, then set Y to 1: for rehearsals, and for tests of time limits."""
    sleep(milliseconds / 1000)
    y[:n] = 1


def _matrix(x: Floats, rows: int, columns: int) -> Floats:
    return x[: rows * columns].reshape(rows, columns)
