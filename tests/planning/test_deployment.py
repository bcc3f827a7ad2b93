"""How long a request takes with its functions where they are: by hand, and beside the simulator."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.learn.darly.cluster import Setting
from fairlead.learn.darly.family import drawn_deployment, problem_of
from fairlead.learn.darly.schedules import Phase
from fairlead.learn.darly.scheduling import deployment
from fairlead.learn.darly.world import World
from fairlead.model import Cluster, Node, Stage, Workflow
from fairlead.planning.deployment import Problem, call_s, improved, is_doable, latency_s, placements, quickest
from fairlead.policy.darly.actions import Act
from fairlead.profile import Constant, Profile, Row, Table

CURVE = {"fast": ((0.5, 1.6),), "slow": ((0.5, 3.0),)}
NODES = Cluster(
    nodes=(
        Node(name="n1", kind="fast", vcpus=8.0, overcommit=64.0),
        Node(name="n2", kind="slow", vcpus=4.0, speed=0.5, overcommit=64.0),
    )
)


def profile(seconds, **settings):
    return Profile(law=Constant(seconds), pressure_curves=CURVE, **settings)


def problem(profiles, stages, *, workers=4):
    """Every function in a group of its own, named as it is."""
    return Problem(
        workflow=Workflow(name="w", stages=tuple(stages)),
        profiles=profiles,
        cluster=NODES,
        groups={name: (name,) for name in profiles},
        workers=workers,
    )


def stage(name, *after, **more):
    return Stage(name=name, function=name, after=after, **more)


CHAIN = problem({"a": profile(10.0), "b": profile(5.0)}, [stage("a"), stage("b", "a")])
FORK = problem(
    {"a": profile(2.0), "b": profile(3.0), "c": profile(5.0), "d": profile(1.0)},
    [stage("a"), stage("b", "a"), stage("c", "a"), stage("d", "b", "c")],
)


def mapped(workers=4, **settings):
    """A second, then twelve items of 2 and of 1 s each, then a second."""
    return problem(
        {"split": profile(1.0), "each": profile(2.0, **settings), "then": profile(1.0), "join": profile(1.0)},
        [
            stage("split"),
            stage("each", "split", map=(12, 12)),
            stage("then", "each"),
            stage("join", "then", join=True),
        ],
        workers=workers,
    )


def all_on(node, of):
    return dict.fromkeys(of.groups, node)


class TestByHand:
    @pytest.mark.parametrize(
        ("places", "pressures", "expected_s"),
        [
            ({"a": "n1", "b": "n1"}, {}, 15.0),
            ({"a": "n1", "b": "n2"}, {}, 20.0),  # half the speed
            ({"a": "n1", "b": "n2"}, {"n1": 0.5}, 26.0),
            ({"a": "n1", "b": "n2"}, {"n2": 0.5}, 40.0),
            ({"a": "n2", "b": "n1"}, {"n2": 0.25}, 45.0),  # halfway between 1 and 3
        ],
    )
    def test_stages_of_a_chain_add_up(self, places, pressures, expected_s):
        assert latency_s(CHAIN, places, pressures) == pytest.approx(expected_s)

    def test_of_a_fork_the_longer_arm_counts(self):
        assert latency_s(FORK, all_on("n1", FORK)) == 8.0
        assert latency_s(FORK, {**all_on("n1", FORK), "b": "n2"}) == 9.0  # 6 s is longer than 5

    @pytest.mark.parametrize(("workers", "expected_s"), [(1, 38.0), (2, 20.0), (4, 11.0)])
    def test_calls_of_a_map_go_through_the_workers(self, workers, expected_s):
        # As the simulator has it: tests/policy/test_queue_workers.py.
        found = mapped(workers)
        assert latency_s(found, all_on("n1", found)) == pytest.approx(expected_s)

    def test_the_way_to_a_call_holds_its_worker_and_is_not_slowed(self):
        found = mapped(overhead_s=1.0)
        assert latency_s(found, all_on("n1", found)) == pytest.approx(2 + 12 * (3 + 1) / 4)
        # Under pressure 1.6 x 2 s of work and 1 s of way, then 1.6 s.
        expected_s = 2 * 1.6 + 12 * (1 + 3.2 + 1.6) / 4
        assert latency_s(found, all_on("n1", found), {"n1": 0.5}) == pytest.approx(expected_s)

    def test_a_node_does_no_more_at_a_time_than_it_has(self):
        half = Table((Row(seconds=2.0, vcpus=4.0),))
        found = problem({"a": profile(1.0), "b": Profile(law=half)}, [stage("a"), stage("b", "a", map=(12, 12))])
        # Four workers want 16 vCPUs: n1 has 8, for two calls at a time; n2 has 4, for one at half speed.
        assert latency_s(found, all_on("n1", found)) == pytest.approx(1 + 12 * 2 / 2)
        assert latency_s(found, {"a": "n1", "b": "n2"}) == pytest.approx(1 + 12 * 4)

    def test_an_arm_counts_as_often_as_it_is_taken(self):
        found = problem(
            {"a": profile(1.0), "b": profile(1.0), "c": profile(4.0)},
            [stage("a"), stage("b", "a", map=(8, 8)), stage("c", "b", when=0.25)],
            workers=2,
        )
        assert latency_s(found, all_on("n1", found)) == pytest.approx(1 + 8 * 1 / 2 + 2 * 4 / 2)

    def test_without_a_curve_a_call_has_what_others_leave(self):
        whole = Table((Row(seconds=2.0, vcpus=8.0),))
        found = problem({"a": Profile(law=whole)}, [stage("a")])
        assert [call_s(found, "a", "n1", p) for p in (0.0, 0.5, 0.75)] == pytest.approx([2.0, 4.0, 8.0])
        small = problem({"a": Profile(law=Table((Row(seconds=2.0, vcpus=2.0),)))}, [stage("a")])
        assert [call_s(small, "a", "n1", p) for p in (0.0, 0.5, 0.75)] == pytest.approx([2.0, 2.0, 2.0])

    def test_where_a_function_cannot_run_it_takes_for_ever(self):
        only = Profile(law=Table((Row(seconds=2.0, kind="slow"),)))
        found = problem({"a": only}, [stage("a")])
        assert latency_s(found, {"a": "n1"}) == inf
        assert quickest(found) == (4.0, {"a": "n2"})


class TestQuickest:
    def test_there_are_as_many_placements_as_nodes_to_the_power_of_groups(self):
        found = list(placements(FORK))
        assert len(found) == 2**4
        assert len({tuple(one.items()) for one in found}) == 2**4

    def test_the_quickest_is_the_least_of_all(self):
        pressures = {"n1": 0.9}  # 2.08 times: n2 is now the quicker
        best_s, places = quickest(CHAIN, pressures)
        assert best_s == pytest.approx(30.0)
        assert places == {"a": "n2", "b": "n2"}
        assert best_s == min(latency_s(CHAIN, one, pressures) for one in placements(CHAIN))

    def test_of_equals_it_is_the_first(self):
        alike = replace(CHAIN, cluster=Cluster(nodes=tuple(replace_name(NODES.nodes[0], n) for n in ("x", "y"))))
        assert quickest(alike) == (15.0, {"a": "x", "b": "x"})

    @pytest.mark.parametrize(
        ("slo_s", "slack", "expected"), [(15.0, 0.0, True), (14.9, 0.0, False), (16.0, 0.05, True), (16.0, 0.1, False)]
    )
    def test_an_objective_is_doable_if_any_placement_meets_it(self, slo_s, slack, expected):
        assert is_doable(CHAIN, slo_s, slack=slack) is expected

    def test_pressure_can_make_an_objective_undoable(self):
        assert is_doable(CHAIN, 20.0, {"n2": 0.5})
        assert not is_doable(CHAIN, 20.0, {"n1": 0.5})


class TestImproved:
    def test_one_group_after_the_other_ends_at_the_least(self):
        assert improved(FORK, all_on("n2", FORK)) == (8.0, all_on("n1", FORK))
        pressures = {"n1": 0.9}
        assert improved(CHAIN, all_on("n1", CHAIN), pressures) == quickest(CHAIN, pressures)

    def test_of_two_equal_arms_each_moves_although_one_alone_gains_nothing(self):
        equal = replace(FORK, profiles={**FORK.profiles, "b": profile(5.0)})
        assert improved(equal, all_on("n2", equal)) == (8.0, all_on("n1", equal))

    def test_what_is_not_possible_is_not_done(self):
        found = improved(CHAIN, all_on("n2", CHAIN), is_possible=lambda places, group: group != "a")
        assert found == (25.0, {"a": "n2", "b": "n1"})

    @given(st.integers(0, 10_000), st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75]), min_size=6, max_size=6))
    @settings(max_examples=25, deadline=None)
    def test_it_finds_the_quickest_where_each_function_moves_by_itself(self, seed, levels):
        drawn = problem_of(drawn_deployment(np.random.default_rng(seed)))
        apart = replace(drawn, groups={f: (f,) for functions in drawn.groups.values() for f in functions})
        pressures = dict(zip(apart.nodes, levels, strict=False))
        last = list(apart.nodes)[-1]
        assert improved(apart, all_on(last, apart), pressures)[0] == pytest.approx(quickest(apart, pressures)[0])


def replace_name(node, name):
    return Node(name=name, kind=node.kind, vcpus=node.vcpus, overcommit=node.overcommit)


@pytest.mark.parametrize(
    ("places", "pressures"),
    [
        (("w01", "w01", "w01"), {}),
        (("w01", "w01", "w01"), {"w01": 0.5}),
        (("w02", "w01", "w02"), {"w02": 0.5, "w03": 0.25}),
        (("w03", "w03", "w03"), {}),
        (("w01", "w02", "w03"), {"w03": 0.75}),
        (("w01", "w04", "w04"), {}),
    ],
    ids=lambda value: "/".join(value) if isinstance(value, tuple) else "-".join(value) or "none",
)
def test_estimates_are_within_a_tenth_of_the_simulator(places, pressures):
    made = deployment(Setting(curves="logs"))
    first = dict(zip(made.groups, places, strict=True))
    world = World(replace(made, first=first), [Phase(steps=3, slo_s=60.0, pressures=pressures)])
    seen_s = sorted(world.step(Act("keep")).latency_s for _ in range(3))[1]
    assert latency_s(problem_of(made), first, pressures) == pytest.approx(seen_s, rel=0.1)
