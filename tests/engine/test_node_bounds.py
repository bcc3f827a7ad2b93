"""Nodes that are asked for and given back: bounds, lives, and what is billed."""

import msgspec
import pytest
from toy_policies import Adjusting, Doing, start_oldest, yielding

from fairlead.engine import simulate
from fairlead.errors import ConfigError, UncoveredError
from fairlead.model import Bounds, Price
from fairlead.policy import Grow, Shrink, Wake
from fairlead.report import summarise
from fairlead.report.files import read_run, write_run
from fairlead.testing import check_accounts, check_capacity, cluster, scenario
from fairlead.workload import NodeFault, load_scenario

DOLLAR = Price(vcpu_usd_per_hour=1.0)


def growing(arrivals=(0.0, 9.5), run_s=0.5, nodes=1, most=3, **settings):
    """Nodes of one vCPU at a dollar an hour that take 2 s to come; a control period of a second."""
    on = cluster(nodes, vcpus=1, price=DOLLAR)
    settings = {"growth": {"plain": Bounds(most=most)}, "provision_s": 2.0, "control_period_s": 1.0, **settings}
    return scenario(run_s, arrivals=arrivals, on=on, **settings)


def run(where, *deeds, policy=None):
    """The n-th deed is done at n seconds."""
    return simulate(where, policy or Doing(), scaler=Adjusting(deeds))


def lives(recording):
    return [(life.asked, life.joined, life.left) for life in recording.nodes]


def test_a_node_is_billed_from_when_it_is_asked_for_until_it_leaves():
    recording = run(growing(), yielding(Grow("plain")), yielding(), yielding(), yielding(), yielding(Shrink("plain")))
    # Asked for at 1, there at 3; given back at 5, when nothing runs. The run ends at 10.
    assert lives(recording) == [(0, 0, None), (1, 3, 5)]
    assert recording.end_s == 10
    summary = summarise(recording)
    assert summary.node_hours == pytest.approx((10 + 4) / 3600)
    assert summary.node_usd == pytest.approx((10 + 4) / 3600)


def test_a_node_that_is_still_coming_at_the_end_is_billed():
    recording = run(growing(arrivals=[0.0, 1.0]), yielding(Grow("plain")))
    assert lives(recording) == [(0, 0, None), (1, None, None)]
    assert summarise(recording).node_hours == pytest.approx((1.5 + 0.5) / 3600)


def test_a_node_that_drains_takes_no_work_and_is_billed_until_what_runs_has_ended():
    seen = []

    def deed(view):
        seen.extend((view.now, change.node.name) for change in view.changes.nodes if change.is_draining)
        yield from start_oldest(view)
        if view.now < 3:
            yield Wake(view.now + 1.0)

    where = growing(arrivals=[0, 0, 1.5, 6.0], run_s=3.0, nodes=2)
    recording = run(where, yielding(Shrink("plain")), policy=Doing(deed))
    assert lives(recording) == [(0, 0, None), (0, 0, 3)]
    assert seen == [(1.0, "n1")]
    assert recording.invocations.sort("request")["start"].to_list() == [0, 0, 3, 6]
    assert set(recording.invocations["outcome"]) == {"done"}
    check_accounts(recording)
    check_capacity(recording, where)


def test_a_kind_may_take_its_own_time_and_have_its_own_price():
    bounds = Bounds(most=2, provision_s=4.0, usd_per_hour=2.0)
    recording = run(growing(growth={"plain": bounds}), yielding(Grow("plain")))
    assert lives(recording) == [(0, 0, None), (1, 5, None)]
    assert summarise(recording).node_usd == pytest.approx(2 * (10 + 9) / 3600)


def test_no_more_nodes_than_allowed_are_up_or_coming():
    recording = run(growing(most=2), yielding(Grow("plain")), yielding(Grow("plain")))
    assert {refusal.reason for refusal in recording.refusals} == {
        "there are 2 nodes of kind 'plain' already, up or coming"
    }
    assert len(recording.nodes) == 2


