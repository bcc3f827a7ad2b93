"""The channel of an executor: whole messages from any cut of the stream, and nothing too large or unknown."""

import os
import socket
from struct import pack

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kaas.slots import Board, Slot
from fairlead.kaas.wire import Ask, Channel, Counts, Done, Evicted, Forget, Refused, Replies, Timings, evictions, frame

MESSAGES = [
    Evicted((("t", "key"),)),
    Done(1, Timings(run_s=0.5), Counts(hits=2), 3.0, 4.0),
    Refused(2, "build", "why"),
    Evicted(tuple(("tenant", f"key {i}") for i in range(300))),
]
STREAM = b"".join(map(frame, MESSAGES))
UNKNOWN = msgspec.msgpack.encode({"type": "Refused", "id": 1, "kind": "", "message": "", "more": 2})


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_messages_are_whole_however_the_stream_is_cut(cuts):
    replies, found, at = Replies(), [], 0
    for cut in sorted({*cuts, len(STREAM)}):
        found += replies.feed(STREAM[at:cut])
        at = cut
    assert found == MESSAGES


@pytest.mark.parametrize(
    "data",
    [pack("<I", 1 << 23), pack("<I", 4) + b"junk", pack("<I", len(UNKNOWN)) + UNKNOWN],
    ids=["too-large", "junk", "unknown-field"],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(ValueError, match=r"larger than a channel takes|a message is wrong"):
        Replies().feed(data)


def test_any_number_of_evicted_buffers_fits_into_messages():
    keys = [("\U0001f600" * 256, chr(200 + i // 250) * 256) for i in range(2500)]
    messages = list(evictions(keys))
    assert Replies().feed(b"".join(map(frame, messages))) == messages
    assert [key for message in messages for key in message.buffers] == keys


def test_process_reads_what_its_parent_sends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(frame(Ask(7)) + frame(Forget(8, "t")))
        channel = Channel(theirs)
        assert [channel.receive(), channel.receive()] == [Ask(7), Forget(8, "t")]
        channel.send(Refused(7, "build", "why"))
        assert Replies().feed(ours.recv(1000)) == [Refused(7, "build", "why")]
        ours.close()
        assert channel.receive() is None


@pytest.mark.parametrize("has_memfd", [True, False])
def test_what_one_side_writes_into_a_slot_the_other_side_reads_however_often_it_grows(monkeypatch, has_memfd):
    if not has_memfd:  # as on other systems than Linux
        monkeypatch.delattr(os, "memfd_create", raising=False)
    ours = Slot()
    theirs = Slot(ours.descriptor)
    for size in (10, 70_000, 40_000_000, 20):
        ours.grow(size)[:] = bytes(range(10)) * (size // 10)
        assert theirs.view(size)[-1] == 9
        theirs.view(size)[:3] = 7
        assert bytes(ours.grow(size)[:4]) == b"\x07\x07\x07\x03"
        ours.settle()  # more than is kept is given back
    ours.close()


def test_view_of_a_slot_outlives_it():
    slot = Slot()
    slot.grow(100)[:] = b"x" * 100
    view = slot.view(100)
    slot.close()
    np.testing.assert_array_equal(view, np.full(100, ord("x"), np.uint8))


def test_board_says_what_runs_and_since_when():
    ours = Board()
    assert ours.read() == (0, 0.0)
    theirs = Board(ours.descriptor)
    theirs.begin(5, 2.5)
    assert ours.read() == (5, 2.5)
    ours.close()
