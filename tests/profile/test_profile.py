"""Profiles: laws, cold starts, prices, slowdown; and estimates, which answer for the best kind."""

from math import exp, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model import Configuration, Price
from fairlead.profile import (
    Constant,
    Estimate,
    Exponential,
    LogNormal,
    Profile,
    Row,
    ScalingLaw,
    Sum,
    Table,
    slowdown,
    space,
)
from fairlead.testing import cluster

ONE = Configuration()


class TestLaws:
    def test_constant_is_the_same_everywhere(self):
        assert Constant(2.0).mean_s(Configuration(batch=9, vcpus=3), "any") == 2.0

    def test_table_is_looked_up_exactly(self):
        table = Table((Row(seconds=3), Row(batch=2, seconds=4)))
        assert table.mean_s(Configuration(batch=2), "any") == 4
        assert table.mean_s(Configuration(batch=3), "any") == inf

    def test_row_of_a_kind_wins(self):
        table = Table((Row(seconds=3), Row(seconds=1, kind="fast")))
        assert (table.mean_s(ONE, "fast"), table.mean_s(ONE, "slow")) == (1, 3)

    def test_table_ignores_memory(self):
        assert Table((Row(seconds=3),)).mean_s(Configuration(memory_gb=5), "any") == 3

    def test_table_offers_each_configuration_once(self):
        table = Table((Row(seconds=3), Row(seconds=1, kind="fast"), Row(batch=2, seconds=4)))
        assert table.configurations() == (ONE, Configuration(batch=2))

    def test_scaling_law_by_hand(self):
        law = ScalingLaw(t1_s=10, fixed=0.2, beta=0.5, gamma=1, delta=2)
        # 10 * (0.2 + 0.8 * sqrt(4) / 2 / 4) = 4
        assert law.mean_s(Configuration(batch=4, vcpus=2, vgpus=2), "any") == pytest.approx(4)
        assert law.mean_s(ONE, "any") == pytest.approx(10)

    def test_log_normal_plans_with_its_true_mean(self):
        assert LogNormal(0.2, 0).mean_s(ONE, "any") == 0.2
        assert LogNormal(0.2, 1).mean_s(Configuration(batch=9), "any") == pytest.approx(0.2 * 1.6487212707)  # sqrt(e)
        assert LogNormal(0.2, 1).configurations() == (ONE,)

    def test_factors_of_a_log_normal_law_by_hand(self):
        factors = LogNormal(0.2, 0.5).spread(np.random.default_rng(7), 3)
        by_hand = [exp(0.5 * z - 0.125) for z in np.random.default_rng(7).standard_normal(3)]
        assert factors.tolist() == pytest.approx(by_hand, rel=1e-15)

    @pytest.mark.parametrize("law", [Exponential(3), LogNormal(3, 0), LogNormal(3, 0.5), LogNormal(3, 1)], ids=str)
    def test_factors_have_mean_one(self, law):
        factors = law.spread(np.random.default_rng(1), 400_000)
        assert factors.mean() == pytest.approx(1, abs=4 * max(factors.std(), 1e-9) / 400_000**0.5)

    @pytest.mark.parametrize(("share", "z"), [(0.5, 0.0), (0.8413447, 1.0), (0.0227501, -2.0)])
    def test_quantiles_of_a_log_normal_law(self, share, z):
        law = LogNormal(0.2, 0.7)
        times = law.mean_s(ONE, "any") * law.spread(np.random.default_rng(2), 400_000)
        assert np.quantile(times, share) == pytest.approx(0.2 * exp(0.7 * z), rel=0.01)

    def test_space_is_every_combination(self):
        assert space(batch=(1, 2), vcpus=(1, 4)) == (
            Configuration(),
            Configuration(vcpus=4),
            Configuration(batch=2),
            Configuration(batch=2, vcpus=4),
        )

    @pytest.mark.parametrize(
        ("make", "complaint"),
        [
            (lambda: Constant(-1), "constant_s"),
            (lambda: Exponential(inf), "exponential_s"),
            (lambda: LogNormal(-1, 1), "median_s must be finite"),
            (lambda: LogNormal(1, -0.1), r"sigma must be in \[0, 5\]; got -0.1"),
            (lambda: LogNormal(1, 5.1), "sigma"),
            (lambda: Table(()), "at least one row"),
            (lambda: Table((Row(seconds=1), Row(seconds=2))), "the same configuration"),
            (lambda: Row(seconds=-1), "seconds"),
            (lambda: Row(seconds=1, batch=0), "batch"),
            (lambda: ScalingLaw(t1_s=1, fixed=2), "fixed"),
            (lambda: ScalingLaw(t1_s=1, beta=3), "beta"),
        ],
    )
    def test_bad_laws_are_refused(self, make, complaint):
        with pytest.raises(ValueError, match=complaint):
            make()


