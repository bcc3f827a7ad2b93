"""Scenarios that take a function's times from a measured file."""

import pytest

from fairlead.errors import ConfigError
from fairlead.model import Configuration
from fairlead.profile.measured import ColdStart, Machine, MeasuredFunction, MeasuredProfiles, Point, write_measured
from fairlead.workload import load_scenario

SCENARIO = """
cluster: {{nodes: [{{name: n, vcpus: 4, memory_gb: 8}}]}}
functions:
  detect: {detect}
workflows: {{main: {{stages: {{detect: []}}}}}}
arrivals: [{{workflow: main, process: poisson, rate_rps: 4}}]
policy: {{dispatch: fifo}}
"""


def scenario(folder, detect):
    points = (Point(batch=1, mean_s=0.01, count=9), Point(batch=2, mean_s=0.014, is_predicted=True))
    function = MeasuredFunction(
        points=points, cold_start=ColdStart(mean_s=0.3, p95_s=0.3), memory_gb=0.5, output_mb=2.0, noise=0.1
    )
    machine = Machine(cpu="A", cores=2, limits="affinity")
    write_measured(
        MeasuredProfiles(app="a", machine=machine, functions={"detect": function, "other": function}),
        folder / "app.profile.json",
    )
    (folder / "s.yaml").write_text(SCENARIO.format(detect=detect), encoding="utf-8")
    return load_scenario(folder / "s.yaml")


@pytest.mark.parametrize("extra", ["", ", function: other"])
def test_times_cold_start_noise_and_memory_come_from_the_file(tmp_path, extra):
    found = scenario(tmp_path, f"{{latency: {{profile: app.profile.json{extra}}}}}")
    profile, function = found.profiles["detect"], found.functions["detect"]
    assert profile.latency_s(Configuration(batch=2), "n") == 0.014
    assert profile.configurations == (Configuration(batch=1), Configuration(batch=2))
    assert (profile.cold_start_s, profile.noise) == (0.3, 0.1)
    assert (function.memory_gb, function.output_mb) == (0.5, 2.0)


def test_what_the_scenario_says_itself_goes_first(tmp_path):
    given = "{memory_gb: 1, cold_start_s: 2, noise: 0, space: {batch: [2]}, latency: {profile: app.profile.json}}"
    found = scenario(tmp_path, given)
    assert found.functions["detect"].memory_gb == 1
    assert found.functions["detect"].output_mb == 2.0
    assert (found.profiles["detect"].cold_start_s, found.profiles["detect"].noise) == (2, 0)
    assert found.profiles["detect"].configurations == (Configuration(batch=2),)


@pytest.mark.parametrize(
    ("latency", "path", "message"),
    [
        ("profile: none.json", "latency.profile", "none.json: cannot be read: No such file"),
        ("profile: s.yaml", "latency.profile", "s.yaml: not valid JSON"),
        ("profile: 3", "latency.profile", "must be text; got the number 3"),
        ("profile: app.profile.json, function: detectt", "latency.function", "Did you mean 'detect'?"),
        ("profile: app.profile.json, functions: detect", "latency.functions", "unknown key. Did you mean 'function'?"),
        ("profile: app.profile.json, constant_s: 1", "latency", "got constant_s and profile"),
        ("constant_s: 1, function: detect", "latency.function", "unknown key"),
    ],
)
def test_a_wrong_reference_says_what_is_wrong(tmp_path, latency, path, message):
    with pytest.raises(ConfigError) as error:
        scenario(tmp_path, f"{{latency: {{{latency}}}}}")
    (fault,) = error.value.faults
    assert fault.path == f"functions.detect.{path}"
    assert message in fault.message


def test_a_configuration_of_which_the_file_says_nothing_is_a_fault(tmp_path):
    with pytest.raises(ConfigError, match="no latency is given for 4x 1 vCPU"):
        scenario(tmp_path, "{space: {batch: [1, 4]}, latency: {profile: app.profile.json}}")
