"""What agents see, and what a step is worth: by hand-checkable numbers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.policy.kit.measuring import Measures
from fairlead.policy.simppo import reward as worth
from fairlead.policy.simppo.guard import Rescue
from fairlead.policy.simppo.observation import OWN_FIELDS, Encoding, Site, observe, own_fields, state_of

SITE = Site(
    slo_s=np.array([1.0, 2.0, 0.5]),
    needs_gb=np.array([0.25, 0.25, 0.5]),
    upstream=np.array([0.0, 0.5, 0.0]),
    downstream=np.array([0.5, 0.0, 0.0]),
    vcpus=16.0,
    memory_gb=64.0,
    most_replicas=20,
)
MEASURES = Measures(
    arrived=np.array([50.0, 10.0, 0.0]),
    ran=np.array([50.0, 10.0, 0.0]),
    busy_s=np.array([10.0, 5.0, 0.0]),
    held_s=np.array([20.0, 5.0, 10.0]),
    p99_s=np.array([2.0, 1.0, 0.0]),
    oldest_s=np.array([0.0, 4.0, 0.0]),
    lateness=np.array([2.0, 0.5, 0.0]),
    replicas=np.array([2.0, 1.0, 1.0]),
    ready=np.array([2.0, 1.0, 1.0]),
    vcpus=np.array([2.0, 0.5, 1.0]),
    memory_gb=np.array([1.0, 0.25, 0.5]),
)
ALL = np.ones(3, np.bool_)
STILL = np.zeros(3)


def state(present=ALL):
    return state_of(MEASURES, SITE, present, 10.0)


def named(row, own="seven"):
    return dict(zip(OWN_FIELDS[own], row.tolist(), strict=True))


def test_own_state_has_seven_numbers():
    assert named(own_fields(state(), SITE, "seven")[0]) == pytest.approx(
        {
            "cpu_utilisation": 0.5,
            "memory_utilisation": 0.5,  # two replicas need 0.25 GB each and have 1 GB
            "slo_preservation": 0.5,  # 2 s against an SLO of 1 s
            "arrival_rate": 0.5,  # 5 per second over 10
            "vcpus": 0.1,
            "memory": 0.05,
            "replicas": 0.1,
        }
    )


def test_what_waits_counts_as_latency_by_its_age():
    assert state().slo_preservation.tolist() == [0.5, 0.5, 1.0]  # the second: 4 s old against an SLO of 2 s


def test_six_numbers_have_the_others_vcpus_in_place_of_memory():
    assert named(own_fields(state(), SITE, "six")[0], "six")["others_vcpus"] == pytest.approx(1.5 / 16)


def test_global_state_leaves_oneself_out():
    seen = observe(state(), SITE, Encoding(others="global4"), STILL, STILL)
    assert seen[0, 7:] == pytest.approx([(0.5 + 1.0) / 2, (1.0 + 0.0) / 2, 1.5 / 16, 2 / 16])
    assert seen[1, 7:] == pytest.approx([(0.5 + 1.0) / 2, (0.5 + 0.0) / 2, 3.0 / 16, 3 / 16])


@pytest.mark.parametrize("others", ["global4", "global4+var", "meanfield", "meanfield+actions"])
def test_alone_the_virtual_agent_is_all_zeros(others):
    present = np.array([True, False, False])
    seen = observe(state(present), SITE, Encoding(others=others), np.ones(3), np.ones(3))
    assert not seen[0, 7:].any()
    assert not seen[1:].any()  # and who is not there sees nothing


@pytest.mark.parametrize(
    ("encoding", "size"),
    [
        (Encoding(others="none"), 7),
        (Encoding(others="global4"), 11),
        (Encoding(others="global4+var"), 15),
        (Encoding(others="meanfield"), 14),
        (Encoding(others="meanfield+actions"), 16),
        (Encoding(others="concat", slots=2), 21),
        (Encoding(own="six", others="meanfield+actions"), 14),
        (Encoding(others="none", is_workflow_aware=True), 10),
    ],
)
def test_sizes(encoding, size):
    assert encoding.size == size
    assert observe(state(), SITE, encoding, STILL, STILL).shape == (3, size)


def test_joint_state_shows_each_other_function_and_zeros_in_empty_places():
    encoding = Encoding(others="concat", slots=3)
    own = own_fields(state(), SITE, "seven")
    seen = observe(state(), SITE, encoding, STILL, STILL)
    assert seen[1, 7:14] == pytest.approx(own[0])
    assert seen[1, 14:21] == pytest.approx(own[2])
    assert not seen[1, 21:].any()
    with pytest.raises(ValueError, match="slots must be at least the number of other functions, 2; got 1"):
        observe(state(), SITE, Encoding(others="concat", slots=1), STILL, STILL)


def test_workflow_aware_agents_see_their_place_and_how_late_requests_are():
    seen = observe(state(), SITE, Encoding(others="none", is_workflow_aware=True), STILL, STILL)
    assert seen[:, 7:].tolist() == [[0.0, 0.5, 1.0], [0.5, 0.0, 0.25], [0.0, 0.0, 0.0]]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_means_of_the_others_are_those_of_a_plain_loop(count, seed):
    rng = np.random.default_rng(seed)
    site = replace(SITE, **{name: rng.random(count) + 0.1 for name in ("slo_s", "needs_gb", "upstream", "downstream")})
    measures = Measures(**{name: rng.random(count) for name in MEASURES.__dataclass_fields__})
    present = rng.random(count) < 0.7
    steps = rng.integers(-1, 2, (2, count)).astype(float)
    found = state_of(measures, site, present, 10.0)
    own = own_fields(found, site, "seven")
    seen = observe(found, site, Encoding(others="meanfield+actions"), *steps)
    for i in np.flatnonzero(present):
        others = [j for j in np.flatnonzero(present) if j != i]
        rows = [[*own[j], steps[0, j], steps[1, j]] for j in others] or [[0.0] * 9]
        assert seen[i, 7:] == pytest.approx(np.mean(rows, axis=0), abs=1e-6)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"own": "eight"}, "own must be one of seven, six; got 'eight'"),
        ({"others": "all"}, "others must be one of none, "),
        ({"others": "concat"}, "slots must be positive with 'concat'"),
        ({"slots": 2}, "slots must be positive with 'concat' and 0 without; got 2"),
    ],
)
def test_encodings_that_make_no_sense_are_refused(settings_, message):
    with pytest.raises(ValueError, match=message):
        Encoding(**settings_)


# --- rewards


def rewards(actions, before=(0, 0, 0), refused=(False, False, False), **more):
    return worth.rewards(state(), np.array(actions), np.array(before), np.array(refused), **more).tolist()


def test_reward_weighs_slo_and_utilisation():
    assert rewards([0, 0, 0]) == pytest.approx([0.7 * 0.5 + 0.3 * 0.5, 0.7 * 0.5 + 0.3 * 1.0, 0.7])
    assert rewards([0, 0, 0], slo_weight=1.0) == pytest.approx([0.5, 0.5, 1.0])
    assert rewards([0, 0, 0], slo_weight=0.0) == pytest.approx([0.5, 1.0, 0.0])


def test_workflow_aware_the_whole_workflow_counts():
    assert rewards([0, 0, 0], slo_weight=1.0, is_workflow_aware=True) == pytest.approx([0.5, 1.0, 1.0])


def test_reversals_and_refusals_cost_one():
    assert rewards([worth.OUT, worth.IN, 0], before=[worth.IN, worth.OUT, 0], refused=[False, False, True]) == [-1] * 3
    kept = rewards([worth.OUT, worth.MORE_VCPUS, 0], before=[worth.OUT, worth.LESS_VCPUS, 0])
    assert min(kept) > 0  # the same again, or a vertical step back, is no reversal
    assert rewards([worth.OUT, 0, 0], before=[worth.IN, 0, 0], has_penalties=False)[0] > 0


def test_steps_are_horizontal_and_vertical():
    horizontal, vertical = worth.steps(np.arange(7))
    assert horizontal.tolist() == [0, 1, -1, 0, 0, 0, 0]
    assert vertical.tolist() == [0, 0, 0, 1, -1, 1, -1]


# --- rescue


def test_who_is_far_over_its_slo_for_two_periods_is_rescued_until_it_is_within():
    rescue = Rescue(1, 3.0)
    found = [bool(rescue.judge(np.array([over]))[0]) for over in (4.0, 0.5, 4.0, 5.0, 2.0, 1.5, 0.9, 2.9, 3.5)]
    assert found == [False, False, False, True, True, True, False, False, False]


def test_nobody_is_rescued_without_a_limit():
    rescue = Rescue(1, 0.0)
    assert not any(rescue.judge(np.array([100.0]))[0] for _ in range(5))
