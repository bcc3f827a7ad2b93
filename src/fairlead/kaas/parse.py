"""Reads kernel graphs strictly: what is wrong is refused before anything runs, with the path of its field.

A document of the wrong form (JSON, types, unknown keys) is refused at its first fault; one of the right form with
all its faults, up to twenty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import prod

import msgspec

from fairlead.errors import Fault, suggestion
from fairlead.kaas.errors import GraphError
from fairlead.kaas.graph import VERSION, Argument, Buffer, Graph, Kernel, Literal, Source
from fairlead.kaas.reference import REFERENCE

_MOST_FAULTS = 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}\Z")
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_SPLICE = re.compile(r"\\[ \t\v\f]*(?:\r\n?|\n)")  # where compilers join lines
_TRIGRAPH = "??/"  # a backslash to some compilers only, so that a source is looked at in both ways
_FORBIDDEN = re.compile(  # a comment after `#` is a blank to compilers, so that it may hide what follows
    r"(?:#|%:|\?\?=)\s*(?:include|import|embed|/\*)|\b(?:__)?asm(?:__)?\b|\b__has_(?:include|embed)|\b_Pragma\b"
)
_HEADERS = re.compile(r"#\s*include\s*<cuda_(?:fp16|bf16)\.h>")
_INTEGERS = {"int32": (-(2**31), 2**31), "uint32": (0, 2**32), "int64": (-(2**63), 2**63), "uint64": (0, 2**64)}
_MOST_FLOAT = {"float32": 3.4028235677973366e38, "float64": 1.7976931348623157e308}


@dataclass(frozen=True)
class Limits:
    """How large a graph may be. `launches` is kernels times iterations; sizes are in bytes."""

    document: int = 8 << 20
    kernels: int = 4096
    buffers: int = 4096
    arguments: int = 128
    launches: int = 1_000_000
    source: int = 1 << 20
    buffer_bytes: int = 1 << 38
    block: int = 1024
    grid: int = 2**31 - 1


def parse_graph(text: bytes | str, source: str = "graph", limits: Limits | None = None) -> Graph:
    """The graph that a document describes; GraphError with every fault if it is wrong."""
    limits = limits or Limits()
    if len(text) > limits.document:
        raise GraphError(source, [Fault("", f"has {len(text)} bytes; at most {limits.document} are allowed.")])
    try:
        graph = msgspec.json.decode(text, type=Graph)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise GraphError(source, [Fault(path.rstrip("`").lstrip("."), f"{message}.")]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GraphError(source, [Fault("", f"is not JSON: {error}.")]) from None
    check_graph(graph, source, limits)
    return graph


def check_graph(graph: Graph, source: str = "graph", limits: Limits | None = None) -> None:
    """Refuse a graph that is wrong: GraphError with its faults."""
    found = list(islice(_faults(graph, limits or Limits()), _MOST_FAULTS))
    if found:
        raise GraphError(source, found)


def _faults(graph: Graph, limits: Limits) -> Iterator[Fault]:
    if graph.version != VERSION:
        yield Fault("version", f"must be {VERSION}; got {graph.version}.")
        return
    sizes = (("kernels", graph.kernels, limits.kernels), ("buffers", graph.buffers, limits.buffers))
    too_many = [Fault(n, f"at most {most} are allowed; got {len(e)}.") for n, e, most in sizes if len(e) > most]
    if too_many:  # the rest is not looked at: that is what the limit is for
        yield from too_many
        return
    if not _NAME.match(graph.name):
        yield Fault("name", f"must be letters, digits, '.', '_' or '-'; got {graph.name[:80]!r}.")
    if not graph.kernels:
        yield Fault("kernels", "must have at least one kernel.")
    if graph.iterations < 1:
        yield Fault("iterations", f"must be at least 1; got {graph.iterations}.")
    elif graph.iterations * len(graph.kernels) > limits.launches:
        launches = graph.iterations * len(graph.kernels)
        yield Fault("iterations", f"makes {launches} launches; at most {limits.launches} are allowed.")
    for name, code in graph.sources.items():
        if not (1 <= len(name) <= 256 and name.isprintable()):
            yield Fault("sources", f"names must be 1 to 256 printable characters; got {name[:80]!r}.")
        else:
            yield from _source(f"sources.{name}", code, limits)
    seen: set[str] = set()
    for index, buffer in enumerate(graph.buffers):
        yield from _buffer(f"buffers[{index}]", buffer, seen, limits)
    for index, kernel in enumerate(graph.kernels):
        yield from _kernel(f"kernels[{index}]", kernel, graph, limits)
    yield from _flow(graph)


def _source(path: str, source: Source, limits: Limits) -> Iterator[Fault]:
    if source.opencl is None and source.cuda is None:
        yield Fault(path, "must have code in a language: opencl or cuda.")
    for language, text in (("opencl", source.opencl), ("cuda", source.cuda)):
        if text is None:
            continue
        if len(text) > limits.source:
            yield Fault(f"{path}.{language}", f"has {len(text)} characters; at most {limits.source} are allowed.")
        elif "\0" in text:
            yield Fault(f"{path}.{language}", "must not have a NUL character.")
        elif found := _forbidden(text) or _forbidden(text.replace(_TRIGRAPH, "\\")):
            yield Fault(f"{path}.{language}", f"must not use {found.group().strip()!r}: sources stand for themselves.")


def _forbidden(text: str) -> re.Match[str] | None:
    return _FORBIDDEN.search(_HEADERS.sub("", _SPLICE.sub("", text)))


def _buffer(path: str, buffer: Buffer, seen: set[str], limits: Limits) -> Iterator[Fault]:
    if not _NAME.match(buffer.name):
        yield Fault(f"{path}.name", f"must be letters, digits, '.', '_' or '-'; got {buffer.name[:80]!r}.")
    if buffer.name in seen:
        yield Fault(f"{path}.name", f"must be used once; {buffer.name!r} is there before.")
    seen.add(buffer.name)
    if not 1 <= len(buffer.shape) <= 8 or min(buffer.shape, default=0) < 1:
        yield Fault(f"{path}.shape", f"must be 1 to 8 whole numbers of at least 1; got {list(buffer.shape[:9])}.")
    elif buffer.size > limits.buffer_bytes:
        yield Fault(f"{path}.shape", f"makes {buffer.size} bytes; at most {limits.buffer_bytes} are allowed.")
    if buffer.kind == "constant":
        most = limits.buffer_bytes
        if not 0 <= buffer.offset <= most or buffer.offset % 4:
            yield Fault(f"{path}.offset", f"must be a multiple of 4 in [0, {most}]; got {buffer.offset}.")
    else:
        fields = (("key", buffer.key is not None), ("offset", buffer.offset), ("lifetime", buffer.lifetime == "cached"))
        for field, is_set in fields:
            if is_set:
                yield Fault(f"{path}.{field}", f"is for constants; {buffer.name!r} is of kind {buffer.kind}.")
    if buffer.key is not None and not (1 <= len(buffer.key) <= 256 and buffer.key.isprintable()):
        yield Fault(f"{path}.key", f"must have 1 to 256 printable characters; got {buffer.key[:80]!r}.")


def _kernel(path: str, kernel: Kernel, graph: Graph, limits: Limits) -> Iterator[Fault]:
    if not _FUNCTION.match(kernel.name):
        yield Fault(f"{path}.name", f"must be the name of a function; got {kernel.name[:80]!r}.")
    if kernel.source is None and kernel.reference is None:
        yield Fault(path, "must have a source or a reference.")
    if kernel.source is not None and kernel.source not in graph.sources:
        hint = suggestion(kernel.source, graph.sources)
        yield Fault(f"{path}.source", f"names no source: {kernel.source[:80]!r}.{hint}")
    if kernel.reference is not None and kernel.reference not in REFERENCE:
        hint = suggestion(kernel.reference, REFERENCE)
        yield Fault(f"{path}.reference", f"names no reference kernel: {kernel.reference[:80]!r}.{hint}")
    for field, sizes, most in (("grid", kernel.grid, limits.grid), ("block", kernel.block, limits.block)):
        if not 1 <= len(sizes) <= 3 or min(sizes, default=0) < 1:
            yield Fault(f"{path}.{field}", f"must be 1 to 3 whole numbers of at least 1; got {list(sizes[:9])}.")
        elif prod(sizes) > most:
            yield Fault(f"{path}.{field}", f"makes {prod(sizes)}; at most {most} are allowed.")
    if len(kernel.grid) != len(kernel.block):
        yield Fault(f"{path}.block", f"must have as many dimensions as grid ({len(kernel.grid)}).")
    if len(kernel.arguments) + len(kernel.literals) > limits.arguments:
        yield Fault(f"{path}.arguments", f"at most {limits.arguments} parameters are allowed.")
        return
    for index, literal in enumerate(kernel.literals):
        yield from _literal(f"{path}.literals[{index}]", literal)
    for index, argument in enumerate(kernel.arguments):
        yield from _argument(f"{path}.arguments[{index}]", argument, graph)
    yield from _aliases(path, kernel)
    if kernel.reference in REFERENCE and kernel.reference is not None:
        expected = REFERENCE[kernel.reference]
        found = len(kernel.literals), len(kernel.arguments)
        if found != (expected.literals, expected.buffers):
            needs = f"{expected.literals} literals and {expected.buffers} buffers"
            yield Fault(f"{path}.reference", f"takes {needs}; got {found[0]} and {found[1]}.")


def _literal(path: str, literal: Literal) -> Iterator[Fault]:
    value = literal.value
    if literal.type in _INTEGERS:
        low, high = _INTEGERS[literal.type]
        if not isinstance(value, int) or not low <= value < high:
            yield Fault(f"{path}.value", f"must be a whole number in [{low}, {high}); got {value}.")
    elif not abs(value) <= _MOST_FLOAT[literal.type]:  # false for nan too; a whole number may be beyond any float
        yield Fault(f"{path}.value", f"must be a finite {literal.type}; got {value}.")


def _argument(path: str, argument: Argument, graph: Graph) -> Iterator[Fault]:
    buffer = graph.by_name.get(argument.buffer)
    if buffer is None:
        hint = suggestion(argument.buffer, graph.by_name)
        yield Fault(f"{path}.buffer", f"names no buffer: {argument.buffer[:80]!r}.{hint}")
    elif argument.access != "read" and buffer.kind in ("constant", "input"):
        yield Fault(f"{path}.access", f"must be 'read': {buffer.name!r} is of kind {buffer.kind}.")


def _aliases(path: str, kernel: Kernel) -> Iterator[Fault]:
    """A buffer that one launch takes twice, and writes: which of the two it sees would be a matter of luck."""
    accesses: dict[str, list[str]] = {}
    for argument in kernel.arguments:
        accesses.setdefault(argument.buffer, []).append(argument.access)
    for name, used in accesses.items():
        if len(used) > 1 and set(used) != {"read"}:
            yield Fault(f"{path}.arguments", f"take {name!r} twice, and one of them writes it.")


def _flow(graph: Graph) -> Iterator[Fault]:
    """Every buffer is written before it is read, every output is written, and nothing lies about unused."""
    written = {buffer.name for buffer in graph.buffers if buffer.kind in ("input", "inout", "constant")}
    used: set[str] = set()
    changed: set[str] = set()
    for index, kernel in enumerate(graph.kernels):
        for place, argument in enumerate(kernel.arguments):
            name = argument.buffer
            used.add(name)
            if argument.access != "write" and name in graph.by_name and name not in written:
                yield Fault(f"kernels[{index}].arguments[{place}].buffer", f"reads {name!r}, which is not written yet.")
        now = {argument.buffer for argument in kernel.arguments if argument.access != "read"}
        written |= now
        changed |= now
    for index, buffer in enumerate(graph.buffers):
        if buffer.is_returned and buffer.name not in changed:
            yield Fault(f"buffers[{index}]", f"is of kind {buffer.kind}, but no kernel writes {buffer.name!r}.")
        elif buffer.name not in used:
            yield Fault(f"buffers[{index}]", f"no kernel uses {buffer.name!r}.")
