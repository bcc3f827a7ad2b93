"""CPU time in a measured file: kept where there is one, read where there is none, refused where it is nonsense."""

import pytest

from fairlead.errors import ConfigError
from fairlead.profile.measured import Machine, MeasuredFunction, MeasuredProfiles, Point, read_measured, write_measured

MACHINE = Machine(cpu="a", cores=2, limits="cgroup-v2")


def test_cpu_times_come_back_as_they_were(tmp_path):
    function = MeasuredFunction(points=(Point(mean_s=0.4, cpu_s=0.1, count=3),), cpu_noise=0.02)
    write_measured(MeasuredProfiles(app="a", machine=MACHINE, functions={"f": function}), tmp_path / "a.json")
    assert read_measured(tmp_path / "a.json").functions == {"f": function}


def test_a_file_without_cpu_times_is_read_as_before(tmp_path):
    function = MeasuredFunction(points=(Point(mean_s=0.4, count=3),))
    write_measured(MeasuredProfiles(app="a", machine=MACHINE, functions={"f": function}), tmp_path / "a.json")
    assert "cpu" not in (tmp_path / "a.json").read_text().partition('"functions"')[2]
    found = read_measured(tmp_path / "a.json").functions["f"]
    assert found.points[0].cpu_s is None
    assert found.cpu_noise is None


def test_a_negative_cpu_time_is_a_fault_of_the_file(tmp_path):
    text = (
        '{"format": 1, "app": "a", "machine": {"cpu": "a", "cores": 1, "limits": "affinity"},'
        ' "functions": {"f": {"points": [{"mean_s": 1, "cpu_s": -1}]}}}'
    )
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ConfigError, match=r"functions.f.points.0.cpu_s: must be finite and not negative; got -1.0"):
        read_measured(tmp_path / "a.json")
