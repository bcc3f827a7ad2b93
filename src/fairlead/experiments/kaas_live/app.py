"""Clients of an app, each with a kernel of its own. To be served; the variables below say how many and of what."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.app import App
from fairlead.experiments.kaas_clients import clients_of

CLIENTS, MODELS = "FAIRLEAD_KAAS_CLIENTS", "FAIRLEAD_KAAS_MODELS"
"""How many, and their models as `clients_of` takes them, in JSON."""

_SMALL = {"n": 16, "iterations": 1, "constants_mb": 1}


def make_app(count: int, models: Sequence[Mapping[str, Any]]) -> App:
    """An app with a workflow per client, whose one stage is that client's kernel."""
    made = App("kaas-live")
    for name, example in clients_of(models, count).items():
        (value,) = example.inputs.values()
        made.workflow(name, made.kernel(name, example.graph, example.constants), example=value.tolist())
    return made


app = make_app(int(os.environ.get(CLIENTS, "2")), json.loads(os.environ.get(MODELS, "null")) or [_SMALL])
