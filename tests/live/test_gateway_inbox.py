"""The inbox: bounded in all, fair between workflows."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.live.gateway.inbox import Inbox

NAMES = ["a", "b", "c"]


def test_a_workflow_that_is_alone_gets_every_place():
    inbox = Inbox(10)
    assert [inbox.enter("a") for _ in range(11)] == [True] * 10 + [False]
    inbox.leave("a")
    assert inbox.enter("a")


def test_one_of_two_gets_half_and_its_share():
    inbox = Inbox(8)
    inbox.set_workflows(2)
    assert sum(inbox.enter("a") for _ in range(20)) == 6  # 4 in common, and 2 of its own
    assert sum(inbox.enter("b") for _ in range(20)) == 2


def test_when_to_come_again_follows_from_how_fast_requests_end():
    inbox = Inbox(10)
    assert inbox.retry_after_s() == 1.0  # nothing is known yet
    inbox._ended_per_s = 5.0
    for _ in range(10):
        inbox.enter("a")
    assert inbox.retry_after_s() == 1.0  # half of ten, at five per second


@settings(max_examples=60, deadline=None)
@given(
    places=st.integers(6, 40),
    steps=st.lists(st.tuples(st.sampled_from(["enter", "leave"]), st.sampled_from(NAMES)), max_size=200),
)
def test_never_too_many_and_never_one_without_its_share(places, steps):
    inbox = Inbox(places)
    inbox.set_workflows(len(NAMES))
    share = (places - places // 2) // len(NAMES)
    open_ = dict.fromkeys(NAMES, 0)
    for step, name in steps:
        if step == "enter":
            is_in = inbox.enter(name)
            assert is_in or open_[name] >= share
            open_[name] += is_in
        elif open_[name]:
            inbox.leave(name)
            open_[name] -= 1
        assert inbox.total == sum(open_.values()) <= places
        assert inbox._in_common == sum(max(0, number - share) for number in open_.values())
