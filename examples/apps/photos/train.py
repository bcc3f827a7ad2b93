"""Trains the two models of this app on three photographs that scikit-image carries, and says how good they are.

Patches from the left of each photograph train, patches from the right say how good the models are. The same packages on
the same kind of CPU give the same bytes; another kind may round otherwise.

    python examples/apps/photos/train.py [--check]
"""

import io
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import skimage.data
import torch
from PIL import Image
from sklearn.ensemble import RandomForestClassifier
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))

from features import SIDE, describe, levelled  # noqa: E402
from making import Graph, main  # noqa: E402

LABELS = ("brick", "grass", "gravel")
BORDER = 340
"""Columns left of it train."""


def patches(rng: np.random.Generator, columns: tuple[int, int], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of the photographs, half of them mirrored, and what each shows."""
    pieces, labels = [], []
    for label, name in enumerate(LABELS):
        photo = getattr(skimage.data, name)().astype(np.float32)
        for _ in range(count):
            top, left = rng.integers(0, len(photo) - SIDE), rng.integers(columns[0], columns[1] - SIDE)
            piece = photo[top : top + SIDE, left : left + SIDE]
            pieces.append(levelled(piece[:, ::-1] if rng.integers(2) else piece))
            labels.append(label)
    return np.stack(pieces), np.array(labels)


def train_network(pieces: np.ndarray, labels: np.ndarray) -> nn.Sequential:
    """Three convolutions, each with half the width and height of the last."""
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, len(LABELS)),
    )
    data, targets = torch.from_numpy(pieces)[:, None], torch.from_numpy(labels)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.003)
    for _ in range(8):
        for rows in torch.randperm(len(data)).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(data[rows]), targets[rows]).backward()
            optimiser.step()
    return network


def network_file(network: nn.Sequential) -> bytes:
    """The network as ONNX, with probabilities as its output."""
    graph = Graph(1, SIDE, SIDE)
    for index, layer in enumerate(network):
        if isinstance(layer, nn.Conv2d | nn.Linear):
            names = [
                graph.weight(f"{part}{index}", getattr(layer, part).detach().numpy()) for part in ("weight", "bias")
            ]
            graph.conv(*names, stride=2) if isinstance(layer, nn.Conv2d) else graph.add("Gemm", *names, transB=1)
        else:
            graph.add({nn.ReLU: "Relu", nn.AdaptiveAvgPool2d: "GlobalAveragePool", nn.Flatten: "Flatten"}[type(layer)])
    graph.add("Softmax")
    return graph.data()


def forest_file(forest: RandomForestClassifier, width: int) -> bytes:
    """The forest as ONNX: the mean of what the leaves say that an input falls into, one number per label."""
    nodes: dict[str, list[object]] = {name: [] for name in ("treeids", "nodeids", "featureids", "modes", "values")}
    nodes |= {"truenodeids": [], "falsenodeids": []}
    leaves: dict[str, list[object]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for number, tree in enumerate(forest.estimators_):
        parts = tree.tree_
        for node in range(parts.node_count):
            is_leaf = parts.children_left[node] < 0
            row = (
                number,
                node,
                0 if is_leaf else int(parts.feature[node]),
                "LEAF" if is_leaf else "BRANCH_LEQ",
                0.0 if is_leaf else _at_most(parts.threshold[node]),
                0 if is_leaf else int(parts.children_left[node]),
                0 if is_leaf else int(parts.children_right[node]),
            )
            for column, value in zip(nodes.values(), row, strict=True):
                column.append(value)
            if is_leaf:
                shares = parts.value[node][0] / parts.value[node][0].sum() / len(forest.estimators_)
                for label, share in enumerate(shares):
                    for column, value in zip(leaves.values(), (number, node, label, float(share)), strict=True):
                        column.append(value)
    graph = Graph(width)
    attributes = {f"nodes_{name}": values for name, values in nodes.items()}
    attributes |= {f"target_{name}": values for name, values in leaves.items()}
    graph.add("TreeEnsembleRegressor", n_targets=len(LABELS), **attributes)
    return graph.data()


def _at_most(threshold: float) -> float:
    """The largest 32-bit number that is not above: a comparison with it has the same result for all 32-bit numbers."""
    near = np.float32(threshold)
    return float(near if near <= threshold else np.nextafter(near, np.float32(-np.inf)))


def png(pixels: np.ndarray) -> bytes:
    """Grey pixels as a file."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def make() -> dict[str, bytes]:
    """The files by name: the models, and a photograph for the example."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    rng = np.random.default_rng(0)
    pieces, labels = patches(rng, (0, BORDER), 400)
    unseen, right = patches(rng, (BORDER, 512), 150)
    features = np.stack([describe(piece) for piece in pieces])
    forest = RandomForestClassifier(n_estimators=30, max_depth=8, random_state=0).fit(features, labels)
    unseen_features = np.stack([describe(piece) for piece in unseen])
    files = {
        "network.onnx": network_file(train_network(pieces, labels)),
        "forest.onnx": forest_file(forest, features.shape[1]),
    }
    found = {}
    for name, inputs in (("network.onnx", unseen[:, None]), ("forest.onnx", unseen_features)):
        session = onnxruntime.InferenceSession(files[name], providers=["CPUExecutionProvider"])
        found[name] = session.run(None, {"input": inputs})[0]
    assert np.allclose(found["forest.onnx"], forest.predict_proba(unseen_features), atol=1e-5)
    found["both"] = np.mean(list(found.values()), axis=0)
    for name, rows in found.items():
        print(
            f"{name:13} {(rows.argmax(axis=1) == right).mean():.1%} of {len(right)} patches that were not trained with"
        )
    votes = [rows.argmax(axis=1) for rows in found.values()]
    is_sure = (votes[0] == votes[1]) & (found["both"].max(axis=1) >= 0.7)
    print(f"sure          {is_sure.mean():.1%}, of which right {(votes[2] == right)[is_sure].mean():.1%}")
    return {**files, "gravel.png": png(skimage.data.gravel()[200:360, 345:505])}


if __name__ == "__main__":
    main(make, HERE)
