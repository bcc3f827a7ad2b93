"""Transfers between nodes: what is believed of them, and runs that go to their input."""

from types import SimpleNamespace

import numpy as np
import pytest

from fairlead.engine import simulate
from fairlead.engine.core.transfers import INLINE_MB, Transfers
from fairlead.model import Cluster, Configuration
from fairlead.policy import make_policy
from fairlead.policy.base import Policy, Start
from fairlead.policy.fairlead.ground import Ground
from fairlead.testing.builders import cluster, declared, scenario
from fairlead.workload import load_scenario


def belief(bandwidth_gbps: float = float("inf")) -> Transfers:
    return Transfers(
        SimpleNamespace(cluster=Cluster(nodes=cluster(2).nodes, bandwidth_gbps=bandwidth_gbps), profiles={})
    )


def batch(mb: float) -> SimpleNamespace:
    return SimpleNamespace(transfer_mb=mb, shape=SimpleNamespace(copy_mb=0.0, name="f"))


def test_it_begins_as_declared_and_stays_so_while_it_is_right():
    transfers = belief(bandwidth_gbps=1)
    for mb in (1, 10, 100):
        transfers.learn(batch(mb), mb / 125)
    assert (transfers.latency_s, transfers.s_per_mb) == (0.0, 1 / 125)
    assert belief().seconds(100) == 0


def test_latency_and_bandwidth_are_found_from_inputs_of_different_sizes():
    transfers, rng = belief(), np.random.default_rng(0)
    for mb in rng.uniform(0.1, 20, 200):
        transfers.learn(batch(mb), (0.004 + mb / 500) * rng.uniform(0.8, 1.25))
    assert transfers.seconds(10) == pytest.approx(0.004 + 10 / 500, rel=0.1)
    assert transfers.seconds(0.2) == pytest.approx(0.004 + 0.2 / 500, rel=0.25)


def test_inputs_of_one_size_are_predicted_and_a_network_that_slows_down_is_followed():
    transfers = belief(bandwidth_gbps=10)
    for _ in range(20):
        transfers.learn(batch(8), 0.02)
    assert transfers.seconds(8) == pytest.approx(0.02, rel=0.02)
    for _ in range(60):
        transfers.learn(batch(8), 0.2)
    assert transfers.seconds(8) == pytest.approx(0.2, rel=0.2)


def test_one_odd_transfer_moves_little_and_small_inputs_nothing():
    transfers = belief()
    for _ in range(30):
        transfers.learn(batch(8), 0.02)
    transfers.learn(batch(8), 10.0)  # it stood still
    assert transfers.seconds(8) < 0.025
    known = transfers.seconds(8)
    transfers.learn(batch(INLINE_MB), 5.0)
    transfers.learn(batch(8), 0.0)  # a copy was there
    assert transfers.seconds(8) == known
    assert transfers.saved_s(INLINE_MB) == 0


class Near(Policy):
    """Starts what waits, each beside its input."""

    def __init__(self, *, is_near: bool) -> None:
        self.is_near = is_near
        self.found: list[tuple[str, float] | None] = []

    def decide(self, view):
        for invocation in view.by_ready():
            self.found.append(view.holder(invocation))
            near = invocation if self.is_near else None
            node = view.place(invocation.function, Configuration(), near=near)
            if node is None:
                return
            yield Start(batch=(invocation,), configuration=Configuration(), node=node)


def two_stages(bandwidth_gbps: float, output_mb: float):
    functions = {"make": declared(0.2, output_mb=output_mb, noise=0.3), "take": declared(0.2, noise=0.3)}
    where = cluster(3, vcpus=8, bandwidth_gbps=bandwidth_gbps)
    return scenario(functions, arrivals=[0.03 * i for i in range(40)], on=where, slo_s=5)


def transfers_of(world, policy) -> list[float]:
    return simulate(world, policy, seed=0).invocations["transfer_s"].to_list()


def test_a_run_goes_to_its_input_where_that_saves_time():
    slow = two_stages(0.1, 10)
    policy = Near(is_near=True)
    assert sum(transfers_of(slow, policy)) == 0
    assert ("n1", pytest.approx(0.8)) in policy.found
    moved = [seconds for seconds in transfers_of(slow, Near(is_near=False)) if seconds]
    assert len(moved) > 5  # the emptiest node is often another one
    assert moved == pytest.approx([0.8] * len(moved))


@pytest.mark.parametrize(("bandwidth_gbps", "output_mb"), [(float("inf"), 10), (0.1, INLINE_MB), (0.1, 0)])
def test_where_nothing_is_saved_placement_is_what_it_was(bandwidth_gbps, output_mb):
    world = two_stages(bandwidth_gbps, output_mb)
    near, plain = (simulate(world, Near(is_near=is_near), seed=0) for is_near in (True, False))
    assert near.invocations.equals(plain.invocations)


def test_the_default_policy_moves_less_of_large_outputs(monkeypatch):
    world = load_scenario("large-outputs")
    moved, in_time, mean_s = {}, {}, {}
    for name in ("beside inputs", "emptiest first"):
        if name == "emptiest first":
            monkeypatch.setattr(Ground, "_holder", lambda *_: None)
        run = simulate(world, make_policy("fairlead"), seed=0)
        later = run.invocations.filter(run.invocations["stage"] != "decode")
        asked = run.requests.filter(run.requests["arrival"] > world.warmup_s)
        moved[name] = (later["transfer_s"] > 0).mean()
        in_time[name] = (asked["end"] <= asked["deadline"]).mean()
        mean_s[name] = (asked["end"] - asked["arrival"]).mean()
    assert moved["beside inputs"] < 0.6 * moved["emptiest first"]  # 0.15 and 0.31
    assert mean_s["beside inputs"] < 0.9 * mean_s["emptiest first"]  # 0.45 and 0.51 s
    assert in_time["beside inputs"] >= in_time["emptiest first"]
