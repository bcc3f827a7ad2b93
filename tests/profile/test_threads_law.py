"""A scaling law whose code runs on so many threads: slower below them, no faster above."""

import pytest

from fairlead.errors import ConfigError
from fairlead.model import Configuration
from fairlead.profile import ScalingLaw
from fairlead.workload import parse_scenario

FILE = """
cluster: {{nodes: [{{vcpus: 8}}]}}
functions:
  f:
    latency: {{law: {{t1_s: 2, fixed: 0, gamma: 1{more}}}}}
    space: {{vcpus: [0.5, 1, 4]}}
workflows: {{w: {{stages: {{f: []}}}}}}
arrivals: [{{workflow: w, process: poisson, rate_rps: 1}}]
"""


def times(law):
    return [law.mean_s(Configuration(vcpus=vcpus), "n") for vcpus in (0.25, 0.5, 1.0, 2.0, 4.0)]


def test_one_thread_gains_up_to_one_vcpu_and_no_more():
    assert times(ScalingLaw(t1_s=2.0, fixed=0.0, gamma=1.0, threads=1)) == [8.0, 4.0, 2.0, 2.0, 2.0]


def test_two_threads_gain_up_to_two_vcpus():
    assert times(ScalingLaw(t1_s=2.0, fixed=0.0, gamma=1.0, threads=2)) == [8.0, 4.0, 2.0, 1.0, 1.0]


def test_without_threads_every_vcpu_counts():
    assert times(ScalingLaw(t1_s=2.0, fixed=0.0, gamma=1.0)) == [8.0, 4.0, 2.0, 1.0, 0.5]


@pytest.mark.parametrize(("more", "fastest_s"), [("", 0.5), (", threads: 1", 2.0), (", threads: .inf", 0.5)])
def test_a_scenario_file_says_how_many_threads(more, fastest_s):
    scenario = parse_scenario(FILE.format(more=more), "threads")
    assert scenario.profiles["f"].latency_s(Configuration(vcpus=4.0), "n") == fastest_s


def test_less_than_one_thread_is_refused():
    with pytest.raises(ConfigError, match=r"functions.f.latency.law.threads: must be at least 1; got 0.5"):
        parse_scenario(FILE.format(more=", threads: 0.5"), "threads")
