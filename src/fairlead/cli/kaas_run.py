"""`fairlead kaas run`: a kernel graph on a device of this machine, and how long it takes there."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from fairlead.app.kernel import MOST_CONSTANT_BYTES, keyed, read_constants
from fairlead.cli.devices import chosen_devices
from fairlead.cli.errors import UsageError
from fairlead.cli.kaas_check import GraphFile, open_graph
from fairlead.cli.kaas_export import CONSTANTS
from fairlead.kaas.devices.found import find_devices
from fairlead.kaas.errors import DeviceLostError
from fairlead.kaas.executor import Executor, ExecutorSettings
from fairlead.kaas.graph import Graph
from fairlead.kaas.request import Answer, Request
from fairlead.kaas.values import Values
from fairlead.report.numbers import show

Array = npt.NDArray[np.generic]

_TENANT = "run"
_LIMIT_S = 60.0
_MOST_INPUT_BYTES = 1 << 30


@dataclass(frozen=True)
class _Trial:
    """What was seen: the device, and each answer with the time until it came. The first is the cold one."""

    device: str
    opened_s: float
    answers: list[tuple[float, Answer]]


def run(
    graph: GraphFile,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", show_default="the first OpenCL device, else numpy", help="Such as opencl:0, cuda:0, numpy."
        ),
    ] = None,
    constants: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=f"GRAPH{CONSTANTS} if it is there, else made up",
            help="A safetensors file, by buffer or key.",
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(metavar="N", min=1, max=1_000_000, help="How many warm runs.")] = 10,
    is_zero: Annotated[bool, typer.Option("--zero", help="Make up zeros instead of random numbers.")] = False,
) -> None:
    """Run a kernel graph with made-up inputs: first cold, with nothing compiled or loaded, then warm."""
    chosen = None if device is None else chosen_devices([device])[0]
    found = open_graph(graph)
    rng = None if is_zero else np.random.default_rng(0)
    inputs = _inputs(found, rng)
    beside = graph.with_suffix(CONSTANTS)
    file = constants or (beside if beside.is_file() else None)
    keyed_graph, values = _constants(found, file, rng)
    with TemporaryDirectory(prefix="fairlead-kaas-") as folder:
        home = Path(folder)
        if chosen is None:
            chosen = next((each.device for each in find_devices(home / "cache")), "numpy")
        kept = Values(home / "values")
        for key, value in values.items():
            kept.put(_TENANT, key, value)
        settings = ExecutorSettings(device=chosen, values=home / "values", cache=home / "cache")
        request = Request(tenant=_TENANT, graph=keyed_graph, inputs=inputs, limit_s=_LIMIT_S)
        trial = asyncio.run(_run(settings, request, repeat))
    _show(found, chosen, trial, "made up" if file is None else str(file))


async def _run(settings: ExecutorSettings, request: Request, repeat: int) -> _Trial:
    executor = Executor(settings)
    began = perf_counter()
    try:
        await executor.start()
    except DeviceLostError as error:
        raise UsageError(f"--device {settings.device}: {error}") from error
    try:
        name = "" if executor.ready is None else executor.ready.name
        opened_s = perf_counter() - began
        answers = []
        for _ in range(1 + repeat):
            began = perf_counter()
            answer = await executor.run(request)
            answers.append((perf_counter() - began, answer))
        return _Trial(name, opened_s, answers)
    finally:
        await executor.close()


def _inputs(graph: Graph, rng: np.random.Generator | None) -> dict[str, Array]:
    sent = [buffer for buffer in graph.buffers if buffer.is_sent]
    if sum(buffer.size for buffer in sent) > _MOST_INPUT_BYTES:
        raise UsageError(f"{graph.name}: its inputs have more than {_MOST_INPUT_BYTES >> 30} GB.")
    return {buffer.name: _made_up(buffer.type, buffer.shape, rng) for buffer in sent}


def _constants(graph: Graph, file: Path | None, rng: np.random.Generator | None) -> tuple[Graph, Mapping[str, Array]]:
    """The graph with keys by content, and its constants by these keys."""
    if file is None:
        values = _made_up_constants(graph, rng)
    else:
        try:
            values = read_constants(file, str(file))
        except ValueError as error:
            raise UsageError(str(error)) from None
    try:
        return keyed(_TENANT, graph, values)
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from None


def _made_up_constants(graph: Graph, rng: np.random.Generator | None) -> dict[str, Array]:
    """A value for each key, as bytes: several constants may be parts of one value."""
    sizes: dict[str, int] = {}
    types: dict[str, str] = {}
    for buffer in graph.buffers:
        if buffer.kind == "constant":
            key = graph.key_of(buffer)
            sizes[key] = max(sizes.get(key, 0), buffer.offset + buffer.size)
            types.setdefault(key, buffer.type)
    if sum(sizes.values()) > MOST_CONSTANT_BYTES:
        raise UsageError(f"{graph.name}: its constants have more than {MOST_CONSTANT_BYTES >> 20} MB.")
    return {
        key: _made_up(types[key], (-(-size // np.dtype(types[key]).itemsize),), rng).view(np.uint8)
        for key, size in sizes.items()
    }


def _made_up(kind: str, shape: tuple[int, ...], rng: np.random.Generator | None) -> Array:
    """Normal floats; whole numbers of 0 and 1, which may be indices."""
    if rng is None:
        return np.zeros(shape, kind)
    if np.dtype(kind).kind == "f":
        return rng.standard_normal(shape).astype(kind)
    return rng.integers(0, 2, shape).astype(kind)


def _show(graph: Graph, device: str, trial: _Trial, constants: str) -> None:
    (cold_s, first), *warm = trial.answers
    took = first.timings
    typer.echo(f"{graph.name} on {device} ({trial.device}), opened in {_time(trial.opened_s)}; constants: {constants}")
    parts = f"compiling {_time(took.compile_s)}, loading {_time(took.load_s)}, running {_time(took.run_s)}"
    typer.echo(f"cold     {_time(cold_s)} ({parts})")
    times = sorted(took_s for took_s, _ in warm)
    running = median(answer.timings.run_s for _, answer in warm)
    spread = f"{_time(times[0])} to {_time(times[-1])}"
    typer.echo(f"warm     {_time(median(times))} (median of {len(warm)}, {spread}; running {_time(running)})")
    for buffer in graph.buffers:
        if buffer.is_returned:
            typer.echo(f"output   {buffer.name}: {buffer.type} [{', '.join(map(str, buffer.shape))}]")


def _time(value: float) -> str:
    return show(value, "seconds")
