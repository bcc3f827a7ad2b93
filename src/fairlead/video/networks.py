"""Networks, loaded once per process and run on one thread."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from fairlead.video.weights import models_folder, read_weights


class Network:
    """One network: an array in, an array out."""

    def __init__(self, data: bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # an instance has one vCPU
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def __call__(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the network gives for a batch of one."""
        return np.asarray(self._session.run(None, {"input": batch})[0], dtype=np.float32)


def network(name: str) -> Network:
    """The network of that name, from the folder of the weights; its hash is checked when it is first loaded."""
    return _network(name, models_folder())


@cache
def _network(name: str, folder: Path) -> Network:
    return Network(read_weights(name, folder))


def object_names() -> tuple[str, ...]:
    """What the classes of objects are called, in their order."""
    return _names(models_folder())


@cache
def _names(folder: Path) -> tuple[str, ...]:
    return tuple(read_weights("object-names", folder).decode().splitlines())
