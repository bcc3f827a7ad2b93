"""The channel of an executor: whole messages from any cut of the stream, and nothing too large or unknown."""

import socket
from struct import pack

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kaas.wire import MOST_PAYLOAD, Ask, Channel, Counts, Done, Refused, Replies, Running, Timings, head

MESSAGES = [
    (Running(1), b""),
    (Done(1, Timings(run_s=0.5), Counts(hits=2)), b"outputs"),
    (Refused(2, "build", "why"), b""),
    (Done(3, Timings(), Counts()), bytes(range(256)) * 20),
]
STREAM = b"".join(head(message, len(payload)) + payload for message, payload in MESSAGES)


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_messages_are_whole_however_the_stream_is_cut(cuts):
    replies, found, at = Replies(), [], 0
    for cut in sorted({*cuts, len(STREAM)}):
        found += [(reply, bytes(payload)) for reply, payload in replies.feed(STREAM[at:cut])]
        at = cut
    assert found == MESSAGES


@pytest.mark.parametrize(
    "data",
    [
        pack("<IQ", 1 << 21, 0),
        pack("<IQ", 10, MOST_PAYLOAD + 1),
        pack("<IQ", 4, 0) + b"junk",
        pack("<IQ", len(msgspec.msgpack.encode({"type": "Running", "id": 1, "more": 2})), 0)
        + msgspec.msgpack.encode({"type": "Running", "id": 1, "more": 2}),
    ],
    ids=["header-too-large", "payload-too-large", "junk", "unknown-field"],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(ValueError, match=r"larger than a channel takes|a message is wrong"):
        Replies().feed(data)


def test_process_reads_what_its_parent_sends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(head(Ask(7), 3) + b"abc")
        order, payload = Channel(theirs).receive()
        assert order == Ask(7)
        assert payload.tobytes() == b"abc"
        Channel(theirs).send(Refused(7, "build", "why"), np.frombuffer(b"xyz", np.uint8))
        ((reply, body),) = Replies().feed(ours.recv(1000))
        assert (reply, bytes(body)) == (Refused(7, "build", "why"), b"xyz")
        ours.close()
        assert Channel(theirs).receive() is None
