"""How long things take: speed, transfer, noise, neighbours, pressure from outside; and what is believed of it."""

import numpy as np
import pytest
from toy_policies import Adjusting, Doing, start_oldest

from fairlead.engine import simulate
from fairlead.model import Configuration
from fairlead.policy import Start
from fairlead.profile import Exponential, LogNormal, Row, Table
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Listed, NodeFault, PressureChange


def ends(recording):
    return recording.invocations.sort("request", "start")["end"].to_list()


def spread(view):
    """The n-th request on the n-th node."""
    for invocation in view.by_ready():
        yield Start((invocation,), Configuration(), f"n{invocation.request}")


def both_at_once(first, second):
    """A request for each of two functions, at 0."""
    return {"workflows": {"main": (first,), "other": (second,)}, "arrivals": [0, Listed("other", (0.0,))]}


class TestTime:
    def test_speed_divides_work(self):
        on = cluster(kind="fast", speed=2.0, beside=cluster(kind="slow", speed=0.5))
        recording = simulate(scenario(3.0, arrivals=[0, 0], on=on), Doing(spread))
        assert ends(recording) == [6, 1.5]

    def test_table_knows_kinds(self):
        law = Table((Row(seconds=3), Row(seconds=1, kind="fast")))
        on = cluster(kind="fast", beside=cluster(kind="slow"))
        assert ends(simulate(scenario(law, arrivals=[0, 0], on=on), Doing(spread))) == [3, 1]

    def test_cold_start_depends_on_the_kind(self):
        function = declared(1.0, cold_start_s=1, cold_start_by_kind={"fast": 0.25})
        on = cluster(kind="fast", beside=cluster(kind="slow"))
        assert ends(simulate(scenario(function, arrivals=[0, 0], on=on), Doing(spread))) == [2, 1.25]

    def test_bias_is_real_and_undeclared(self):
        told = []

        def deed(view):
            told.append(view.profile("f").latency_s(Configuration()))
            yield from start_oldest(view)

        assert ends(simulate(scenario(declared(1.0, bias=2.0)), Doing(deed))) == [2]
        assert told[0] == 1.0

    def test_noise_spreads_around_the_mean(self):
        where = scenario(declared(1.0, noise=0.1), arrivals=[2.0 * i for i in range(2000)], duration_s=4000.0)
        times = (t := simulate(where).invocations)["end"] - t["start"]
        assert times.mean() == pytest.approx(1, abs=0.0067)  # three standard errors
        assert times.std() == pytest.approx(0.1, rel=0.05)
        assert times.min() >= 0.7 - 1e-9
        assert times.max() <= 1.3 + 1e-9

    def test_exponential_law_has_its_mean(self):
        where = scenario(Exponential(0.5), arrivals=[float(i) for i in range(20_000)], duration_s=20_000)
        times = (t := simulate(where).invocations)["end"] - t["start"]
        assert times.mean() == pytest.approx(0.5, abs=0.0107)  # three standard errors
        assert times.std() == pytest.approx(0.5, rel=0.05)

    def test_log_normal_law_has_its_quantiles(self):
        where = scenario(LogNormal(0.5, 1.0), arrivals=[float(i) for i in range(5000)], duration_s=5000)
        times = (t := simulate(where).invocations)["end"] - t["start"]
        # At -1, 0 and 1 standard deviations of the logarithm; about three standard errors of each.
        for share, expected in ((0.1587, 0.5 / 2.71828), (0.5, 0.5), (0.8413, 0.5 * 2.71828)):
            assert times.quantile(share) == pytest.approx(expected, rel=0.065)

    def test_work_of_a_log_normal_law_is_its_mean_times_a_drawn_factor(self):
        where = scenario(declared(LogNormal(0.5, 1.0), bias=2.0), arrivals=[0.0, 10.0], duration_s=20)
        times = (t := simulate(where, seed=3).invocations)["end"] - t["start"]
        # The first block of the stream of the first stage of the first workflow.
        z = np.random.default_rng((3, 0, 0, 0, 0)).standard_normal(1024)[:2]
        mean_s = 0.5 * np.exp(0.5)
        assert times.to_list() == pytest.approx((2.0 * mean_s * np.exp(z - 0.5)).tolist())

    def test_policies_are_compared_on_the_same_luck(self):
        where = scenario(Exponential(0.5), arrivals=[0.1 * i for i in range(200)], on=cluster(2, vcpus=3))
        work = [(t["end"] - t["start"]).to_list() for t in (_by_request(where, n) for n in ("fifo", "least-loaded"))]
        assert work[0] == pytest.approx(work[1])

    def test_another_seed_is_another_run(self):
        where = scenario(Exponential(0.5), arrivals=[0.0])
        assert ends(simulate(where, seed=0)) != ends(simulate(where, seed=1))