def test_a_node_that_drains_counts_until_it_has_left():
    where = growing(arrivals=[0, 0, 9.5], run_s=2.5, nodes=2, most=2)
    recording = run(where, yielding(Shrink("plain")), yielding(Grow("plain")))
    # Refused at 2, when the second node still drains; asked for again at 3, when it has left.
    assert [refusal.now for refusal in recording.refusals] == [2]
    assert lives(recording) == [(0, 0, None), (0, 0, 2.5), (3, 5, None)]


def test_no_fewer_nodes_than_must_stay_are_left():
    where = growing(nodes=3, growth={"plain": Bounds(least=2, most=3)})
    recording = run(where, yielding(Shrink("plain")), yielding(Shrink("plain")))
    assert {refusal.reason for refusal in recording.refusals} == {"at least 2 nodes of kind 'plain' must stay"}


@pytest.mark.parametrize("action", [Grow("other"), Shrink("other")], ids=["grow", "shrink"])
def test_a_kind_that_is_not_among_those_that_may_change_stays(action):
    on = cluster(1, vcpus=1, kind="other", beside=cluster(1, vcpus=1))
    where = scenario(0.5, arrivals=[0.0, 3.0], on=on, growth={"plain": Bounds(most=2)}, control_period_s=1.0)
    recording = run(where, yielding(action))
    assert "'other' are not among those" in recording.refusals[0].reason


def test_a_node_that_is_lost_and_comes_back_has_two_lives():
    where = growing(node_faults=(NodeFault(node="n1", at_s=2, back_s=3),), nodes=2)
    assert lives(run(where)) == [(0, 0, None), (0, 0, 2), (5, 5, None)]


class TestFixedClusters:
    def test_have_no_lives_and_the_figures_that_they_had(self):
        recording = simulate(scenario(1.0, node_faults=(NodeFault(node="n0", at_s=0.5, back_s=1.0),)), Doing())
        assert recording.nodes == ()
        values = summarise(recording).as_json()
        assert "node_hours" not in values
        assert "node_usd" not in values

    def test_are_written_as_before(self, tmp_path):
        folder = write_run(simulate(scenario(1.0), Doing()), tmp_path / "run")
        assert "nodes" not in msgspec.json.decode((folder / "run.json").read_bytes())
        assert read_run(folder).nodes == ()


def test_lives_are_read_back_as_they_were_written(tmp_path):
    recording = run(growing(), yielding(Grow("plain")))
    assert read_run(write_run(recording, tmp_path / "run")).nodes == recording.nodes


def test_the_compiled_engine_does_not_cover_clusters_that_change():
    with pytest.raises(UncoveredError, match="nodes may come and go"):
        simulate(growing(), "fifo", engine="compiled")


class TestFile:
    def read(self, growth):
        return load_scenario("quickstart", overrides={"growth": growth})

    def test_bounds_are_read_by_kind(self):
        growth = self.read({"cpu": {"most": 8, "provision_s": 30}, "gpu": {"least": 2, "most": 4, "usd_per_hour": 1.5}})
        assert growth.growth == {
            "cpu": Bounds(most=8, provision_s=30.0),
            "gpu": Bounds(least=2, most=4, usd_per_hour=1.5),
        }

    @pytest.mark.parametrize(
        ("growth", "fault"),
        [
            ({"cpu": {"least": 1}}, "growth.cpu.most"),
            ({"cpu": {"least": 0, "most": 4}}, "growth.cpu.least: must be at least 1"),
            ({"cpu": {"most": 2}}, "from 1 to 2 at the start; got 3"),
            ({"tpu": {"most": 2}}, "no node of this kind; there are: cpu, gpu"),
            ({"cpu": {"most": 4, "count": 3}}, "growth.cpu.count: unknown key"),
            ({"cpu": {"most": 4, "provision_s": -1}}, "growth.cpu.provision_s: must be finite"),
        ],
        ids=["no-most", "none-left", "too-many", "no-such-kind", "unknown-key", "negative"],
    )
    def test_faults_say_where_and_why(self, growth, fault):
        with pytest.raises(ConfigError, match=fault):
            self.read(growth)
