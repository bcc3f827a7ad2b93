"""`fairlead kaas`: graphs made of models, checked and run."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from fairlead.app import App
from fairlead.cli import app
from fairlead.kaas import graph_json, parse_graph
from fairlead.kaas.graphs import SHIPPED, digits

sys.path.insert(0, str(Path(__file__).parents[1] / "kaas"))
from bad_graphs import CHANGES, GOOD, spoiled

MODEL = """
import numpy as np
from tinygrad import Tensor

w = Tensor(np.arange(32, dtype=np.float32).reshape(8, 4)).realize()
inputs = {"x": np.ones((2, 8), np.float32)}

def model(x): return (x @ w).relu()
def passed(x): return x
def failing(x): return x.reshape(7, 7)
def numbers(x): return 3
number = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRLEAD_TRACEBACK", raising=False)
    monkeypatch.setenv("POCL_DEVICES", "basic basic")
    return tmp_path


def invoke(*args: str, code: int = 0):
    result = CliRunner().invoke(app, ["kaas", *args])
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("name", SHIPPED)
def test_a_good_graph_is_shown(name):
    graph = SHIPPED[name]().graph
    Path("graph.json").write_bytes(graph_json(graph))
    shown = invoke("check", "graph.json").stdout
    assert all(kernel.name in shown for kernel in graph.kernels)
    assert all(f"{buffer.size:,}" in shown for buffer in graph.buffers)
    assert "Runs on: opencl, cuda, numpy." in shown
    found = json.loads(invoke("check", "graph.json", "--json").stdout)
    assert (found["faults"], found["digest"], found["bytes"]) == ([], graph.digest, graph.size)
    assert sum(found["bytes_by_kind"].values()) == sum(buffer["bytes"] for buffer in found["buffers"]) == graph.size
    assert len(found["kernels"]) == len(graph.kernels)


def test_a_bad_graph_ends_with_one_and_the_place_of_its_fault():
    for path, value, expected in CHANGES:
        Path("graph.json").write_text(json.dumps(spoiled(path, value)))
        found = json.loads(invoke("check", "graph.json", "--json", code=1).stdout)
        assert expected in [fault["path"] for fault in found["faults"]], (path, value)


def test_every_fault_of_a_graph_is_said():
    graph = spoiled("iterations", 0)
    graph["buffers"][0]["shape"] = [0]
    graph["kernels"][1]["grid"] = [0]
    Path("graph.json").write_text(json.dumps(graph))
    done = invoke("check", "graph.json", code=1)
    assert done.stdout == ""
    assert done.stderr.startswith("Error: graph.json: 3 faults:")
    assert all(f"- {path}: " in done.stderr for path in ("iterations", "buffers[0].shape", "kernels[1].grid"))


def test_a_graph_runs_with_the_constants_beside_it():
    made = digits()
    Path("graph.json").write_bytes(graph_json(made.graph))
    save_file(dict(made.constants), "graph.safetensors")
    lines = invoke("run", "graph.json", "--device", "numpy", "--repeat", "3").stdout.splitlines()
    assert lines[0].startswith("digits on numpy")
    assert lines[0].endswith("constants: graph.safetensors")
    assert [line.split()[0] for line in lines[1:]] == ["cold", "warm", "output"]
    assert "median of 3" in lines[2]
    assert lines[3].split(maxsplit=1)[1] == "y: float32 [1, 10]"


@pytest.mark.parametrize("option", [(), ("--zero",)])
def test_values_are_made_up_where_none_are_given(option):
    graph = json.loads(graph_json(SHIPPED["scaling"]().graph))
    graph["buffers"] += [
        {"name": "a", "kind": "constant", "shape": [4], "key": "both"},
        {"name": "b", "kind": "constant", "type": "int64", "shape": [2], "key": "both", "offset": 16},
        {"name": "z", "kind": "output", "shape": [4]},
    ]
    taken = [{"buffer": name, "access": "write" if name == "z" else "read"} for name in "abz"]
    sizes = [{"type": "int32", "value": 2}, {"type": "int32", "value": 2}, {"type": "int32", "value": 1}]
    graph["kernels"].append(
        {"name": "gemm", "reference": "gemm", "grid": [1], "block": [1], "literals": sizes, "arguments": taken}
    )
    Path("graph.json").write_text(json.dumps(graph))
    done = invoke("run", "graph.json", "--device", "numpy", "--repeat", "1", *option)
    assert "constants: made up" in done.stdout