def _by_request(where, policy):
    return simulate(where, policy).invocations.sort("request")


class TestTransfer:
    @pytest.mark.parametrize(("nodes", "transfer_s"), [(("n0", "n0"), 0.0), (("n0", "n1"), 0.8)], ids=["same", "other"])
    def test_input_from_another_node_takes_its_time(self, nodes, transfer_s):
        def deed(view):
            for invocation in view.by_ready():
                where = nodes[0] if invocation.stage == "a" else nodes[1]
                assert view.inputs(invocation) == (() if invocation.stage == "a" else ((nodes[0], 100.0),))
                yield Start((invocation,), Configuration(), where)

        on = cluster(2, bandwidth_gbps=1)  # 125 MB/s
        recording = simulate(scenario({"a": declared(1.0, output_mb=100), "b": 1.0}, on=on), Doing(deed))
        assert recording.invocations["transfer_s"].to_list() == [0, pytest.approx(transfer_s)]
        assert ends(recording) == [1, pytest.approx(2 + transfer_s)]

    def test_without_a_bandwidth_it_takes_none(self):
        def deed(view):
            for invocation in view.by_ready():
                yield Start((invocation,), Configuration(), "n0" if invocation.stage == "a" else "n1")

        recording = simulate(scenario({"a": declared(1.0, output_mb=100), "b": 1.0}, on=cluster(2)), Doing(deed))
        assert ends(recording) == [1, 2]


