"""Where a group goes if its agent does not say."""

import pytest

from fairlead.monitor import COUNTERS
from fairlead.policy.darly.rules import (
    Room,
    custom_node,
    drawn,
    idle_score,
    kubernetes_nodes,
    kubernetes_start,
    oracle_node,
)

NODES = ("w01", "w02", "w03", "w04")
PODS = {"framer": 1, "detector": 1, "models": 3}
THESIS = {"w01": Room(8, 15.6), "w02": Room(8, 15.6), "w03": Room(16, 31.4), "w04": Room(4, 15.6)}


def busy(*shares: float) -> dict[str, tuple[float, ...]]:
    return {
        node: tuple(share if name == "c0" else 0.0 for name in COUNTERS)
        for node, share in zip(NODES, shares, strict=False)
    }


def test_the_idle_score_is_what_the_cores_do_not_work():
    assert idle_score(busy(0.3)["w01"]) == pytest.approx(0.7)


def test_custom_takes_the_least_busy_node_and_of_equals_the_first():
    assert custom_node(busy(0.3, 0.1, 0.2, 0.5)) == "w02"
    assert custom_node(busy(0.3, 0.1, 0.1, 0.1)) == "w02"


@pytest.mark.parametrize(
    ("shares", "is_within", "expected"),
    [
        ((0.9, 0.0, 0.0, 0.0), True, "w01"),
        ((0.1, 0.0, 0.0, 0.0), False, "w01"),
        ((0.5, 0.1, 0.0, 0.0), False, "w02"),
        ((0.5, 0.2, 0.14, 0.0), False, "w03"),
        ((0.5, 0.2, 0.16, 0.9), False, "w04"),
        ((0.15, 0.5, 0.5, 0.5), False, "w04"),
    ],
    ids=["within-takes-the-best", "first", "second", "third", "else-the-last", "not-above-0.85"],
)
def test_oracle_takes_the_quickest_node_at_rest(shares, is_within, expected):
    assert oracle_node(busy(*shares), is_within, NODES) == expected


def test_oracle_follows_the_order_of_speed_of_other_clusters():
    assert oracle_node(busy(0.0, 0.5, 0.0, 0.0), False, ("w02", "w01", "w03", "w04")) == "w01"
    assert oracle_node(busy(0.9), False, ("w01",)) == "w01"


def test_kubernetes_prefers_the_largest_node_although_it_is_slower():
    # An empty w03 has 99 % of both left, w01 and w02 have 98, w04 has 97 % of its CPUs.
    assert kubernetes_nodes("framer", {}, THESIS, PODS) == ("w03",)


def test_kubernetes_spreads_by_what_is_there_already():
    # With 0.2 of 16 CPUs and 0.4 of 31.4 GB w03 is at 98 like w01 and w02: they are equal.
    assert kubernetes_nodes("detector", {"framer": "w03"}, THESIS, PODS) == ("w01", "w02", "w03")


def test_what_moves_leaves_before_it_is_placed():
    assert kubernetes_nodes("framer", {"framer": "w03"}, THESIS, PODS) == ("w03",)


def test_kubernetes_knows_neither_speed_nor_pressure():
    alike = dict.fromkeys(NODES, Room(8, 16))
    assert kubernetes_nodes("framer", {}, alike, PODS) == NODES


def test_a_node_without_room_scores_nothing():
    rooms = {"a": Room(0.05, 0.1), "b": Room(8, 8)}
    assert kubernetes_nodes("g", {}, rooms, {"g": 1}) == ("b",)


def test_a_start_places_one_after_the_other_and_draws_among_equals():
    assert kubernetes_start(PODS, THESIS, PODS, (0.0, 0.0, 0.0)) == {
        "framer": "w03",
        "detector": "w01",
        "models": "w02",
    }
    assert kubernetes_start(PODS, THESIS, PODS, (0.0, 0.99, 0.0))["detector"] == "w03"


@pytest.mark.parametrize(("draw", "expected"), [(0.0, "w01"), (0.49, "w02"), (0.5, "w03"), (0.999, "w04")])
def test_a_draw_is_fair(draw, expected):
    assert drawn(NODES, draw) == expected
