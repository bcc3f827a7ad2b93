"""`fairlead kaas check`: what is wrong with a kernel graph, or what is in it."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from fairlead.cli.errors import FAILED, Failure, UsageError, show_failure
from fairlead.kaas.errors import GraphError
from fairlead.kaas.graph import Argument, Graph
from fairlead.kaas.parse import Limits, parse_graph

GraphFile = Annotated[Path, typer.Argument(metavar="GRAPH", show_default=False, help="A JSON file.")]

_JSON_OF_BUFFER = ("name", "kind", "type", "shape")


def check(
    graph: GraphFile,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Check a kernel graph: show its faults with their places, at most 20, or its kernels, buffers and bytes.

    Exit code 1 if the graph is wrong.
    """
    try:
        found = open_graph(graph)
    except GraphError as error:
        if is_json:
            _print_json({"file": str(graph), "faults": [msgspec.to_builtins(fault) for fault in error.faults]})
        else:
            show_failure(Failure.of(error))
        raise typer.Exit(FAILED) from None
    if is_json:
        _print_json({"file": str(graph), "faults": [], **_as_json(found)})
    else:
        _show(found)


def open_graph(file: Path) -> Graph:
    """The graph of a file. GraphError with every fault; UsageError if the file cannot be read."""
    try:
        with file.open("rb") as opened:
            text = opened.read(Limits().document + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    return parse_graph(text, str(file))


def bytes_of_kinds(graph: Graph) -> dict[str, int]:
    """The bytes of its buffers, by kind."""
    found: dict[str, int] = {}
    for buffer in graph.buffers:
        found[buffer.kind] = found.get(buffer.kind, 0) + buffer.size
    return found


def _runs_on(graph: Graph) -> list[str]:
    """The kinds of device for which every kernel has code."""
    sources = [None if kernel.source is None else graph.sources[kernel.source] for kernel in graph.kernels]
    able = {
        "opencl": all(source is not None and source.opencl is not None for source in sources),
        "cuda": all(source is not None and source.cuda is not None for source in sources),
        "numpy": all(kernel.reference is not None for kernel in graph.kernels),
    }
    return [kind for kind, is_able in able.items() if is_able]


def _as_json(graph: Graph) -> dict[str, Any]:
    return {
        "name": graph.name,
        "digest": graph.digest,
        "iterations": graph.iterations,
        "runs_on": _runs_on(graph),
        "bytes": graph.size,
        "bytes_by_kind": bytes_of_kinds(graph),
        "kernels": [
            {
                "name": kernel.name,
                "grid": kernel.grid,
                "block": kernel.block,
                "arguments": [msgspec.to_builtins(argument) for argument in kernel.arguments],
            }
            for kernel in graph.kernels
        ],
        "buffers": [
            {**{field: getattr(buffer, field) for field in _JSON_OF_BUFFER}, "bytes": buffer.size}
            for buffer in graph.buffers
        ],
    }


def _show(graph: Graph) -> None:
    console = Console(highlight=False, markup=False)
    times = f" (run {graph.iterations:,} times)" if graph.iterations > 1 else ""
    numbers = f"kernels {len(graph.kernels):,}{times}, buffers {len(graph.buffers):,}, bytes {graph.size:,}"
    parts = ", ".join(f"{kind} {size:,}" for kind, size in bytes_of_kinds(graph).items())
    console.print(f"{graph.name}: {numbers} ({parts}).", soft_wrap=True)
    console.print(f"Runs on: {', '.join(_runs_on(graph)) or 'no one kind of device'}.\n")
    kernels = Table("", "kernel", "groups", "items in each", "reads", "writes", box=None, pad_edge=False)
    for number, kernel in enumerate(graph.kernels):
        reads = _names(kernel.arguments, "read", "update")
        writes = _names(kernel.arguments, "write", "update")
        kernels.add_row(str(number), kernel.name, _product(kernel.grid), _product(kernel.block), reads, writes)
    console.print(kernels)
    console.print()
    buffers = Table("buffer", "kind", "type", "shape", box=None, pad_edge=False)
    buffers.add_column("bytes", justify="right")
    for buffer in graph.buffers:
        shape = ", ".join(map(str, buffer.shape))
        buffers.add_row(buffer.name, buffer.kind, buffer.type, f"[{shape}]", f"{buffer.size:,}")
    console.print(buffers)


def _names(arguments: tuple[Argument, ...], *accesses: str) -> str:
    return ", ".join(argument.buffer for argument in arguments if argument.access in accesses)


def _product(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


def _print_json(value: object) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=1).decode())
