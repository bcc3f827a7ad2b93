"""Measured profiles on disk: what is written is read, and what is wrong is said, all of it at once."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import ConfigError
from fairlead.model import Configuration
from fairlead.profile.measured import (
    ColdStart,
    Machine,
    MeasuredFunction,
    MeasuredProfiles,
    Point,
    read_measured,
    read_profiles,
    write_measured,
)

MACHINE = Machine(cpu="A", cores=2, limits="cgroup-v1", others_share=0.25)
ONE = Point(batch=1, mean_s=0.010, p50_s=0.010, p95_s=0.011, p99_s=0.012, count=20)
FOUR = Point(batch=4, mean_s=0.016, is_predicted=True)


def measured(**functions):
    return MeasuredProfiles(app="app", machine=MACHINE, functions=functions)


def written(tmp_path, content):
    path = tmp_path / "app.profile.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def plain(tmp_path, **functions):
    """The file of these functions as plain data, to be spoilt."""
    write_measured(measured(**functions), tmp_path / "whole.json")
    return json.loads((tmp_path / "whole.json").read_text())


def faults_of(tmp_path, content):
    with pytest.raises(ConfigError) as error:
        read_measured(written(tmp_path, content))
    return {fault.path: fault.message for fault in error.value.faults}


def test_a_profile_is_the_table_of_the_means(tmp_path):
    cold = ColdStart(mean_s=0.3, p95_s=0.4, count=3, process_s=0.1, load_s=0.1, setup_s=0.1)
    write_measured(measured(detect=MeasuredFunction(points=(ONE, FOUR), cold_start=cold, noise=0.07)), tmp_path / "f")
    profile = read_profiles(tmp_path / "f")["detect"]
    assert profile.latency_s(Configuration(batch=1), "any") == 0.010
    assert profile.latency_s(Configuration(batch=4), "any", speed=0.5) == 0.032
    assert profile.configurations == (Configuration(batch=1), Configuration(batch=4))
    assert (profile.cold_start_s, profile.noise) == (0.3, 0.07)


def test_noise_is_cut_at_what_a_profile_can_have():
    assert MeasuredFunction(points=(ONE,), noise=0.9).profile().noise == 0.5


seconds = st.floats(0, 1e3, allow_nan=False)
points = st.builds(
    Point,
    batch=st.integers(1, 64),
    vcpus=st.sampled_from([0.5, 1.0, 2.0]),
    kind=st.none() | st.just("slow"),
    mean_s=seconds,
    p50_s=st.none() | seconds,
    count=st.integers(0, 500),
)
functions = st.builds(
    MeasuredFunction,
    points=st.lists(points, min_size=1, max_size=6, unique_by=lambda p: (p.kind, p.configuration())).map(tuple),
    cold_start=st.none() | st.builds(ColdStart, mean_s=seconds, p95_s=seconds, setup_s=st.none() | seconds),
    memory_gb=seconds,
    held_out_error=st.none() | seconds,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=4), functions, max_size=3))
def test_what_is_written_is_read(tmp_path_factory, chosen):
    path = tmp_path_factory.mktemp("measured") / "f.json"
    write_measured(measured(**chosen), path)
    assert read_measured(path) == measured(**chosen)
    assert [entry.name for entry in path.parent.iterdir()] == ["f.json"]


def test_every_fault_of_a_file_is_found_at_once(tmp_path):
    data = plain(tmp_path, detect=MeasuredFunction(points=(ONE, FOUR)), classify=MeasuredFunction(points=(ONE,)))
    data["functions"]["detect"]["points"][0]["mean_s"] = "fast"
    data["functions"]["detect"]["points"][1] = {"batch": 0, "mean_s": 1.0}
    data["functions"]["detect"]["nois"] = 1
    data["functions"]["classify"]["points"] = [{"mean_s": -1.0}, {"count": 1.5}, 3]
    data["machine"]["cores"] = True
    data["extra"] = None
    assert faults_of(tmp_path, data) == {
        "functions.detect.points.0.mean_s": 'must be a number; got "fast".',
        "functions.detect.points.1.batch": "must be at least 1; got 0.",
        "functions.detect.nois": "unknown key. Did you mean 'noise'?",
        "functions.classify.points.0.mean_s": "must be finite and not negative; got -1.0.",
        "functions.classify.points.1.count": "must be a whole number; got 1.5.",
        "functions.classify.points.1.mean_s": "is missing.",
        "functions.classify.points.2": "must be an object; got 3.",
        "machine.cores": "must be a whole number; got true.",
        "extra": "unknown key.",
    }


def test_two_points_for_one_configuration_are_a_fault(tmp_path):
    data = plain(tmp_path, detect=MeasuredFunction(points=(ONE,)))
    data["functions"]["detect"]["points"] *= 2
    assert faults_of(tmp_path, data) == {"functions.detect.points": "must differ; two are for 1x 1 vCPU."}
    data["functions"]["detect"]["points"] = []
    assert faults_of(tmp_path, data) == {"functions.detect.points": "must hold at least one point."}


@pytest.mark.parametrize(
    ("content", "path", "message"),
    [
        ("", "", "not valid JSON"),
        ("{", "", "not valid JSON"),
        ('{"format": 1, "app": NaN}', "", "not valid JSON"),
        ("[" * 100_000, "", "not valid JSON"),
        ("[1]", "", "must be an object; got [1]"),
        ('{"app": "x"}', "format", "must be 1, the only one this version reads; got null"),
        ('{"format": 2}', "format", "got 2"),
        ('{"format": true}', "format", "got true"),
        ('{"format": 1}', "functions", "is missing"),
        ('{"format": 1, "functions": []}', "functions", "must be an object; got []"),
    ],
)
def test_what_is_no_measured_file_is_refused(tmp_path, content, path, message):
    assert message in faults_of(tmp_path, content)[path]


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_measured(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_measured(tmp_path)
