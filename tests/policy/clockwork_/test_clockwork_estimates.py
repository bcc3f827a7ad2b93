"""What Clockwork expects: the greatest of the last ten measurements, per model and batch size."""

import pytest
from clockwork_runs import MS, model, outcomes, run, world
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.policy.clockwork.ladder import Window, make_ladder
from fairlead.profile import Row, ScalingLaw, Table, space
from fairlead.testing import cluster, declared, scenario, site_of


def test_an_estimate_begins_as_declared_and_follows_what_is_measured():
    window = Window(5.0, 3)
    seen = []
    for measured in (4.0, 7.0, 4.0, 4.0, 4.0):
        window.learn(measured)
        seen.append(window.seconds)
    # The declared 5 is the oldest of three; 7 stays until it is the fourth last.
    assert seen == [5.0, 7.0, 7.0, 7.0, 4.0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 10), max_size=40), st.integers(1, 12))
def test_an_estimate_is_the_greatest_of_the_last(measured, remember):
    window = Window(3.0, remember)
    for seconds in measured:
        window.learn(seconds)
    assert window.seconds == max([3.0, *measured][-remember:])


def ladder_of(where, device=0, **settings):
    site = site_of(where)
    (name,) = site.functions
    return make_ladder(
        site.functions[name],
        site.profiles[name],
        site.cluster.nodes[0],
        device,
        **{"max_batch": 16, **settings},
        remember=10,
    )


def test_a_batch_counts_once_for_all_its_members():
    # Declared 40 for a batch of two, really 20. The sixth batch pushes the declared time out, not the third.
    where = world({"a": model(20, 40, bias=0.5)}, {"a": [50.0 * (i // 2) for i in range(14)]})
    recording = run(where, measurements=6, max_exec_s=0.05)
    early_s = (recording.requests["promised"] - recording.requests["end"]).to_list()
    assert early_s == pytest.approx([20 * MS] * 12 + [0, 0], abs=1e-9)


def test_batch_sizes_have_estimates_of_their_own():
    ladder = ladder_of(world({"a": model(3, 4, 6)}, {"a": [0]}))
    assert [rung.run.seconds for rung in ladder.rungs] == [3 * MS, 4 * MS, 6 * MS]
    ladder.holding(3).run.learn(30 * MS)
    assert [rung.batch for rung in ladder.allowed(0.025)] == [2, 1]
    assert [rung.batch for rung in ladder.allowed(0.001)] == [1]
    assert ladder.holding(99).batch == 4


def test_slow_runs_are_learned_and_what_follows_is_promised_right():
    # Declared 10, really 20. The first promise is wrong; all later ones hold.
    recording = run(world({"a": model(10, bias=2.0)}, {"a": [0, 30, 60, 90]}))
    late_s = (recording.requests["end"] - recording.requests["promised"]).to_list()
    assert late_s == pytest.approx([10 * MS, 0, 0, 0])


def test_ten_measurements_replace_what_was_declared():
    # Declared 40, really 20. The promise follows when the tenth measurement has pushed the declared time out.
    recording = run(world({"a": model(40, bias=0.5)}, {"a": [50.0 * i for i in range(12)]}))
    assert set(outcomes(recording)) == {"completed"}
    early_s = (recording.requests["promised"] - recording.requests["end"]).to_list()
    assert early_s == pytest.approx([20 * MS] * 10 + [0, 0], abs=1e-9)


def test_a_device_gives_the_fastest_share_and_a_slot_the_cheapest():
    law = ScalingLaw(t1_s=1.0, gamma=0.5)
    plain = scenario({"a": declared(law, configurations=space(batch=(1, 2), vcpus=(1, 4)))})
    assert {rung.configuration.vcpus for rung in ladder_of(plain, device=None).rungs} == {1}
    rows = (Row(vgpus=1, seconds=0.4), Row(vgpus=4, seconds=0.1), Row(batch=2, vgpus=1, seconds=0.5))
    shared = scenario({"a": declared(Table(rows))}, on=cluster(1, vgpus=4))
    assert [rung.configuration.vgpus for rung in ladder_of(shared).rungs] == [4]
