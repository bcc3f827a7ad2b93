"""The simulated cluster of Darly: parts that follow from the measured latencies, and the file made of it."""

from dataclasses import replace

import pytest

from fairlead.engine import simulate
from fairlead.learn.darly import tables
from fairlead.learn.darly.cluster import DETECTOR_S, QUEUE_S, UPLOADER_S, Setting, cluster, parts, scenario
from fairlead.learn.darly.files import PHASE_S, shipped, text_of
from fairlead.report import summarise
from fairlead.workload import load_scenario, parse_scenario

REMAKE = "python -m fairlead.learn.darly.files src/fairlead/experiments/scenarios"


class TestParts:
    def test_the_parts_add_up_to_the_line_through_what_was_measured(self):
        # w04 was measured once, at 0 %: F = 39.7 s and b = 1.193 s by least squares.
        found = parts("w04")
        assert found.framer_s + UPLOADER_S == pytest.approx(39.67, abs=0.02)
        assert found.model_s + DETECTOR_S + QUEUE_S == pytest.approx(1.193, abs=0.001)

    def test_the_way_through_the_queue_is_what_direct_calls_save(self):
        through_s, direct_s = QUEUE_S + DETECTOR_S, DETECTOR_S
        assert (65 * through_s, 65 * direct_s) == pytest.approx((tables.DETECTOR_STAGE[1], 14.2))

    def test_nodes_rank_as_in_the_thesis(self):
        assert sorted(tables.NODES, key=lambda node: parts(node).framer_s) == ["w01", "w02", "w03", "w04"]

    @pytest.mark.parametrize("node", tables.NODES)
    def test_curves_rise_from_one_at_the_measured_pressures(self, node):
        for curve in (parts(node).framer_curve, parts(node).model_curve):
            factors = [factor for _, factor in curve]
            assert [at for at, _ in curve] == [0.1, 0.5, 0.8]
            assert factors == sorted(factors)
            assert factors[0] >= 1

    def test_eighty_percent_more_than_doubles_the_framer_on_w01(self):
        assert dict(parts("w01").framer_curve)[0.8] == pytest.approx(2.22, abs=0.01)

    def test_the_logs_have_a_curve_of_their_own(self):
        profiles = scenario(Setting(curves="logs")).profiles
        for name in ("framer", "detector", "recogniser"):
            assert set(profiles[name].pressure_curves.values()) == {((0.25, 1.0), (0.5, 1.6))}


class TestSettings:
    def test_frames_are_those_that_were_measured(self):
        with pytest.raises(ValueError, match="frames must be one of 7, 16, 32, 65; got 10"):
            Setting(frames=10)

    def test_versions_between_exist_under_faas_flow_alone(self):
        assert Setting(version=2, runtime="faas-flow").version == 2
        with pytest.raises(ValueError, match="version must be 1 or 4 with the custom runtime; got 2"):
            Setting(version=2)

    @pytest.mark.parametrize("frames", tables.FRAMES)
    def test_faces_are_the_share_of_the_lists(self, frames):
        flow = scenario(Setting(frames=frames)).workflows["video"]
        shares = {stage.name: stage.when for stage in flow.stages if stage.when is not None}
        assert shares["analyzer"] * frames == pytest.approx(tables.FACES[frames])
        assert sum(shares.values()) == pytest.approx(1)

    def test_the_largest_node_has_as_many_vcpus_as_the_functions_can_use(self):
        assert {node.name: node.vcpus for node in cluster().nodes} == {"w01": 8, "w02": 8, "w03": 8, "w04": 4}

    @pytest.mark.parametrize("node", tables.NODES)
    def test_a_call_that_wants_more_than_a_node_has_takes_what_was_measured(self, node):
        # Six vCPUs of w04's four: half as long again by sharing, so that its declared time is that much shorter.
        profile = scenario().profiles["recogniser"]
        share = max(1.0, 6 / (4 if node == "w04" else 8))
        assert profile.latency_s(profile.configurations[0], node) * share == pytest.approx(parts(node).model_s)


class TestFile:
    def test_the_file_and_its_builder_agree(self):
        assert load_scenario("darly") == shipped()["darly"], f"the calibration changed; write the file again: {REMAKE}"

    def test_other_arrangements_can_be_written_too(self):
        for setting in (Setting(frames=65), Setting(version=4)):
            made = replace(scenario(setting), description="another")
            assert parse_scenario(text_of(made), "other") == made

    def test_phases_change_every_twenty_minutes_as_in_the_thesis(self):
        now = dict.fromkeys(tables.NODES, 0.0)
        seen = []
        changes = load_scenario("darly").pressures
        for phase in range(5):
            now |= {c.node: c.pressure for c in changes if c.at_s == phase * PHASE_S}
            seen.append({node: pressure for node, pressure in now.items() if pressure})
        assert seen == [
            {"w01": 0.25, "w04": 0.5},
            {"w01": 0.5, "w04": 0.25},
            {"w02": 0.5, "w03": 0.25},
            {},
            {"w01": 0.5, "w02": 0.25, "w03": 0.75},
        ]
        assert all(change.at_s % PHASE_S == 0 for change in changes)

    def test_all_on_w01_keeps_the_loose_objective_and_misses_the_strict_one_under_pressure(self):
        loose = summarise(simulate(load_scenario("darly"), seed=0))
        assert (loose.completed, loose.slo_attainment) == (loose.requests, 1.0)
        assert loose.requests > 100
        strict = load_scenario("darly", overrides={"workflows.video.slo.latency_s": 26})
        # Two of five phases have w01 at 50 %, and requests take longer in them.
        assert 0.6 < summarise(simulate(strict, seed=0)).slo_attainment < 0.7