def test_constants_that_do_not_fit_are_wrong_use():
    Path("graph.json").write_bytes(graph_json(digits().graph))
    Path("text").write_text("text")
    save_file({"b0": np.zeros(1, np.float32)}, "other.safetensors")
    run = ("run", "graph.json", "--device", "numpy", "--constants")
    assert "constants 'nowhere' cannot be read" in invoke(*run, "nowhere", code=2).stderr
    assert "constants 'text' is no safetensors file" in invoke(*run, "text", code=2).stderr
    assert "other.safetensors: buffer 'b0' must have" in invoke(*run, "other.safetensors", code=2).stderr
    head = b'{"b0":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    Path("bf16.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(4))
    assert "has elements of type 'BF16'" in invoke(*run, "bf16.safetensors", code=2).stderr


def test_a_graph_that_a_device_cannot_run_fails():
    Path("graph.json").write_text(json.dumps(GOOD))
    assert "no reference kernel for NumPy" in invoke("run", "graph.json", "--device", "numpy", code=1).stderr


def test_without_the_extra_an_export_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    Path("model.py").write_text(MODEL)
    assert "pip install 'fairlead[kaas-export]'" in invoke("export", "model.py", code=2).stderr
    assert not Path("graph.json").exists()


def test_another_version_of_tinygrad_is_refused(monkeypatch):
    pytest.importorskip("tinygrad", reason="needs the extra kaas-export: pip install 'fairlead[kaas-export]'")
    monkeypatch.setattr("fairlead.kaas.export.TINYGRAD", "0.0.1")
    Path("model.py").write_text(MODEL)
    assert "is installed, and exporting needs 0.0.1" in invoke("export", "model.py", code=1).stderr


def test_a_model_is_exported_and_runs():
    pytest.importorskip("tinygrad", reason="needs the extra kaas-export: pip install 'fairlead[kaas-export]'")
    Path("model.py").write_text(MODEL)
    assert "Wrote out/dense.json" in invoke("export", "model.py", "-o", "out/dense.json").stdout
    graph = parse_graph(Path("out/dense.json").read_bytes())
    assert [buffer.shape for buffer in graph.buffers if buffer.is_returned] == [(2, 4)]
    (weights,) = load_file("out/dense.safetensors").values()
    np.testing.assert_array_equal(weights, np.arange(32))
    assert App("a").kernel("dense", graph, load_file("out/dense.safetensors")).constants
    done = invoke("run", "out/dense.json", "--device", "opencl:0", "--repeat", "2")
    assert "constants: out/dense.safetensors" in done.stdout
    assert "output: float32 [2, 4]" in done.stdout
    assert "no device opencl:99" in invoke("run", "out/dense.json", "--device", "opencl:99", code=2).stderr


@pytest.mark.parametrize(
    ("model", "text", "code", "said"),
    [
        ("model.py:passed", MODEL, 1, "cannot capture the model"),
        ("model.py:failing", MODEL, 1, "The model failed: ValueError: size mismatch"),
        ("model.py:numbers", MODEL, 1, "The model must give a tensor or several; it gave int."),
        ("model.py:number", MODEL, 2, "there is no function 'number' in it"),
        ("model.py", "def model(x): return x", 2, "'inputs' must be a dict of NumPy arrays"),
        ("model.py", "def model(x): return x\ninputs = {'x': [1.0]}", 2, "'x' is of type list"),
        ("model.py", MODEL + "inputs = {'x': np.ones(4, bool)}", 1, "type bool, which a graph cannot have"),
        ("model.py", "import nowhere", 2, "line 1: ModuleNotFoundError"),
    ],
)
def test_a_model_that_is_no_graph_is_refused_and_nothing_is_written(model, text, code, said):
    pytest.importorskip("tinygrad", reason="needs the extra kaas-export: pip install 'fairlead[kaas-export]'")
    Path("model.py").write_text(text)
    assert said in invoke("export", model, code=code).stderr
    assert [path.name for path in Path().iterdir()] == ["model.py"]
