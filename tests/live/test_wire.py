"""The channel: frames survive any cutting, nonsense is refused."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.live.values import Result
from fairlead.engine.live.wire import Batch, Begin, Channel, Done, Frames, Ready, frame, order, report


def test_frames_are_cut_out_of_any_pieces():
    messages = [frame(Done(i, 0.5, (Result(True, b"x" * i),))) for i in range(5)]
    stream = b"".join(messages)
    frames = Frames()
    bodies = [body for i in range(0, len(stream), 3) for body in frames.feed(stream[i : i + 3])]
    assert [report(body) for body in bodies] == [Done(i, 0.5, (Result(True, b"x" * i),)) for i in range(5)]


@given(st.lists(st.binary(max_size=50), max_size=10), st.integers(1, 17))
def test_no_cutting_changes_what_arrives(payloads, step):
    stream = b"".join(frame(Batch(i, ("w/s",), (payload,))) for i, payload in enumerate(payloads))
    frames = Frames()
    bodies = [body for i in range(0, len(stream), step) for body in frames.feed(stream[i : i + step])]
    assert [order(body).inputs for body in bodies] == [[payload] for payload in payloads]


def test_a_frame_that_is_too_large_is_refused_before_it_is_read():
    with pytest.raises(ValueError, match="larger than a channel takes"):
        Frames().feed(struct.pack("<I", 1 << 30))


def test_values_keep_their_kind():
    values = [b"inline", "12-3", [b"a", ["12-4", b"b"]]]
    decoded = order(frame(Batch(1, ("w/a", "w/b", "w/c"), values))[4:])
    assert decoded.inputs == values


def test_a_channel_ends_with_its_other_end():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(theirs)
        ours.sendall(frame(Begin("app.py", "f", "folder")) + frame(Batch(7, (), ())))
        assert channel.receive() == Begin("app.py", "f", "folder")
        received = channel.receive()
        assert isinstance(received, Batch)
        assert received.batch == 7
        channel.send(Ready(0.1, 0.2))
        assert report(ours.recv(1000)[4:]) == Ready(0.1, 0.2)
        ours.shutdown(socket.SHUT_WR)
        assert channel.receive() is None
