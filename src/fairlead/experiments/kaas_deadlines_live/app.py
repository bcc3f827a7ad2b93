"""Eight models, each between two functions, and two of them side by side. To be served."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairlead.app import App, fork
from fairlead.experiments.cases import read_settings
from fairlead.experiments.kaas_clients import client_of


def make_app(settings: Mapping[str, Any]) -> App:
    """The app of an experiment's settings."""
    made = App("kaas-deadlines-live")
    devices = settings["devices"]
    made.node("local", vcpus=2, devices=devices["names"], device_memory=f"{devices['memory_mb']}MB")

    @made.function()
    def prepare(value: list[list[float]]) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
        """Scales a vector to a length of 1."""
        vector = np.asarray(value, np.float32)
        return vector / max(float(np.linalg.norm(vector)), 1e-6)

    @made.function()
    def label(value: object) -> int:
        """Where the largest number is, of all models together."""
        return int(np.argmax(np.asarray(value)))

    examples = [client_of(settings["model"], i) for i in range(settings["models"])]
    models = [made.kernel(f"model-{i + 1}", one.graph, one.constants) for i, one in enumerate(examples)]
    (example,) = examples[0].inputs.values()
    for i, model in enumerate(models):
        made.workflow(f"ask-{i + 1}", prepare >> model >> label, slo=settings["slo_s"], example=example.tolist())
    two = prepare >> fork(models[0], models[1]) >> label
    made.workflow("pair", two, slo=settings["pair_slo_s"], example=example.tolist())
    return made


app = make_app(read_settings("fairlead.experiments.kaas_deadlines_live"))
