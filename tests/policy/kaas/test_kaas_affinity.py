"""Affinity: equal device time for clients, unless a model would have to be loaded."""

from collections import Counter

import pytest
from kaas_runs import kaas, run, starts

from fairlead.policy.kaas.affinity import Affinity
from fairlead.report import summarise

FOUR = {"short": (5, 0), "long": (20, 0)}


def shares(recording, until):
    """Device time given to each client by starts before an instant."""
    time = Counter()
    for client, _, start, _ in starts(recording):
        if start < until:
            time[client] += FOUR[client][0]
    return time


@pytest.mark.parametrize(("penalty", "lag"), [(0, 40), (10, 240)], ids=["blind", "sticky"])
def test_backlogged_clients_get_equal_device_time(penalty, lag):
    # Two GPUs may each be one long job ahead; a client may fall behind by the penalty, once, while its model is cold.
    scenario = kaas({"short": [0] * 200, "long": [0] * 50}, models=FOUR, gpus=2)
    recording = run(scenario, Affinity(penalty=penalty))
    for until in (100, 300, 500):
        time = shares(recording, until)
        assert abs(time["short"] - time["long"]) <= lag


def test_without_a_penalty_the_least_served_client_is_next():
    scenario = kaas({"short": [0] * 8, "long": [0] * 2}, models=FOUR, gpus=1)
    order = [row[0] for row in starts(run(scenario, Affinity(penalty=0)))]
    assert order == ["short", "long", "short", "short", "short", "long", "short", "short", "short", "short"]


def test_a_lone_request_goes_where_its_model_is_warm():
    scenario = kaas({"short": [0, 20, 40], "long": []}, models={"short": (5, 5), "long": (20, 10)}, gpus=3)
    recording = run(scenario, Affinity())
    assert [gpu for *_, gpu in starts(recording)] == [1, 1, 1]
    assert summarise(recording).cold_starts == 1


@pytest.mark.parametrize(
    ("penalty", "pairs"),
    [(0, {("a", 1), ("a", 2), ("b", 1), ("b", 2)}), (10, {("a", 1), ("b", 2)})],
    ids=["blind", "sticky"],
)
def test_the_penalty_keeps_models_on_their_gpus(penalty, pairs):
    models = {"a": (5, 5), "b": (7, 5)}
    scenario = kaas({"a": [0] + [1] * 20, "b": [0.5] + [1] * 20}, models=models, gpus=2)
    rows = starts(run(scenario, Affinity(penalty=penalty)))
    assert {(client, gpu) for client, _, start, gpu in rows if start < 60} == pairs


def test_a_client_far_behind_pays_the_penalty():
    # "a" holds the only GPU and has run for 10 x 5 s more than "b" when "b" first gets it.
    scenario = kaas({"a": [0] * 30, "b": [1]}, models={"a": (5, 0), "b": (5, 5)}, gpus=1)
    (b,) = [start for client, _, start, _ in starts(run(scenario, Affinity())) if client == "b"]
    assert 50 <= b <= 60
    (b,) = [start for client, _, start, _ in starts(run(scenario, Affinity(penalty=1))) if client == "b"]
    assert 10 <= b <= 15


def test_a_client_that_was_away_does_not_claim_the_time_it_missed():
    # "b" is away until 100. It then gets every other turn, not twenty in a row.
    models = {"a": (5, 0), "b": (5, 0)}
    scenario = kaas({"a": [0] * 40, "b": [100] * 10}, models=models, gpus=1)
    order = [client for client, _, start, _ in starts(run(scenario, Affinity(penalty=0))) if start >= 100]
    assert Counter(order[:10]) == {"a": 5, "b": 5}


@pytest.mark.parametrize(("mode", "start"), [("online", 40), ("compat", 25)])
def test_only_compat_lowers_the_virtual_time_of_a_client_that_returns(mode, start):
    # "a" runs from 0 to 20 and returns at 25, when "b" has had 5 s. A reset puts "a" level with "b"; without one "b"
    # is served until it has had 20 s as well, and then "a", which ran less recently.
    scenario = kaas({"a": [0, 25], "b": [0] * 60}, models={"a": (20, 0), "b": (1, 0)}, gpus=1)
    rows = starts(run(scenario, Affinity(mode=mode, penalty=0)))
    assert [row[2] for row in rows if row[0] == "a"] == [0, start]


@pytest.mark.parametrize("penalty", [0, 10, 1000])
def test_no_gpu_idles_while_something_waits(penalty):
    scenario = kaas({"short": [0] * 12, "long": [0] * 3}, models=FOUR, gpus=3)
    recording = run(scenario, Affinity(penalty=penalty))
    assert recording.invocations["end"].max() <= 40 + 20  # 120 s of work on three GPUs, and at most one job's overhang


def test_a_negative_penalty_is_refused():
    with pytest.raises(ValueError, match="penalty must be finite and not negative"):
        Affinity(penalty=-1)


@pytest.mark.parametrize(("affine", "gpus"), [("warm", [1, 1]), ("home", [2, 2])])
def test_at_home_a_client_goes_to_its_own_gpu(affine, gpus):
    # The second client's home is the second GPU; left free, it takes the one that was released first, and stays there.
    scenario = kaas({"a": [], "b": [0, 30]}, models={"a": (5, 5), "b": (5, 5)}, gpus=2)
    assert [gpu for *_, gpu in starts(run(scenario, Affinity(affine=affine)))] == gpus


def test_a_home_is_left_for_another_gpu_only_at_the_price_of_the_penalty():
    # One client, whose home is the first GPU, and work for two: the other GPU is better than none.
    scenario = kaas({"a": [0, 0], "b": []}, models={"a": (5, 5), "b": (5, 5)}, gpus=2)
    assert [(start, gpu) for _, _, start, gpu in starts(run(scenario, Affinity(affine="home")))] == [(0, 1), (0, 2)]


def test_unknown_affinity_is_refused():
    with pytest.raises(ValueError, match="affine must be 'warm' or 'home'; got 'cold'"):
        Affinity(affine="cold")
