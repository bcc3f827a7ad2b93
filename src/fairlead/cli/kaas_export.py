"""`fairlead kaas export`: a model written in tinygrad as a kernel graph and its constants."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from safetensors.numpy import save

from fairlead.app.load import load_module, split_address
from fairlead.cli.errors import UsageError
from fairlead.cli.outputs import check_files
from fairlead.kaas.export import export_graph, open_tinygrad
from fairlead.kaas.graph import graph_json

CONSTANTS = ".safetensors"
_MODEL = "model"
_INPUTS = "inputs"


def export(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL.py",
            show_default=False,
            help=f"A Python file with a function {_MODEL} of tinygrad tensors, or of another name: MODEL.py:NAME; and "
            f"example {_INPUTS}: a dict of NumPy arrays, one for each argument, in order.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE.json", help=f"Where the graph goes; its {CONSTANTS} go beside it."),
    ] = Path("graph.json"),
) -> None:
    """Make a kernel graph of a model written in tinygrad. Needs the extra `kaas-export`."""
    file, named = split_address(model)
    if not file.is_file():
        raise UsageError(f"There is no file {file}.")
    if out.suffix != ".json":
        raise UsageError(f"--out {out}: must end in .json; the constants go beside it, into {CONSTANTS}.")
    constants = out.with_suffix(CONSTANTS)
    check_files({"--out": out, f"--out, as {CONSTANTS},": constants})
    open_tinygrad()  # before the file makes its tensors
    found = vars(load_module(file))
    name = named or _MODEL
    if not callable(found.get(name)):
        raise UsageError(f"{file}: there is no function {name!r} in it.")
    inputs = found.get(_INPUTS)
    if not isinstance(inputs, Mapping) or not inputs:
        raise UsageError(f"{file}: {_INPUTS!r} must be a dict of NumPy arrays, one for each argument of {name!r}.")
    for each, array in inputs.items():
        if not isinstance(each, str) or not isinstance(array, np.ndarray):
            kind = type(array).__name__
            raise UsageError(f"{file}: {_INPUTS!r} must be NumPy arrays by name; {each!r} is of type {kind}.")
    exported = export_graph(found[name], inputs, name)
    graph = exported.graph
    try:
        constants.write_bytes(save(exported.constants))
        out.write_bytes(graph_json(graph))
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be written: {error.strerror or error}.") from error
    size = sum(array.nbytes for array in exported.constants.values())
    typer.echo(f"Wrote {out}: kernels {len(graph.kernels):,}, buffers {len(graph.buffers):,}, bytes {graph.size:,}.")
    typer.echo(f"Wrote {constants}: constants {len(exported.constants):,}, bytes {size:,}.")
    typer.echo(f"Try it: fairlead kaas run {out}")
