"""Four of the twelve functions, each a workflow of its own: the app that is served under every scaler."""

from fairlead.app import App
from fairlead.learn.functions.app import SIZES, size_of

app = App("tenants")


def declare(name: str) -> None:
    """One of them, in the sizes and with the objective that it has among the twelve."""
    work, usual, slo = SIZES[name]

    def code(request: object) -> object:
        return work(size_of(request, usual))

    function = app.function(vcpus=(0.25, 0.5, 1, 2), memory_gb=0.5, name=name)(code)
    app.workflow(name, function, slo=slo, example={"size": usual})


for _name in ("base64", "markdown2html", "sentiment", "thumbnailer"):
    declare(_name)