class TestProfile:
    def test_space_comes_from_the_law_unless_given(self):
        assert Profile(law=Constant(1)).configurations == (ONE,)
        assert Profile(law=Constant(1), configurations=space(vcpus=(2, 4))).configurations == space(vcpus=(2, 4))

    def test_speed_divides(self):
        assert Profile(law=Constant(3)).latency_s(ONE, "any", speed=2) == 1.5

    def test_cold_start_of_a_kind_wins(self):
        profile = Profile(law=Constant(1), cold_start_s=2, cold_start_by_kind={"fast": 0.5})
        assert (profile.cold_s("fast"), profile.cold_s("slow")) == (0.5, 2)

    def test_only_a_random_law_spreads(self):
        for law in (Constant(1), ScalingLaw(t1_s=1), Table((Row(seconds=1),)), Sum((Constant(1),))):
            assert Profile(law=law).spread is None
        for law in (Exponential(1), LogNormal(1, 1)):
            assert Profile(law=law).spread is not None

    @pytest.mark.parametrize(
        "given",
        [
            {"cold_start_s": -1},
            {"cold_start_by_kind": {"fast": -1}},
            {"noise": 0.6},
            {"bias": 0},
            {"failure_rate": 1.1},
            {"sensitivity": -1},
            {"pressure": inf},
        ],
        ids=lambda given: next(iter(given)),
    )
    def test_bad_values_are_refused_by_name(self, given):
        with pytest.raises(ValueError, match=next(iter(given))):
            Profile(law=Constant(1), **given)


class TestEstimate:
    ON = cluster(kind="fast", speed=4, beside=cluster(kind="slow"), price=Price(vcpu_usd_per_hour=3600))

    def test_without_a_kind_the_best_answers(self):
        profile = Profile(law=Constant(2), cold_start_s=3, cold_start_by_kind={"fast": 1})
        estimate = Estimate(profile, self.ON)
        assert (estimate.latency_s(ONE), estimate.latency_s(ONE, "slow")) == (0.5, 2)
        assert (estimate.cold_start_s(), estimate.cold_start_s("slow")) == (1, 3)

    def test_cost_is_time_at_the_price(self):
        estimate = Estimate(Profile(law=Constant(2)), self.ON)
        assert estimate.cost_usd(Configuration(vcpus=3), "slow") == pytest.approx(6)

    def test_the_cheapest_within_a_time_and_the_quickest_follow_corrections(self):
        rows = [Row(vcpus=1, seconds=8), Row(vcpus=2, seconds=5), Row(vcpus=3, seconds=4), Row(vcpus=4, seconds=2)]
        one, two, three, four = (row.configuration() for row in rows)
        corrections, moved = {}, set()
        estimate = Estimate(
            Profile(law=Table(tuple(rows))), self.ON, lambda c, kind: corrections.get(c, 1.0), moved=moved
        )
        # On nodes of speed 4: 2, 1.25, 1 and 0.5 s, for 2, 2.5, 3 and 2 USD.
        found = [estimate.cheapest_within(seconds) for seconds in (inf, 2, 1.9, 0.5, 0.4)]
        assert found == [one, one, four, four, None]
        assert estimate.quickest() == four
        corrections[four] = 4.0  # 2 s for 8 USD
        moved.add(four)
        assert [estimate.cheapest_within(seconds) for seconds in (2, 1.9, 1.2, 0.9)] == [one, two, three, None]
        assert estimate.quickest() == three
        assert estimate.latency_s(four) == 2.0

    @given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from([0.5, 0.8, 1.0, 1.7])), max_size=12))
    def test_kept_answers_are_those_worked_out_anew(self, changes):
        sizes = space(vcpus=(1, 2, 4, 8), vgpus=(0, 1))
        profile = Profile(law=ScalingLaw(t1_s=1.0, gamma=0.8), configurations=sizes)
        corrections, moved = {}, set()

        def correction(configuration, kind):
            return corrections.get(configuration, 1.0)

        kept = Estimate(profile, self.ON, correction, moved=moved)
        for position, factor in changes:
            corrections[sizes[position]] = factor
            moved.add(sizes[position])
            anew = Estimate(profile, self.ON, correction)
            assert kept.quickest() == anew.quickest() == min(sizes, key=anew.latency_s)
            for budget_s in (0.01, 0.1, 0.2, 0.4, 2.0):
                in_time = [c for c in sizes if anew.latency_s(c) <= budget_s]
                assert kept.cheapest_within(budget_s) == min(in_time, key=anew.cost_usd, default=None)

    def test_correction_multiplies(self):
        estimate = Estimate(Profile(law=Constant(2)), self.ON, lambda configuration, kind: 1.5)
        assert estimate.latency_s(ONE, "slow") == 3


@pytest.mark.parametrize(
    ("sensitivity", "others", "pressure", "factor"),
    [(0, 1, 1, 1), (2, 0.25, 0, 1.5), (2, 0, 0.5, 2), (1, 0.5, 0.5, 2), (3, -1e-12, 0, 1)],
)
def test_slowdown_is_linear_in_the_load_around(sensitivity, others, pressure, factor):
    assert slowdown(sensitivity, others, pressure) == pytest.approx(factor)
