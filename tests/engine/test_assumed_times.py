"""Functions that nobody measured: the first runs replace what was assumed, and nothing is refused before ten."""

import pytest

from fairlead.app import App
from fairlead.app.scenario import scenario_of
from fairlead.engine import simulate
from fairlead.engine.core.assumed import Assumed
from fairlead.engine.core.capacity import Belief
from fairlead.engine.sim.physics import Physics
from fairlead.model import Cluster, Configuration, Node
from fairlead.policy import make_policy
from fairlead.profile import Profile, Row, Table

ON = Cluster(nodes=(Node(name="local", kind="local", vcpus=2, memory_gb=8),))


def beliefs(most_s, **declared_s):
    """Beliefs in one function by batch size (`b1`), with what was assumed of each."""
    assumed = Assumed(most_s)
    return [Belief(s, Configuration(batch=int(name[1:])), None, assumed) for name, s in declared_s.items()]


def seconds(*found):
    return [round(belief.declared_s * belief.correction, 6) for belief in found]


def test_one_run_takes_the_place_of_an_assumption_and_others_follow_in_proportion():
    one, two = beliefs(10.0, b1=0.01, b2=0.012)
    assert seconds(one, two) == [0.01, 0.012]
    one.learn(0.05)
    assert seconds(one, two) == [0.05, 0.06]
    one.learn(0.07)
    assert seconds(one, two) == [0.06, 0.072]
    two.learn(0.1)
    assert seconds(one, two) == [0.06, 0.1]


def test_between_two_sizes_that_ran_it_is_the_line_through_them():
    one, four, eight = beliefs(10.0, b1=0.01, b4=0.016, b8=0.024)
    one.learn(0.01)
    eight.learn(0.08)
    assert seconds(four) == [0.04]  # three sevenths of the way from 0.01 to 0.08


def test_a_first_run_that_takes_long_is_not_believed_until_ten_were_seen():
    one, two = beliefs(0.05, b1=0.01, b2=0.012)
    one.learn(3.0)
    assert seconds(one, two) == [0.05, 0.05]
    for _ in range(8):
        one.learn(3.0)
    assert seconds(one, two) == [0.05, 0.05]
    one.learn(3.0)
    assert seconds(one, two) == [3.0, 3.6]


def test_a_configuration_that_is_asked_for_later_starts_from_what_is_known():
    assumed = Assumed(10.0)
    first = Belief(0.01, Configuration(), None, assumed)
    first.learn(0.03)
    assert seconds(Belief(0.012, Configuration(batch=2), None, assumed)) == [0.036]


def test_vcpus_that_were_never_seen_divide_the_time_until_a_run_shows_what_they_do():
    assumed = Assumed(10.0)
    one, two = (Belief(0.01, Configuration(vcpus=vcpus), None, assumed) for vcpus in (1.0, 2.0))
    one.learn(0.08)
    assert seconds(one, two) == [0.08, 0.04]
    two.learn(0.07)
    assert seconds(one, two) == [0.08, 0.07]


def test_the_default_policy_finds_that_only_two_vcpus_are_in_time():
    made = App("a")
    made.workflow("w", made.function(name="f", vcpus=(1, 2))(abs), slo=0.1)
    there = scenario_of(made.manifest(), cluster=ON, rate_rps=5, duration_s=20)
    rows = (Row(seconds=0.15, vcpus=1.0), Row(seconds=0.07, vcpus=2.0))
    truth = Profile(law=Table(rows), cold_start_s=0.01)

    class Real(Physics):
        def __init__(self):
            super().__init__(there, 0)
            self._profiles = {"f": truth}

    requests = simulate(there, make_policy("fairlead"), physics=Real()).requests[30:]
    met = (requests["outcome"] == "completed") & (requests["end"] <= requests["deadline"]).fill_null(value=False)
    assert met.mean() > 0.5  # with one vCPU, none ever is


def app(*slos):
    made = App("a")
    chain = made.function(name="f")(abs) >> made.function(name="g")(abs)
    for number, slo in enumerate(slos):
        made.workflow(f"w{number}", chain, slo=slo)
    return made.manifest()


@pytest.mark.parametrize(
    ("slos", "prior_s", "most_s"),
    [((1.0,), 0.01, 0.25), ((0.008,), 0.002, 0.002), ((1.0, 0.008), 0.002, 0.002), ((None,), 0.01, float("inf"))],
)
def test_an_assumption_leaves_half_of_the_tightest_objective(slos, prior_s, most_s):
    profile = scenario_of(app(*slos), cluster=ON).profiles["f"]
    assert (profile.latency_s(Configuration(), "local"), profile.assumed_most_s) == (prior_s, most_s)


def test_an_app_with_a_short_objective_is_not_refused_for_ever():
    there = scenario_of(app(0.008), cluster=ON, rate_rps=50, duration_s=10)
    truth = Profile(law=Table((Row(seconds=0.001),)), cold_start_s=0.1)

    class Real(Physics):
        def __init__(self):
            super().__init__(there, 0)
            self._profiles = dict.fromkeys(there.profiles, truth)

    recording = simulate(there, make_policy("fairlead"), physics=Real())
    met = recording.requests["outcome"].to_list()[100:].count("completed")
    assert met > 0.95 * (recording.requests.height - 100)
