"""Simppo as a scaler: its parameters, what it does first and in shadow, and what an action makes of a size."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simppo_worlds import ACTIONS, agents, saved, world

from fairlead.engine import simulate
from fairlead.engine.core.events import Ordered
from fairlead.model import Configuration
from fairlead.policy import Resize, Scale
from fairlead.policy.simppo.policy import Simppo
from fairlead.policy.simppo.reward import LESS_MEMORY, LESS_VCPUS, MORE_MEMORY, MORE_VCPUS, NOTHING, OUT
from fairlead.policy.simppo.rungs import Rungs, Size, within_bounds
from fairlead.testing import SCENARIOS, check_scaler


def asked(policy, where, **given):
    """Every action in a run, with its instant, and the recording."""
    found, adjust = [], policy.adjust

    def watched(view):
        for action in adjust(view):
            found.append((view.now, action))
            yield action

    policy.adjust = watched
    recording = simulate(where, "fifo", scaler=policy, **given)
    assert recording.refusals == ()
    return found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "sleep"}, "mode must be one of act, shadow; got 'sleep'"),
        ({"min_replicas": 0}, "min_replicas must be at least 1; got 0"),
        ({"first_replicas": 1, "min_replicas": 2}, "first_replicas must be at least min_replicas; got 1"),
        ({"stale_periods": -1}, "stale_periods must not be negative; got -1"),
        ({"recover_periods": 0}, "recover_periods must be at least 1; got 0"),
        ({"hosts": -1}, "hosts must not be negative; got -1"),
        ({"answer_s": 0.0}, "answer_s must be positive; got 0.0"),
        ({"retrain": "now"}, "retrain must be one of off, process; got 'now'"),
        ({"trigger": "never"}, "trigger must be one of relative, absolute; got 'never'"),
        ({"episode_periods": 0}, "episode_periods must be at least 1; got 0"),
        ({"retrain_steps": 7}, "retrain_steps must be at least 8; got 7"),
        ({"hosts": 1, "retrain": "process"}, "retrain must be 'off' with hosts"),
    ],
)
def test_parameters_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Simppo(**changes)


def test_conforms(tmp_path):
    checkpoint = saved(tmp_path)
    check_scaler(lambda: Simppo(checkpoint=checkpoint), {name: SCENARIOS[name] for name in list(SCENARIOS)[:3]})


def test_everybody_has_a_first_replica_before_anybody_has_a_second(tmp_path):
    found = asked(Simppo(checkpoint=saved(tmp_path, agents(always=NOTHING))), world(("a", "b"), duration_s=40))
    one = Configuration(vcpus=1, memory_gb=0.25)
    first = [Scale("a", 1, one), Scale("b", 1, one), Scale("a", 2), Scale("b", 2)]
    assert found == [(10.0, action) for action in first]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (OUT, Scale("a", 3)),
        (MORE_VCPUS, Resize("a", 2.0, 0.25)),
        (LESS_VCPUS, Resize("a", 0.5, 0.25)),
        (MORE_MEMORY, Resize("a", 1.0, 0.375)),
    ],
    ids=["out", "up", "down", "memory"],
)
def test_an_action_is_one_step(tmp_path, action, expected):
    found = asked(Simppo(checkpoint=saved(tmp_path, agents(always=action))), world(("a",), duration_s=20))
    assert [a for at, a in found if at == 20.0] == [expected]


def test_in_shadow_the_rule_acts_and_what_agents_would_have_done_is_noted(tmp_path):
    policy = Simppo(checkpoint=saved(tmp_path, agents(always=OUT)), mode="shadow")
    # One per second of 0.4 s: 0.4 + 0.63, so two replicas, which there are.
    found = asked(policy, world(("a",), duration_s=20, rate_rps=1.0))
    assert [a for at, a in found if at == 20.0 and a.instances > 2] == []
    assert policy.notes()["a"]["is_agent"] == 0
    assert policy.notes()["a"]["shadow_replicas"] > policy._sizes[0].replicas


def test_it_goes_on_from_what_an_operator_ordered(tmp_path):
    policy = Simppo(checkpoint=saved(tmp_path, agents(always=OUT)))
    found = asked(policy, world(("a",), duration_s=30), given=[(15.0, Ordered(Scale("a", 7)))])
    assert [a for at, a in found if at == 20.0] == [Scale("a", 8)]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(0, 5),
    st.integers(0, 3),
    st.sampled_from([0.25, 0.375, 1.0, 2.9, 3.0]),
)
def test_bounds_for_many_are_those_of_one(rungs, replicas, rung, memory_gb):
    own = Rungs(vcpus=tuple(float(i + 1) for i in range(rungs)), least_gb=0.25, least=1, most=4)
    size = Size(replicas=replicas, rung=min(rung, rungs - 1), memory_gb=memory_gb)
    found = within_bounds([own], [size], ACTIONS)[0].tolist()
    expected = [own.after(size, action) is not None for action in range(ACTIONS)]
    if 1 <= replicas <= 4:  # a size of its own is within the bounds
        assert found == expected
    assert found[LESS_MEMORY] == (replicas > 0 and memory_gb - 0.125 >= 0.25)


def test_the_same_seed_gives_the_same_draws(tmp_path):
    checkpoint = saved(tmp_path)
    runs = [asked(Simppo(checkpoint=checkpoint, draws=True), world(duration_s=100), seed=s) for s in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("memory_gb", [64.0, 4.0], ids=["roomy", "tight"])
def test_after_a_turn_the_meter_knows_what_every_function_holds(tmp_path, memory_gb):
    # Only functions that were acted on are listed again.
    where = world(rate_rps=2.0, memory_gb=memory_gb)
    policy = Simppo(checkpoint=saved(tmp_path, agents(seed=3)), draws=True)
    adjust, turns = policy.adjust, []

    def watched(view):
        yield from adjust(view)
        turns.append(len(policy._changed))
        held = [sum(instance.vcpus for instance in view.instances(name)) for name in where.functions]
        assert policy._meter._held.tolist() == held

    policy.adjust = watched
    simulate(where, "least-loaded", scaler=policy)
    assert len(turns) > 20
    assert 0 < min(turns[1:]) + max(turns[1:]) < 2 * len(where.functions)
