"""`app.kernel`: what is declared, what is refused, and what it gives in a unit test."""

import json
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save_file

from fairlead.app import App, switch
from fairlead.app.describe import take_snapshot
from fairlead.app.manifest import Manifest
from fairlead.app.scenario import scenario_of
from fairlead.app.snapshot import keep_snapshot
from fairlead.engine.live.kernels.code import read_kernels
from fairlead.errors import ConfigError
from fairlead.kaas import graph_json
from fairlead.kaas.graphs import digits, gemm_chain, scaling

sys.path.insert(0, str(Path(__file__).parents[1] / "kaas"))
from bad_graphs import CHANGES, spoiled

HEAD = "from fairlead import App\nfrom fairlead.kaas import graphs\napp = App('a')\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "app.py"
    path.write_text(HEAD + text)
    return path


def test_a_graph_and_its_constants_travel_with_the_app(tmp_path):
    made = gemm_chain(size=8, depth=2)
    (tmp_path / "graph.json").write_bytes(graph_json(made.graph))
    save_file(dict(made.constants), tmp_path / "weights.safetensors")
    snapshot = take_snapshot(
        write(tmp_path, "k = app.kernel('k', 'graph.json', 'weights.safetensors')\napp.workflow('w', k)\n")
    )
    assert set(snapshot.data) == {"graph.json", "weights.safetensors"}
    (spec,) = snapshot.manifest.functions
    assert (spec.retries, spec.run_limit_s, spec.keep_alive_s, spec.warm) == (1, 10.0, 600.0, 0)
    assert spec.kernel.constants == "weights.safetensors"
    assert [buffer.bytes for buffer in spec.kernel.buffers if buffer.kind == "constant"] == [256, 256]
    function = scenario_of(snapshot.manifest).functions["k"]
    kinds = {buffer.kind: buffer.size_mb * 2**20 for buffer in function.buffers}
    assert kinds == {"constant": 512, "input": 256, "output": 256, "temporary": 256}


def test_called_in_a_test_it_gives_what_numpy_gives():
    app = App("a")
    made = gemm_chain(size=8, depth=2)
    kernel = app.kernel("k", made.graph, made.constants)
    x = made.inputs["x"]
    np.testing.assert_allclose(kernel(x), x @ made.constants["w0"] @ made.constants["w1"], rtol=1e-5)
    work = app.workflow("w", kernel)
    np.testing.assert_allclose(work(x.tolist()), kernel(x), rtol=1e-6)


