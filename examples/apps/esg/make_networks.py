"""Makes the six networks of this app: real convolutions with seeded weights, trained for nothing.

How long a network takes does not depend on its weights, and only its time matters here: on one core the six take,
relative to each other, about as long as the functions of ESG (super resolution 86 ms, segmentation 293, deblur 319,
classification 147, background removal 1047, depth recognition 828; recalled, not checked against the paper), each 1/31
of it on the machine where they were made. The middle layers of a network share weights, so that the files stay small.

    python examples/apps/esg/make_networks.py [--check]
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from making import Graph, main  # noqa: E402

SIDE = 96
"""Width and height of every picture but the small one that is made larger."""


class Network(Graph):
    """A stack of convolutions whose weights are drawn from one seed."""

    def __init__(self, seed: int, side: int) -> None:
        super().__init__(3, side, side)
        self._rng = np.random.default_rng(seed)
        self._channels = 3

    def draw(self, name: str, channels: int, size: int = 3) -> str:
        """Weights that keep the variance of what goes through them (He et al. 2015)."""
        shape = (channels, self._channels, size, size)
        scale = np.sqrt(2 / (self._channels * size * size))
        self._channels = channels
        return self.weight(name, self._rng.standard_normal(shape) * scale)

    def step(self, name: str, channels: int, stride: int = 1) -> None:
        """One convolution to that many channels."""
        self.conv(self.draw(name, channels), stride=stride)
        self.add("Relu")

    def refine(self, name: str, times: int) -> None:
        """The same convolution again and again."""
        weights = self.draw(name, self._channels)
        for _ in range(times):
            self.conv(weights)
            self.add("Relu")

    def finish(self, channels: int, kind: str = "Sigmoid") -> bytes:
        """Down to that many channels, and the file."""
        self.conv(self.draw("out", channels, size=1), size=1)
        self.add(kind)
        return self.data()


def make() -> dict[str, bytes]:
    """The files by name."""
    larger = Network(seed=1, side=SIDE // 2)
    larger.step("in", 32)
    larger.refine("middle", 6)
    larger.conv(larger.draw("spread", 12))
    larger.add("DepthToSpace", blocksize=2)  # 12 channels become 3, on twice the width and height
    larger.add("Sigmoid")

    segments = Network(seed=2, side=SIDE)
    segments.step("in", 64, stride=2)
    segments.refine("middle", 6)

    sharper = Network(seed=3, side=SIDE)
    sharper.step("in", 32)
    sharper.refine("middle", 6)

    classes = Network(seed=4, side=SIDE)
    classes.step("in", 32, stride=2)
    classes.refine("upper", 4)
    classes.step("between", 64, stride=2)
    classes.refine("lower", 7)
    classes.add("GlobalAveragePool")

    foreground = Network(seed=5, side=SIDE)
    foreground.step("in", 32)
    foreground.refine("middle", 22)

    depth = Network(seed=6, side=SIDE)
    depth.step("in", 32)
    depth.refine("middle", 17)

    return {
        "super-resolution.onnx": larger.data(),
        "segmentation.onnx": segments.finish(8, "Identity"),
        "deblur.onnx": sharper.finish(3),
        "classification.onnx": classes.finish(10, "Identity"),
        "background-removal.onnx": foreground.finish(1),
        "depth-recognition.onnx": depth.finish(1),
    }


if __name__ == "__main__":
    main(make, HERE)
