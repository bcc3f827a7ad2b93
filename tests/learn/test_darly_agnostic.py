"""One agent for any deployment: what is drawn can be done, what it sees has no names, and training repeats."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.sim.stepped import Stepped
from fairlead.learn.darly.agnostic import (
    AnyScheduling,
    AnySettings,
    by_estimate,
    by_network,
    keeping,
    run_any,
    train_any,
)
from fairlead.learn.darly.family import drawn_deployment, drawn_schedule, misjudged, problem_of
from fairlead.learn.darly.schedules import Phase
from fairlead.learn.darly.scheduling import deployment
from fairlead.model import Cluster
from fairlead.planning.deployment import Timetable, is_doable, latency_s, quickest
from fairlead.policy.base import Move, Scale
from fairlead.policy.darly.actions import Act
from fairlead.policy.darly.features import NAMES, Situation, allowed, any_actions, describe

SMALL = AnySettings(hidden=(8,), batch=4, learning_starts=4, target_every=4)
SEEDS = st.integers(0, 10_000)


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_what_is_drawn_can_run_as_estimated(seed):
    made = drawn_deployment(np.random.default_rng(seed))
    problem = problem_of(made)
    _, places = quickest(problem)
    soonest_s, in_turn_s = Timetable(problem).spans(places)  # the branches of a fork may have to share a small node
    run = Stepped(made.scenario, seed=seed)
    for group, functions in made.groups.items():
        for function in functions:
            run.order(Scale(function, made.slots), Move(function, places[group]))
    run.advance(100.0)
    end = run.wait(run.send(made.workflow, at=100.0), 1000.0)
    assert end is not None
    assert not run.refusals
    assert 0.65 * soonest_s <= end - 100 <= 1.35 * in_turn_s


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_every_drawn_phase_is_doable(seed):
    rng = np.random.default_rng(seed)
    made = drawn_deployment(rng)
    for phase in drawn_schedule(rng, made, 3, 5):
        assert is_doable(problem_of(made), phase.slo_s, phase.pressures, slack=0.07)
        assert phase.steps == 5


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_deployments_are_of_the_announced_sizes(seed):
    made = drawn_deployment(np.random.default_rng(seed))
    assert 3 <= len(made.nodes) <= 6
    assert 2 <= len(made.groups) <= 4
    assert 2 <= len(made.scenario.functions) <= 5


def situation(made, places, *, counters=None, **more):
    rows = counters or {node: (2.0, 0.1, 0.1, 0.1, 0.1 * i, 0.5, 0.1) for i, node in enumerate(made.nodes)}
    return Situation(
        problem=problem_of(made),
        places=places,
        counters=rows,
        slo_s=40.0,
        last_s=30.0,
        scaled=made.scaled,
        pressures={node: row[4] for node, row in rows.items()},
        **more,
    )


def rows_of(made, where):
    acts = any_actions(list(made.groups), made.nodes, made.scaled)
    return dict(zip(acts, describe(acts, where).tolist(), strict=True))


@given(SEEDS, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_an_action_is_described_alike_in_whatever_order_nodes_and_groups_are(seed, random):
    made = drawn_deployment(np.random.default_rng(seed))
    places = {group: random.choice(made.nodes) for group in made.groups}
    where = situation(made, places)
    nodes, groups = list(made.scenario.cluster.nodes), list(made.groups.items())
    random.shuffle(nodes)
    random.shuffle(groups)
    turned = replace(made, scenario=replace(made.scenario, cluster=Cluster(nodes=tuple(nodes))), groups=dict(groups))
    found = rows_of(turned, situation(turned, places, counters=where.counters))
    for act, row in rows_of(made, where).items():
        assert found[act] == pytest.approx(row, abs=1e-5)


def test_names_do_not_matter():
    made = deployment()
    places = {"framer": "w01", "detector": "w02", "models": "w03"}
    plain = rows_of(made, situation(made, places))
    other = {group: f"other-{group}" for group in made.groups}
    named = replace(made, groups={other[g]: f for g, f in made.groups.items()}, scaled=other["models"])
    found = rows_of(named, situation(named, {other[g]: node for g, node in places.items()}))
    for act, row in plain.items():
        assert found[act._replace(group=other.get(act.group or "", act.group))] == pytest.approx(row)


VIDEO = deployment()
ON_W01 = {"framer": "w01", "detector": "w01", "models": "w01"}


class TestDescriptions:
    def row(self, act, **more):
        values = rows_of(VIDEO, situation(VIDEO, ON_W01, **more))[act]
        return dict(zip(NAMES, values, strict=True))

    def test_a_move_tells_what_it_would_lead_to(self):
        found = self.row(Act("move", "framer", "w04"))
        problem = problem_of(VIDEO)
        pressures = {"w01": 0.0, "w02": 0.1, "w03": 0.2, "w04": 0.3}
        now_s = latency_s(problem, ON_W01, pressures)
        then_s = latency_s(problem, {**ON_W01, "framer": "w04"}, pressures)
        assert found["now"] == pytest.approx(now_s / 40)
        assert found["then"] == pytest.approx(then_s / 40)
        assert found["gain"] == pytest.approx((now_s - then_s) / 40)
        assert (found["is_move"], found["last"], found["was_met"]) == (1.0, 0.75, 1.0)
        assert found["speed"] == pytest.approx(15.3726 / 39.57, rel=1e-3)
        assert found["idle"] == pytest.approx(0.7)
        assert found["nodes"] == pytest.approx(2 / 3)

    def test_nothing_leaves_all_as_it_is(self):
        found = self.row(Act("keep"))
        assert (found["is_move"], found["gain"], found["share"]) == (0, 0, 0)
        assert found["then"] == found["now"]

    def test_only_what_changes_something_is_allowed(self):
        acts = any_actions(list(VIDEO.groups), VIDEO.nodes, "models")
        found = dict(zip(acts, allowed(acts, situation(VIDEO, ON_W01, replicas=4)), strict=True))
        assert found[Act("keep")]
        assert not found[Act("move", "framer", "w01")]
        assert found[Act("move", "framer", "w02")]
        assert not found[Act("out", "models")]
        assert found[Act("in", "models")]
        assert not dict(zip(acts, allowed(acts, situation(VIDEO, ON_W01)), strict=True))[Act("in", "models")]


class TestTraining:
    def test_a_tiny_training_repeats_to_the_bit(self):
        one, again = (train_any(2, phases=2, steps=3, settings=SMALL, seed=1) for _ in range(2))
        other = train_any(2, phases=2, steps=3, settings=SMALL, seed=2)
        for (weight, bias), (weight2, bias2) in zip(one, again, strict=True):
            assert np.array_equal(weight, weight2)
            assert np.array_equal(bias, bias2)
        assert not np.array_equal(one[0][0], other[0][0])
        assert [weight.shape for weight, _ in one] == [(len(NAMES), 8), (8, 1)]

    def test_progress_is_told_and_can_end_it(self):
        told = []
        train_any(
            5,
            phases=1,
            steps=3,
            settings=SMALL,
            progress=lambda episode, met: told.append((episode, met)) or episode == 2,
        )
        assert [episode for episode, _ in told] == [1, 2]
        assert all(0 <= met <= 1 for _, met in told)

    def test_a_network_of_any_deployment_serves_the_video_workflow(self):
        layers = train_any(1, phases=1, steps=3, settings=SMALL)
        schedule = (Phase(steps=3, slo_s=35.0, pressures={}),)
        runs = [run_any(by_network(layers), deployment(), schedule, seed=seed) for seed in (0, 0)]
        assert len(runs[0]) == 3
        assert runs[0] == runs[1]
        assert not any(outcome.is_refused for outcome in runs[0])  # what would be is not allowed

    def test_it_takes_the_action_of_the_highest_value_that_is_allowed(self):
        # A network that values what leads to the least estimated latency: minus `then`.
        weight = np.zeros((len(NAMES), 1), np.float32)
        weight[NAMES.index("then")] = -1.0
        layers = ((weight, np.zeros(1, np.float32)),)
        pressed = (Phase(steps=4, slo_s=30.0, pressures={"w01": 0.75}),)
        outcomes = run_any(by_network(layers), deployment(), pressed)
        assert outcomes[0].act == Act("move", "framer", "w02")
        assert outcomes[-1].is_met
        env = AnyScheduling(deployment(), pressed)
        rows, is_allowed = env.look()
        assert len(rows) == len(is_allowed) == len(env.acts) == 3 * 4 + 1  # it moves groups, and scales none

    def test_estimates_alone_move_what_would_be_late_and_leave_what_is_not(self):
        pressed = (Phase(steps=4, slo_s=33.0, pressures={"w01": 0.75}), Phase(steps=2, slo_s=60.0, pressures={}))
        outcomes = run_any(by_estimate(0.04), deployment(), pressed)
        assert outcomes[0].act == Act("move", "framer", "w02")
        assert [outcome.has_moved for outcome in outcomes[-3:]] == [False] * 3
        assert outcomes[3].is_met
        assert not any(outcome.has_moved for outcome in run_any(keeping, deployment(), pressed))

    def test_a_correction_by_the_last_request_moves_what_estimates_would_leave(self):
        rows = np.zeros((3, len(NAMES)), np.float32)  # two moves, and nothing
        rows[:, NAMES.index("now")] = 0.5
        rows[:, NAMES.index("then")] = (0.9, 0.7, 0.5)
        rows[:, NAMES.index("last")] = 1.2
        every = np.ones(3, np.bool_)
        assert by_estimate(0.04)(rows, every) == 2
        assert by_estimate(0.04, is_corrected=True)(rows, every) == 1
        assert by_estimate(0.04, is_corrected=True)(rows, np.array([True, False, True])) == 0
        rows[:, NAMES.index("then")] = (1.4, 1.3, 0.5)  # no move is estimated to be quicker than the last request was
        assert by_estimate(0.04, is_corrected=True)(rows, every) == 2


class TestMisjudged:
    def test_each_function_is_off_on_each_kind_of_node_by_a_factor_of_its_own(self):
        made = drawn_deployment(np.random.default_rng(3))
        exact, wrong = problem_of(made), misjudged(np.random.default_rng(0), made, 0.3)
        factors = []
        for name, profile in exact.profiles.items():
            size = profile.configurations[0]
            assert wrong.profiles[name].configurations == profile.configurations
            factors += [
                wrong.profiles[name].latency_s(size, node.kind) / profile.latency_s(size, node.kind)
                for node in exact.cluster.nodes
            ]
        assert len(set(factors)) == len(factors)
        assert 0.3 < min(factors) < 1 < max(factors) < 3

    def test_without_an_error_estimates_are_exact(self):
        made = drawn_deployment(np.random.default_rng(3))
        places = dict.fromkeys(made.groups, made.nodes[0])
        exact, same = problem_of(made), misjudged(np.random.default_rng(0), made, 0.0)
        assert latency_s(same, places, {}) == pytest.approx(latency_s(exact, places, {}))
