"""Graphs that are wrong, each in one way: how a good one is spoiled, and where the fault is said to be."""

import json

GOOD = {
    "version": 1,
    "name": "good",
    "sources": {"k": {"opencl": "__kernel void double_it(__global const float *x, __global float *y) {}"}},
    "buffers": [
        {"name": "x", "kind": "input", "shape": [64]},
        {"name": "w", "kind": "constant", "shape": [64]},
        {"name": "t", "kind": "temporary", "shape": [64]},
        {"name": "y", "kind": "output", "shape": [64]},
    ],
    "kernels": [
        {
            "name": "first",
            "source": "k",
            "grid": [1],
            "block": [64],
            "literals": [{"type": "int32", "value": 64}],
            "arguments": [
                {"buffer": "x", "access": "read"},
                {"buffer": "w", "access": "read"},
                {"buffer": "t", "access": "write"},
            ],
        },
        {
            "name": "second",
            "source": "k",
            "grid": [1],
            "block": [64],
            "arguments": [{"buffer": "t", "access": "read"}, {"buffer": "y", "access": "write"}],
        },
    ],
}

REMOVED = object()

# (path of what is changed, its new value, path of the fault)
CHANGES = [
    ("version", 2, "version"),
    ("version", REMOVED, ""),
    ("version", "1", "version"),
    ("name", "", "name"),
    ("name", "../up", "name"),
    ("name", 7, "name"),
    ("extra", 1, ""),
    ("iterations", 0, "iterations"),
    ("iterations", -3, "iterations"),
    ("iterations", 10**9, "iterations"),
    ("iterations", 1.5, "iterations"),
    ("kernels", [], "kernels"),
    ("kernels", {}, "kernels"),
    ("sources.k", {}, "sources.k"),
    ("sources.k.opencl", "#include </etc/passwd>", "sources.k.opencl"),
    ("sources.k.opencl", '#\\\ninclude "secret.h"', "sources.k.opencl"),
    ("sources.k.opencl", "%: include <x>", "sources.k.opencl"),
    ("sources.k.opencl", '#/**/include "/etc/passwd"', "sources.k.opencl"),
    ("sources.k.opencl", '%: /* x */ include "/etc/passwd"', "sources.k.opencl"),
    ("sources.k.opencl", '#incl\\\f\nude "/etc/passwd"', "sources.k.opencl"),
    ("sources.k.opencl", '#incl\\\rude "/etc/passwd"', "sources.k.opencl"),
    ("sources.k.opencl", '#incl??/\nude "/etc/passwd"', "sources.k.opencl"),
    ("sources.k.opencl", '//x??/\nasm("nop");', "sources.k.opencl"),
    ("sources.k.opencl", '#if __has_embed("/etc/passwd")', "sources.k.opencl"),
    ("sources.k.opencl", 'void f() { asm("nop"); }', "sources.k.opencl"),
    ("sources.k.opencl", "a" * (1 << 21), "sources.k.opencl"),
    ("sources.k.opencl", "a\0b", "sources.k.opencl"),
    ("sources", {"red\x1b[31m": {"opencl": "x"}}, "sources"),
    ("buffers.1.key", "two\nlines", "buffers[1].key"),
    ("sources.k.metal", "kernel", "sources[...]"),
    ("buffers.0.name", "w", "buffers[1].name"),
    ("buffers.0.shape", [], "buffers[0].shape"),
    ("buffers.0.shape", [0], "buffers[0].shape"),
    ("buffers.0.shape", [-64], "buffers[0].shape"),
    ("buffers.0.shape", [2**20, 2**20], "buffers[0].shape"),
    ("buffers.0.shape", 64, "buffers[0].shape"),
    ("buffers.0.shape", [10**4200] * 8, "buffers[0].shape[0]"),
    ("iterations", 10**4200, "iterations"),
    ("buffers.0.kind", "inptu", "buffers[0].kind"),
    ("buffers.0.type", "float31", "buffers[0].type"),
    ("buffers.0.key", "a-key", "buffers[0].key"),
    ("buffers.0.offset", 4, "buffers[0].offset"),
    ("buffers.1.offset", -4, "buffers[1].offset"),
    ("buffers.1.offset", 3, "buffers[1].offset"),
    ("buffers.1.offset", 1 << 60, "buffers[1].offset"),
    ("buffers.1.key", "", "buffers[1].key"),
    ("buffers.3.lifetime", "cached", "buffers[3].lifetime"),
    ("buffers.3.lifetime", "for ever", "buffers[3].lifetime"),
    ("buffers.3.colour", "red", "buffers[3]"),
    ("kernels.0.name", "a b", "kernels[0].name"),
    ("kernels.0.source", "kk", "kernels[0].source"),
    ("kernels.0.source", REMOVED, "kernels[0]"),
    ("kernels.0.reference", "gem", "kernels[0].reference"),
    ("kernels.0.reference", "gemm", "kernels[0].reference"),
    ("kernels.0.grid", [0], "kernels[0].grid"),
    ("kernels.0.grid", [2**20, 2**20], "kernels[0].grid"),
    ("kernels.0.grid", [1, 1, 1, 1], "kernels[0].grid"),
    ("kernels.0.block", [2048], "kernels[0].block"),
    ("kernels.0.block", [8, 8], "kernels[0].block"),
    ("kernels.0.literals.0.type", "int128", "kernels[0].literals[0].type"),
    ("kernels.0.literals.0.value", 2**31, "kernels[0].literals[0].value"),
    ("kernels.0.literals.0.value", 1.5, "kernels[0].literals[0].value"),
    ("kernels.0.literals.0", {"type": "float64", "value": 10**400}, "kernels[0].literals[0].value"),
    ("kernels.0.literals.0", {"type": "float32", "value": 1e39}, "kernels[0].literals[0].value"),
    ("kernels.0.literals.0.value", "64", "kernels[0].literals[0].value"),
    ("kernels.0.arguments.0.buffer", "xx", "kernels[0].arguments[0].buffer"),
    ("kernels.0.arguments.0.buffer", "t", "kernels[0].arguments"),
    ("kernels.0.arguments.0.access", "write", "kernels[0].arguments[0].access"),
    ("kernels.0.arguments.1.access", "update", "kernels[0].arguments[1].access"),
    ("kernels.0.arguments.2.access", "update", "kernels[0].arguments[2].buffer"),
    ("kernels.0.arguments.2.buffer", "y", "kernels[1].arguments[0].buffer"),
    ("kernels.1.arguments.1.access", "read", "kernels[1].arguments[1].buffer"),
    ("kernels.1.arguments.1.buffer", "t", "kernels[1].arguments"),
]


def spoiled(path: str, value: object) -> dict:
    graph = json.loads(json.dumps(GOOD))
    at = graph
    *steps, last = path.split(".")
    for step in steps:
        at = at[int(step)] if isinstance(at, list) else at[step]
    if value is REMOVED:
        del at[last]
    elif isinstance(at, list):
        at[int(last)] = value
    else:
        at[last] = value
    return graph
