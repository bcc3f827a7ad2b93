"""Memory: the cap holds, what is pinned stays, and who leaves first."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fairlead.kaas import DeviceMemoryError, Memory
from fairlead.kaas.memory import BLOCK, Key, blocks


def key(name: str, size: int = 1, tenant: str = "t") -> Key:
    return Key(tenant, name, 0, size * BLOCK)


def use(memory: Memory, *keys: Key):
    plan = memory.plan(keys, [])
    memory.release(plan)
    return plan


def test_buffer_takes_whole_blocks():
    assert [blocks(size) for size in (0, 1, 256, 257)] == [0, 256, 256, 512]


def test_constant_is_loaded_once():
    memory = Memory(4 * BLOCK)
    assert use(memory, key("a")).misses == (key("a"),)
    assert use(memory, key("a")).hits == (key("a"),)


def test_equal_keys_of_two_tenants_are_two_buffers():
    memory = Memory(4 * BLOCK)
    use(memory, key("a", tenant="one"))
    assert use(memory, key("a", tenant="two")).misses == (key("a", tenant="two"),)


def test_least_recently_used_leaves_first():
    memory = Memory(2 * BLOCK)
    use(memory, key("a"))
    use(memory, key("b"))
    use(memory, key("a"))
    assert use(memory, key("c")).evicted == (key("b"),)


def test_what_was_used_more_than_twice_leaves_last():
    memory = Memory(2 * BLOCK)
    for _ in range(3):
        use(memory, key("often"))
    use(memory, key("seldom"))
    assert use(memory, key("c")).evicted == (key("seldom"),)
    assert use(memory, key("d")).evicted == (key("c"),)


def test_miss_after_an_eviction_is_for_lack_of_capacity():
    memory = Memory(BLOCK)
    assert use(memory, key("a")).capacity_misses == 0
    use(memory, key("b"))
    assert use(memory, key("a")).capacity_misses == 1


def test_request_waits_for_what_is_pinned_and_fits_after():
    memory = Memory(3 * BLOCK)
    running = memory.plan([key("a", 2)], [])
    assert memory.plan([], [2 * BLOCK]) is None
    memory.release(running)
    assert memory.plan([], [2 * BLOCK]).evicted == (key("a", 2),)


def test_request_larger_than_the_device_is_refused():
    with pytest.raises(DeviceMemoryError, match=r"needs 768 bytes of device memory; the cap is 512\."):
        Memory(2 * BLOCK).plan([key("a")], [257])


def test_buffers_whose_load_failed_are_gone():
    memory = Memory(4 * BLOCK)
    use(memory, key("a"))
    plan = memory.plan([key("a"), key("b")], [10])
    assert memory.release(plan, failed=True) == (key("b"),)
    assert memory.used == BLOCK


def test_tenant_is_forgotten_and_others_are_not():
    memory = Memory(4 * BLOCK)
    use(memory, key("a", tenant="one"), key("a", tenant="two"))
    assert memory.forget("one") == (key("a", tenant="one"),)
    assert list(memory.residents()) == [key("a", tenant="two")]


class Books(RuleBasedStateMachine):
    """Any order of requests: never above the cap, nothing pinned is evicted, sums are right."""

    def __init__(self):
        super().__init__()
        self.memory = Memory(8 * BLOCK)
        self.under_way = []

    @rule(
        names=st.lists(st.sampled_from("abcdef"), max_size=4),
        own=st.lists(st.integers(1, 3 * BLOCK), max_size=2),
        tenant=st.sampled_from(["one", "two"]),
    )
    def begin(self, names, own, tenant):
        keys = [key(name, "abcdef".index(name) % 3 + 1, tenant) for name in names]
        pinned = {k for plan, _ in self.under_way for k in plan.keys}
        try:
            plan = self.memory.plan(keys, own)
        except DeviceMemoryError:
            assert sum(k.size for k in set(keys)) + sum(map(blocks, own)) > 8 * BLOCK
            return
        if plan is None:
            assert self.under_way
            return
        assert not pinned & set(plan.evicted)
        assert set(plan.keys) == set(keys)
        self.under_way.append((plan, sum(map(blocks, own))))

    @rule(which=st.integers(0, 9), failed=st.booleans())
    def end(self, which, failed):
        if self.under_way:
            plan, _ = self.under_way.pop(which % len(self.under_way))
            self.memory.release(plan, failed=failed)

    @rule(tenant=st.sampled_from(["one", "two"]))
    def forget(self, tenant):
        self.memory.forget(tenant)

    @invariant()
    def adds_up(self):
        memory, residents = self.memory, self.memory.residents()
        own = sum(size for _, size in self.under_way)
        pinned = {k for plan, _ in self.under_way for k in plan.keys}
        assert memory.used == own + sum(residents.values()) <= memory.capacity
        assert memory.pinned == own + sum(residents[k] for k in pinned)
        assert memory.peak <= memory.capacity


TestBooks = Books.TestCase