def test_a_kernel_without_a_reference_says_what_to_do():
    app = App("a")
    graph = json.loads(graph_json(scaling().graph))
    del graph["kernels"][0]["reference"]
    from fairlead.kaas import parse_graph  # noqa: PLC0415

    kernel = app.kernel("k", parse_graph(json.dumps(graph)))
    with pytest.raises(Exception, match="has no NumPy reference"):
        kernel(np.zeros(64, np.float32))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("app.kernel('k', 'no.json')", "line 4: kernel 'k': graph 'no.json' cannot be read: No such file"),
        ("app.kernel('k', '/etc/passwd')", "must be a file below the app's folder"),
        ("app.kernel('k', '../graph.json')", "must be a file below the app's folder"),
        ("app.kernel('k', 7)", "graph must be a path or a fairlead.kaas.Graph; got int"),
        ("app.kernel('k', graphs.digits().graph); app.workflow('w', app.functions['k'])", "there is no value for"),
        ("app.kernel('k', graphs.scaling().graph, {'w': [1.0]}); app.workflow('w', app.functions['k'])",
         "nothing takes the value 'w'"),
        ("app.kernel('k', graphs.digits().graph, 'no.safetensors'); app.workflow('w', app.functions['k'])",
         "constants 'no.safetensors' cannot be read"),
        ("app.kernel('k', graphs.scaling().graph, run_limit_s=0)", "run_limit_s must be a positive duration"),
        ("app.kernel('k', graphs.scaling().graph); app.kernel('k', graphs.scaling().graph)", "two functions named 'k'"),
        ("app.node('n', vcpus=1, devices=('gpu',))", "devices of node 'n' must be such as 'opencl:0'"),
        ("app.node('n', vcpus=1, device_memory='lots')", "device_memory of node 'n' must be a size such as '64MB'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_when_the_app_is_described(tmp_path, text, said):
    with pytest.raises(ConfigError) as error:
        take_snapshot(write(tmp_path, f"{text}\n"))
    assert said in str(error.value)
    assert "Traceback" not in str(error.value)


def test_every_bad_graph_is_refused_at_its_declaration_with_the_path_of_its_fault(tmp_path):
    app = App("a")
    for number, (path, value, fault) in enumerate(CHANGES):
        file = Path(__file__).parent / "bad.json"
        with pytest.raises(ValueError, match=f"kernel 'k{number}'") as error:
            _declared(app, f"k{number}", tmp_path, spoiled(path, value))
        assert fault in str(error.value), file
    assert not app.functions
    assert len(CHANGES) >= 40


def _declared(app: App, name: str, folder: Path, graph: dict) -> None:
    """As an app file in that folder would declare it."""
    (folder / "bad.json").write_text(json.dumps(graph))
    code = compile(f"app.kernel({name!r}, 'bad.json')", str(folder / "app.py"), "exec")
    exec(code, {"app": app, "__file__": str(folder / "app.py")})


def test_a_device_runs_no_chooser():
    app = App("a")
    made = digits()
    kernel = app.kernel("k", made.graph, made.constants)
    with pytest.raises(ValueError, match="the kernel 'k' cannot choose an arm; put a function between"):
        app.workflow("w", kernel >> switch(lambda y: "a", {"a": kernel, "b": None}))


def test_a_kernel_is_not_fused():
    app = App("a")
    made = scaling()
    first, second = app.kernel("one", made.graph), app.kernel("two", made.graph)
    assert not app.workflow("w", first >> second, fuse=True).spec.unfused
    with pytest.raises(ValueError, match="one is a kernel, which runs on a device of its own"):
        app.workflow("v", first >> second, fuse="one+two")


def test_a_kernel_that_no_device_can_hold_is_refused(tmp_path):
    text = (
        "app.node('n', vcpus=1, devices=('numpy',), device_memory='2MB')\n"
        "m = graphs.gemm_chain(size=512, depth=4)\n"
        "app.workflow('w', app.kernel('k', m.graph, m.constants))\n"
    )
    manifest = take_snapshot(write(tmp_path, text)).manifest
    with pytest.raises(
        ConfigError, match="it needs 9 MB of device memory for its buffers, and the largest device has 2"
    ):
        scenario_of(manifest)


def test_a_snapshot_whose_kernel_is_broken_is_refused(tmp_path):
    made = gemm_chain(size=8, depth=2)
    (tmp_path / "graph.json").write_bytes(graph_json(made.graph))
    save_file(dict(made.constants), tmp_path / "weights.safetensors")
    snapshot = take_snapshot(
        write(tmp_path, "k = app.kernel('k', 'graph.json', 'weights.safetensors')\napp.workflow('w', k)\n")
    )
    assert set(read_kernels(keep_snapshot(tmp_path / "sources", snapshot))) == {"k"}
    for spoilt in (
        {"data": {**snapshot.data, "graph.json": b"{}"}},
        {"data": {**snapshot.data, "graph.json": b"\xff"}},
        {"data": {**snapshot.data, "weights.safetensors": b"x"}},
        {"data": {}},
        {"manifest": _without_buffers(snapshot.manifest)},
    ):
        kept = keep_snapshot(tmp_path / "sources", msgspec.structs.replace(snapshot, **spoilt))
        with pytest.raises(ConfigError):
            read_kernels(kept)


def _without_buffers(manifest: Manifest) -> Manifest:
    (spec,) = manifest.functions
    kernel = msgspec.structs.replace(spec.kernel, buffers=())
    return msgspec.structs.replace(manifest, functions=(msgspec.structs.replace(spec, kernel=kernel),))
