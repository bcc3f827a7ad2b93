"""A deployment under a schedule: what an action does, what a step brings, and when phases change."""

from dataclasses import replace
from math import isnan

import numpy as np
import pytest

from fairlead.learn.darly.cluster import Setting
from fairlead.learn.darly.schedules import LOOSE_S, STRICT_S, Phase, drawn, published
from fairlead.learn.darly.scheduling import deployment
from fairlead.learn.darly.world import LOOK_S, POLL_S, REMOVE_S, SETTLE_S, Outcome, World
from fairlead.policy.darly.actions import Act

KEEP = Act("keep")
DEPLOYED = deployment()


def world(*phases, seed=0, first=None, setting=None):
    """One phase of many steps without pressure, unless others are given."""
    made = DEPLOYED if setting is None else deployment(setting)
    schedule = phases or (Phase(steps=50, slo_s=35.0, pressures={}),)
    return World(replace(made, first=first or {}), schedule, seed=seed)


def seconds_of(made, act):
    """The outcome of a step, and how much time passed besides its request."""
    before = made._run.now
    outcome = made.step(act)
    return outcome, made._run.now - before - outcome.latency_s


class TestSteps:
    def test_a_request_takes_as_long_as_in_the_logs_of_the_authors(self):
        assert world().step(KEEP).latency_s == pytest.approx(21.5, rel=0.05)

    def test_latency_is_seen_in_polls(self):
        made = world()
        polls = [made.step(KEEP).latency_s / POLL_S for _ in range(4)]
        assert polls == pytest.approx([round(poll) for poll in polls])

    def test_counters_are_read_a_while_after_the_request(self):
        _, besides_s = seconds_of(world(), KEEP)
        assert LOOK_S - POLL_S <= besides_s <= LOOK_S

    def test_the_reward_is_that_of_the_paper(self):
        outcome = world().step(KEEP)
        # One node of at most three, r = 1 detector + 2 models of Rs = 12, k1 = 3.
        assert outcome.reward == pytest.approx(3 / 1 + 12 / 3 + 3 * outcome.latency_s / 35)
        assert outcome.is_met

    def test_a_late_request_is_worth_about_minus_five(self):
        outcome = world(Phase(steps=1, slo_s=20.0, pressures={})).step(KEEP)
        assert not outcome.is_met
        assert outcome.reward == pytest.approx(-4 - outcome.latency_s / 20)

    def test_the_same_seed_brings_the_same_outcomes(self):
        acts = (KEEP, Act("move", "framer", "w02"), Act("out", "models"), KEEP)
        runs = [[made.step(act) for act in acts] for made in (world(seed=4), world(seed=4), world(seed=5))]
        assert runs[0] == runs[1] != runs[2]

    def test_the_same_seed_brings_the_same_counters(self):
        one, two = world(seed=4), world(seed=4)
        for made in (one, two):
            made.step(KEEP)
        assert np.array_equal(one.counters(), two.counters())

    def test_without_noise_two_requests_are_alike(self):
        made = world(setting=Setting(curves="logs", noise=False))
        assert made.step(KEEP).latency_s == made.step(KEEP).latency_s


class TestMoves:
    def test_a_move_settles_and_is_felt_by_the_next_request(self):
        made = world(setting=Setting(curves="logs", noise=False))
        before = made.step(KEEP)
        outcome, besides_s = seconds_of(made, Act("move", "framer", "w04"))
        assert made.places == {"framer": "w04", "detector": "w01", "models": "w01"}
        # The framer takes 39.6 s there in place of 15.4; two nodes are used.
        assert outcome.latency_s - before.latency_s == pytest.approx(39.57 - 15.37, abs=0.5)
        assert SETTLE_S + LOOK_S - POLL_S <= besides_s <= SETTLE_S + LOOK_S

    def test_several_replicas_are_removed_first(self):
        made = world()
        made.step(Act("out", "models"))
        _, besides_s = seconds_of(made, Act("move", "models", "w02"))
        assert besides_s == pytest.approx(SETTLE_S + REMOVE_S + LOOK_S, abs=POLL_S)

    def test_a_move_to_where_it_is_costs_nothing(self):
        _, besides_s = seconds_of(world(), Act("move", "framer", "w01"))
        assert besides_s <= LOOK_S

    def test_nodes_that_are_used_count_in_the_reward(self):
        made = world(first={"framer": "w01", "detector": "w02", "models": "w03"})
        outcome = made.step(KEEP)
        assert outcome.reward == pytest.approx(3 / 3 + 12 / 3 + 3 * outcome.latency_s / 35)


