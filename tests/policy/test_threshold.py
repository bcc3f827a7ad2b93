"""Threshold: more or fewer vCPUs by the 99th percentile, and replicas by square-root staffing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.model import SLO, Configuration, Workflow
from fairlead.policy import Resize, Scale
from fairlead.policy.threshold import Threshold, _beside
from fairlead.profile import Row, Table
from fairlead.testing import SCENARIOS, check_accounts, check_scaler, cluster, declared, prepared, scenario, view_of

HALF, ONE, TWO = (Configuration(vcpus=vcpus) for vcpus in (0.5, 1, 2))
SIZES = (TWO, HALF, ONE)


def runs(half_s: float, one_s: float, two_s: float, **more):
    """A function that takes so long at each of its sizes."""
    rows = zip((HALF, ONE, TWO), (half_s, one_s, two_s), strict=True)
    return declared(Table(tuple(Row(seconds=s, vcpus=c.vcpus) for c, s in rows)), configurations=SIZES, **more)


def asked(policy, where) -> list[tuple[float, object]]:
    """Every action that a threshold yields in a run, with its instant."""
    found = []
    adjust = policy.adjust

    def watched(view):
        for action in adjust(view):
            found.append((view.now, action))
            yield action

    policy.adjust = watched
    recording = simulate(where, "fifo", scaler=policy)
    check_accounts(recording)
    assert not recording.refusals
    return found


def world(function, every_s, *, slo_s, vcpus=16.0, periods=1):
    """One function, called every so often in so many control periods of 10 s, and a last time after them."""
    many = round(periods * 10 / every_s)
    instants = [0.01 + every_s * i for i in range(many)] + [periods * 10 + 0.5]
    return scenario(function, arrivals=instants, on=cluster(vcpus=vcpus), slo_s=slo_s, control_period_s=10.0)


class TestReplicas:
    @pytest.mark.parametrize(
        ("every_s", "expected"),
        [(5.0, 1), (1.0, 2), (0.25, 6), (0.1, 14)],  # loads of 0.2, 1, 4, 10
        ids=["a-fifth", "one", "four", "ten"],
    )
    def test_square_root_of_the_load_comes_on_top_of_it(self, every_s, expected):
        # 0.2 + 0.45 = 0.65; 1 + 1; 4 + 2; 10 + 3.16 = 13.16
        first = asked(Threshold(), world(1.0, every_s, slo_s=5.0))
        assert first[0] == (10.0, Scale("f", 1, ONE))
        assert [a.instances for at, a in first[1:] if at == 10.0] == ([expected] if expected > 1 else [])

    def test_margin_may_be_left_out_or_larger(self):
        for margin, expected in ((0.0, 4), (2.0, 8)):
            found = asked(Threshold(margin=margin), world(1.0, 0.25, slo_s=5.0))
            assert [a.instances for _, a in found[:2]] == [1, expected]

    def test_replicas_stay_within_their_bounds(self):
        found = asked(Threshold(min_replicas=2, max_replicas=5), world(1.0, 0.1, slo_s=5.0, periods=3))
        assert [a.instances for at, a in found if at == 10.0] == [2, 5]

    def test_they_go_when_the_load_does(self):
        # 40 calls until 10 s, and one later to keep the run going.
        where = scenario(1.0, arrivals=[0.25 * i for i in range(40)] + [31.0], slo_s=5.0, control_period_s=10.0)
        found = asked(Threshold(), where)
        assert [(at, a.instances) for at, a in found if isinstance(a, Scale)] == [(10, 1), (10, 6), (20, 1)]

    def test_the_load_is_that_of_the_size_that_it_has(self):
        # At one vCPU 2 s, at two 1 s: an objective of 1 s is out of reach with one vCPU.
        found = asked(Threshold(), world(runs(4.0, 2.0, 1.0), 0.5, slo_s=1.0, periods=3))
        assert found[:2] == [(10, Scale("f", 1, ONE)), (10, Scale("f", 6))]  # a load of 4
        assert found[2:4] == [(20, Resize("f", 2.0)), (20, Scale("f", 4))]  # a load of 2: 2 + 1.41


class TestSize:
    def test_it_begins_with_a_whole_vcpu(self):
        found = asked(Threshold(), world(runs(2, 1, 0.5), 5.0, slo_s=5.0))
        assert found[0] == (10, Scale("f", 1, ONE))

    @pytest.mark.parametrize(
        ("slo_s", "expected"),
        [(0.86, 2.0), (0.88, None), (1.42, None), (1.44, 0.5)],
        ids=["above-1.15", "not-above", "not-below", "below-0.7"],
    )
    def test_it_follows_the_percentile_over_the_objective(self, slo_s, expected):
        # A run takes a second with one vCPU. 1 / 0.86 = 1.163; 1 / 0.88 = 1.136; 1 / 1.42 = 0.704; 1 / 1.44 = 0.694
        found = asked(Threshold(), world(runs(1.0, 1.0, 1.0), 4.0, slo_s=slo_s, periods=2))
        resized = [a.vcpus for at, a in found if at == 20.0 and isinstance(a, Resize)]
        assert resized == ([] if expected is None else [expected])

    def test_busy_replicas_are_not_made_smaller(self):
        # One replica works for 0.95 of 1 s, far within its objective.
        busy = asked(Threshold(margin=0.0), world(runs(0.95, 0.95, 0.95), 1.0, slo_s=50.0, periods=3))
        assert not any(isinstance(a, Resize) for _, a in busy)
        idle = asked(Threshold(margin=0.0), world(runs(0.95, 0.95, 0.95), 2.0, slo_s=50.0, periods=3))
        assert (20, Resize("f", 0.5)) in idle

    def test_what_waits_and_never_ends_is_slow(self):
        # Three runs of 8 s, one after the other: at 20 s one still waits, since 11 s.
        where = scenario(runs(8.0, 8.0, 8.0), arrivals=[11.0, 11.0, 11.0], slo_s=8.0, control_period_s=10.0)
        found = asked(Threshold(max_replicas=1), where)
        assert (20, Resize("f", 2.0)) not in found  # 8 s for 8 s, and 9 s are still within 1.15
        where = scenario(runs(8.0, 8.0, 8.0), arrivals=[10.5, 10.5, 10.5], slo_s=8.0, control_period_s=10.0)
        assert (20, Resize("f", 2.0)) in asked(Threshold(max_replicas=1), where)  # 9.5 s are not

    def test_without_runs_it_stays_as_it_is(self):
        where = scenario(runs(1, 1, 1), arrivals=[1.0, 95.0], slo_s=5.0, control_period_s=10.0)
        found = asked(Threshold(), where)
        assert [a for at, a in found if 10 < at < 95] == []

    @pytest.mark.parametrize(("vcpus", "is_asked"), [(3.0, False), (4.0, True)], ids=["full", "room"])
    def test_no_size_is_asked_for_that_has_no_room(self, vcpus, is_asked):
        # Two replicas of 1 vCPU, idle at 20 s after runs of 7 s for an objective of 5 s; both need one more to grow.
        where = scenario(
            runs(7.0, 7.0, 7.0), arrivals=[11.0, 12.0, 21.0], on=cluster(vcpus=vcpus), slo_s=5.0, control_period_s=10.0
        )
        found = asked(Threshold(min_replicas=2, max_replicas=2), where)
        assert ((20, Resize("f", 2.0)) in found) == is_asked

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.integers(1, 64), min_size=1, max_size=8, unique=True), st.integers(1, 64), st.sampled_from([1, -1])
    )
    def test_a_step_goes_to_the_next_rung(self, rungs, vcpus, step):
        rungs = tuple(sorted(float(rung) for rung in rungs))
        found = _beside(rungs, vcpus, step)
        further = [rung for rung in rungs if (rung > vcpus if step == 1 else rung < vcpus)]
        assert found == (min(further) if step == 1 else max(further)) if further else found is None


def test_a_function_has_its_share_of_the_objective():
    # Of 4 s, 1 and 3 s are meant for a and b, which take just these: below 1.15 and above 0.7, so nothing changes. With
    # 2.4 s, a third less, both are too slow.
    functions = {"a": runs(1.0, 1.0, 1.0), "b": runs(3.0, 3.0, 3.0)}
    flows = {s: {"main": Workflow.chain("main", "a", "b", slo=SLO(latency_s=s))} for s in (4.0, 2.4)}
    for slo_s, expected in ((4.0, []), (2.4, ["a", "b"])):
        where = scenario(
            functions,
            workflows=flows[slo_s],
            arrivals=[11.0, 15.0, 21.0],
            on=cluster(vcpus=16),
            control_period_s=10.0,
        )
        found = asked(Threshold(), where)
        assert [a.function for at, a in found if at == 20.0 and isinstance(a, Resize)] == expected


def test_everyone_gets_one_before_anyone_gets_more():
    where = scenario({"b": 1.0, "a": 1.0})
    found = list(prepared(Threshold(), where).adjust(view_of(scenario=where, now=10.0)))
    assert found == [Scale("b", 1, ONE), Scale("a", 1, ONE)]


def test_a_gpu_function_keeps_its_size_and_gets_replicas():
    gpu = Configuration(vcpus=1, vgpus=1)
    where = scenario(
        declared(1.0, configurations=(gpu,)),
        arrivals=[0.01 + 0.5 * i for i in range(60)],
        on=cluster(vcpus=8, vgpus=1, devices=4),
        slo_s=0.5,
        control_period_s=10.0,
    )
    found = asked(Threshold(), where)
    assert found[:2] == [(10, Scale("f", 1, gpu)), (10, Scale("f", 4))]  # a load of 2: 2 + 1.41
    assert not any(isinstance(a, Resize) for _, a in found)


def test_it_conforms_with_other_parameters():
    some = {name: SCENARIOS[name] for name in ("chain", "tight-memory", "gpu-mps")}
    check_scaler(lambda: Threshold(high=0.5, low=0.4, utilisation=1.0, margin=0.0, max_replicas=3), some)


@pytest.mark.parametrize(
    "given_",
    [
        {"low": -0.1},
        {"high": 0.6},
        {"high": float("inf")},
        {"utilisation": 0.0},
        {"utilisation": 1.1},
        {"margin": -1.0},
        {"min_replicas": 0},
        {"max_replicas": 0},
        {"min_replicas": 4, "max_replicas": 3},
    ],
)
def test_parameters_out_of_range_are_refused_by_name(given_):
    with pytest.raises(ValueError, match=rf"^{list(given_)[-1]} must be"):
        Threshold(**given_)


def test_one_that_replaces_another_scaler_waits_for_its_own_measures():
    # A scaler with 5 replicas of 2 vCPUs is replaced at 10 s. The first whole period, without load, leaves one.
    where = scenario(runs(1.0, 1.0, 1.0), arrivals=[0.01, 41.0], on=cluster(vcpus=16), slo_s=5.0, control_period_s=10.0)
    policy, found = prepared(Threshold(), where), []

    class Before(Threshold):
        def adjust(self, view):
            if view.now == 10.0:
                yield Scale("f", 5, TWO)
            else:
                for action in policy.adjust(view):
                    found.append((view.now, action))
                    yield action

        def observe(self, record):
            policy.observe(record)

    assert not simulate(where, "fifo", scaler=Before()).refusals
    assert found[0] == (30, Scale("f", 1))
