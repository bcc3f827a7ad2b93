"""A process with some of the agents: `python -m fairlead.policy.simppo.host`, started by the scaler (`hosts`).

Reads frames from its standard input and answers on its standard output; ends when its input does, and so with the
scaler. It needs NumPy and the checkpoint, and nothing of the cluster.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from fairlead.policy.simppo.agents import Networks
from fairlead.policy.simppo.checkpoint import read_checkpoint
from fairlead.policy.simppo.frames import HELLO, Answer, Assignment, Inbox, Question, framed


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the scaler's business, which then closes the input
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not get between the frames
    bodies = _bodies(0)
    assignment = msgspec.msgpack.decode(next(bodies, b""), type=Assignment)
    checkpoint = read_checkpoint(Path(assignment.checkpoint))
    rng = None if assignment.seed is None else np.random.default_rng(assignment.seed)
    agents = Networks(checkpoint, np.array(assignment.numbers, np.intp), rng)
    rows, actions = len(assignment.numbers), checkpoint.description.actions
    _send(out, Answer(period=HELLO, actions=()))
    for body in bodies:
        question = msgspec.msgpack.decode(body, type=Question)
        seen = np.frombuffer(question.seen, np.float32).reshape(rows, checkpoint.description.encoding.size)
        allowed = np.frombuffer(question.allowed, np.bool_).reshape(rows, actions)
        chosen = agents.choose(seen, allowed)
        _send(out, Answer(period=question.period, actions=tuple(chosen.tolist())))


def _bodies(source: int) -> Iterator[bytes]:
    inbox = Inbox()
    while part := os.read(source, 1 << 16):
        yield from inbox.add(part)


def _send(out: int, answer: Answer) -> None:
    left = framed(answer)
    while left:
        left = left[os.write(out, left) :]


if __name__ == "__main__":
    main()
