"""What holds for every shipped app: it describes, can be measured, and its weights are those it was made with."""

from hashlib import sha256

import msgspec
import pytest
from serving import serving
from shipped_apps import APPS, NAMES, copied

from fairlead.app.describe import describe

WITH_WEIGHTS = [name for name in NAMES if (APPS / name / "SHA256SUMS").exists()]


def test_there_are_five():
    assert NAMES == ["esg", "photos", "pipelines", "tickets", "video"]


@pytest.mark.parametrize("name", NAMES)
def test_it_describes_and_every_workflow_has_an_objective_and_an_example(name):
    manifest = describe(APPS / name)
    assert manifest.name == name
    for workflow in manifest.workflows:
        assert workflow.slo_s is not None
        assert workflow.example is not None
        assert msgspec.msgpack.decode(workflow.example)


@pytest.mark.parametrize("name", NAMES)
def test_its_page_has_the_three_commands(name):
    page = (APPS / name / "README.md").read_text(encoding="utf-8")
    for command in (f"profile examples/apps/{name}", f"serve examples/apps/{name}", "load http://127.0.0.1:8000"):
        assert f"fairlead {command}" in page


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_weights_are_those_of_the_sums_and_small(name):
    folder = APPS / name
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {file: digest for digest, file in (line.split("  ") for line in lines)}
    found = {file.name for file in folder.iterdir() if file.suffix in (".onnx", ".png") or file.name == "model.json"}
    assert found == set(sums)
    for file, digest in sums.items():
        data = (folder / file).read_bytes()
        assert sha256(data).hexdigest() == digest
        assert len(data) < 1_000_000


@pytest.mark.parametrize(
    ("name", "functions"),
    [
        ("esg", ["deblur", "classification"]),
        ("photos", ["network", "forest"]),
        ("pipelines", ["small", "large", "linear"]),
        ("tickets", ["vectorise", "classify"]),
    ],
    ids=WITH_WEIGHTS,
)
def test_damaged_weights_are_refused_before_an_instance_takes_work(name, functions, load, tmp_path):
    folder = copied(name, tmp_path)
    for file in (*folder.glob("*.onnx"), *folder.glob("model.json")):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    app = load(folder)
    for function in functions:
        with pytest.raises(ValueError, match=r"differs from SHA256SUMS. Get it back with: git checkout"):
            app.functions[function].prepare()


def test_two_folders_are_served_together_and_answer(tmp_path, load):
    with serving(APPS / "esg", tmp_path / "state", str(APPS / "photos")) as served:
        assert call(served, "photos.label", load("photos"))["label"] == "gravel"
        assert call(served, "esg.image-classification", load("esg"))["class"] == 5


@pytest.mark.slow
def test_pipelines_are_served(tmp_path, load):
    with serving(APPS / "pipelines", tmp_path / "state") as served:
        assert call(served, "cascade", load("pipelines"))["by"] == "small"
        assert call(served, "ensemble", load("pipelines"))["votes"] == {"small": 0, "large": 0, "linear": 0}


@pytest.mark.slow
def test_tickets_are_served(tmp_path, load):
    with serving(APPS / "tickets", tmp_path / "state") as served:
        assert call(served, "answer-ticket", load("tickets"))["queue"] == "delivery"


def call(served, workflow, app):
    """The answer to a workflow's own example, however busy the machine is."""
    spec = app.workflows[workflow.rpartition(".")[2]].spec
    value = msgspec.json.decode(msgspec.json.encode(msgspec.msgpack.decode(spec.example)))  # as a client sends it
    reply = served.call(workflow, value, headers={"x-deadline-ms": "30000"})
    assert reply.status == 200, reply.body
    return reply.json["output"]
