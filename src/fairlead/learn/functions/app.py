"""Twelve functions of the kind that benchmarks of serverless platforms use, each a workflow of its own.

The names are those of FaaSProfiler (the first seven) and of SeBS (the rest); the code is ours, and small. A request is
`{"size": n}`, or anything else for the usual size; an answer says what came out, so that it can be checked. The usual
sizes are such that a warm run takes some 50 to 400 ms on one vCPU of the machine on which they were measured.

What was measured lies beside this file. To measure again:

    fairlead profile src/fairlead/learn/functions/app.py --budget 5m
"""

from collections.abc import Callable

from fairlead.app import App
from fairlead.app.declare import AppWorkflow
from fairlead.learn.functions.computing import compression_work, dna_work, pagerank_work, primes_work
from fairlead.learn.functions.endpoint import endpoint_work
from fairlead.learn.functions.pictures import resize_work, thumbnail_work
from fairlead.learn.functions.texts import (
    Answer,
    base64_work,
    dynamic_html_work,
    json_work,
    markdown_work,
    sentiment_work,
)

MOST = 100_000
"""Of a size: more is a mistake, and would only end at the limit of a run."""

SIZES: dict[str, tuple[Callable[[int], Answer], int, str]] = {
    # The work, the usual size, and the SLO of its workflow: four times the usual time on one vCPU, about.
    "base64": (base64_work, 900, "300ms"),
    "primes": (primes_work, 5000, "1100ms"),
    "markdown2html": (markdown_work, 1600, "450ms"),
    "sentiment": (sentiment_work, 450, "800ms"),
    "image-resize": (resize_work, 1500, "700ms"),
    "json": (json_work, 40, "300ms"),
    "http-endpoint": (endpoint_work, 30, "350ms"),
    "dynamic-html": (dynamic_html_work, 100, "250ms"),
    "thumbnailer": (thumbnail_work, 1500, "550ms"),
    "compression": (compression_work, 1800, "1300ms"),
    "graph-pagerank": (pagerank_work, 300, "1200ms"),
    "dna-visualisation": (dna_work, 350, "1s"),
}

app = App("twelve")


def size_of(request: object, usual: int) -> int:
    """The size that a request asks for, or the usual one."""
    if not isinstance(request, dict) or "size" not in request:
        return usual
    size = request["size"]
    if type(size) is not int or not 1 <= size <= MOST:
        raise ValueError(f"size must be a whole number from 1 to {MOST}; got {size!r}.")
    return size


def declare(name: str, work: Callable[[int], Answer], usual: int, slo: str) -> AppWorkflow:
    """One of them, and its workflow."""

    def code(request: object) -> Answer:
        return work(size_of(request, usual))

    code.__doc__ = work.__doc__
    function = app.function(vcpus=(0.25, 0.5, 1, 2), memory_gb=0.5, name=name)(code)
    return app.workflow(name, function, slo=slo, example={"size": usual})


for _name, (_work, _usual, _slo) in SIZES.items():
    declare(_name, _work, _usual, _slo)
