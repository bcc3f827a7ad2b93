"""Trains the three networks of this app on the digits that scikit-learn carries, and says how good they are.

The same packages on the same kind of CPU give the same bytes; another kind may round otherwise.

    python examples/apps/pipelines/train.py [--check]
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from making import Graph, main  # noqa: E402

THRESHOLDS = np.arange(0.5, 1.0, 0.05)
GIVEN_UP = 0.005
"""How much accuracy the cascade may lose, against the large network, for calling that less often."""


def small_network() -> nn.Module:
    """A perceptron with one narrow layer."""
    return nn.Sequential(nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))


def large_network() -> nn.Module:
    """Three convolutions over the digit at four times its width and height."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Upsample(scale_factor=4),
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(64 * 16, 10),
    )


def train(network: nn.Module, images: np.ndarray, labels: np.ndarray, epochs: int) -> nn.Module:
    """Adam on batches of 32, in an order that the seed gives."""
    data, targets = torch.from_numpy(images), torch.from_numpy(labels)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.003)
    for _ in range(epochs):
        for rows in torch.randperm(len(data)).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(data[rows]), targets[rows]).backward()
            optimiser.step()
    return network


def file_of(network: nn.Module) -> bytes:
    """A network as ONNX, with probabilities as its output."""
    graph = Graph(64)
    for index, layer in enumerate(network):
        if isinstance(layer, nn.Conv2d | nn.Linear):
            names = [
                graph.weight(f"{part}{index}", getattr(layer, part).detach().numpy()) for part in ("weight", "bias")
            ]
            graph.conv(*names) if isinstance(layer, nn.Conv2d) else graph.add("Gemm", *names, transB=1)
        elif isinstance(layer, nn.MaxPool2d):
            graph.add("MaxPool", kernel_shape=[layer.kernel_size] * 2, strides=[layer.kernel_size] * 2)
        elif isinstance(layer, nn.Upsample):
            graph.add("Resize", "", graph.weight("scales", np.array([1, 1, 4, 4])), mode="nearest")
        elif isinstance(layer, nn.Unflatten):
            graph.add("Reshape", graph.numbers("shape", [-1, 1, 8, 8]))
        else:
            graph.add({nn.ReLU: "Relu", nn.Flatten: "Flatten"}[type(layer)])
    graph.add("Softmax")
    return graph.data()


def linear_file(model: LogisticRegression) -> bytes:
    """A logistic regression as ONNX."""
    graph = Graph(64)
    graph.add("Gemm", graph.weight("weight", model.coef_), graph.weight("bias", model.intercept_), transB=1)
    graph.add("Softmax")
    return graph.data()


def probabilities(data: bytes, images: np.ndarray) -> np.ndarray:
    """What a file gives for these digits."""
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"input": images})[0]


def accuracy(found: np.ndarray, labels: np.ndarray) -> float:
    """Share of digits that were read as what they are."""
    return float((found.argmax(axis=1) == labels).mean())


def cascaded(small: np.ndarray, large: np.ndarray, threshold: float) -> np.ndarray:
    """What the cascade gives: the small network's, or where that is not sure, the surer one's."""
    is_second = (small.max(axis=1) < threshold) & (large.max(axis=1) >= small.max(axis=1))
    return np.where(is_second[:, None], large, small)


def make() -> dict[str, bytes]:
    """The files by name. Half of the digits train, a quarter chooses the threshold, a quarter says how good it is."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    seen, rest, seen_labels, rest_labels = train_test_split(images, digits.target, test_size=0.5, random_state=0)
    kept, unseen, kept_labels, labels = train_test_split(rest, rest_labels, test_size=0.5, random_state=0)
    regression = LogisticRegression(C=0.05, max_iter=200).fit(seen, seen_labels)
    files = {
        "small.onnx": file_of(train(small_network(), seen, seen_labels, epochs=20)),
        "large.onnx": file_of(train(large_network(), seen, seen_labels, epochs=16)),
        "linear.onnx": linear_file(regression),
    }
    choosing = {name: probabilities(data, kept) for name, data in files.items()}
    small, large = choosing["small.onnx"], choosing["large.onnx"]
    least = accuracy(large, kept_labels) - GIVEN_UP
    good = [t for t in THRESHOLDS if accuracy(cascaded(small, large, t), kept_labels) >= least]
    threshold = min(good, default=THRESHOLDS[-1])
    found = {name: probabilities(data, unseen) for name, data in files.items()}
    for name, rows in found.items():
        print(f"{name:12} {accuracy(rows, labels):.1%} of {len(labels)} digits that were not trained with")
    small, large = found["small.onnx"], found["large.onnx"]
    asked = float((small.max(axis=1) < threshold).mean())
    both = accuracy(cascaded(small, large, threshold), labels)
    print(f"{'cascade':12} {both:.1%} with THRESHOLD = {threshold:.2f}; the large network is asked for {asked:.0%}")
    print(f"{'ensemble':12} {accuracy(np.mean(list(found.values()), axis=0), labels):.1%}")
    return files


if __name__ == "__main__":
    main(make, HERE)
