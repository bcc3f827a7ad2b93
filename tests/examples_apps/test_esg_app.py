"""The four workflows of ESG's shape: order of functions, results, objectives, and threads that follow the vCPUs."""

import subprocess
import sys

import msgspec
import numpy as np
import pytest
from shipped_apps import APPS, copied

from fairlead.engine.live.limits import make_limiter
from fairlead.errors import ConfigError
from fairlead.model import Node
from fairlead.profile.measured import Machine, MeasuredFunction, MeasuredProfiles, Point, write_measured


@pytest.fixture
def app(load, monkeypatch):
    monkeypatch.delenv("ESG_SLO", raising=False)
    return load("esg")


@pytest.fixture
def example(app):
    return msgspec.msgpack.decode(app.workflows["depth-recognition"].spec.example)


def test_functions_follow_each_other_as_in_the_paper(app):
    assert {name: [stage.function for stage in one.spec.stages] for name, one in app.workflows.items()} == {
        "image-classification": ["super_resolution", "segmentation", "classification"],
        "depth-recognition": ["deblur", "super_resolution", "depth_recognition"],
        "background-elimination": ["super_resolution", "deblur", "background_removal"],
        "expanded-image-classification": [
            "deblur",
            "super_resolution",
            "background_removal",
            "segmentation",
            "classification",
        ],
    }


def test_the_example_gives_what_it_gave_when_the_networks_were_made(app, example):
    assert app.workflows["image-classification"](example) == {"class": 5, "score": pytest.approx(0.2787, abs=0.002)}
    assert app.workflows["expanded-image-classification"](example)["class"] == 5
    depth = app.workflows["depth-recognition"](example)
    assert (depth["side"], len(depth["depth"])) == (96, 96 * 96)
    without = np.frombuffer(app.workflows["background-elimination"](example)["pixels"], np.uint8).reshape(96, 96, 3)
    assert 0.5 <= (without.max(axis=2) == 0).mean() < 0.7  # what is not above the median


def test_a_batch_gives_each_what_it_gets_alone(app, example):
    dark = {"pixels": bytes(len(example["pixels"]))}
    deblur = app.functions["deblur"]
    together = deblur([example, dark, example])
    for one, alone in zip(together, (example, dark, example), strict=True):
        difference = pixels(one).astype(int) - pixels(deblur([alone])[0])
        assert abs(difference).max() <= 1
    assert together[0] != together[1]


def pixels(picture):
    return np.frombuffer(picture["pixels"], np.uint8)


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        ("cat.png", "a picture is {"),
        ({"pixels": "abc"}, "in JSON as base64"),
        ({"pixels": b"12345"}, "a picture is square"),
        ({"pixels": ""}, "got 0 bytes"),
    ],
    ids=["no-picture", "no-base64", "not-square", "empty"],
)
def test_what_is_no_picture_is_refused(app, picture, message):
    with pytest.raises(ValueError, match=message):
        app.functions["deblur"]([picture])


def test_objectives_are_multiples_of_the_chain_alone(load, monkeypatch, tmp_path):
    folder = copied("esg", tmp_path)
    for level, expected in (("strict", 0.0144), ("moderate", 0.018), ("relaxed", 0.0216), ("3", 0.054)):
        monkeypatch.setenv("ESG_SLO", level)
        # super resolution 3 ms, segmentation 10 ms, classification 5 ms
        assert load(folder).workflows["image-classification"].spec.slo_s == pytest.approx(expected)
    monkeypatch.setenv("ESG_SLO", "lax")
    with pytest.raises(ConfigError, match="ESG_SLO must be strict, moderate, relaxed or a number; got 'lax'"):
        load(folder)


def test_objectives_follow_what_was_measured_here(load, monkeypatch, tmp_path):
    folder = copied("esg", tmp_path)
    slow = MeasuredFunction(points=(Point(mean_s=0.085), Point(vcpus=2.0, mean_s=0.05)))
    machine = Machine(cpu="a", cores=2, limits="affinity")
    write_measured(
        MeasuredProfiles(app="esg", machine=machine, functions={"segmentation": slow}), folder / "app.profile.json"
    )
    monkeypatch.setenv("ESG_SLO", "moderate")
    assert load(folder).workflows["image-classification"].spec.slo_s == pytest.approx(0.003 + 0.085 + 0.005)


def test_the_script_makes_the_same_networks_again():
    code = f"""
import sys; sys.path.insert(0, {str(APPS / "esg")!r})
from hashlib import sha256
from make_networks import make
print(*sorted(f"{{sha256(data).hexdigest()}}  {{name}}" for name, data in make().items()), sep="\\n")
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert sorted(made.splitlines()) == sorted((APPS / "esg" / "SHA256SUMS").read_text().splitlines())


def test_an_instance_sees_how_many_cores_it_has_also_after_it_is_resized():
    code = "import sys, networks\nfor _ in sys.stdin: print(networks.cores(), flush=True)"
    child = subprocess.Popen(
        ["/bin/sh", "-c", 'read _; exec "$0" -c "$1"', sys.executable, code],  # runs nothing before it is in its group
        cwd=APPS / "esg",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    limiter = make_limiter()
    limiter.open([Node(name="n", kind="n", vcpus=2, memory_gb=8)])
    try:

        def cores():
            child.stdin.write("\n")
            child.stdin.flush()
            return float(child.stdout.readline())

        limiter.admit(1, child.pid, "n", 1.0, 0.0)
        child.stdin.write("\n")
        found = [cores()]
        limiter.resize(1, 2.0)
        found.append(cores())
        limiter.resize(1, 1.0)
        assert [*found, cores()] == pytest.approx([1.0, 2.0, 1.0], abs=0.01)
    finally:
        child.communicate(timeout=30)
        limiter.remove(1)
        limiter.close()
