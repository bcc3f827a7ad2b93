"""Reasons and notes: what the policy says of its refusals, drops and starts."""

from math import inf

import numpy as np
import pytest

from fairlead.engine import simulate
from fairlead.engine.live.gateway.reasons import code_of_sentence
from fairlead.model import Configuration
from fairlead.policy.fairlead import reasons
from fairlead.policy.fairlead.ground import Ground
from fairlead.policy.fairlead.menu import Menu, Supply
from fairlead.policy.fairlead.roster import Roster
from fairlead.testing import cluster, declared, scenario, site_of

BOTH = np.array([True, True])


def test_a_note_is_the_same_whether_sizes_are_given_as_whole_numbers_or_not():
    notes = []
    for vcpus in (2, 2.0):
        site = site_of(scenario(declared(1.0, configurations=(Configuration(vcpus=vcpus),))))
        menu = Menu(site.functions["f"], site.profiles["f"], site.cluster, Supply(site.cluster))
        notes.append(str(reasons.Started("f", *menu.told[0], 0.1, 1.0, 1, 0.0, 1.0, [1.0, 1.0])))
    assert notes[0] == notes[1]


class TestReasons:
    def test_a_refusal_names_the_fullest_resource_that_the_request_needs(self):
        work, room = np.array([9.0, 6.0]), np.array([10.0, 5.0])
        assert "(6 of 5 vGPU-seconds)" in reasons.no_room(1.2, work, room, BOTH, 2.0, is_either=False)
        only_vcpus = np.array([True, False])
        assert "(9 of 10 vCPU-seconds)" in reasons.no_room(1.2, work, room, only_vcpus, 2.0, is_either=False)

    def test_where_one_resource_stands_in_for_the_other_both_are_named(self):
        work, room = np.array([9.0, 6.0]), np.array([10.0, 5.0])
        text = reasons.no_room(1.04, work, room, BOTH, 2.0, is_either=True)
        assert "with it 104 % of what may be promised (9 of 10 vCPU-seconds and 6 of 5 vGPU-seconds, weighted" in text

    def test_a_share_is_told_in_requests_per_second(self):
        assert reasons.beyond_share(1.0, 2.0).endswith(": 1 of 2 requests per second")

    @pytest.mark.parametrize(
        ("left_s", "rest"), [(0.5, "0.5 s are left"), (0.9999, "less than that is left"), (-1.0, "0 s are left")]
    )
    def test_too_late_says_how_much_time_is_missing(self, left_s, rest):
        assert reasons.too_late("b", 1.0, left_s).endswith(f"from b on it takes at least 1 s, and {rest}")

    def test_a_drop_for_its_cost_is_told_in_new_requests(self):
        text = reasons.too_expensive("b", 3.0, 2.0, 1.3, 0.25)
        assert text.startswith(
            "with the 0.25 s that are left, from b on it would cost 1.5 times as much as a new request"
        )
        assert "no configuration is safely in time" in reasons.too_expensive("b", inf, 2.0, 1.3, 0.25)

    @pytest.mark.parametrize(
        ("reason", "code"),
        [
            (
                reasons.no_room(1.1, np.array([11.0, 0.0]), np.array([10.0, 0.0]), BOTH, 1.0, is_either=False),
                "overloaded",
            ),
            (reasons.beyond_share(1.0, 2.0), "overloaded"),
            (reasons.too_late("b", 1.0, 0.5), "deadline_unreachable"),
            (reasons.too_expensive("b", inf, 2.0, 1.3, 0.25), "deadline_unreachable"),
            (reasons.too_expensive("b", 3.0, 2.0, 1.3, 0.25), "overloaded"),
            (reasons.over_budget("b", 3.2, 2.6, 2.6, 0.0), "no_promise"),
        ],
    )
    def test_the_metrics_of_a_gateway_have_a_code_for_each(self, reason, code):
        assert code_of_sentence(reason) == code


class TestNotes:
    def test_they_come_back_as_they_were(self):
        recording = simulate(scenario({"a": 1.0, "b": 1.0}, slo_s=10.0), "fairlead")
        plan, *lines = recording.requests["plan"][0].split("\n")
        admitted, started = reasons.read_notes(lines)
        assert plan == " -> ".join(map(str, admitted.steps))
        assert [step.after for step in admitted.steps] == [(), ("a",)]
        assert [note.function for note in started] == ["a", "b"]
        assert [str(note) for note in (admitted, *started)] == lines

    def test_what_is_no_note_is_left_out(self):
        assert reasons.read_notes(["", "f@n0", '["other",1]', "{"]) == (None, ())


def test_the_slowest_node_of_a_kind_is_named_unless_it_is_the_one():
    """Paces follow with a weight of 0.12: after one run of three times its time, 1 + 0.12 x 2."""
    site = site_of(scenario(1.0, on=cluster(3, vcpus=4)))
    supply = Supply(site.cluster)
    ground = Ground(site.cluster.nodes, supply, Roster())
    menu = Menu(site.functions["f"], site.profiles["f"], site.cluster, supply)
    assert ground.slowest("plain", "n0") is None
    ground.observe("n1", menu, 0.0, 3.0)
    assert ground.slowest("plain", "n0") == ("n1", pytest.approx(1.24))
    assert ground.slowest("plain", "n1") is None