class TestInterference:
    """One vCPU of four is a load of 1/4: a neighbour slows work of sensitivity s down to a rate of 1 / (1 + s / 4)."""

    def test_two_alike_share_a_node(self):
        # Together from 0: both at rate 1 / (1 + 2 * 1/4) = 2/3, so that a second of work takes 1.5.
        recording = simulate(scenario(declared(1.0, sensitivity=2.0), arrivals=[0, 0]))
        assert ends(recording) == [pytest.approx(1.5)] * 2

    def test_the_second_comes_later(self):
        # Alone until 0.5; then 0.5 s of work at 2/3 take 0.75, until 1.25. The second has done 0.5 by then, and goes on
        # alone until 1.75.
        recording = simulate(scenario(declared(1.0, sensitivity=2.0), arrivals=[0, 0.5]))
        assert ends(recording) == [pytest.approx(1.25), pytest.approx(1.75)]

    def test_only_the_sensitive_slow_down_and_pressure_weighs(self):
        functions = {"meek": declared(1.0, sensitivity=1.0), "loud": declared(4.0, pressure=4.0)}
        where = scenario(functions, **both_at_once("meek", "loud"))
        found = simulate(where).invocations
        # The loud one is a load of 4 x 1/4 = 1: the meek one runs at half speed.
        assert dict(found.select("function", "end").rows()) == {"meek": pytest.approx(2), "loud": pytest.approx(4)}

    def test_nodes_do_not_disturb_each_other(self):
        where = scenario(declared(1.0, sensitivity=2.0), arrivals=[0, 0], on=cluster(2))
        assert ends(simulate(where, Doing(spread))) == [1, 1]

    def test_neighbour_that_goes_lets_the_other_speed_up(self):
        functions = {"long": declared(2.0, sensitivity=2.0), "short": declared(0.5, sensitivity=2.0)}
        where = scenario(functions, **both_at_once("long", "short"))
        found = simulate(where).invocations
        # The short one ends at 0.75; the long one has done 0.5 and needs 1.5 more, alone.
        assert dict(found.select("function", "end").rows()) == {
            "long": pytest.approx(2.25),
            "short": pytest.approx(0.75),
        }

    def test_pressure_changes_the_rate_in_mid_run(self):
        changes = (PressureChange(node="n0", at_s=1, pressure=0.5), PressureChange(node="n0", at_s=3, pressure=0))
        recording = simulate(scenario(declared(4.0, sensitivity=2.0), pressures=changes))
        # One second of work until 1; at rate 1 / (1 + 2 x 0.5) one more until 3; the other two alone.
        assert ends(recording) == [pytest.approx(5)]

    def test_pressure_is_shown_to_policies(self):
        seen = []

        def deed(view):
            seen.append((view.now, view.pressure("n0")))
            yield from start_oldest(view)

        changes = (PressureChange(node="n0", at_s=1, pressure=0.5),)
        simulate(scenario(1.0, arrivals=[0, 2.0], pressures=changes), Doing(deed))
        assert (0.0, 0.0) in seen
        assert (2.0, 0.5) in seen

    def test_transfer_is_not_slowed_down(self):
        functions = {"a": declared(1.0, output_mb=100), "b": declared(1.0, sensitivity=2.0)}

        def deed(view):
            for invocation in view.by_ready():
                yield Start((invocation,), Configuration(), "n0" if invocation.stage == "a" else "n1")

        changes = (PressureChange(node="n1", at_s=0, pressure=0.5),)
        where = scenario(functions, on=cluster(2, bandwidth_gbps=1), pressures=changes)
        assert ends(simulate(where, Doing(deed))) == [1, pytest.approx(1 + 0.8 + 2)]

    def test_loss_of_a_node_frees_the_neighbours(self):
        where = scenario(
            declared(1.0, sensitivity=2.0), arrivals=[0, 0], node_faults=(NodeFault(node="n0", at_s=0.5, back_s=0.5),)
        )
        # Both are lost at 0.5 and begin anew, together, at 1.
        assert ends(simulate(where)) == [0.5, pytest.approx(2.5), 0.5, pytest.approx(2.5)]


class TestBelief:
    def test_estimate_converges_to_what_is_seen(self):
        told = []

        def deed(view):
            told.append(view.profile("f").latency_s(Configuration()))
            yield from start_oldest(view)

        where = scenario(declared(1.0, bias=2.0), arrivals=[3.0 * i for i in range(300)])
        simulate(where, Doing(deed))
        assert told[0] == 1.0
        assert all(1 <= told[i] <= told[i + 1] <= 2 for i in range(len(told) - 1))
        assert told[-1] == pytest.approx(2, rel=0.1)

    def test_one_odd_run_moves_it_little(self):
        told = []

        def deed(view):
            told.append(view.profile("f").latency_s(Configuration()))
            yield from start_oldest(view)

        simulate(scenario(declared(1.0, bias=2.0), arrivals=[0, 5.0]), Doing(deed))
        assert 1 < told[-1] < 1.2

    def test_corrections_are_kept_per_kind(self):
        told = []

        def deed(view):
            told.append({kind: view.profile("f").latency_s(Configuration(), kind) for kind in ("plain", "other")})
            for invocation in view.by_ready():
                yield Start((invocation,), Configuration(), "n0")

        on = cluster(kind="other", beside=cluster())
        simulate(scenario(declared(1.0, bias=2.0), arrivals=[5.0 * i for i in range(20)], on=on), Doing(deed))
        assert told[-1]["plain"] > 1.3
        assert told[-1]["other"] == 1.0

    def test_predicted_finish_uses_the_belief(self):
        seen = []

        def deed(view):
            seen.append(view.finishes("n0"))
            yield from start_oldest(view)

        simulate(scenario(declared(2.0, cold_start_s=1), arrivals=[0, 0.5], on=cluster(vcpus=1)), Doing(deed))
        assert seen[1] == (3.0,)


def test_scaler_and_dispatcher_may_both_be_objects():
    recording = simulate(scenario(1.0), Doing(), scaler=Adjusting())
    assert (recording.policy, recording.scaler) == ("Doing", "Adjusting")