class TestScaling:
    def test_fewer_than_one_replica_is_refused_without_a_request(self):
        made = world()
        before = made._run.now
        outcome = made.step(Act("in", "models"))
        assert (outcome.reward, outcome.is_refused, outcome.is_met) == (-2.0, True, False)
        assert isnan(outcome.latency_s)
        assert made._run.now == before
        assert made.replicas["models"] == 1
        assert (made.step_number, made.last_latency_s) == (1, None)

    def test_a_fifth_replica_is_refused(self):
        made = world()
        outcomes = [made.step(Act("out", "models")) for _ in range(4)]
        assert [outcome.is_refused for outcome in outcomes] == [False, False, False, True]
        assert made.replicas["models"] == 4
        assert outcomes[-1].reward == -2.0

    def test_replicas_cost_reward_and_hardly_change_latency(self):
        made = world(setting=Setting(curves="logs", noise=False))
        one, two = made.step(KEEP), made.step(Act("out", "models"))
        assert two.latency_s == pytest.approx(one.latency_s, rel=0.02)
        assert one.reward - two.reward == pytest.approx(12 / 3 - 12 / 5, abs=0.1)  # r = 1 + 2 x 2

    def test_a_refusal_is_not_met(self):
        made = world()
        outcomes = [made.step(act) for act in (KEEP, Act("in", "models"))]
        assert [outcome.is_met for outcome in outcomes] == [True, False]

    def test_a_group_that_is_sent_to_where_it_is_has_not_moved(self):
        made = world()
        acts = (KEEP, Act("move", "models", "w01"), Act("move", "models", "w02"))
        assert [made.step(act).has_moved for act in acts] == [False, False, True]


class TestPhases:
    def test_they_change_when_they_should(self):
        phases = [
            Phase(steps=2, slo_s=35.0, pressures={"w01": 0.5}),
            Phase(steps=1, slo_s=26.0, pressures={}),
            Phase(steps=2, slo_s=30.0, pressures={"w01": 0.5}),
        ]
        made = world(*phases, setting=Setting(curves="logs", noise=False))
        outcomes: list[Outcome] = []
        seen = []
        while not made.is_over:
            seen.append(made.phase.slo_s)
            outcomes.append(made.step(KEEP))
        assert seen == [35, 35, 26, 30, 30]
        assert [outcome.slo_s for outcome in outcomes] == seen
        assert [outcome.phase for outcome in outcomes] == [0, 0, 1, 2, 2]
        slow, quick = outcomes[0].latency_s, outcomes[2].latency_s
        assert slow == pytest.approx(1.5 * quick, rel=0.08)  # 1.6 of the work; the way through the queue is as it was
        assert [outcome.latency_s for outcome in outcomes] == pytest.approx([slow, slow, quick, slow, slow])

    def test_a_refused_step_is_a_step_of_its_phase(self):
        made = world(Phase(steps=2, slo_s=35.0, pressures={}), Phase(steps=1, slo_s=26.0, pressures={}))
        for _ in range(2):
            made.step(Act("in", "models"))
        assert (made.phase_number, made.phase.slo_s, made.is_over) == (1, 26.0, False)
        made.step(Act("in", "models"))
        assert made.is_over

    def test_counters_show_the_pressure_of_the_phase_to_come(self):
        made = world(Phase(steps=1, slo_s=35.0, pressures={}), Phase(steps=1, slo_s=35.0, pressures={"w02": 0.5}))
        assert made.counters()[1, 4] == pytest.approx(0.02, rel=0.1)
        made.step(KEEP)
        assert made.counters()[1, 4] == pytest.approx(0.52, rel=0.1)

    def test_the_published_schedule_is_that_of_the_thesis(self):
        phases = published(100)
        assert [phase.slo_s for phase in phases] == [LOOSE_S] * 3 + [STRICT_S] * 2
        assert sum(phase.steps for phase in phases) == 500
        assert phases[0].pressures == {"w01": 0.25, "w04": 0.5}
        assert phases[3].pressures == {}
        assert phases[4].pressures == {"w01": 0.5, "w02": 0.25, "w03": 0.75}

    def test_as_logged_only_the_last_phase_differs(self):
        assert published(50, is_as_logged=True)[:4] == published(50)[:4]
        assert published(50, is_as_logged=True)[4].pressures == {"w02": 0.5}

    def test_drawn_phases_have_every_level_and_repeat_with_their_seed(self):
        phases = drawn(np.random.default_rng(1), ("a", "b"), 40)
        assert phases == drawn(np.random.default_rng(1), ("a", "b"), 40)
        assert {p for phase in phases for p in phase.pressures.values()} == {0.0, 0.25, 0.5, 0.75}
        assert {phase.slo_s for phase in phases} == {LOOSE_S, STRICT_S}

    @pytest.mark.parametrize(("steps", "slo_s", "what"), [(0, 35.0, "steps"), (1, 0.0, "slo_s")])
    def test_a_phase_lasts_and_has_an_objective(self, steps, slo_s, what):
        with pytest.raises(ValueError, match=f"{what} must be"):
            Phase(steps=steps, slo_s=slo_s, pressures={})


class TestDeployments:
    def test_every_function_is_in_one_group(self):
        with pytest.raises(ValueError, match="groups must have every function once"):
            replace(DEPLOYED, groups={"framer": ("framer",)})
        with pytest.raises(ValueError, match="groups must have every function once"):
            replace(DEPLOYED, groups={**DEPLOYED.groups, "again": ("framer",)})

    def test_what_is_scaled_is_a_group(self):
        with pytest.raises(ValueError, match="scaled must be a group; got 'model'"):
            replace(DEPLOYED, scaled="model")

    @pytest.mark.parametrize("what", ["slots", "most_replicas"])
    def test_there_is_at_least_one(self, what):
        with pytest.raises(ValueError, match="must be at least 1"):
            replace(DEPLOYED, **{what: 0})

    def test_only_what_runs_for_every_frame_counts_as_replicas(self):
        assert DEPLOYED.called == {"detector", "analyzer", "recogniser"}
        assert world().replica_count == 3
