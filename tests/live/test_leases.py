"""The ledger that shares nodes between apps: who gets what, when it moves, and what never happens."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fairlead.engine.live import apportion
from fairlead.engine.live.apportion import SLICE_S
from fairlead.engine.live.demand import Amount, Demand, Need, Work
from fairlead.engine.live.leased_node import RECENT_S
from fairlead.engine.live.leases import Ledger
from fairlead.model import Device, Node

UNBOUNDED = float("inf")


def node(vcpus=4.0, memory_gb=UNBOUNDED, name="n0", overcommit=1.0):
    return Node(name=name, kind="plain", vcpus=vcpus, memory_gb=memory_gb, overcommit=overcommit)


def demand(use=0.0, more=0.0, use_gb=0.0, more_gb=0.0, on="n0"):
    """What a member uses on one node and could use besides, in vCPUs and GB."""
    uses = {on: Amount(round(use * 1000), round(use_gb * 1024))}
    return Demand(uses, anything(round(more * 1000), round(more_gb * 1024)))


def anything(vcpus=0, memory=0):
    """Work that can use any part of this much."""
    return Work((Need(vcpus=1),), vcpus), Work((Need(memory=1),), memory)


def shared(members=2, vcpus=4.0, memory_gb=UNBOUNDED, least=1.0, least_gb=0.0, weights=()):
    ledger = Ledger([node(vcpus, memory_gb)])
    for id in range(members):
        weight = weights[id] if weights else 1.0
        ledger.join(id, weight, [Need(round(least * 1000), round(least_gb * 1024))])
    return ledger


def vcpus(ledger, on="n0"):
    return [ledger.lease(id, on).vcpus / 1000 for id in sorted(ledger._members)]


def memory(ledger, on="n0"):
    return [ledger.lease(id, on).memory / 1024 for id in sorted(ledger._members)]


# --- who gets what -------------------------------------------------------------------------------------------------


def test_a_single_member_has_everything_and_hears_nothing():
    ledger = shared(members=1)
    assert not ledger.is_shared
    assert ledger.settle(0.0, {0: demand(3, 5)}) == []
    assert vcpus(ledger) == [4]


def test_idle_members_share_equally():
    ledger = shared(members=3, vcpus=6)
    changes = ledger.settle(0.0, {})
    assert vcpus(ledger) == [2, 2, 2]
    assert {(change.member, change.vcpus) for change in changes} == {(0, 2), (1, 2), (2, 2)}


def test_what_one_does_not_want_goes_to_the_other():
    ledger = shared()
    ledger.settle(0.0, {0: demand(2, 9), 1: demand()})
    assert vcpus(ledger) == [4, 0]


def test_those_who_want_more_than_there_is_share_by_weight():
    ledger = shared(members=3, vcpus=8, weights=(1, 2, 1))
    ledger.settle(0.0, {id: demand(0, 9) for id in range(3)})
    assert vcpus(ledger) == [2, 4, 2]


def test_who_wants_less_than_its_part_gets_it_and_the_others_share_the_rest():
    ledger = shared(members=3, vcpus=9)
    ledger.settle(0.0, {0: demand(0, 1), 1: demand(0, 9), 2: demand(0, 9)})
    assert vcpus(ledger) == [1, 4, 4]


def test_shares_are_whole_quanta():
    ledger = shared(members=2, vcpus=7, least=2)
    ledger.settle(0.0, {id: demand(0, 9) for id in range(2)})
    assert sorted(vcpus(ledger)) == [3.0, 4]  # 2 and 4 that are of use, and 1 that is of use to neither


def test_overcommitted_vcpus_are_shared_too():
    ledger = Ledger([node(2, overcommit=4)])
    ledger.join(0)
    ledger.join(1)
    ledger.settle(0.0, {id: demand(0, 9) for id in range(2)})
    assert vcpus(ledger) == [4, 4]


def test_memory_without_a_limit_is_not_shared():
    ledger = shared(members=2)
    changes = ledger.settle(0.0, {})
    assert [change.memory_gb for change in changes] == [UNBOUNDED, UNBOUNDED]


def test_idle_instances_above_the_fair_part_of_memory_make_way_for_a_member_below_it():
    ledger = shared(members=2, memory_gb=8, least_gb=1)
    ledger.settle(0.0, {0: demand(use_gb=7)})
    assert memory(ledger)[0] == 7
    changes = ledger.settle(2.0, {0: demand(use_gb=7), 1: demand(0, 1, use_gb=1, more_gb=1)})
    assert memory(ledger) == [6, 1]  # one GB more is due, and not free yet
    assert changes[0].member == 0
    ledger.settle(2.1, {0: demand(use_gb=6), 1: demand(0, 1, use_gb=1, more_gb=1)})
    assert memory(ledger) == [6, 2]


def test_a_member_above_its_fair_part_of_memory_takes_nothing_from_one_below():
    ledger = shared(members=2, memory_gb=8, least_gb=1)
    ledger.settle(0.0, {0: demand(use_gb=4), 1: demand(use_gb=4)})
    ledger.settle(5.0, {0: demand(use_gb=4, more=1, more_gb=2), 1: demand(use_gb=4)})
    assert memory(ledger) == [4, 4]


def test_idle_instances_that_a_member_could_do_without_make_way_in_any_case():
    ledger = shared(members=2, memory_gb=8, least_gb=1)
    idle = Demand({"n0": Amount(0, 4096)}, (), {"n0": Amount(0, 3072)})
    ledger.settle(0.0, {0: idle, 1: demand(use_gb=4)})
    assert memory(ledger) == [4, 4]
    ledger.settle(5.0, {0: idle, 1: demand(use_gb=4, more=1, more_gb=2)})
    assert memory(ledger) == [2, 4]


# --- when it moves -------------------------------------------------------------------------------------------------


def test_a_lease_is_raised_only_when_the_other_is_really_free():
    ledger = shared()
    ledger.settle(0.0, {0: demand(4, 4), 1: demand()})
    assert vcpus(ledger) == [4, 0]
    (change,) = ledger.settle(2.0, {0: demand(4, 4), 1: demand(0, 4)})
    assert (change.member, change.vcpus) == (0, 2)
    assert vcpus(ledger) == [2, 0]
    assert ledger.is_over(0, {"n0": Amount(4000)})
    (change,) = ledger.settle(2.05, {0: demand(3, 4), 1: demand(0, 4)})
    assert (change.member, change.vcpus) == (1, 1)
    (change,) = ledger.settle(2.06, {0: demand(2, 4), 1: demand(1, 4)})
    assert (change.member, change.vcpus) == (1, 2)
    assert not ledger.is_over(0, {"n0": Amount(2000)})


def test_lowered_leases_come_before_raised_ones():
    ledger = shared(members=2)
    ledger.settle(0.0, {0: demand(0, 4)})
    changes = ledger.settle(0.5, {0: demand(), 1: demand(0, 4)})
    assert [(change.member, change.vcpus) for change in changes] == [(0, 0), (1, 4)]


def test_a_pause_moves_nothing():
    ledger = shared(vcpus=2)
    ledger.settle(0.0, {0: demand(2, 0)})
    assert ledger.settle(0.1, {0: demand(0, 0)}) == []
    assert vcpus(ledger) == [2, 0]


def test_an_idle_member_gets_its_least_back_after_a_second():
    ledger = shared(vcpus=2)
    ledger.settle(0.0, {0: demand(2, 0)})
    ledger.settle(0.1, {0: demand(0, 0)})
    ledger.settle(0.1 + RECENT_S, {0: demand(0, 0)})
    assert vcpus(ledger) == [1, 1]


def test_what_nothing_needs_stays_where_it_is():
    ledger = shared(vcpus=4)
    ledger.settle(0.0, {0: demand(3, 0)})
    assert vcpus(ledger) == [3, 1]
    assert ledger.settle(9.0, {0: demand()}) == []
    assert vcpus(ledger) == [3, 1]


def test_members_take_turns_where_a_node_is_too_small_for_all():
    ledger = shared(members=3, vcpus=2)
    held = [0.0] * 3
    for step in range(3000):
        now = step * 0.01
        ledger.settle(now, {id: demand(use, 2) for id, use in enumerate(vcpus(ledger) if step else [0] * 3)})
        held = [total + lease * 0.01 for total, lease in zip(held, vcpus(ledger), strict=True)]
        assert sum(vcpus(ledger)) <= 2
    assert held == pytest.approx([sum(held) / 3] * 3, abs=2 * SLICE_S)
    assert sum(held) > 48  # of 60: a member that gives its turn up is waited for


def test_a_turn_lasts_at_least_a_slice():
    ledger = shared(members=2, vcpus=1)
    holder = []
    for step in range(1000):
        leases = vcpus(ledger) if step else [0, 0]
        ledger.settle(step * 0.01, {id: demand(use, 1) for id, use in enumerate(leases)})
        if 1 in vcpus(ledger):
            holder.append(vcpus(ledger).index(1))
    changes = [i for i, (one, other) in enumerate(pairwise(holder)) if one != other]
    assert len(changes) > 20
    assert min(after - before for before, after in pairwise(changes)) >= SLICE_S / 0.01 - 1


def test_who_was_away_has_no_claim_for_that_time():
    ledger = shared(members=2, vcpus=1)
    for step in range(500):
        ledger.settle(step * 0.01, {0: demand(1, 1), 1: demand()})
    held = 0.0
    for step in range(500, 700):
        leases = vcpus(ledger)
        ledger.settle(step * 0.01, {id: demand(leases[id], 1) for id in range(2)})
        held += 0.01 * vcpus(ledger)[1]
    assert held == pytest.approx(1.0, abs=2 * SLICE_S)


def test_a_member_gets_the_whole_size_that_it_waits_for_by_turns():
    """Of two vCPUs each would have one, and neither could run what its policy waits for."""
    ledger = shared(members=2, vcpus=2)
    waits = Demand({}, [Work((Need(1000), Need(2000)))])
    ledger.settle(0.0, dict.fromkeys(range(2), waits))
    assert sorted(vcpus(ledger)) == [0, 2]
    seen = set()
    for step in range(100):
        ledger.settle(step * 0.01, dict.fromkeys(range(2), waits))
        seen.add(tuple(vcpus(ledger)))
    assert seen == {(0, 2), (2, 0)}


def test_a_turn_is_of_all_resources_at_once():
    """Vcpus here and memory there would let neither run."""
    ledger = shared(members=2, vcpus=2, memory_gb=2, least=2, least_gb=2)
    waits = Demand({}, [Work((Need(2000, 2048),), 3)])
    for step in range(300):
        ledger.settle(step * 0.01, dict.fromkeys(range(2), waits))
        assert sorted(zip(vcpus(ledger), memory(ledger), strict=True)) == [(0, 0), (2, 2)]


def test_a_size_that_no_node_can_hold_is_not_waited_for():
    ledger = shared(members=2, vcpus=2)
    absurd = Demand({}, [Work((Need(1000), Need(64_000)), 10**9)])
    ledger.settle(0.0, {0: absurd, 1: demand(0, 1)})
    assert vcpus(ledger) == [1, 1]
    ledger.settle(9.0, {0: Demand({}, [Work((Need(64_000),), 10**9)]), 1: demand(0, 2)})
    assert vcpus(ledger) == [0, 2]


def test_what_unclaimed_instances_hold_is_leased_to_none():
    ledger = shared(members=1, vcpus=2, memory_gb=4)
    ledger.reserve({"n0": Amount(1000, 1024)})
    (change,) = ledger.settle(0.0, {0: demand(0, 9, more_gb=9)})
    assert (change.vcpus, change.memory_gb) == (1, 3)
    ledger.reserve({})
    (change,) = ledger.settle(0.1, {0: demand(1, 9, more_gb=9)})
    assert (change.vcpus, change.memory_gb) == (2, 4)


# --- devices ---------------------------------------------------------------------------------------------------------


def on_device(device, members=2):
    ledger = Ledger([Node(name="n0", kind="gpu", vcpus=8, devices=(device,))])
    for id in range(members):
        ledger.join(id, least=[Need(1000, 0, 1000)])
    return ledger


def vgpus(ledger):
    return [ledger.lease(id, "n0").devices[0] / 1000 for id in sorted(ledger._members)]


def wants_vgpus(use=0, more=4):
    return Demand({"n0": Amount(0, 0, (use * 1000,))}, [Work((Need(1000, 0, 1000),), more)])


def test_fractions_of_a_device_are_shared():
    ledger = on_device(Device(vgpus=4))
    ledger.settle(0.0, {id: wants_vgpus() for id in range(2)})
    assert vgpus(ledger) == [2, 2]


def test_a_mig_device_belongs_to_one_member_until_nothing_of_it_is_there():
    ledger = on_device(Device(vgpus=7, sharing="mig"))
    ledger.settle(0.0, {0: wants_vgpus(more=1)})
    assert vgpus(ledger) == [7, 0]
    ledger.settle(1.5, {0: wants_vgpus(use=7, more=0), 1: wants_vgpus(more=1)})
    ledger.settle(3.0, {0: wants_vgpus(use=7, more=0), 1: wants_vgpus(more=1)})
    assert vgpus(ledger) == [0, 0]  # given up, and still in use
    ledger.settle(3.1, {0: wants_vgpus(more=0), 1: wants_vgpus(more=1)})
    assert vgpus(ledger) == [0, 7]


# --- members that ask for too much, or come and go -------------------------------------------------------------------


def test_an_app_that_is_deployed_again_and_again_gets_no_more_than_the_others():
    ledger = Ledger([node(1.0)])
    for id in range(3):
        ledger.join(id, account=f"app {id}")
    held, flapping = [0.0] * 3, 2
    for step in range(6000):
        if step % 15 == 14:  # gone and back, with a new number
            ledger.leave(flapping)
            flapping += 1
            ledger.join(flapping, account="app 2")
        uses = {id: ledger.lease(id, "n0").vcpus if step else 0 for id in (0, 1, flapping)}
        if uses[flapping] == 1000 and uses[0] + uses[1]:
            uses[flapping] = 0  # a newcomer is taken to know the whole node, until it is settled
        ledger.settle(step * 0.01, {id: demand(use / 1000, 1) for id, use in uses.items()})
        held = [h + 0.01 * ledger.lease(id, "n0").vcpus / 1000 for h, id in zip(held, (0, 1, flapping), strict=True)]
    assert held[2] <= 1.1 * min(held[:2])


def test_fifty_apps_on_one_vcpu_all_have_their_turn():
    ledger = shared(members=50, vcpus=1)
    served = set()
    for step in range(1500):
        leases = vcpus(ledger) if step else [0] * 50
        ledger.settle(step * 0.01, {id: demand(use, 3) for id, use in enumerate(leases)})
        served |= {id for id, lease in enumerate(vcpus(ledger)) if lease == 1}
        assert sum(vcpus(ledger)) <= 1
    assert len(served) == 50  # within 15 s: a slice each, and what it takes to give it up


def test_the_cost_of_sharing_does_not_grow_with_the_size_of_what_is_shared(monkeypatch):
    steps = []
    real = apportion._step

    def counted(*args):
        steps[-1] += 1
        return real(*args)

    monkeypatch.setattr(apportion, "_step", counted)
    for memory_gb in (1, 4096):
        ledger = Ledger([node(1, memory_gb)])
        for id in range(50):
            ledger.join(id, least=[Need(1000, 0 if id else memory_gb * 1024)])  # all but one can use any byte
        steps.append(0)
        ledger.settle(0.0, {id: demand(0, 9, more_gb=2 * memory_gb) for id in range(50)})
    assert max(steps) <= 6 * (64 + 2 * 50)  # per layer


# --- members and nodes come and go ---------------------------------------------------------------------------------


def test_a_newcomer_gets_what_is_free_and_the_rest_when_it_is():
    ledger = shared(members=1)
    ledger.settle(0.0, {0: demand(3, 9)})
    ledger.join(1)
    changes = ledger.settle(0.1, {0: demand(3, 9), 1: demand(0, 4)})
    assert {(change.member, change.vcpus) for change in changes} == {(0, 2), (1, 1)}
    ledger.settle(0.2, {0: demand(2, 9), 1: demand(1, 4)})
    assert vcpus(ledger) == [2, 2]


def test_what_a_member_leaves_goes_to_the_others():
    ledger = shared(members=2)
    ledger.settle(0.0, {id: demand(2, 2) for id in range(2)})
    ledger.leave(1)
    ledger.settle(0.1, {0: demand(2, 2)})
    assert vcpus(ledger) == [4]
    assert not ledger.is_shared


def test_two_generations_of_an_app_share_its_weight():
    ledger = shared(members=2, vcpus=4)
    ledger.join(2, 0.5)
    ledger.reweigh(1, 0.5)
    ledger.settle(0.0, {id: demand(0, 9) for id in range(3)})
    assert vcpus(ledger) == [2, 1, 1]


def test_a_node_that_shrinks_lowers_leases_at_once():
    ledger = shared(members=2, vcpus=4)
    ledger.settle(0.0, {id: demand(2, 2) for id in range(2)})
    ledger.node_changed(node(2))
    ledger.settle(0.1, {id: demand(2, 2) for id in range(2)})
    assert vcpus(ledger) == [1, 1]


def test_each_node_is_shared_by_itself():
    ledger = Ledger([node(4, name="n0"), node(2, name="n1")])
    ledger.join(0)
    ledger.join(1)
    ledger.settle(0.0, {id: demand(0, 9) for id in range(2)})
    assert (vcpus(ledger, "n0"), vcpus(ledger, "n1")) == ([2, 2], [1, 1])
    ledger.node_lost("n1")
    ledger.node_joined(node(8, name="n2"))
    changes = ledger.settle(0.1, {id: demand(0, 9) for id in range(2)})
    assert {(change.member, change.node, change.vcpus) for change in changes} == {(0, "n2", 4), (1, "n2", 4)}


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan")])
def test_a_weight_must_be_positive(weight):
    with pytest.raises(ValueError, match="weight must be above 0"):
        Ledger([node()]).join(0, weight)


def test_a_member_joins_once():
    ledger = shared(members=1)
    with pytest.raises(ValueError, match="has joined already"):
        ledger.join(0)


# --- what holds always ---------------------------------------------------------------------------------------------


class World:
    """Members that start work within their leases and finish it whenever they like."""

    def __init__(self, sizes):
        self.nodes = {f"n{i}": size for i, size in enumerate(sizes)}
        self.ledger = Ledger([node(vcpus, memory, name) for name, (vcpus, memory) in self.nodes.items()])
        self.now = 0.0
        self.uses = {}
        self.more = {}

    def join(self, weight, least):
        id = max(self.uses, default=-1) + 1
        self.ledger.join(id, weight, [least])
        self.uses[id] = dict.fromkeys(self.nodes, Amount())
        self.more[id] = ()

    def leave(self, id):
        self.ledger.leave(id)
        del self.uses[id], self.more[id]

    def settle(self, passed_s):
        self.now += passed_s
        self.ledger.settle(self.now, {id: Demand(self.uses[id], self.more[id]) for id in self.uses})

    def start(self, id, on, vcpus, memory):
        """Use as much of a lease as is left and wanted."""
        lease, use = self.ledger.lease(id, on), self.uses[id][on]
        self.uses[id][on] = Amount(
            use.vcpus + min(vcpus, max(0, lease.vcpus - use.vcpus)),
            use.memory + min(memory, max(0, lease.memory - use.memory)),
        )

    def finish(self, id, on, vcpus, memory):
        use = self.uses[id][on]
        self.uses[id][on] = Amount(max(0, use.vcpus - vcpus), max(0, use.memory - memory))

    def check(self):
        for name, (vcpus, memory) in self.nodes.items():
            leases = [self.ledger.lease(id, name) for id in self.uses]
            taken = [(lease, self.uses[id][name]) for id, lease in zip(self.uses, leases, strict=True)]
            assert sum(max(lease.vcpus, use.vcpus) for lease, use in taken) <= vcpus * 1000
            assert all(lease.vcpus >= 0 and lease.memory >= 0 for lease in leases)
            if memory < UNBOUNDED:
                assert sum(max(lease.memory, use.memory) for lease, use in taken) <= memory * 1024


LEAST = st.builds(Need, st.sampled_from([100, 500, 1000, 2000]), st.sampled_from([0, 256, 1024]))
STEPS = st.tuples(
    st.sampled_from(["join", "leave", "start", "start", "finish", "want", "settle", "settle"]),
    st.integers(0, 5),
    st.integers(0, 3000),
    st.integers(0, 3000),
)
MEMORIES = st.sampled_from([1.0, 4.0, UNBOUNDED])
SIZES = st.lists(st.tuples(st.sampled_from([1.0, 2.0, 4.5]), MEMORIES), min_size=1, max_size=2)
WEIGHTS = st.sampled_from([0.5, 1.0, 2.0, 3.0])


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(SIZES, st.lists(st.tuples(WEIGHTS, LEAST), min_size=1, max_size=4), st.lists(STEPS, max_size=60))
def test_no_node_is_promised_twice(sizes, members, steps):
    world = World(sizes)
    for weight, least in members:
        world.join(weight, least)
    world.settle(0.0)
    world.check()
    for what, k, one, other in steps:
        ids, on = list(world.uses), f"n{k % len(world.nodes)}"
        if what == "join" and len(ids) < 5:
            world.join(members[k % len(members)][0], members[k % len(members)][1])
            world.settle(0.0)  # before it may start anything
        elif what == "leave" and len(ids) > 1:
            world.leave(ids[k % len(ids)])
        elif what == "start":
            world.start(ids[k % len(ids)], on, one, other)
        elif what == "finish":
            world.finish(ids[k % len(ids)], on, one, other)
        elif what == "want":
            world.more[ids[k % len(ids)]] = anything(one, other) if k < 4 else ()
        elif what == "settle":
            world.settle(one / 10_000)
        world.check()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.sampled_from([1.0, 2.0, 3.0, 4.5, 8.0]),
    st.lists(st.tuples(WEIGHTS, st.sampled_from([100, 500, 1000, 1500]), st.integers(0, 9000)), min_size=1, max_size=5),
    st.floats(0, 2),
)
def test_nothing_is_left_over_while_it_is_wanted_and_fits(size, members, later_s):
    ledger = Ledger([node(size)])
    for id, (weight, least, _) in enumerate(members):
        ledger.join(id, weight, [Need(least)])
    demands = {id: Demand({}, anything(more)) for id, (_, _, more) in enumerate(members)}
    for now in (0.0, later_s):
        ledger.settle(now, demands)
    leases = [ledger.lease(id, "n0").vcpus for id in range(len(members))]
    of_use = [min(lease, min(more, size * 1000)) for lease, (_, _, more) in zip(leases, members, strict=True)]
    left = size * 1000 - sum(of_use)
    for used, (_, least, more) in zip(of_use, members, strict=True):
        missing = min(more, size * 1000) - used
        assert missing <= 0 or left < min(least, missing)


CROWDS = (
    st.sampled_from([1.0, 2.0, 3.0, 8.0]),
    st.lists(st.tuples(WEIGHTS, st.sampled_from([500, 1000])), min_size=2, max_size=5),
    st.integers(1, 40),
)


@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(*CROWDS)
def test_over_time_each_gets_its_weight_and_none_starves(size, members, run_steps):
    check_shares_over_time(size, members, run_steps)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True, phases=[Phase.generate])
@given(*CROWDS)
def test_over_time_each_gets_its_weight_and_none_starves_in_many_crowds(size, members, run_steps):
    check_shares_over_time(size, members, run_steps)


def check_shares_over_time(size, members, run_steps):
    """All want everything; a batch runs for `run_steps` hundredths of a second and holds its quantum until it ends."""
    ledger = Ledger([node(size)])
    for id, (weight, least) in enumerate(members):
        ledger.join(id, weight, [Need(least)])
    runs = {id: [] for id in range(len(members))}  # the steps at which batches end
    held = dict.fromkeys(runs, 0.0)
    steps = 3000
    for step in range(steps):
        for id, (_, least) in enumerate(members):
            runs[id] = [end for end in runs[id] if end > step]
            if step:
                lease = ledger.lease(id, "n0").vcpus
                while (len(runs[id]) + 1) * least <= lease:
                    runs[id].append(step + run_steps)
            held[id] += len(runs[id]) * least
        ledger.settle(
            step * 0.01,
            {
                id: Demand({"n0": Amount(len(runs[id]) * least)}, anything(8000))
                for id, (_, least) in enumerate(members)
            },
        )
    total, weights = sum(held.values()), sum(weight for weight, _ in members)
    all_fit = sum(least for _, least in members) <= size * 1000
    has_floor = all_fit and any(size * 1000 * weight / weights < least for weight, least in members)
    for id, (weight, least) in enumerate(members):
        slack = least * len(members) * (run_steps + 10) * 6  # a few turns, each of one batch and a slice
        if has_floor:  # each has its least, whatever its weight
            assert held[id] >= 0.95 * least * steps - slack
        elif len({least for _, least in members}) > 1:  # what is left may be too small for the larger quantum
            assert abs(held[id] - total * weight / weights) <= max(least for _, least in members) * steps + slack
        else:
            assert held[id] == pytest.approx(total * weight / weights, rel=0.05, abs=slack)
        assert held[id] > 0
