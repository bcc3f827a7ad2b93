"""The shipped app `pipelines` with more workflows: fused, competing, called stage by stage, and with fixed batch sizes.

To be served. The functions are those of the shipped app; a batch size of its own makes a function of its own.
"""

from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

from fairlead.app import App, fork, switch
from fairlead.experiments.shipped_apps import app_folder

MODELS = ("small", "large", "linear")
COPIES = 2
"""Of the large network, where it competes."""

BATCHES = (1, 2, 4, 8)
STEPS = ("prepare", *MODELS)
"""Functions that a client of a model server calls one by one."""

SLO = "10s"  # nothing is to be refused: what is measured is what it takes


def load_shipped() -> ModuleType:
    """The module of the shipped app."""
    spec = spec_from_file_location("fairlead_shipped_pipelines", app_folder("pipelines") / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def add_variants(shipped: ModuleType) -> App:
    """The shipped app, with every variant as a workflow besides `ensemble` and `cascade`."""
    app: App = shipped.app

    def add(name: str, body: Any, **options: Any) -> None:
        app.workflow(name, body, slo=SLO, example=shipped.EXAMPLE, **options)

    def ensemble(models: dict[str, Any]) -> Any:
        return shipped.prepare >> fork(*(models[name] for name in MODELS)) >> shipped.average

    def cascade(models: dict[str, Any]) -> Any:
        branch = switch(shipped.is_sure, {True: None, False: models["large"]}, weights={True: 3, False: 1})
        return shipped.prepare >> models["small"] >> branch >> shipped.answer

    plain = {name: app.functions[name] for name in MODELS}
    # A copy that loses keeps its instance busy to the end. A function of its own leaves the instances of others alone.
    racing = {**plain, "large": _sized(app, "large", 8, "large-racing")}
    for name, body in (("ensemble", ensemble), ("cascade", cascade)):
        add(f"{name}-graph", body(plain))
        add(f"{name}-compete", body(racing), compete={"large-racing": COPIES})
    # Of the ensemble nothing can be fused: its first stage has three successors, its last three predecessors.
    add("cascade-fused", cascade(plain), fuse=True)
    add("call-prepare", shipped.prepare)
    digit = shipped.prepare(shipped.EXAMPLE)
    for name in MODELS:
        app.workflow(f"call-{name}", plain[name], slo=SLO, example=digit)
    for size in BATCHES:
        sized = {name: _sized(app, name, size, f"{name}-{size}") for name in MODELS}
        add(f"ensemble-batch-{size}", ensemble(sized))
        add(f"cascade-batch-{size}", cascade(sized))
    return app


def _sized(app: App, name: str, size: int, called: str) -> Any:
    """A model with batches up to this size, as a function of that name."""
    model = app.functions[name]
    work: Any = model.__wrapped__

    def batched(session: Any, items: Any) -> Any:
        return work(session, items)

    def single(session: Any, item: Any) -> Any:
        (result,) = work(session, [item])
        return result

    return app.function(name=called, batch=size, setup=model.setup)(batched if size > 1 else single)


app = add_variants(load_shipped())
