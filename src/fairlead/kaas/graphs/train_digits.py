"""Makes `digits.safetensors`: `python -m fairlead.kaas.graphs.train_digits FILE` (extra `apps`, seconds).

The filters are random; the last layer is fitted by ridge regression to the first 1,400 of scikit-learn's 1,797 digits.
Prints the share of the others that it tells right.
"""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from sklearn.datasets import load_digits

from fairlead.kaas.reference import REFERENCE

_FILTERS, _FITTED, _RIDGE = 16, 1400, 30.0
Floats = npt.NDArray[np.float32]


def main(target: Path) -> None:
    """Fit, write, and say how good it is."""
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    w0 = (rng.standard_normal((_FILTERS, 1, 3, 3)) / 3).astype(np.float32)
    b0 = rng.standard_normal(_FILTERS).astype(np.float32)
    features = np.stack([_features(image.astype(np.float32), w0, b0) for image in images])
    fitted = np.c_[features, np.ones(len(features))][:_FITTED].astype(np.float64)
    wanted = 2.0 * np.eye(10)[labels[:_FITTED]] - 1
    solved = np.linalg.solve(fitted.T @ fitted + _RIDGE * np.eye(fitted.shape[1]), fitted.T @ wanted)
    w1, b1 = solved[:-1].astype(np.float32), solved[-1].astype(np.float32)
    right = (features[_FITTED:] @ w1 + b1).argmax(axis=1) == labels[_FITTED:]
    save_file({"w0": w0, "b0": b0, "w1": np.ascontiguousarray(w1), "b1": np.ascontiguousarray(b1)}, target)
    print(f"{right.mean():.3f} of {len(right)} digits that were not fitted are told right")  # noqa: T201 - its result


def _features(image: Floats, w: Floats, b: Floats) -> Floats:
    hidden, pooled = np.empty(_FILTERS * 64, np.float32), np.empty(_FILTERS * 16, np.float32)
    REFERENCE["conv3x3_relu"].run(1, 8, 8, _FILTERS, image, w.ravel(), b, hidden)
    REFERENCE["maxpool2"].run(_FILTERS, 8, 8, hidden, pooled)
    return pooled


if __name__ == "__main__":
    main(Path(sys.argv[1]))
